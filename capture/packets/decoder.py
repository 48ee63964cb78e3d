"""Blocks to columns: the buffers that the decode kernels fill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.files.blocks import Block
from capture.files.capture import Capture
from capture.native import pointer
from capture.packets.fields import DEST_HIGH, FIELDS, IPV6_ROWS, PHYSICAL, SKIPPED, SRC_HIGH, VERSION
from capture.packets.records import decode_pcap


@dataclass(frozen=True)
class Packets:
    """Decoded rows: the matrix's first `rows` columns hold them. Valid until the decoder's next call."""

    matrix: npt.NDArray[np.int64]
    rows: int
    only_ipv4: bool

    def field(self, name: str) -> npt.NDArray[np.int64]:
        """Return one physical column; NULL is -1. Addresses are bit patterns of unsigned numbers."""
        return self.matrix[FIELDS.index(name), : self.rows]


class Decoder:
    """Decodes blocks of one file into buffers of its own. Not thread safe.

    Memory is fixed: len(FIELDS) x capacity x 8 bytes, whatever the file's length.
    """

    def __init__(self, file: Capture, columns: Iterable[str], capacity: int) -> None:
        """Decode `columns` (names of the stream) of blocks with up to `capacity` records."""
        self.file = file
        self.matrix = np.zeros((len(FIELDS), capacity), np.int64)
        self.matrix[VERSION] = 4
        self.counts = np.zeros(len(SKIPPED) + 1, np.int64)
        self.skipped = self.counts[:IPV6_ROWS]
        self.only_ipv4 = True  # in the block decoded last
        wanted = {field for column in columns if column != "link" for field in PHYSICAL.get(column, (column,))}
        self.want = sum(1 << FIELDS.index(field) for field in wanted)
        self.out = pointer(self.matrix.reshape(-1), "i64")

    def decode(self, block: Block) -> Packets:
        """Decode one block. Records that hold no readable IP packet are counted in `skipped`.

        ValueError where the block has more records than the buffers have room for: the kernel would write behind them.
        """
        capacity = self.matrix.shape[1]
        if block.records > capacity:
            raise ValueError(
                f"got a block of {block.records} records, expected at most {capacity}: scan in smaller blocks"
            )
        if not self.only_ipv4:
            # The kernel writes these three for IPv6 alone: three stores fewer for nearly every packet.
            self.matrix[VERSION] = 4
            self.matrix[SRC_HIGH] = self.matrix[DEST_HIGH] = 0
        form = self.file.format
        before = int(self.counts[IPV6_ROWS])
        rows = decode_pcap(
            self.file.data, block.start, block.records, form.big_endian, form.unit, form.record_header,
            form.length_order, form.link_type, self.want, self.out, capacity, self.counts,
        )  # fmt: skip
        self.only_ipv4 = int(self.counts[IPV6_ROWS]) == before
        return Packets(self.matrix, rows, self.only_ipv4)
