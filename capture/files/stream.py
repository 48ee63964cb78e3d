"""A capture that cannot be mapped into memory. It is read in order, through buffers of fixed size."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt

from capture.errors import InputError
from capture.files.blocks import (
    BLOCK_RECORDS,
    BLOCK_WORDS,
    CONTINUE,
    DAMAGE,
    NO_WATERMARK,
    RETRY_WITH_MORE_BYTES,
    Block,
    WalkState,
)
from capture.files.byte_source import WAIT_SECONDS, ByteSource
from capture.files.decompressed import DecompressedSource
from capture.files.formats import HEAD_BYTES, FileFormat, record_format
from capture.files.messages import ExportFormat
from capture.files.read_ahead import CHUNK_BYTES, HEADROOM_BYTES, ReadAhead
from capture.metrics import Samples


class StreamedCapture:
    """A compressed file, a pipe or standard input, as blocks of records in input order.

    * `blocks` yields blocks of whole records as soon as they are read. The offsets of a block count from the start of
      `data`, which contains the block **only until the next block is requested**. The `watermark` of a block is
      NO_WATERMARK. `blocks` yields None if no bytes of a `live` input arrived for WAIT_SECONDS.
    * `format` and `data` describe only the last yielded block, so read both attributes again for each block. The
      format of a live input is unknown before its first block.
    * `size` is the size of the file in bytes, 0 if unknown. `consumed` is the number of bytes read.
    * `is_idle` is valid after `blocks` has yielded None. It is True if a read since the last block has returned no
      bytes, and the bytes before it do not end inside a record.
    * `damage` is valid after the end of `blocks`: None, a name from DAMAGE, CUT_IN_COMPRESSION or BAD_COMPRESSION.
    * `skip` is the number of records at the beginning of a file that `blocks` does not yield.
    * `stop` ends a live input after the bytes read so far. Any thread and signal handlers may call it.

    A stream needs the memory of a ReadAhead. A record larger than HEADROOM_BYTES (the maximum of all formats is 16
    MiB) needs additional memory for itself and a chunk. Only one thread may iterate.
    """

    has_writer = True
    """True if another program writes the input. That program may still write its last bytes after a stop request."""

    def __init__(self, path: Path, source: ByteSource, chunk_bytes: int = CHUNK_BYTES) -> None:
        """Read `source`. Error messages contain `path`. Raises InputError for a file that is not a capture."""
        self.path = path
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.damage: str | None = None
        self.skip = 0
        self._ends_in_record = False  # the last byte read belongs to a partial record
        self._source = DecompressedSource(source)
        self._chunk_bytes = chunk_bytes
        self._format: FileFormat | None = None
        self._read_ahead: ReadAhead | None = None
        self._stopped = Event()
        if not source.live:
            self._format = self._read_format()

    @property
    def format(self) -> FileFormat:
        """Record format of the last yielded block. Raises RuntimeError before the first block of a live input."""
        if self._format is None:
            raise RuntimeError(f"{self.path}: the format of a live input is known from its first block on")
        return self._format

    @property
    def is_recognised(self) -> bool:
        """True if the format is known."""
        return self._format is not None

    @property
    def size(self) -> int:
        """Size of the file in bytes, in the unit of `consumed`; 0 if unknown."""
        return self._source.size

    @property
    def consumed(self) -> int:
        """Bytes of the file read so far, before decompression."""
        return self._source.consumed

    @property
    def live(self) -> bool:
        """True if more bytes may arrive."""
        return self._source.live

    @property
    def is_idle(self) -> bool:
        """True if the input was idle when `blocks` last yielded None (see the docstring of the class)."""
        return self._read_ahead is None or (self._read_ahead.is_idle and not self._ends_in_record)

    @property
    def occupancy(self) -> float:
        """Fill level, 0 to 1, of a buffer that loses packets when it is full. Always 0: the writer of a pipe waits."""
        return 0.0

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks of up to `block_records` records, and None after WAIT_SECONDS without a block.

        A file can be read again by another call, a live input cannot. Raises InputError if the bytes are not a
        capture or cannot be read.
        """
        if not self.live:
            self._source.rewind()
        yield from self._read(block_records, self.skip)

    def samples(self, link: str) -> Samples:
        """Return no samples. Subclasses return their additional counters."""
        return Samples()

    def _read(self, block_records: int, skip: int = 0) -> Iterator[Block | None]:
        """Read the source from its current position. The first `skip` records are not yielded."""
        self.damage = None
        self._read_ahead = ReadAhead(self._source, self._chunk_bytes)
        if self._stopped.is_set():
            self._read_ahead.stop()
        try:
            yield from self._walk(self._read_ahead, block_records, skip)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        finally:
            self._read_ahead.close()
            self._read_ahead = None

    def stop(self) -> None:
        """End a live input after the bytes read so far. A partial record at its end is not damage."""
        self._stopped.set()
        if self._read_ahead is not None:
            self._read_ahead.stop()

    def close(self) -> None:
        """Close the input. The iterator of `blocks` must have ended or have been closed."""
        self._source.close()

    def _walk(self, read_ahead: ReadAhead, block_records: int, skip: int) -> Iterator[Block | None]:
        """Walk the records of all chunks. Set `damage` at the end."""
        file_format: FileFormat | None = None
        state = WalkState(0)
        row = np.empty((1, BLOCK_WORDS), np.int64)
        end = 0  # end of the bytes in `data`; bytes before state.offset have been walked
        self.data = np.empty(0, np.uint8)
        has_ended = False
        while not has_ended:
            try:
                chunk = read_ahead.next_chunk()
            except EOFError:
                has_ended = True
            else:
                if chunk is None:
                    if self.live:
                        self._ends_in_record = file_format is not None and end > state.offset
                        yield None
                    continue
                state.offset, end = self._join(read_ahead, *chunk, state.offset, end)
            if file_format is None:
                if end - state.offset < HEAD_BYTES and not has_ended:
                    continue
                if end == state.offset and self._stopped.is_set():
                    return
                file_format = self._format = self._recognise(self.data[state.offset : end].tobytes())
                state.offset += file_format.first_record
            state.status = CONTINUE
            while state.status == CONTINUE:
                if file_format.walk(self.data, end, min(block_records, skip or block_records), row, state):
                    start, block_end, records, min_ts, max_ts, section = row[0].tolist()
                    if skip:
                        skip -= records
                    else:
                        yield Block(start, block_end, records, min_ts, max_ts, NO_WATERMARK, section)
            if state.status not in RETRY_WITH_MORE_BYTES:
                break
        if not self._stopped.is_set():
            # If the walk stopped at a bad record, ignore later damage, which the reading thread may have found.
            compression_damage = self._source.damage if state.status in RETRY_WITH_MORE_BYTES else None
            self.damage = compression_damage or DAMAGE.get(state.status)

    def _join(
        self, read_ahead: ReadAhead, buffer: npt.NDArray[np.uint8], chunk_end: int, offset: int, end: int
    ) -> tuple[int, int]:
        """Join the unwalked bytes `data[offset:end]` with a new chunk, which ends at `chunk_end` in `buffer`.

        `data` then contains both. Returns the begin and end of the joined bytes in `data`.
        """
        begin = HEADROOM_BYTES - (end - offset)
        unwalked, old_data = self.data[offset:end], self.data
        if begin >= 0:
            buffer[begin:HEADROOM_BYTES] = unwalked
            self.data = buffer
        else:
            self.data = np.concatenate([unwalked, buffer[HEADROOM_BYTES:chunk_end]])
            read_ahead.release(buffer)
            begin, chunk_end = 0, len(self.data)
        read_ahead.release(old_data)
        return begin, chunk_end

    def _read_format(self) -> FileFormat:
        """Return the format of a file. Read only the bytes that identify the format."""
        self._source.rewind()
        head = bytearray(HEAD_BYTES)
        filled = 0
        try:
            while filled < HEAD_BYTES and (count := self._source.read_into(memoryview(head)[filled:], WAIT_SECONDS)):
                filled += count
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return self._recognise(bytes(head[:filled]))

    def _recognise(self, head: bytes) -> FileFormat:
        """Return the format of a capture with the decompressed first bytes `head`, or raise InputError."""
        codec, damage = self._source.codec, self._source.damage
        try:
            file_format = record_format(head, f"{self.path}, decompressed ({codec.name})" if codec else str(self.path))
            if isinstance(file_format, ExportFormat):  # the end of a NetFlow v9 message is known only in a whole file
                raise InputError(f"{self.path}: got bare export datagrams in a stream, expected them in a plain file")
            return file_format
        except InputError as error:
            if not (codec and damage):
                raise
            end = f"{damage.replace('_', ' ')} after {len(head)} bytes, before any record"
            problem = f" ({self._source.problem})" if self._source.problem else ""
            raise InputError(f"{self.path}: {codec.name}-compressed, but {end}{problem}") from error


GRACE_SECONDS = 0.5
"""Seconds without input after which a live input stops on request. They allow the writer of a pipe, which Ctrl-C may
stop too, to write its last bytes."""

MAX_STOP_SECONDS = 2.0
"""Maximum seconds from a stop request until a live input stops, even if more bytes arrive."""


def blocks_until_stopped(
    stream: StreamedCapture, stopping: Callable[[], bool], block_records: int = BLOCK_RECORDS
) -> Generator[Block | None, None, None]:
    """Yield the blocks of a stream until it ends, or until shortly after `stopping` returns True (a stop request).

    A finite stream stops at once. Close this iterator to release the buffers of the stream.
    """
    last_input = time.monotonic()
    stop_requested_at: float | None = None
    blocks = stream.blocks(block_records)
    try:
        for block in blocks:
            if block is not None:
                last_input = time.monotonic()
                yield block
            else:
                yield None
            if stopping():
                if not stream.live:
                    return
                now = time.monotonic()
                stop_requested_at = stop_requested_at or now
                if not stream.has_writer or now >= min(
                    max(last_input, stop_requested_at) + GRACE_SECONDS, stop_requested_at + MAX_STOP_SECONDS
                ):
                    stream.stop()
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
