"""Blocks: ranges of whole records, the unit in which captures are read, and the index of all blocks of a file."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from capture.native import helper

BLOCK_WORDS = 6
"""Words of a row that describes a block: start, end, records, smallest ts, largest ts, section (see Block)."""


@helper
def put_block_row(rows, block, start, end, records, min_ts, max_ts, section):  # type: ignore[no-untyped-def]
    """Describe a block in row `block` of `rows` (BLOCK_WORDS words per row). Return the index of the next free row.

    A block without records is not written, so `block` is returned.
    """
    if records == 0:
        return block
    offset = block * BLOCK_WORDS
    rows[offset] = start
    rows[offset + 1] = end
    rows[offset + 2] = records
    rows[offset + 3] = min_ts
    rows[offset + 4] = max_ts
    rows[offset + 5] = section
    return block + 1


BLOCK_RECORDS = 16_384
"""Maximum number of records in a block. The decoded columns of a block then fit into the second-level cache."""

END_OF_FILE = 2**63 - 1
"""Watermark after the last block of a file."""

NO_WATERMARK = -(2**63)
"""Watermark of a block of a stream, for which the times of later records are unknown."""

END_OF_DATA, CONTINUE, TRUNCATED_HEADER, TRUNCATED_RECORD, BAD_LENGTH = 0, 1, 2, 3, 4
BAD_SECTION, BAD_INTERFACE, UNKNOWN_INTERFACE, TOO_MANY_INTERFACES = 5, 6, 7, 8
"""Statuses of a walk: the reason why it stopped. `RecordFormat.walk` explains the first two."""

DAMAGE = {
    TRUNCATED_HEADER: "cut_in_record_header",
    TRUNCATED_RECORD: "cut_in_record",
    BAD_LENGTH: "impossible_record_length",
    BAD_SECTION: "bad_section_header",
    BAD_INTERFACE: "bad_interface_description",
    UNKNOWN_INTERFACE: "unknown_interface",
    TOO_MANY_INTERFACES: "too_many_interfaces",
}
"""Names of damage by the status of the walk. A walk stops at damage, so the rest of the file is not read."""

RETRY_WITH_MORE_BYTES = (END_OF_DATA, TRUNCATED_HEADER, TRUNCATED_RECORD)
"""Statuses of a walk that may change when more bytes arrive. All other statuses are final."""

TRUNCATIONS = frozenset({DAMAGE[TRUNCATED_HEADER], DAMAGE[TRUNCATED_RECORD]})
"""Names of the kinds of damage that mean only a truncated last record."""


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive whole records: bytes `[start, end)`, number of records, smallest and largest ts (ns), watermark.

    `watermark`: watermark after the block: no later record of the input has a smaller ts. NO_WATERMARK if unknown.
    `section`: state that the decoder needs to read the bytes. For pcapng it is twice the number of the section's first
    interface, plus 1 for big-endian; for other formats it is 0. A block never spans two sections.
    """

    start: int
    end: int
    records: int
    min_ts: int
    max_ts: int
    watermark: int
    section: int = 0


@dataclass(frozen=True)
class Index:
    """All blocks of a capture. `damage`: the name (from DAMAGE) of the damage after the last block, or None.

    `is_exact`: no record of a block is older than the watermark before the block.
    """

    blocks: list[Block]
    damage: str | None
    is_exact: bool = True

    @property
    def records(self) -> int:
        """Whole records in the file."""
        return sum(block.records for block in self.blocks)

    @property
    def watermark(self) -> int:
        """Watermark before the first block: the smallest ts of the file."""
        return min((block.min_ts for block in self.blocks), default=END_OF_FILE)


NO_SECTION = -1
"""Section of a walk that has not yet read a section header."""


class WalkState:
    """State of a walk over records: the offset of the next record and the reason why the walk stopped.

    Only pcapng uses `section` (as in Block) and `interfaces`, the number of interfaces that the walk has passed. A walk
    can continue from any earlier state, also in another process.
    """

    def __init__(self, offset: int, section: int = NO_SECTION, interfaces: int = 0) -> None:
        """Begin at `offset`, the first byte of a record."""
        self.words = np.array([offset, CONTINUE, section, interfaces], np.int64)

    @property
    def offset(self) -> int:
        """Offset of the next record."""
        return int(self.words[0])

    @offset.setter
    def offset(self, offset: int) -> None:
        self.words[0] = offset

    @property
    def status(self) -> int:
        """The status of the walk: END_OF_DATA, CONTINUE, or a key of DAMAGE."""
        return int(self.words[1])

    @status.setter
    def status(self, status: int) -> None:
        self.words[1] = status

    @property
    def section(self) -> int:
        """The section as in Block, or NO_SECTION."""
        return int(self.words[2])

    @property
    def interfaces(self) -> int:
        """Number of interfaces that the walk has passed."""
        return int(self.words[3])

    @interfaces.setter
    def interfaces(self, count: int) -> None:
        self.words[3] = count


class RecordFormat(Protocol):
    """A record format. Its walk may change it: the pcapng format collects the interfaces of the file."""

    @property
    def first_record(self) -> int:
        """Offset of the first byte after the file header."""
        ...

    @property
    def interface_names(self) -> list[str]:
        """Names of the known interfaces, by interface number. Several interfaces may have the same name."""
        ...

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, block_records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole records of `data[state.offset:end]` and describe blocks of up to `block_records` records.

        Writes one row per block to `rows` (blocks x BLOCK_WORDS) and returns the number of blocks. Moves `state` to the
        next record. Its status is then:

        * CONTINUE: `rows` is full; call again.
        * END_OF_DATA: the walk reached `end` at a record boundary.
        * a key of DAMAGE: no whole record follows. If the file ends at `end`, it is damaged. In a stream, a status in
          RETRY_WITH_MORE_BYTES means that more bytes are needed.
        """
        ...
