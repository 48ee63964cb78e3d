"""Reading and decompressing in a separate thread, a bounded number of chunks ahead of the consumer.

Two cores then work on one stream: system calls, decompressors and kernels release the GIL. The buffers circulate:
free ──► filled by the thread ──► taken, walked and decoded ──► free. Each buffer has room before its chunk for the rest
of a record that the previous chunk ended in. Decompression is usually the bottleneck, so the consumer copies the
decompressed pieces into the buffer.
    | HEADROOM |      chunk      |
         ▲── rest of the previous buffer
"""

from __future__ import annotations

from queue import Empty, Queue
from threading import Event, Thread

import numpy as np
import numpy.typing as npt

from capture.files.byte_source import WAIT
from capture.files.decompressed import Decompressed

CHUNK = 4 << 20
"""Bytes per read. With a quarter of it, both threads together need a fifth more CPU time."""

FIRST_CHUNK = 1 << 16
"""Bytes of the first chunk. It is small, because some callers read only the beginning of a file."""

HEADROOM = 1 << 19
"""Bytes before a chunk. The largest record of a classic pcap file fits."""

BUFFERS = 3
"""One buffer is decoded, one waits, one is filled."""


Filled = tuple[npt.NDArray[np.uint8], int, list[memoryview]]
"""A buffer, the end of its chunk, and the decompressed pieces that must still be copied to the end of the chunk."""


class ReadAhead:
    """The chunks of one source. Only one thread may call `take`.

    Memory: BUFFERS x (HEADROOM + `chunk`) bytes, and BUFFERS chunks more for a source that is decompressed.
    """

    def __init__(self, source: Decompressed, chunk: int = CHUNK) -> None:
        """Start the thread."""
        self.source = source
        self.stopping = Event()
        self.silent = False
        self._polls = self._vain = 0  # number of polls begun, and the number of the last poll that found no bytes
        self._asked: int | None = None  # `_polls` when the consumer began to wait; None if it does not wait
        self._free: Queue[npt.NDArray[np.uint8] | None] = Queue()
        self._filled: Queue[Filled | BaseException | None] = Queue()
        self._buffers = [np.empty(HEADROOM + chunk, np.uint8) for _ in range(BUFFERS)]
        for buffer in self._buffers:
            self._free.put(buffer)
        self._thread = Thread(target=self._read, name="wiretide-read-ahead", daemon=True)
        self._thread.start()

    def take(self) -> tuple[npt.NDArray[np.uint8], int] | None:
        """Take the next chunk: its buffer, and the end of the chunk in it. The chunk begins at HEADROOM.

        The caller returns the buffer with `give`. Returns None if no bytes arrived for WAIT seconds. `silent` is then
        True if a poll that began after the caller started to wait found no bytes. It stays False if the thread had no
        time to poll. Raises EOFError at the end, and any exception of the reading thread.
        """
        if self._asked is None:
            self._asked = self._polls
        try:
            item = self._filled.get(timeout=WAIT)
        except Empty:
            self.silent = self._vain > self._asked
            if self.silent:
                self._asked = None
            return None
        self._asked = None
        if item is None:
            raise EOFError
        if isinstance(item, BaseException):
            raise item
        buffer, end, pieces = item
        offset = end - sum(map(len, pieces))
        for piece in pieces:
            buffer[offset : offset + len(piece)] = np.frombuffer(piece, np.uint8)
            offset += len(piece)
        return buffer, end

    def give(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Return a buffer, so that it can be filled again. Other arrays are ignored."""
        if any(buffer is own for own in self._buffers):
            self._free.put(buffer)

    def stop(self) -> None:
        """End the stream after what has been read. Returns at once; any thread may call it."""
        self.stopping.set()

    def close(self) -> None:
        """End the thread. `take` must not be called any more."""
        self.stopping.set()
        self._free.put(None)
        self._thread.join()

    def _read(self) -> None:
        failure: BaseException | None = None
        try:
            ended, room = False, FIRST_CHUNK
            while not ended and (buffer := self._free.get()) is not None:
                count, pieces, ended = self._fill(buffer.data[HEADROOM : HEADROOM + room])
                room = len(buffer)
                if count:
                    self._filled.put((buffer, HEADROOM + count, pieces))
        except BaseException as error:  # `take` raises it in the consumer's thread
            failure = error
        self._filled.put(failure)

    def _fill(self, room: memoryview) -> tuple[int, list[memoryview], bool]:
        """Fill a chunk with the available bytes, at least one; wait only for the first.

        Returns the number of bytes, the pieces that must still be copied to its end, and whether the stream has ended.
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
