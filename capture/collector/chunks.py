"""Batches and chunks: fixed buffers between the receivers, the recorder and the writer.

A batch contains the datagrams of one read of a socket. A receiver writes it, the recorder reads it. Payloads are stored
in slots of the maximum datagram size, so none is truncated. The metadata of a datagram is a row of int64 values. The
columns of this row are the same for all receivers. So only the receivers depend on the operating system.

A chunk contains records for the writer. While the disk is slower than the network, chunks fill up. If all chunks are
full, the receiver waits, and datagrams stay in the receive buffer of the socket. The system counts the datagrams that
do not fit into this buffer. No other datagrams are lost, so the counter of lost datagrams is exact.
"""

from __future__ import annotations

from dataclasses import field
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.collector.sockets import UdpSocket
from capture.lazy_dataclasses import dataclass

BATCH_DATAGRAMS = 256
"""Maximum number of datagrams in a batch."""

SLOT_BYTES = 65_536
"""Bytes of a slot. The longest payload of UDP without jumbograms has 65 527 bytes."""

SLOT_STRIDE = SLOT_BYTES + 192
"""Distance of slots in bytes. With a power of two, all slots would map to the same few sets of the cache."""

LENGTH, TIME, VERSION, SRC_HIGH, SRC_LOW, SRC_PORT, DEST_HIGH, DEST_LOW, ROW_WORDS = range(9)
"""Words of a row: payload bytes, arrival time in ns, IP version (4 or 6), sender address (two 64-bit halves), sender
port, local address (two 64-bit halves). ROW_WORDS: number of words."""


class Batch:
    """Slots and rows, reused by every read. The system allocates memory only for slots that are written."""

    def __init__(self) -> None:
        """Reserve the address space."""
        self.slots: npt.NDArray[np.uint8] = np.empty(BATCH_DATAGRAMS * SLOT_STRIDE, np.uint8)
        self.rows: npt.NDArray[np.int64] = np.zeros((BATCH_DATAGRAMS, ROW_WORDS), np.int64)


class Receiver(Protocol):
    """Interface of receivers: read the waiting datagrams of a socket into a batch."""

    def receive(self, udp: UdpSocket) -> int:
        """Fill slots and rows, beginning with the first, without waiting. Return the number of datagrams (may be 0)."""
        ...


CHUNK_BYTES = 1 << 20
"""Bytes of a chunk."""

CHUNK_COUNT = 64
"""Number of chunks. Together they have 64 MiB, enough for half a second at 100 000 datagrams per second."""


@dataclass
class Chunk:
    """Whole records: the first `used_bytes` bytes of `data`, with `datagram_count` datagrams.

    `file_time`: time in ns of the file that begins with this chunk, or None if the chunk continues the current file.
    `is_last`: True for the last chunk of a run.
    """

    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(CHUNK_BYTES, np.uint8))
    used_bytes: int = 0
    datagram_count: int = 0
    file_time: int | None = None
    is_last: bool = False


class ChunkQueue:
    """A fixed number of chunks that circulate: free, being filled, waiting to be written, free again."""

    def __init__(self, chunk_count: int = CHUNK_COUNT) -> None:
        """Reserve the address space. The system allocates memory only for chunks that are filled."""
        self._free: SimpleQueue[Chunk] = SimpleQueue()
        self._full: SimpleQueue[Chunk] = SimpleQueue()
        for _ in range(chunk_count):
            self._free.put(Chunk())

    @property
    def waiting(self) -> int:
        """Number of chunks that wait to be written."""
        return self._full.qsize()

    def take_free(self, file_time: int | None = None) -> Chunk:
        """Return an empty chunk; wait until there is one. The writer frees chunks even if it cannot write any more."""
        chunk = self._free.get()
        chunk.used_bytes, chunk.datagram_count, chunk.file_time, chunk.is_last = 0, 0, file_time, False
        return chunk

    def put(self, chunk: Chunk) -> None:
        """Pass a chunk to the writer. An empty chunk that does not end the run becomes free again."""
        if chunk.used_bytes or chunk.is_last:
            self._full.put(chunk)
        else:
            self._free.put(chunk)

    def take_full(self) -> Chunk:
        """Return the next chunk to write; wait until there is one."""
        return self._full.get()

    def put_free(self, chunk: Chunk) -> None:
        """Make a chunk free again."""
        self._free.put(chunk)
