"""Watchlist files: their names in plans, and the versions that nodes and engines have read.

A plan contains a `WatchedFile`: a name and a form, immutable and picklable. A node or an engine owns `Watchlists`, a
registry of the files that it has opened. The owner replaces each `WatchedFile` in its expressions by the `Watchlist` of
its registry (`lowlevel.node.watching.bind`). A version stays in use until `refresh` reads a valid new one.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path

import numpy as np

from capture.descriptors import is_shortage
from capture.errors import InputError
from lowlevel.watch.contents import Contents, Form, WatchlistError, read_contents
from lowlevel.watch.ranges import Numbers

EVERY = 1.0
"""Shortest time between two checks of a file, s."""

KEPT = 8
"""Number of versions in the cache, for nodes that read the same file."""

Identity = tuple[int, int, int]
"""Time of the last change (ns), size and inode; they differ between versions of a file."""


class Looked(Enum):
    """The result of a check of a file."""

    SAME = "same"
    RELOADED = "reloaded"
    FAILED = "failed"


class Labels:
    """The numbers of the labels of all versions of a file: equal numbers mean equal texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}

    def ids(self, texts: tuple[str, ...]) -> Numbers | None:
        """Return the number of each text, with new numbers for new texts; None if they are 0, 1, 2 and so on."""
        for text in texts:
            if text not in self._places:
                self.texts.append(text)
                self._places[text] = len(self.texts) - 1
        ids = np.array([self._places[text] for text in texts], np.int64)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file; `ids` are the numbers of its labels, `names` the labels of all numbers.

    `ids` is None if the number of a label is its index, as in the first version of every file.
    """

    identity: Identity
    contents: Contents
    ids: Numbers | None
    names: list[str]


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """The name of a watchlist's file and the form of its lines. `path` is absolute."""

    path: str
    form: Form


class Watchlist:
    """An open file of a registry. It replaces its `WatchedFile` in expressions. Any threads may use it."""

    def __init__(self, file: WatchedFile, followed: bool) -> None:
        """Open a file without reading it. If `followed`, `version` checks for a new version of the file."""
        self.path = file.path
        self.followed = followed
        self.looks = dict.fromkeys(Looked, 0)
        """Number of checks of the file, by result."""
        self._file = file
        self._lock = threading.Lock()
        self._labels = Labels()
        self._version: Version | None = None
        self._seen: Identity | None = None
        self._looked = -EVERY

    def __repr__(self) -> str:
        """Return the text of the file: the names of columns may contain it."""
        return repr(self._file)

    @property
    def version(self) -> Version:
        """The version in use. The first use reads the file; raises InputError if it cannot be read."""
        if self.followed and self._version is not None:
            self.refresh(time.monotonic())
        return self._version or self.read()

    def read(self) -> Version:
        """Read the file unless it has been read; raises InputError if it cannot be read."""
        with self._lock:
            return self._version or self._take(*self._load())

    def refresh(self, now: float) -> Looked:
        """Check for a new version and read it, if the last check is at least EVERY seconds before `now` (s).

        An unreadable or invalid file causes one warning, and the old version stays in use. The old version is also the
        result while another thread reads.
        """
        if now - self._looked < EVERY or not self._lock.acquire(blocking=False):
            return Looked.SAME
        try:
            self._looked = now
            looked = self._look()
            self.looks[looked] += 1
            return looked
        finally:
            self._lock.release()

    def _look(self) -> Looked:
        try:
            seen: Identity | None = _identity(Path(self.path).stat())
        except OSError:
            seen = None
        if seen == self._seen:
            return Looked.SAME
        self._seen = seen
        before = self._version
        if before is not None and seen == before.identity:
            return Looked.SAME  # a file that had vanished is back
        try:
            self._take(*self._load())
        except InputError as error:
            if is_shortage(error.__cause__):
                self._seen = before.identity if before else None  # the next check reads the file
                return Looked.FAILED
            text = f"{error}; the list stays as it was" if before else str(error)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return Looked.FAILED
        return Looked.RELOADED

    def _load(self) -> tuple[Identity, Contents]:
        """Read the whole file; raises InputError."""
        try:
            identity = _identity(Path(self.path).stat())
            return identity, _contents(self.path, self._file.form, identity)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read as a watchlist: {error.strerror}") from error
        except WatchlistError as error:
            raise InputError(f"{self.path}: {error}") from None

    def _take(self, identity: Identity, contents: Contents) -> Version:
        self._version = Version(identity, contents, self._labels.ids(contents.labels), self._labels.texts)
        self._seen = identity
        return self._version


class Watchlists:
    """A registry of open files: one `Watchlist` per `WatchedFile`. Any threads may use it."""

    def __init__(self, *, followed: bool = False) -> None:
        """Create an empty registry. If `followed`, each use of a list checks for a new version of its file."""
        self.followed = followed
        self._opened: dict[WatchedFile, Watchlist] = {}
        self._lock = threading.Lock()

    def open(self, file: WatchedFile) -> Watchlist:
        """Return the list of `file`, which the first use of its version reads."""
        with self._lock:
            if file not in self._opened:
                self._opened[file] = Watchlist(file, self.followed)
            return self._opened[file]

    def read(self, files: Iterable[WatchedFile]) -> list[Watchlist]:
        """Read files unless they have been read; return their lists. Raises InputError if one cannot be read."""
        lists = [self.open(file) for file in dict.fromkeys(files)]
        for opened in lists:
            opened.read()
        return lists


def read_watchlist(file: WatchedFile) -> Contents:
    """Return the current contents of a file; raises InputError if it cannot be read."""
    return Watchlists().open(file).version.contents


def _identity(status: os.stat_result) -> Identity:
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(KEPT)
def _contents(path: str, form: Form, identity: Identity) -> Contents:
    """Read one version of a file. Raises OSError or WatchlistError, also if the file changes meanwhile."""
    with Path(path).open("rb") as file:
        data = file.read()
        if _identity(os.fstat(file.fileno())) != identity or len(data) != identity[1]:
            raise WatchlistError("changed while it was read; write another file and rename it")
    return read_contents(data, form)
