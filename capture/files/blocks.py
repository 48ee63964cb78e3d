"""Blocks: runs of whole records, the unit in which every capture is read, and the index of a whole file's blocks."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_RECORDS = 16_384
"""Records in a block: its decoded columns fit the second-level cache."""

END_OF_FILE = 2**63 - 1
"""The low watermark after the last block."""

WHOLE, MORE, CUT_HEADER, CUT_RECORD, BAD_LENGTH = 0, 1, 2, 3, 4
DAMAGE = {
    CUT_HEADER: "cut_in_record_header",
    CUT_RECORD: "cut_in_record",
    BAD_LENGTH: "impossible_record_length",
}
"""What can stand where a record should: the rest of the file is then not read."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole records: bytes `[start, end)`, how many records, their smallest and largest ts (ns), and `low`.

    `low` is the low watermark after the block: no later record of the input has a ts below it. `section` is what the
    format needs to know beside the bytes: of pcapng the number of the section, of classic pcap always 0.
    """

    start: int
    end: int
    records: int
    first: int
    last: int
    low: int
    section: int = 0


@dataclass(frozen=True)
class Index:
    """The blocks of one capture and how it ends: `damage` is None, or one of the causes of DAMAGE."""

    blocks: list[Block]
    damage: str | None

    @property
    def records(self) -> int:
        """Whole records in the file."""
        return sum(block.records for block in self.blocks)

    @property
    def low(self) -> int:
        """The low watermark before the first block: the smallest ts of the file."""
        return min((block.first for block in self.blocks), default=END_OF_FILE)
