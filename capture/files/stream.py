"""A capture that is read once, from its first byte to its last, through buffers of a fixed size: what is not mapped."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, DAMAGE, MENDED_BY_BYTES, MORE, NO_PROMISE, ROW, Block, WalkState
from capture.files.byte_source import WAIT, ByteSource
from capture.files.decompressed import Decompressed
from capture.files.formats import HEAD, FileFormat, record_format
from capture.files.messages import ExportFormat
from capture.files.read_ahead import CHUNK, HEADROOM, ReadAhead
from capture.metrics import Samples


class StreamedCapture:
    """A compressed file, a pipe, standard input: blocks of records in the order in which the bytes come.

    * `blocks` yields runs of whole records as soon as they are there. A block's offsets count from the start of `data`,
      which holds it **until the next block is asked for**; its `low` is NO_PROMISE. It yields None where nothing came
      for WAIT seconds, which only a `live` input does.
    * `format` belongs to the block yielded last: read it anew for each block, as `data`. That of a live input is not
      known before its first block.
    * `size` is the bytes of the file, for progress, and 0 where nobody knows; `consumed` how many have been read.
    * `silent` says, after a None, that nothing at all was there to be read when blocks were first asked for since the
      last one, or since it was silent last: neither unread bytes nor the beginning of a record.
    * `damage`, once `blocks` has ended, says how the input ended if badly: a cause of DAMAGE, or of `compression`.
    * `skip` are records at the beginning of a file that `blocks` passes over.
    * `stop` makes a live input end with what has been read; any thread may call it, a handler of signals too.

    Memory is that of ReadAhead, and where a record is larger than HEADROOM that record and a chunk: no format believes
    more than 16 MiB. One thread iterates.
    """

    written = True
    """Whether somebody writes the input, who may be about to write what is left when everything is to stop."""

    def __init__(self, path: Path, source: ByteSource, chunk: int = CHUNK) -> None:
        """Read `source`, which is called `path` in errors; raise InputError where it is a file that is no capture."""
        self.path = path
        self.data: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self.damage: str | None = None
        self.skip = 0
        self._cut = False  # part of a record has come, and its rest has not
        self._source = Decompressed(source)
        self._chunk = chunk
        self._format: FileFormat | None = None
        self._reading: ReadAhead | None = None
        self._stopped = Event()
        if not source.live:
            self._format = self._begin()

    @property
    def format(self) -> FileFormat:
        """How the records of the last block are laid out; RuntimeError before the first block of a live input."""
        if self._format is None:
            raise RuntimeError(f"{self.path}: the format of a live input is known from its first block on")
        return self._format

    @property
    def recognised(self) -> bool:
        """Whether the format is known."""
        return self._format is not None

    @property
    def size(self) -> int:
        """Bytes of the file, as `consumed` counts them; 0 where nobody knows."""
        return self._source.size

    @property
    def consumed(self) -> int:
        """Bytes of the file read so far; of a compressed one as they are in the file."""
        return self._source.consumed

    @property
    def live(self) -> bool:
        """Whether more may come."""
        return self._source.live

    @property
    def silent(self) -> bool:
        """Whether the last None was silence: see above."""
        return self._reading is None or (self._reading.silent and not self._cut)

    @property
    def occupancy(self) -> float:
        """Share, 0 to 1, of the room where packets wait that is full; 0 of what waits for its reader, as pipes do."""
        return 0.0

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks of up to `block_records` records, and None for a while without any.

        A file can be read again by another call; a live input has one only. Raises InputError where the bytes are no
        capture or cannot be read.
        """
        if not self.live:
            self._source.rewind()
        yield from self._read(block_records, self.skip)

    def samples(self, link: str) -> Samples:
        """Return what was counted beside records and the damage at the end: nothing here."""
        return Samples()

    def _read(self, block_records: int, skip: int = 0) -> Iterator[Block | None]:
        """Read the source from where it stands; its first `skip` records are not handed out."""
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
        """Make a live input end with what has been read, and let a cut record at its end be."""
        self._stopped.set()
        if self._reading is not None:
            self._reading.stop()

    def close(self) -> None:
        """Let go of the input; the iterator of `blocks` must have ended or been closed."""
        self._source.close()

    def _walk(self, reading: ReadAhead, block_records: int, skip: int) -> Iterator[Block | None]:
        form: FileFormat | None = None
        state = WalkState(0)
        row = np.empty((1, ROW), np.int64)
        end = 0  # of the bytes in `data`; those before state.at are done with
        self.data = np.empty(0, np.uint8)
        ended = False
        while not ended:
            try:
                taken = reading.take()
            except EOFError:
                ended = True
            else:
                if taken is None:
                    if self.live:
                        self._cut = form is not None and end > state.at
                        yield None
                    continue
                state.at, end = self._join(reading, *taken, state.at, end)
            if form is None:
                if end - state.at < HEAD and not ended:
                    continue
                if end == state.at and self._stopped.is_set():
                    return
                form = self._format = self._recognise(self.data[state.at : end].tobytes())
                state.at += form.first_record
            state.status = MORE
            while state.status == MORE:
                if form.walk(self.data, end, min(block_records, skip or block_records), row, state):
                    start, after, records, first, last, section = row[0].tolist()
                    if skip:
                        skip -= records
                    else:
                        yield Block(start, after, records, first, last, NO_PROMISE, section)
            if state.status not in MENDED_BY_BYTES:
                break
        if not self._stopped.is_set():
            # Behind a bad record nothing is read: what the thread ahead has met there by now is chance.
            met = self._source.damage if state.status in MENDED_BY_BYTES else None
            self.damage = met or DAMAGE.get(state.status)

    def _join(self, reading: ReadAhead, buffer: npt.NDArray[np.uint8], upto: int, at: int, end: int) -> tuple[int, int]:
        """Bring what is left of `data`, `[at, end)`, and a chunk together; return where both begin and end now."""
        begin = HEADROOM - (end - at)
        rest, used = self.data[at:end], self.data
        if begin >= 0:
            buffer[begin:HEADROOM] = rest
            self.data = buffer
        else:
            self.data = np.concatenate([rest, buffer[HEADROOM:upto]])
            reading.give(buffer)
            begin, upto = 0, len(self.data)
        reading.give(used)
        return begin, upto

    def _begin(self) -> FileFormat:
        """Read just so much of a file that its format is known."""
        self._source.rewind()
        head = bytearray(HEAD)
        filled = 0
        try:
            while filled < HEAD and (count := self._source.read_into(memoryview(head)[filled:], WAIT)):
                filled += count
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from error
        return self._recognise(bytes(head[:filled]))

    def _recognise(self, head: bytes) -> FileFormat:
        codec, damage = self._source.codec, self._source.damage
        try:
            form = record_format(head, f"{self.path}, decompressed ({codec.name})" if codec else str(self.path))
            if isinstance(form, ExportFormat):  # a message of NetFlow v9 ends where the next begins, or the file
                raise InputError(f"{self.path}: got bare export datagrams in a stream, expected them in a plain file")
            return form
        except InputError as error:
            if not (codec and damage):
                raise
            told = f"{damage.replace('_', ' ')} after {len(head)} bytes, before any record"
            problem = f" ({self._source.problem})" if self._source.problem else ""
            raise InputError(f"{self.path}: {codec.name}-compressed, but {told}{problem}") from error


GRACE = 0.5
"""Seconds without anything to read after which a live input that shall stop does: its writer may have been stopped by
the same Ctrl-C, and be about to write what it has left."""

AT_LAST = 2.0
"""Seconds after which it stops though there is more to read."""


def blocks_until_stopped(
    stream: StreamedCapture, stopping: Callable[[], bool], block_records: int = BLOCK_RECORDS
) -> Generator[Block | None, None, None]:
    """Yield a stream's blocks, until it ends or, soon after `stopping` says so, with what has been read.

    A finite stream stops at once. Close the iterator to let go of the stream's buffers.
    """
    heard = time.monotonic()
    stopped: float | None = None
    blocks = stream.blocks(block_records)
    try:
        for block in blocks:
            if block is not None:
                heard = time.monotonic()
                yield block
            else:
                yield None
            if stopping():
                if not stream.live:
                    return
                now = time.monotonic()
                stopped = stopped or now
                if not stream.written or now >= min(max(heard, stopped) + GRACE, stopped + AT_LAST):
                    stream.stop()
    finally:
        close = getattr(blocks, "close", None)
        if close is not None:
            close()
