"""Decode blocks into columns. `Decoder` owns the buffers into which the decode kernels write."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from capture.column_matrix import column_matrix
from capture.errors import InputError
from capture.files.blocks import Block
from capture.files.capture import AnyCapture
from capture.files.interfaces import REPLACED_TIME_CAUSES
from capture.files.messages import ExportFormat
from capture.files.pcapng import PcapngFormat
from capture.files.ring_frames import RingFormat
from capture.lazy_dataclasses import dataclass
from capture.native import pointer
from capture.packets.decode_kernels import decode_pcap, decode_pcapng, decode_ring
from capture.packets.fallback import Fallback, counts_with_room, take_candidates
from capture.packets.fields import (
    CANDIDATE_COUNT_INDEX,
    CANDIDATE_FIELDS,
    DEST_HIGH,
    FIELDS,
    INNER_FIELDS,
    OTHER_ROWS_INDEX,
    PHYSICAL_COLUMNS,
    ROWS,
    SRC_HIGH,
    VERSION,
)


@dataclass(frozen=True)
class Packets:
    """Decoded rows: the first `row_count` columns of the matrix. They are valid until the next call of the decoder.

    `has_only_ipv4`: True if all decoded addresses of all layers are IPv4.
    """

    matrix: npt.NDArray[np.int64]
    row_count: int
    has_only_ipv4: bool

    def field(self, name: str) -> npt.NDArray[np.int64]:
        """Return one physical column. NULL is -1. Addresses are bit patterns of unsigned integers."""
        return self.matrix[ROWS[name], : self.row_count]


class Decoder:
    """Decodes the blocks of one file into buffers of fixed size. Not thread safe.

    Memory: len(FIELDS) x capacity x 8 bytes, and the padding of columns (`capture.column_matrix`). If a column of the
    inner layer is requested, len(INNER_FIELDS) x capacity x 8 bytes more.
    """

    def __init__(
        self,
        file: AnyCapture,
        columns: Iterable[str],
        capacity: int,
        every_frame: bool = False,
        fallback: Fallback | None = None,
    ) -> None:
        """Decode `columns` (column names of the stream) of blocks with up to `capacity` records.

        `every_frame`: each record becomes a row, as in the stream `frames`. `fallback`: decoder of frames whose
        headers the kernel does not support. If it is None, such frames are handled as frames without IP packet.
        """
        self.file = file
        self.every_frame = every_frame
        fields = {field for column in columns if column != "link" for field in PHYSICAL_COLUMNS.get(column, (column,))}
        self.mask = sum(1 << row for row, field in enumerate(FIELDS) if field in fields)
        self.inner_mask = sum(1 << row for row, field in enumerate(INNER_FIELDS) if field in fields)
        unknown = fields - ROWS.keys()
        if unknown:
            raise ValueError(f"got the columns {', '.join(sorted(unknown))}, expected some of {', '.join(ROWS)}")
        self.capacity = capacity
        self.matrix = column_matrix(len(ROWS) if self.inner_mask else len(FIELDS), capacity)
        self.matrix[VERSION] = 4
        self.fallback = fallback
        self.counts = counts_with_room(capacity if fallback else 0)
        self.skipped = self.counts[:OTHER_ROWS_INDEX]
        self.replaced_time_counts = np.zeros(len(REPLACED_TIME_CAUSES), np.int64)
        self.has_only_ipv4 = True  # all addresses of the last block
        self.out = pointer(self.matrix.reshape(-1), "i64")
        self.counts_address = pointer(self.counts, "i64")

    def decode(self, block: Block) -> Packets:
        """Decode one block. Records without readable IP packet are counted in `skipped`, or are rows if `every_frame`.

        `replaced_time_counts` counts the records whose ts was replaced, by cause as in REPLACED_TIME_CAUSES.

        Raises ValueError if the block has more than `capacity` records: the kernel would write beyond the buffers.
        """
        if block.records > self.capacity:
            raise ValueError(
                f"got a block of {block.records} records, expected at most {self.capacity}: scan in smaller blocks"
            )
        packets = self._packets(lambda: self._decode(block, self.matrix.shape[1]))
        if self.fallback is None or not self.counts[CANDIDATE_COUNT_INDEX]:
            return packets
        return self._insert_candidates(packets, self.fallback)

    def _insert_candidates(self, packets: Packets, fallback: Fallback) -> Packets:
        """Insert the rows of candidates in which the fallback decoder finds an IP packet, in record order."""
        candidates = take_candidates(self.counts)
        decoded = fallback.decode(self.file.data, candidates, self.mask, self.inner_mask, len(self.matrix))
        if not self.every_frame:
            causes = np.bincount(candidates[:, CANDIDATE_FIELDS.index("cause")], minlength=OTHER_ROWS_INDEX)
            self.skipped += decoded.skipped - causes
        if not len(decoded.candidates):
            return packets
        positions = candidates[decoded.candidates, CANDIDATE_FIELDS.index("row")]
        rows = packets.row_count
        if not self.every_frame:
            first = int(positions[0])
            moved_rows = np.arange(first, rows)
            self.matrix[:, moved_rows + np.searchsorted(positions, moved_rows, side="right")] = self.matrix[
                :, first:rows
            ].copy()
            positions = positions + np.arange(len(positions))
            rows += len(positions)
        self.matrix[:, positions] = decoded.matrix
        self.has_only_ipv4 = self.has_only_ipv4 and decoded.has_only_ipv4
        return Packets(self.matrix, rows, self.has_only_ipv4)

    def _packets(self, decode: Callable[[], int]) -> Packets:
        """Reset the buffers, then call `decode`, which runs a kernel and returns the number of rows."""
        if not self.has_only_ipv4:
            # The kernel writes these columns only for IPv6. This saves three stores for each IPv4 packet.
            self.matrix[VERSION] = 4
            self.matrix[SRC_HIGH] = self.matrix[DEST_HIGH] = 0
        other_rows_before = int(self.counts[OTHER_ROWS_INDEX])
        rows = decode()
        self.has_only_ipv4 = int(self.counts[OTHER_ROWS_INDEX]) == other_rows_before
        return Packets(self.matrix, rows, self.has_only_ipv4)

    def _decode(self, block: Block, stride: int) -> int:
        """Call the kernel of the block's record format. Return the number of rows."""
        form = self.file.format
        if isinstance(form, ExportFormat):
            path = self.file.path
            raise InputError(f"{path}: got bare export datagrams, expected packets: only the stream flows reads them")
        if isinstance(form, PcapngFormat):
            return decode_pcapng(
                self.file.data, block.start, block.end, block.records, block.section, form.interfaces,
                len(form.interface_names), self.mask, self.inner_mask, self.every_frame, self.out, stride,
                self.counts, self.replaced_time_counts,
            )  # fmt: skip
        if isinstance(form, RingFormat):
            return decode_ring(
                self.file.data, block.start, block.end, block.records, form.link_type, self.mask, self.inner_mask,
                self.every_frame, self.out, stride, self.counts,
            )  # fmt: skip
        return decode_pcap.at(
            pointer(self.file.data, "u8"), block.start, block.records, form.big_endian, form.unit, form.record_header,
            form.length_order, form.link_type, self.mask, self.inner_mask, self.every_frame, self.out, stride,
            self.counts_address,
        )  # fmt: skip
