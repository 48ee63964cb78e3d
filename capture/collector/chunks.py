"""Chunks: what the receiving thread hands to the writing one, and the bound of what may wait between them.

When the disk is slower than the network for a while, chunks fill up; when all are full, the receiver waits and the
datagrams stay in the socket's buffer, where the system counts those that find no room. So there is one place where
datagrams get lost, and one counter that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.collector.sockets import UdpSocket

# A batch: the datagrams of one look at a socket, as the receivers leave them and the recorder takes them.
#
# Payloads lie in slots that hold the longest datagram there is, so none is ever cut. What the system tells beside them
# is a row of int64 each, whichever receiver it comes from: the part that depends on the system ends here.


BATCH = 256
"""Datagrams taken at a time."""

SLOT = 65_536
"""Bytes of a slot: more than 65 527, the longest payload of UDP without jumbograms."""

STRIDE = SLOT + 192
"""Bytes from slot to slot: at a power of two all of them would fall into the same few sets of the cache."""

LENGTH, TIME, VERSION, SRC_HIGH, SRC_LOW, SRC_PORT, DEST_HIGH, DEST_LOW, ROW = range(9)
"""Places in a row: payload bytes; ns; 4 or 6; sender and the local address it wrote to as two halves; ROW is the width.
"""


class Batch:
    """Slots and rows that are used again for every batch. Memory that no datagram has touched is never allocated."""

    def __init__(self) -> None:
        """Reserve the address space."""
        self.slots: npt.NDArray[np.uint8] = np.empty(BATCH * STRIDE, np.uint8)
        self.rows: npt.NDArray[np.int64] = np.zeros((BATCH, ROW), np.int64)


class Receiver(Protocol):
    """Takes what a socket holds into a batch, without waiting."""

    def receive(self, udp: UdpSocket) -> int:
        """Fill slots and rows from the first on; return how many datagrams there were, 0 to BATCH."""
        ...


CHUNK_BYTES = 1 << 20
CHUNKS = 64
"""Together 64 MiB: half a second of 100 000 datagrams a second."""


@dataclass
class Chunk:
    """Whole records, the first `used` bytes of `data`, of `datagrams` datagrams; in which file they belong.

    `starts` is the time (ns) of the file that begins with this chunk, or None where the file before goes on. `end`
    marks the last chunk of a run.
    """

    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(CHUNK_BYTES, np.uint8))
    used: int = 0
    datagrams: int = 0
    starts: int | None = None
    end: bool = False


class ChunkQueue:
    """A fixed number of chunks on their way round: free, being filled, waiting to be written, free again."""

    def __init__(self, chunks: int = CHUNKS) -> None:
        """Reserve the address space; memory that is never filled is never allocated."""
        self._free: SimpleQueue[Chunk] = SimpleQueue()
        self._full: SimpleQueue[Chunk] = SimpleQueue()
        for _ in range(chunks):
            self._free.put(Chunk())

    @property
    def waiting(self) -> int:
        """Chunks that wait to be written."""
        return self._full.qsize()

    def take_free(self, starts: int | None = None) -> Chunk:
        """Wait for an empty chunk; the writer gives every chunk back, even when it can no longer write."""
        chunk = self._free.get()
        chunk.used, chunk.datagrams, chunk.starts, chunk.end = 0, 0, starts, False
        return chunk

    def put(self, chunk: Chunk) -> None:
        """Hand over to the writer; an empty one that says nothing is free again."""
        if chunk.used or chunk.end:
            self._full.put(chunk)
        else:
            self._free.put(chunk)

    def take_full(self) -> Chunk:
        """Wait for a chunk to write."""
        return self._full.get()

    def put_free(self, chunk: Chunk) -> None:
        """Give a chunk back."""
        self._free.put(chunk)
