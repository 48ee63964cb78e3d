"""A file or a folder that grows, as one capture that never ends by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, CUTS, Block
from capture.files.byte_source import WAIT
from capture.files.decompressed import CUT_IN_COMPRESSION, Decompressed
from capture.files.formats import HEAD_BYTES
from capture.files.rotation import Place, Rotation, Turn
from capture.files.stream import StreamedCapture
from capture.metrics import FILES_DAMAGED, FILES_FOLLOWED, FILES_REFUSED, FILES_REPLACED, FILES_RETRIED, Samples


class NoBytes:
    """The source before the first file: nothing, and more may come."""

    live = True
    size = 0
    consumed = 0

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read nothing."""
        return None

    def rewind(self) -> None:
        """Stay at nothing."""

    def close(self) -> None:
        """Hold nothing."""


class FollowedCapture(StreamedCapture):
    """The files that a `Rotation` gives, one after the other, each to where it ends for good. It is always live.

    * Every file has a `format` of its own: files of a folder may differ in container, compression and link types.
    * What ends badly is counted in `samples`, and so are files that are no captures, which are passed over; `damage` is
      always None. Only where a `single` file is followed and the first is no capture, InputError is raised.
    * A record that is cut at the end of a file is waited for, until there is another file to go on with.
    """

    def __init__(self, path: Path, rotation: Rotation, *, single: bool) -> None:
        """Follow `rotation`, which is called `path` in errors."""
        super().__init__(path, NoBytes())
        self._rotation = rotation
        self._single = single
        self._before = 0  # bytes of the files before
        self.turns = 0
        """Files that have been opened: it grows before the first block of each."""
        self._turn: tuple[Turn, int] | None = None  # the file being read, and its records handed out
        self._begun = self._replaced = self._refused = 0
        self._damaged: Counter[str] = Counter()

    @property
    def consumed(self) -> int:
        """Bytes of all files read so far."""
        return self._before + self._source.consumed

    def blocks(self, block_records: int = BLOCK_RECORDS) -> Iterator[Block | None]:
        """Yield blocks of all files until it is stopped, and None for a while without any."""
        while not self._stopped.is_set():
            try:
                turn = self._rotation.next()
            except OSError:
                self._refused += 1
                continue
            if turn is None:
                self._stopped.wait(WAIT)
                yield None
            else:
                yield from self._follow(turn, block_records)

    def position(self) -> list[Place]:
        """Return how far each file has been read, with all blocks that were yielded."""
        return self._rotation.places(*self._turn) if self._turn else self._rotation.places()

    def resume(self, places: list[Place]) -> None:
        """Go on from a `position`, before the first block."""
        self._rotation.know(places)

    def samples(self, link: str) -> Samples:
        """Return how many files were begun, replaced, passed over, and damaged by cause."""
        samples = Samples()
        samples.add(FILES_FOLLOWED, self._begun, link)
        samples.add(FILES_REPLACED, self._replaced, link)
        samples.add(FILES_REFUSED, self._refused, link)
        samples.add(FILES_RETRIED, self._rotation.retries, link)
        for cause, count in self._damaged.items():
            samples.add(FILES_DAMAGED, count, link, cause)
        return samples

    def _follow(self, turn: Turn, block_records: int) -> Iterator[Block | None]:
        """Read one file to where it ends for good."""
        self._source = Decompressed(turn.source)
        self.turns += 1
        self._replaced += turn.anew
        self._begun += not turn.skip
        records, closed = turn.skip, False
        try:
            for block in self._read(block_records, turn.skip):
                records += block.records if block else 0
                self._turn = turn, records
                yield block
        except InputError:
            if self._single and self._begun == 1:
                raise
            # A file of a few bytes may become one; what others begin with is no capture.
            closed = turn.source.consumed >= HEAD_BYTES
            self._refused += closed
        if self.damage:
            self._damaged[self.damage] += 1
            closed = self.damage not in (*CUTS, CUT_IN_COMPRESSION)  # what is only cut may grow on
            self.damage = None
        self._turn = None
        self._rotation.left(turn, records, closed=closed)
        self._before += turn.source.consumed
        self._source.close()
        self._source = Decompressed(NoBytes())
