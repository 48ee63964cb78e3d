"""Templates of flow exports that other files of the same link announce.

    data.pcap       sets of template 256          files are ordered by their first records,
    later.pcap      template 256 is announced     not by their names

A link may be stored in many rotated files, which together are its recording. An exporter announces its templates only
at intervals. If records of a file lack a template, the reader searches the recording for it:

* **Earlier files.** The last definition in these files is used at once.
* **Later files.** The records wait in the decoder until the end of their file. Then they are decoded with the first
  definition in a later file. The memory of waiting records is bounded. The decoder reports records without any
  definition.

The other files are scanned for announcements only if records lack a template. The result of a scan depends only on the
file, so that a restarted task reads the same rows.
"""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from threading import RLock

import numpy as np

from capture.errors import InputError
from capture.files.blocks import BLOCK_RECORDS, BLOCK_WORDS, CONTINUE, END_OF_FILE, NO_WATERMARK, Block, WalkState
from capture.files.capture import AnyCapture, Capture
from capture.flows.announcements import Announcements
from capture.flows.sampling import Sampling
from capture.flows.sessions import SessionKey
from capture.flows.templates import Definition
from capture.open import open_finite
from lowlevel.rows.flows import FlowReader

FIRST_RECORDS = 64
"""Number of records at the start of a file whose smallest time is the position of the file in the recording."""

CACHED_SCANS = 4096
"""Number of files whose announcements a process caches."""


class Recording:
    """The other files of a capture's link, in the order of their first records. Any thread may use it."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        """Set the file `path` and all `files` of its link. Other files are opened at the first request."""
        self.path = path
        self.files = files

    @functools.cached_property
    def _ordered(self) -> tuple[list[Path], list[Path]]:
        """The files before `path`, the nearest first, and the files after `path`."""
        ordered = sorted(self.files, key=lambda path: (_first_time(path), str(path)))
        index = ordered.index(self.path)
        return ordered[:index][::-1], ordered[index + 1 :]

    def earlier_definition(self, key: SessionKey, template: int) -> Definition | None:
        """Return the last definition in earlier files; None if there is none or if it was withdrawn."""
        for path in self._ordered[0]:
            announced = announcements_of(path)
            if (key, template) in announced.last_definitions:
                return announced.last_definitions[key, template]
        return None

    def rates(self, key: SessionKey) -> tuple[Sampling | None, int | None]:
        """Return the last sampling and start time (ms) of a session in earlier files; None if there is none."""
        sampling = started = None
        for path in self._ordered[0]:
            announced = announcements_of(path)
            sampling = sampling or announced.sampling.get(key)
            started = announced.exporter_starts.get(key) if started is None else started
            if sampling is not None and started is not None:
                break
        return sampling, started

    def later_announcements(self) -> Iterator[Announcements]:
        """Yield the announcements of the later files, in their order."""
        return (announcements_of(path) for path in self._ordered[1])


_scanning = RLock()  # without the lock, two threads may scan the same file


def announcements_of(path: Path) -> Announcements:
    """Return the announcements in a file. An unreadable file has none; the reader of that file reports the error."""
    with _scanning:
        try:
            status = path.stat()
            return _scan_file(path, (status.st_ino, status.st_size, status.st_mtime_ns))
        except (InputError, OSError):
            return Announcements()


@functools.lru_cache(maxsize=CACHED_SCANS)
def _scan_file(path: Path, _version: tuple[int, int, int]) -> Announcements:
    """Scan a file. Its inode, size and time (ns) are part of the cache key, because the file can be replaced."""
    announcements = Announcements()
    capture = open_finite(path, "a recording")
    reader = FlowReader(path.stem, capture, ["ts"], BLOCK_RECORDS)
    reader.decoder.templates.listener = announcements.add
    with closing(_blocks(capture, BLOCK_RECORDS)) as blocks:
        for block in blocks:
            for _ in reader.read(block):
                continue
    for session in reader.decoder.sessions:
        if session.sampling.default_rate or session.sampling.rates_by_key:
            announcements.sampling[session.key] = session.sampling
        if session.exporter_start is not None:
            announcements.exporter_starts[session.key] = session.exporter_start
    return announcements


def _first_time(path: Path) -> int:
    """Return the smallest time (ns) of a file's first records; the largest int64 if there is no record."""
    try:
        with closing(_blocks(open_finite(path, "a recording"), FIRST_RECORDS)) as blocks:
            return min((block.min_ts for block in islice(blocks, 1)), default=END_OF_FILE)
    except (InputError, OSError):
        return END_OF_FILE


def _blocks(capture: AnyCapture, records: int) -> Generator[Block, None, None]:
    """Yield the blocks of a finite capture; close it at the end."""
    if isinstance(capture, Capture):
        state, row = WalkState(capture.format.first_record), np.empty((1, BLOCK_WORDS), np.int64)
        while state.status == CONTINUE:
            if capture.format.walk(capture.data, len(capture.data), records, row, state):
                start, after, count, first, last, section = row[0].tolist()
                yield Block(start, after, count, first, last, NO_WATERMARK, section)
        return
    try:
        yield from (block for block in capture.blocks(records) if block is not None)
    finally:
        capture.close()
