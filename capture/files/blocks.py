"""Blocks: runs of whole records, the unit in which every capture is read, and the index of a whole file's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.native import helper

ROW = 6
"""Words that describe a block: start, end, records, smallest ts, largest ts, section."""


@helper
def put_block_row(rows, block, start, end, records, first, last, section):  # type: ignore[no-untyped-def]
    """Describe the block of number `block` in `rows`, one of ROW words after the other; return the next number.

    A block without records is none: nothing is written, and `block` is returned.
    """
    if records == 0:
        return block
    at = block * ROW
    rows[at] = start
    rows[at + 1] = end
    rows[at + 2] = records
    rows[at + 3] = first
    rows[at + 4] = last
    rows[at + 5] = section
    return block + 1


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


NO_SECTION = -1
"""The section of a walk that has met none."""


class WalkState:
    """Where a walk over records stands: the offset of the next record, and why it stopped (MORE: it may go on).

    `section` and `interfaces` are what a format with sections knows there: the section as in Block, and how many
    interfaces of the input have been met. A walk may go on from any state it once had, also in another process.
    """

    def __init__(self, at: int, section: int = NO_SECTION, interfaces: int = 0) -> None:
        """Stand at the first byte of a record."""
        self.words = np.array([at, MORE, section, interfaces], np.int64)

    @property
    def at(self) -> int:
        """Offset of the next record."""
        return int(self.words[0])

    @at.setter
    def at(self, offset: int) -> None:
        self.words[0] = offset

    @property
    def status(self) -> int:
        """WHOLE, MORE or a cause of DAMAGE."""
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
        """Interfaces of the input met so far."""
        return int(self.words[3])

    @interfaces.setter
    def interfaces(self, count: int) -> None:
        self.words[3] = count


class RecordFormat(Protocol):
    """How one capture's records are found. A format may learn while it walks (pcapng's sections and interfaces)."""

    @property
    def first_record(self) -> int:
        """Offset of what follows the file header."""
        ...

    @property
    def interface_names(self) -> list[str]:
        """Names of the interfaces known so far, by a packet's interface; several may have one name."""
        ...

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole records of `data[state.at:end]` and describe blocks of up to `records` records.

        `rows` (blocks x ROW, `capture.files.blocks`) takes the descriptions; returns how many there are. The state
        moves on; its status MORE asks to be called again, WHOLE means that the walk ended with the bytes, and a cause
        of DAMAGE that what follows is no whole record: damage in a file that ends there, for a cause of
        MENDED_BY_BYTES a wish for more bytes in a stream.
        """
        ...
