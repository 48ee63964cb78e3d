"""Blocks: runs of whole records, the unit in which every capture is read, and the index of a whole file's blocks."""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_RECORDS = 16_384
"""Records in a block: its decoded columns fit the second-level cache."""

END_OF_FILE = 2**63 - 1
"""The low watermark after the last block."""

NO_PROMISE = -(2**63)
"""The low watermark of one who knows nothing of what follows: a stream, which is read once."""

WHOLE, MORE, CUT_HEADER, CUT_RECORD, BAD_LENGTH = 0, 1, 2, 3, 4
BAD_SECTION, BAD_INTERFACE, UNKNOWN_INTERFACE, TOO_MANY_INTERFACES = 5, 6, 7, 8
DAMAGE = {
    CUT_HEADER: "cut_in_record_header",
    CUT_RECORD: "cut_in_record",
    BAD_LENGTH: "impossible_record_length",
    BAD_SECTION: "bad_section_header",
    BAD_INTERFACE: "bad_interface_description",
    UNKNOWN_INTERFACE: "unknown_interface",
    TOO_MANY_INTERFACES: "too_many_interfaces",
}
"""What can stand where a record should: the rest of the file is then not read."""

MENDED_BY_BYTES = (WHOLE, CUT_HEADER, CUT_RECORD)
"""Ends of a walk that more bytes may move; every other is final, whatever follows."""

CUTS = frozenset({DAMAGE[CUT_HEADER], DAMAGE[CUT_RECORD]})
"""Damage that is nothing but a record without its end."""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of whole records: bytes `[start, end)`, how many records, their smallest and largest ts (ns), and `low`.

    `low` is the low watermark after the block: no later record of the input has a ts below it (NO_PROMISE where nobody
    can know). `section` is what the format needs to know beside the bytes: of pcapng the number of its section's first
    interface and its byte order, of classic pcap always 0. A block never straddles sections.
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
