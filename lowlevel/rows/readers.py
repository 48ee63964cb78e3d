"""Readers: convert blocks of records into columns with the rows of one kind."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.files.interfaces import REPLACED_TIME_CAUSES
from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from capture.metrics import (
    DECODED_BY_FALLBACK,
    PACKETS_DECODED,
    RECORDS_SKIPPED,
    REFUSED_BY_FALLBACK,
    TIMES_REPLACED,
    Samples,
)
from capture.packets.columns import FRAME_COLUMNS, PACKET_COLUMNS
from capture.packets.decoder import Decoder
from capture.packets.fallback import Fallback
from capture.packets.fields import SKIP_CAUSES
from lowlevel.expressions.columns import Columns
from lowlevel.kinds import KINDS
from lowlevel.rows.packet_columns import Interfaces, PacketColumns


@dataclass(frozen=True, slots=True)
class PacketRows:
    """The packets or frames of a block. Implements `Rows`."""

    count: int
    earliest: int
    columns: PacketColumns
    arrivals: None = None
    exports: None = None


class FrameReader:
    """Reader of rows of the kind `frames`: one row per record, with its ts.

    A watermark of records is also a watermark of rows.
    """

    has_record_watermarks = True
    kind = "frames"
    every_frame = True
    specs = FRAME_COLUMNS

    def __init__(self, link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> None:
        """Prepare to read `columns`. `capacity`: maximum number of records in a block."""
        self.link = link
        self.capture = capture
        self.fallback = Fallback()
        self.decoder = Decoder(capture, columns, capacity, self.every_frame, self.fallback)
        self.interfaces = Interfaces(capture)
        self.rows = 0

    def read(self, block: Block) -> Iterator[PacketRows]:
        """Decode one block."""
        packets = self.decoder.decode(block)
        self.rows += packets.row_count
        columns = PacketColumns(self.link, packets, self.capture, self.specs, self.interfaces)
        yield PacketRows(packets.row_count, block.min_ts, columns)

    waits = False
    sets_waiting = 0

    def finish(self) -> Iterator[PacketRows]:
        """Yield nothing, because no record waits."""
        return iter(())

    def samples(self) -> Samples:
        """Return the counters of replaced times (by cause) and of the fallback decoder.

        The node counts the rows, because every record is a row.
        """
        samples = Samples()
        for header, count in self.fallback.decoded.items():
            samples.add(DECODED_BY_FALLBACK, count, self.link, header)
        for cause, count in self.fallback.refused.items():
            if count:
                samples.add(REFUSED_BY_FALLBACK, count, self.link, cause)
        for cause, count in zip(REPLACED_TIME_CAUSES, self.decoder.replaced_time_counts.tolist(), strict=True):
            if count:
                samples.add(TIMES_REPLACED, count, self.link, self.kind, cause)
        return samples


class PacketReader(FrameReader):
    """Reader of rows of the kind `packets`: records that contain an IP packet with readable addresses."""

    kind = "packets"
    every_frame = False
    specs = PACKET_COLUMNS

    def samples(self) -> Samples:
        """Return the counters of FrameReader, of decoded records, and of skipped records by cause."""
        samples = super().samples()
        samples.add(PACKETS_DECODED, self.rows, self.link)
        for cause, count in zip(SKIP_CAUSES, self.decoder.skipped.tolist(), strict=True):
            samples.add(RECORDS_SKIPPED, count, self.link, cause)
        return samples


class Exports(Protocol):
    """The exports of exporters that number their datagrams."""

    def complete_until(self, lost_after: int) -> int:
        """Return the time (ns) before which all exports have arrived, except those that are lost; 0 if unknown."""
        ...


class Rows(Protocol):
    """A batch of rows of one kind, as columns. The batch is valid until the next call of the reader."""

    @property
    def count(self) -> int:
        """The number of rows."""
        ...

    @property
    def earliest(self) -> int:
        """A lower bound of the ts of all rows, ns."""
        ...

    @property
    def arrivals(self) -> npt.NDArray[np.int64] | None:
        """The arrival time of each row in ns, from another clock than its ts; None if rows have no arrival time."""
        ...

    @property
    def exports(self) -> Exports | None:
        """The exports up to the datagrams of these rows; None if the rows are not from exports."""
        ...

    @property
    def columns(self) -> Columns:
        """The requested columns: `count` values each, or a constant. `ts` is a `Vector` of `count` int64 values."""
        ...


class RowReader(Protocol):
    """Converts the blocks of one capture, in order, into rows of one kind. Not thread safe.

    Constructor arguments: the name of the link, the capture, the names of the columns (with `ts`), and `capacity`, the
    maximum number of records in a block and of rows in a batch.
    """

    @property
    def has_record_watermarks(self) -> bool:
        """True if a watermark of records is also a watermark of rows: no later row has a smaller ts."""
        ...

    def read(self, block: Block) -> Iterator[Rows]:
        """Decode one block."""
        ...

    @property
    def waits(self) -> bool:
        """True if records wait for templates in other files of the link, so that rows with any ts may follow."""
        ...

    @property
    def sets_waiting(self) -> int:
        """Number of sets of flow records that wait for their template."""
        ...

    def finish(self) -> Iterator[Rows]:
        """Decode the waiting records. Call this at the end of the capture."""
        ...

    def samples(self) -> Samples:
        """Return the counters, without the records and bytes that the node counts."""
        ...


def make_reader(
    kind: str,
    link: str,
    capture: AnyCapture,
    columns: Collection[str],
    capacity: int,
    sampling: FixedRates | None = None,
    files: Sequence[Path] = (),
) -> RowReader:
    """Create the reader of a kind. Raises ValueError for an unknown kind.

    `sampling` (rates that override announced rates) and `files` (all files of the link) are used only for flows.
    """
    match kind:
        case "packets":
            return PacketReader(link, capture, columns, capacity)
        case "frames":
            return FrameReader(link, capture, columns, capacity)
        case "flows":
            from lowlevel.flow_recording import Recording
            from lowlevel.rows.flows import FlowReader

            recording = Recording(capture.path, files) if len(files) > 1 else None
            return FlowReader(link, capture, columns, capacity, sampling, recording)
        case "samples":
            from lowlevel.rows.samples import SampleReader

            return SampleReader(link, capture, columns, capacity)
    raise ValueError(f"no reader makes rows of the kind {kind}; the kinds are {', '.join(KINDS)}")
