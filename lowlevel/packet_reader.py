"""The readers of the kinds `packets` and `frames`: the records of a block are one batch of rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.files.interfaces import RETIMED
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
from capture.packets.fields import SKIPPED
from lowlevel.packet_columns import Interfaces, PacketColumns


@dataclass(frozen=True, slots=True)
class PacketRows:
    """The packets or frames of one block."""

    count: int
    earliest: int
    columns: PacketColumns
    arrivals: None = None


class FrameReader:
    """Rows of the kind `frames`: each record is one. Its ts is the record's, so that a block's `low` holds for rows."""

    exact_low = True
    kind = "frames"
    every_frame = True
    specs = FRAME_COLUMNS

    def __init__(self, link: str, capture: AnyCapture, columns: Collection[str], capacity: int) -> None:
        """Read `columns` of blocks of up to `capacity` records."""
        self.link = link
        self.capture = capture
        self.fallback = Fallback()
        self.decoder = Decoder(capture, columns, capacity, self.every_frame, self.fallback)
        self.interfaces = Interfaces(capture)
        self.rows = 0

    def read(self, block: Block) -> Iterator[PacketRows]:
        """Decode one block."""
        packets = self.decoder.decode(block)
        self.rows += packets.rows
        columns = PacketColumns(self.link, packets, self.capture, self.specs, self.interfaces)
        yield PacketRows(packets.rows, block.first, columns)

    waits = False

    def finish(self) -> Iterator[PacketRows]:
        """Return nothing: every record is a row of its own."""
        return iter(())

    def samples(self) -> Samples:
        """Return by cause how many times are not the capture's, and what the fall-back decoder counted.

        Every record is a row, and the node counts them.
        """
        samples = Samples()
        for header, count in self.fallback.decoded.items():
            samples.add(DECODED_BY_FALLBACK, count, self.link, header)
        for cause, count in self.fallback.refused.items():
            if count:
                samples.add(REFUSED_BY_FALLBACK, count, self.link, cause)
        for cause, count in zip(RETIMED, self.decoder.retimed.tolist(), strict=True):
            if count:
                samples.add(TIMES_REPLACED, count, self.link, self.kind, cause)
        return samples


class PacketReader(FrameReader):
    """Rows of the kind `packets`: records that hold an IP packet with readable addresses."""

    kind = "packets"
    every_frame = False
    specs = PACKET_COLUMNS

    def samples(self) -> Samples:
        """Return how many records became rows, and by cause how many did not; and what FrameReader does."""
        samples = super().samples()
        samples.add(PACKETS_DECODED, self.rows, self.link)
        for cause, count in zip(SKIPPED, self.decoder.skipped.tolist(), strict=True):
            samples.add(RECORDS_SKIPPED, count, self.link, cause)
        return samples
