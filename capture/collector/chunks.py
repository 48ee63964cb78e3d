"""Batches and chunks: the data between receivers, recorder and writer, and the limit of waiting data.

If the disk is slower than the network for a while, chunks fill up. If all are full, the receiver waits and datagrams
stay in the socket's buffer; the system counts those that do not fit. So datagrams are lost in one place only, and its
counter is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.collector.sockets import UdpSocket

# A batch: the datagrams of one read of a socket, written by a receiver and read by the recorder.
#
# Payloads are stored in slots of the maximum datagram size, so none is truncated. The metadata of a datagram is a row
# of int64 values in the same form for all receivers. So only the receivers depend on the system.


BATCH = 256
"""Maximum number of datagrams per read."""

SLOT = 65_536
"""Bytes of a slot: more than 65 527, the longest payload of UDP without jumbograms."""

STRIDE = SLOT + 192
"""Bytes from slot to slot. With a power of two, all slots would map to the same few sets of the cache."""

LENGTH, TIME, VERSION, SRC_HIGH, SRC_LOW, SRC_PORT, DEST_HIGH, DEST_LOW, ROW = range(9)
"""Words of a row: payload bytes; time, ns; IP version 4 or 6; sender address (two halves), sender port, local address
(two halves). ROW: number of words."""


class Batch:
    """Slots and rows, reused for all batches. The system allocates memory only for slots that are written."""

    def __init__(self) -> None:
        """Reserve the address space."""
        self.slots: npt.NDArray[np.uint8] = np.empty(BATCH * STRIDE, np.uint8)
        self.rows: npt.NDArray[np.int64] = np.zeros((BATCH, ROW), np.int64)


class Receiver(Protocol):
    """Interface of receivers: read the waiting datagrams of a socket into a batch."""

    def receive(self, udp: UdpSocket) -> int:
        """Fill slots and rows from the first on, without waiting. Return the number of datagrams, 0 to BATCH."""
        ...


CHUNK_BYTES = 1 << 20
CHUNKS = 64
"""64 MiB in total: half a second at 100 000 datagrams per second."""


@dataclass
class Chunk:
    """Whole records: the first `used` bytes of `data`, made of `datagrams` datagrams.

    `starts`: time (ns) of the file that begins with this chunk; None if the current file continues. `end`: True for the
    last chunk of a run.
    """

    data: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(CHUNK_BYTES, np.uint8))
    used: int = 0
    datagrams: int = 0
    starts: int | None = None
    end: bool = False


class ChunkQueue:
    """A fixed number of chunks that circulate: free, being filled, waiting to be written, free again."""

    def __init__(self, chunks: int = CHUNKS) -> None:
        """Reserve the address space. The system allocates memory only for chunks that are filled."""
        self._free: SimpleQueue[Chunk] = SimpleQueue()
        self._full: SimpleQueue[Chunk] = SimpleQueue()
        for _ in range(chunks):
            self._free.put(Chunk())

    @property
    def waiting(self) -> int:
        """Number of chunks that wait to be written."""
        return self._full.qsize()

    def take_free(self, starts: int | None = None) -> Chunk:
        """Wait for an empty chunk. The writer returns every chunk, even if it cannot write any more."""
        chunk = self._free.get()
        chunk.used, chunk.datagrams, chunk.starts, chunk.end = 0, 0, starts, False
        return chunk

    def put(self, chunk: Chunk) -> None:
        """Pass a chunk to the writer. An empty chunk that does not end the run becomes free again."""
        if chunk.used or chunk.end:
            self._full.put(chunk)
        else:
            self._free.put(chunk)

    def take_full(self) -> Chunk:
        """Wait for a chunk to write."""
        return self._full.get()

    def put_free(self, chunk: Chunk) -> None:
        """Return a chunk after use."""
        self._free.put(chunk)
