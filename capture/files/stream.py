"""A capture that cannot be mapped: it is read once, from first to last byte, through buffers of fixed size."""

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
from capture.files.byte_source import WAIT, ByteSource
from capture.files.decompressed import Decompressed
from capture.files.formats import HEAD_BYTES, FileFormat, record_format
from capture.files.messages import ExportFormat
from capture.files.read_ahead import CHUNK, HEADROOM, ReadAhead
from capture.metrics import Samples


class StreamedCapture:
    """A compressed file, a pipe or standard input, as blocks of records in the order of the bytes.

    * `blocks` yields blocks of whole records as soon as they are read. The offsets of a block count from the start of
      `data`, which contains it **only until the next block is requested**. Its `watermark` is NO_WATERMARK. `blocks`
      yields None if no bytes arrived for WAIT seconds; only a `live` input does so.
    * `format` and `data` belong to the block yielded last: read both attributes again for each block. The format of a
      live input is unknown before its first block.
    * `size` is the size of the file in bytes, 0 if unknown. `consumed` is the number of bytes read.
    * `silent` is valid after a None. It is True if the input had neither unread bytes nor a partial record when
      `blocks` began to wait: after the last block, or after the last time that it was silent.
    * `damage` is set when `blocks` has ended: None, a cause of DAMAGE or a cause from `compression`.
    * `skip` is the number of records at the beginning of a file that `blocks` omits.
    * `stop` ends a live input after the bytes read so far. Any thread and signal handlers may call it.

    Memory is that of ReadAhead. A record larger than HEADROOM needs memory for the record and a chunk in addition; no
    format allows more than 16 MiB. Only one thread may iterate.
    """

    written = True
    """True if a writer produces the input. When everything stops, it may still be about to write its last bytes."""

    def __init__(self, path: Path, source: ByteSource, chunk: int = CHUNK) -> None:
        """Read `source`; errors call it `path`. Raises InputError for a file that is not a capture."""
        self.path = path
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.damage: str | None = None
        self.skip = 0
        self._cut = False  # whether a partial record has been read
        self._source = Decompressed(source)
        self._chunk = chunk
        self._format: FileFormat | None = None
        self._reading: ReadAhead | None = None
        self._stopped = Event()
        if not source.live:
            self._format = self._begin()

    @property
    def format(self) -> FileFormat:
        """Record format of the last block. Raises RuntimeError before the first block of a live input."""
        if self._format is None:
            raise RuntimeError(f"{self.path}: the format of a live input is known from its first block on")
        return self._format

    @property
    def recognised(self) -> bool:
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
    def silent(self) -> bool:
        """True if the input was silent at the last None (see the class)."""
        return self._reading is None or (self._reading.silent and not self._cut)

    @property
    def occupancy(self) -> float:
        """Fill level, 0 to 1, of the buffer in which packets wait. Always 0: the writer of a pipe waits instead."""
        return 0.0

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks of up to `block_records` records, and None after WAIT seconds without any.

        A file can be read again by another call, a live input cannot. Raises InputError if the bytes are not a
        capture or cannot be read.
        """
        if not self.live:
            self._source.rewind()
        yield from self._read(block_records, self.skip)

    def samples(self, link: str) -> Samples:
        """Return further counters of this input, in addition to records and damage: none."""
        return Samples()

    def _read(self, block_records: int, skip: int = 0) -> Iterator[Block | None]:
        """Read the source from its current position. The first `skip` records are not yielded."""
        self.damage = None
        self._reading = ReadAhead(self._source, self._chunk)
        if self._stopped.is_set():
            self._reading.stop()
        try:
            yield from self._walk(self._reading, block_records, skip)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        finally:
            self._reading.close()
            self._reading = None

    def stop(self) -> None:
        """End a live input after the bytes read so far. A partial record at its end is not damage."""
        self._stopped.set()
        if self._reading is not None:
            self._reading.stop()

    def close(self) -> None:
        """Close the input. The iterator of `blocks` must have ended or have been closed."""
        self._source.close()

    def _walk(self, reading: ReadAhead, block_records: int, skip: int) -> Iterator[Block | None]:
        form: FileFormat | None = None
        state = WalkState(0)
        row = np.empty((1, BLOCK_WORDS), np.int64)
        end = 0  # end of the bytes in `data`; those before state.offset have been processed
        self.data = np.empty(0, np.uint8)
        ended = False
        while not ended:
            try:
                chunk = reading.take()
            except EOFError:
                ended = True
            else:
                if chunk is None:
                    if self.live:
                        self._cut = form is not None and end > state.offset
                        yield None
                    continue
                state.offset, end = self._join(reading, *chunk, state.offset, end)
            if form is None:
                if end - state.offset < HEAD_BYTES and not ended:
                    continue
                if end == state.offset and self._stopped.is_set():
                    return
                form = self._format = self._recognise(self.data[state.offset : end].tobytes())
                state.offset += form.first_record
            state.status = CONTINUE
            while state.status == CONTINUE:
                if form.walk(self.data, end, min(block_records, skip or block_records), row, state):
                    start, after, records, first, last, section = row[0].tolist()
                    if skip:
                        skip -= records
                    else:
                        yield Block(start, after, records, first, last, NO_WATERMARK, section)
            if state.status not in RETRY_WITH_MORE_BYTES:
                break
        if not self._stopped.is_set():
            # The thread that reads ahead may have passed a bad record by chance: ignore damage that it has met there.
            met = self._source.damage if state.status in RETRY_WITH_MORE_BYTES else None
            self.damage = met or DAMAGE.get(state.status)

    def _join(
        self, reading: ReadAhead, buffer: npt.NDArray[np.uint8], upto: int, offset: int, end: int
    ) -> tuple[int, int]:
        """Join the rest of `data`, `[offset, end)`, and a new chunk in `data`. Return begin and end of both."""
        begin = HEADROOM - (end - offset)
        rest, old_data = self.data[offset:end], self.data
        if begin >= 0:
            buffer[begin:HEADROOM] = rest
            self.data = buffer
        else:
            self.data = np.concatenate([rest, buffer[HEADROOM:upto]])
            reading.give(buffer)
            begin, upto = 0, len(self.data)
        reading.give(old_data)
        return begin, upto

    def _begin(self) -> FileFormat:
        """Read only the bytes that identify the format of a file."""
        self._source.rewind()
        head = bytearray(HEAD_BYTES)
        filled = 0
        try:
            while filled < HEAD_BYTES and (count := self._source.read_into(memoryview(head)[filled:], WAIT)):
                filled += count
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return self._recognise(bytes(head[:filled]))

    def _recognise(self, head: bytes) -> FileFormat:
        codec, damage = self._source.codec, self._source.damage
        try:
            form = record_format(head, f"{self.path}, decompressed ({codec.name})" if codec else str(self.path))
            if isinstance(form, ExportFormat):  # a NetFlow v9 message ends at the next message or at the end of file
                raise InputError(f"{self.path}: got bare export datagrams in a stream, expected them in a plain file")
            return form
        except InputError as error:
            if not (codec and damage):
                raise
            end = f"{damage.replace('_', ' ')} after {len(head)} bytes, before any record"
            problem = f" ({self._source.problem})" if self._source.problem else ""
            raise InputError(f"{self.path}: {codec.name}-compressed, but {end}{problem}") from error


GRACE_SECONDS = 0.5
"""Seconds without input after which a live input stops on request. The same Ctrl-C may have stopped its writer, which
then still writes its last bytes."""

MAX_STOP_SECONDS = 2.0
"""Seconds after which a live input stops on request even if there is more to read."""


def blocks_until_stopped(
    stream: StreamedCapture, stopping: Callable[[], bool], block_records: int = BLOCK_RECORDS
) -> Generator[Block | None, None, None]:
    """Yield the blocks of a stream until it ends, or until shortly after `stopping` returns True.

    A finite stream stops at once. Close the iterator to release the buffers of the stream.
    """
    last_input = time.monotonic()
    stopped: float | None = None
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
                stopped = stopped or now
                if not stream.written or now >= min(
                    max(last_input, stopped) + GRACE_SECONDS, stopped + MAX_STOP_SECONDS
                ):
                    stream.stop()
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
