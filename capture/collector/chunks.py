"""Chunks: what the receiving thread hands to the writing one, and the bound of what may wait between them.

When the disk is slower than the network for a while, chunks fill up; when all are full, the receiver waits and the
datagrams stay in the socket's buffer, where the system counts those that find no room. So there is one place where
datagrams get lost, and one counter that is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

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
