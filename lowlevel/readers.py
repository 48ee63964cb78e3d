"""What reads a link for the low level: a reader for each kind of rows, blocks in and columns out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.metrics import Samples
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

    def samples(self) -> Samples:
        """Return what was counted so far, beyond the records and bytes that the node counts."""
        ...


def _flow_reader(link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> RowReader:
    from lowlevel.flow_reader import FlowReader  # most queries have no use for what it brings with it

    return FlowReader(link, capture, columns, capacity)


def _sample_reader(link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> RowReader:
    from lowlevel.sample_reader import SampleReader

    return SampleReader(link, capture, columns, capacity)


READERS: dict[str, Callable[[str, AnyCapture, Collection[str], int], RowReader]] = {
    "packets": PacketReader,
    "frames": FrameReader,
    "flows": _flow_reader,
    "samples": _sample_reader,
}
"""How a reader is made, by kind of rows."""


def make_reader(kind: str, link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> RowReader:
    """Make the reader of one kind; ValueError where there is none."""
    if kind not in READERS:
        raise ValueError(f"no reader makes rows of the kind {kind}; the kinds are {', '.join(READERS)}")
    return READERS[kind](link, capture, columns, capacity)
