"""What reads a link for the low level: a reader for each kind of rows, blocks in and columns out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.flows.sampling import HandRates
from capture.metrics import Samples
from lowlevel.kinds import KINDS
from lowlevel.packet_reader import FrameReader, PacketReader
from lowlevel.vectors import Columns


class Rows(Protocol):
    """Some rows of one kind, as columns. Valid until the reader is asked for the next."""

    @property
    def count(self) -> int:
        """How many rows."""
        ...

    @property
    def earliest(self) -> int:
        """A bound, ns: no row has a smaller ts."""
        ...

    @property
    def arrivals(self) -> npt.NDArray[np.int64] | None:
        """When each row was seen to arrive, ns, by another clock than its ts; None where there is none."""
        ...

    @property
    def columns(self) -> Columns:
        """The columns asked for, of `count` values each or constant. `ts` is a `Vector` of `count` int64 values."""
        ...


class RowReader(Protocol):
    """Turns the blocks of one capture, in order, into rows of one kind. Not thread safe.

    It is made with the link's name, the capture, the names of the columns wanted (`ts` among them) and `capacity`: the
    largest number of records in a block, and the largest `count` of rows it may hand out at once.
    """

    @property
    def exact_low(self) -> bool:
        """Whether a block's `low` holds for rows: no later row's ts is below it."""
        ...

    def read(self, block: Block) -> Iterator[Rows]:
        """Decode one block."""
        ...

    @property
    def waits(self) -> bool:
        """Whether records wait for the other files of the link, so that rows of any ts may follow."""
        ...

    def finish(self) -> Iterator[Rows]:
        """Read what waits, at the end of the capture; after it nothing waits."""
        ...

    def samples(self) -> Samples:
        """Return what was counted so far, beyond the records and bytes that the node counts."""
        ...


def make_reader(
    kind: str,
    link: str,
    capture: AnyCapture,
    columns: Collection[str],
    capacity: int,
    sampling: HandRates | None = None,
    files: Sequence[Path] = (),
) -> RowReader:
    """Make the reader of one kind; ValueError where there is none.

    `sampling` and `files`, all files of the link if it has several, are for flows only.
    """
    match kind:
        case "packets":
            return PacketReader(link, capture, columns, capacity)
        case "frames":
            return FrameReader(link, capture, columns, capacity)
        case "flows":
            from lowlevel.flow_reader import FlowReader  # most queries have no use for what it brings with it
            from lowlevel.flow_recording import Recording

            recording = Recording(capture.path, files) if len(files) > 1 else None
            return FlowReader(link, capture, columns, capacity, sampling, recording)
        case "samples":
            from lowlevel.sample_reader import SampleReader

            return SampleReader(link, capture, columns, capacity)
    raise ValueError(f"no reader makes rows of the kind {kind}; the kinds are {', '.join(KINDS)}")
