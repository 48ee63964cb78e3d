"""FollowedCapture: reads a growing file or folder as one endless capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, TRUNCATIONS, Block
from capture.files.byte_source import WAIT_SECONDS
from capture.files.decompressed import CUT_IN_COMPRESSION, DecompressedSource
from capture.files.formats import HEAD_BYTES
from capture.files.rotation import NextFile, Rotation, StoredProgress
from capture.files.stream import StreamedCapture
from capture.metrics import FILES_DAMAGED, FILES_FOLLOWED, FILES_REFUSED, FILES_REPLACED, FILES_RETRIED, Samples


class NoBytes:
    """The byte source while no file is open: live, but without bytes."""

    live = True
    size = 0
    consumed = 0

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Return None: no bytes have arrived."""
        return None

    def rewind(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class FollowedCapture(StreamedCapture):
    """The files that a `Rotation` chooses. Each file is read until it is complete, then the next file. Always live.

    * Each file has its own `format`: the files of a folder may differ in format, compression and link types.
    * Files with damage are counted in `samples`. Files that are not captures are counted and skipped. `damage` is
      always None. InputError is raised only with `is_single_file`, if the first content of the file is not a capture.
    * A partial record at the end of a file is damage only if another file follows. Otherwise later bytes complete it.
    """

    def __init__(self, path: Path, rotation: Rotation, *, is_single_file: bool) -> None:
        """Follow the files of `rotation`. Error messages contain `path`."""
        super().__init__(path, NoBytes())
        self._rotation = rotation
        self._single = is_single_file
        self._bytes_before = 0  # bytes of the previous files
        self.files_opened = 0
        """Number of files opened; incremented before the first block of each file."""
        self._current: tuple[NextFile, int] | None = None  # the current file, and how many of its records were yielded
        self._files_followed = self._files_replaced = self._files_refused = 0
        self._files_damaged: Counter[str] = Counter()

    @property
    def consumed(self) -> int:
        """Bytes read so far, of all files."""
        return self._bytes_before + self._source.consumed

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks of all files until the capture is stopped, and None after WAIT_SECONDS without a block."""
        while not self._stopped.is_set():
            try:
                file = self._rotation.next()
            except OSError:
                self._files_refused += 1
                continue
            if file is None:
                self._stopped.wait(WAIT_SECONDS)
                yield None
            else:
                yield from self._follow(file, block_records)

    def position(self) -> list[StoredProgress]:
        """Return the progress in each file, after all blocks yielded so far."""
        return self._rotation.all_progress(*self._current) if self._current else self._rotation.all_progress()

    def resume(self, stored: list[StoredProgress]) -> None:
        """Continue from a `position`. Call this before the first block is read."""
        self._rotation.restore(stored)

    def samples(self, link: str) -> Samples:
        """Return the numbers of followed, replaced, refused and (by cause) damaged files, and the number of retries."""
        samples = Samples()
        samples.add(FILES_FOLLOWED, self._files_followed, link)
        samples.add(FILES_REPLACED, self._files_replaced, link)
        samples.add(FILES_REFUSED, self._files_refused, link)
        samples.add(FILES_RETRIED, self._rotation.retries, link)
        for cause, count in self._files_damaged.items():
            samples.add(FILES_DAMAGED, count, link, cause)
        return samples

    def _follow(self, file: NextFile, block_records: int) -> Iterator[Block | None]:
        """Read one file until it is complete."""
        self._source = DecompressedSource(file.source)
        self.files_opened += 1
        self._files_replaced += file.is_replacement
        self._files_followed += not file.skip_records
        records_read, is_closed = file.skip_records, False
        try:
            for block in self._read(block_records, file.skip_records):
                records_read += block.records if block else 0
                self._current = file, records_read
                yield block
        except InputError:
            if self._single and self._files_followed == 1:
                raise
            # A file of less than HEAD_BYTES may still become a capture; a longer file cannot.
            is_closed = file.source.consumed >= HEAD_BYTES
            self._files_refused += is_closed
        if self.damage:
            self._files_damaged[self.damage] += 1
            is_closed = self.damage not in (*TRUNCATIONS, CUT_IN_COMPRESSION)  # a truncated file may still grow
            self.damage = None
        self._current = None
        self._rotation.store_progress(file, records_read, is_closed=is_closed)
        self._bytes_before += file.source.consumed
        self._source.close()
        self._source = DecompressedSource(NoBytes())
