"""Files of bare export datagrams: messages of NetFlow and IPFIX back to back, as a collector received them.

An IPFIX file (RFC 5655) is one, and so is the payload of a datagram saved by itself. Such a file says neither who sent
a message nor when it came: its time is that of its header, its sender NULL. NetFlow v5, v7 and IPFIX say how long a
message is. One of v9 does not: it goes on, set by set, until a header follows, whose version is the number of no set,
or zeros to fill it up. The last message of a file has what is left of it, however much it says it should.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.files.record_format import WalkState

VERSIONS = (5, 7, 9, 10)
"""What a message begins with, as two bytes."""

SHORTEST_HEADER = 16


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A RecordFormat whose records are messages; nothing stands before the first."""

    @property
    def first_record(self) -> int:
        """Offset of the first message."""
        return 0

    @property
    def interface_names(self) -> list[str]:
        """One interface without a name."""
        return ["0"]

    def walk(
        self, data: npt.NDArray[np.uint8], end: int, records: int, rows: npt.NDArray[np.int64], state: WalkState
    ) -> int:
        """Walk whole messages, as RecordFormat says; `data` is the whole file."""
        from capture.files.messages import walk_messages  # most captures have no use for its kernels

        return walk_messages(data, end, len(data), records, len(rows), rows.reshape(-1), state.words)


def is_export_file(head: bytes) -> bool:
    """Whether a file that begins with these bytes can be one of export datagrams."""
    return len(head) >= SHORTEST_HEADER and int.from_bytes(head[:2], "big") in VERSIONS
