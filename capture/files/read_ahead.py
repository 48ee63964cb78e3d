"""Reading (and decompressing) in a thread of its own, a bounded number of chunks ahead of whoever walks the records.

Two cores then work on one stream: system calls and decompressors release the GIL, and so do the kernels. The buffers
go round: free ──► filled by the thread ──► taken, walked and decoded ──► free. Before its chunk each buffer has room
for what is left of the record that the chunk before it ended in. A decompressor is nearly always what everything waits
for, so what it gives out is put into the buffer by whoever takes the chunk.

    | HEADROOM |      chunk      |
         ▲── rest of the buffer before
"""

from __future__ import annotations

from queue import Empty, Queue
from threading import Event, Thread

import numpy as np
import numpy.typing as npt

from capture.files.byte_source import WAIT
from capture.files.decompressed import Decompressed

CHUNK = 4 << 20
"""Bytes that are read at a time. With a quarter of it both threads together take a fifth more processor time."""

FIRST = 1 << 16
"""Bytes of the first chunk: who only looks at the beginning does not wait for more."""

HEADROOM = 1 << 19
"""Bytes before a chunk; more than the largest record of a classic pcap."""

BUFFERS = 3
"""One that is decoded, one that waits, one that is being filled."""


Filled = tuple[npt.NDArray[np.uint8], int, list[memoryview]]
"""A buffer, where its chunk ends, and the pieces that go to the chunk's end and are not there yet."""


class ReadAhead:
    """The chunks of one source. `take` is for one thread alone.

    Memory: BUFFERS x (HEADROOM + `chunk`) bytes, and as many chunks more of a source that is decompressed.
    """

    def __init__(self, source: Decompressed, chunk: int = CHUNK) -> None:
        """Begin to read."""
        self.source = source
        self.stopping = Event()
        self.silent = False
        self._polls = self._vain = 0  # polls begun, and which of them was the last in vain
        self._asked: int | None = None  # polls begun when something was first asked for that has not come
        self._free: Queue[npt.NDArray[np.uint8] | None] = Queue()
        self._filled: Queue[Filled | BaseException | None] = Queue()
        self._buffers = [np.empty(HEADROOM + chunk, np.uint8) for _ in range(BUFFERS)]
        for buffer in self._buffers:
            self._free.put(buffer)
        self._thread = Thread(target=self._read, name="wiretide-read-ahead", daemon=True)
        self._thread.start()

    def take(self) -> tuple[npt.NDArray[np.uint8], int] | None:
        """Take the next chunk: its buffer, and where it ends there (it begins at HEADROOM). It is given back by `give`.

        None where nothing came for WAIT seconds. `silent` is then whether the source was **polled in vain** since it
        was first asked, or since it was silent last: it is not where the thread had no time to look. Raises EOFError at
        the end and what reading raised.
        """
        if self._asked is None:
            self._asked = self._polls
        try:
            found = self._filled.get(timeout=WAIT)
        except Empty:
            self.silent = self._vain > self._asked  # a poll that began later found nothing
            if self.silent:
                self._asked = None
            return None
        self._asked = None
        if found is None:
            raise EOFError
        if isinstance(found, BaseException):
            raise found
        buffer, end, pieces = found
        at = end - sum(map(len, pieces))
        for piece in pieces:
            buffer[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        return buffer, end

    def give(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Let a buffer be filled again; an array that is none of the buffers is let be."""
        if any(buffer is own for own in self._buffers):
            self._free.put(buffer)

    def stop(self) -> None:
        """End the stream after what has been read. Returns at once; any thread may call it."""
        self.stopping.set()

    def close(self) -> None:
        """End the thread; nothing is taken any more."""
        self.stopping.set()
        self._free.put(None)
        self._thread.join()

    def _read(self) -> None:
        failure: BaseException | None = None
        try:
            ended, room = False, FIRST
            while not ended and (buffer := self._free.get()) is not None:
                count, pieces, ended = self._fill(buffer.data[HEADROOM : HEADROOM + room])
                room = len(buffer)
                if count:
                    self._filled.put((buffer, HEADROOM + count, pieces))
        except BaseException as error:  # it is raised again, in the thread that takes
            failure = error
        self._filled.put(failure)

    def _fill(self, room: memoryview) -> tuple[int, list[memoryview], bool]:
        """Fill a chunk, or as much of it as is there now, which is at least a byte.

        Returns how much, the pieces at its end that are still to be put there, and whether the stream ends.
        """
        filled = 0
        pieces: list[memoryview] = []
        while filled < len(room):
            if self.stopping.is_set():
                return filled, pieces, True
            wait = 0 if filled else WAIT
            self._polls += 1
            if self.source.codec is None:
                count = self.source.read_into(room[filled:], wait)
            else:
                piece = self.source.read_piece(len(room) - filled, wait)
                count = None if piece is None else len(piece)
                pieces += [piece] if piece else []
            if count == 0:
                return filled, pieces, True
            if count is not None:
                filled += count
            elif filled:
                break
            else:
                self._vain = self._polls
        return filled, pieces, False
