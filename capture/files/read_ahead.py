"""A thread that reads and decompresses a bounded number of chunks ahead of the consumer.

Two cores then work on one stream: system calls, decompressors and kernels release the GIL. The buffers circulate:
free ──► filled by the thread ──► decoded by the consumer ──► free. If a chunk ends inside a record, the
first part of the record is copied into the headroom of the next buffer. Decompression is usually the bottleneck, so
the consumer, not the thread, copies the decompressed pieces into the buffer.

    | headroom |      chunk      |
         ▲── first part of a record
"""

from __future__ import annotations

from queue import Empty, Queue
from threading import Event, Thread

import numpy as np
import numpy.typing as npt

from capture.files.byte_source import WAIT_SECONDS
from capture.files.decompressed import DecompressedSource

CHUNK_BYTES = 4 << 20
"""Bytes of a chunk. With chunks of 1 MiB, both threads together need a fifth more CPU time."""

FIRST_CHUNK_BYTES = 1 << 16
"""Bytes of the first chunk. It is small, because some callers read only the beginning of a file."""

HEADROOM_BYTES = 1 << 19
"""Bytes of a buffer before its chunk. The largest record of a classic pcap file fits into the headroom."""

BUFFER_COUNT = 3
"""Number of buffers: one is filled, one waits, one is decoded."""

FilledBuffer = tuple[npt.NDArray[np.uint8], int, list[memoryview]]
"""A buffer, the end of its chunk, and decompressed pieces, which the consumer copies to the end of the chunk."""


class ReadAhead:
    """The chunks of one source. Only one thread may call `next_chunk`.

    Memory: BUFFER_COUNT x (HEADROOM_BYTES + `chunk_bytes`) bytes. If the source is decompressed, the pieces of up to
    BUFFER_COUNT chunks are stored too.
    """

    def __init__(self, source: DecompressedSource, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Start the thread."""
        self.source = source
        self.stopping = Event()
        self.is_idle = False
        self._polls = self._last_empty_poll = 0  # polls begun so far; number of the last poll without bytes
        self._polls_before_wait: int | None = None  # `_polls` when the consumer began to wait
        self._free: Queue[npt.NDArray[np.uint8] | None] = Queue()
        self._filled: Queue[FilledBuffer | BaseException | None] = Queue()
        self._buffers = [np.empty(HEADROOM_BYTES + chunk_bytes, np.uint8) for _ in range(BUFFER_COUNT)]
        for buffer in self._buffers:
            self._free.put(buffer)
        self._thread = Thread(target=self._read, name="wiretide-read-ahead", daemon=True)
        self._thread.start()

    def next_chunk(self) -> tuple[npt.NDArray[np.uint8], int] | None:
        """Return the next chunk: its buffer, and the end of the chunk in it. The chunk begins at HEADROOM_BYTES.

        The caller must release the buffer. Returns None if no bytes arrived for WAIT_SECONDS. Then `is_idle` is True if
        the source is idle: the thread polled it during this wait, and got no bytes. It is False if the thread was busy.
        Raises EOFError at the end, and any exception of the thread.
        """
        if self._polls_before_wait is None:
            self._polls_before_wait = self._polls
        try:
            item = self._filled.get(timeout=WAIT_SECONDS)
        except Empty:
            self.is_idle = self._last_empty_poll > self._polls_before_wait
            if self.is_idle:
                self._polls_before_wait = None
            return None
        self._polls_before_wait = None
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

    def release(self, buffer: npt.NDArray[np.uint8]) -> None:
        """Allow the thread to fill a buffer again. Arrays that are not buffers of this stream are ignored."""
        if any(buffer is own for own in self._buffers):
            self._free.put(buffer)

    def stop(self) -> None:
        """End the stream after the bytes read so far. Return at once. Any thread may call it."""
        self.stopping.set()

    def close(self) -> None:
        """End the thread. `next_chunk` must not be called afterwards."""
        self.stopping.set()
        self._free.put(None)
        self._thread.join()

    def _read(self) -> None:
        """Fill buffers until the stream ends (the body of the thread)."""
        failure: BaseException | None = None
        try:
            has_ended, chunk_bytes = False, FIRST_CHUNK_BYTES
            while not has_ended and (buffer := self._free.get()) is not None:
                count, pieces, has_ended = self._fill(buffer.data[HEADROOM_BYTES : HEADROOM_BYTES + chunk_bytes])
                chunk_bytes = len(buffer)
                if count:
                    self._filled.put((buffer, HEADROOM_BYTES + count, pieces))
        except BaseException as error:  # `next_chunk` raises it in the consumer's thread
            failure = error
        self._filled.put(failure)

    def _fill(self, chunk: memoryview) -> tuple[int, list[memoryview], bool]:
        """Wait for the first bytes of a chunk, then add the available bytes without a wait. After `stop` read nothing.

        Returns the number of bytes, the pieces to copy to the end of the chunk, and whether the stream has ended.
        """
        filled = 0
        pieces: list[memoryview] = []
        while filled < len(chunk):
            if self.stopping.is_set():
                return filled, pieces, True
            wait = 0 if filled else WAIT_SECONDS
            self._polls += 1
            if self.source.codec is None:
                count = self.source.read_into(chunk[filled:], wait)
            else:
                piece = self.source.read_piece(len(chunk) - filled, wait)
                count = None if piece is None else len(piece)
                pieces += [piece] if piece else []
            if count == 0:
                return filled, pieces, True
            if count is not None:
                filled += count
            elif filled:
                break
            else:
                self._last_empty_poll = self._polls
        return filled, pieces, False
