"""What a container of records offers to those that read it, from a map of a whole file or a stream's chunks."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.files.blocks import MORE

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

        `rows` (blocks x ROW, `capture.files.block_row`) takes the descriptions; returns how many there are. The state
        moves on; its status MORE asks to be called again, WHOLE means that the walk ended with the bytes, and a cause
        of DAMAGE that what follows is no whole record: damage in a file that ends there, for a cause of
        MENDED_BY_BYTES a wish for more bytes in a stream.
        """
        ...
