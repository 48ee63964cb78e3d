"""Files of watchlists and settings: their names in plans, and the open files of nodes and engines.

A plan contains a `WatchedFile`: a name and a form, immutable and picklable. A node or an engine owns `Watchlists`, a
registry of open files. It replaces each `WatchedFile` in its expressions by the `Watchlist` of its registry
(`lowlevel.node.node_watchlists.bind_watchlists`). A `Watchlist` uses one version of the file until `refresh` reads a
valid new version.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Iterable
from dataclasses import field
from enum import Enum
from functools import lru_cache
from pathlib import Path

import numpy as np

from capture.descriptors import is_shortage
from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from lowlevel.watch.contents import Contents, Form, RuleForm, read_contents
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.ranges import Numbers
from lowlevel.watch.settings import Setting

CHECK_INTERVAL = 1.0
"""Minimum time between two checks of a file, in seconds."""

CACHED_VERSIONS = 8
"""Number of versions in the cache, which all nodes of a process share."""

Identity = tuple[int, int, int]
"""Time of the last change (ns), size and inode. Two versions of a file differ in at least one of these."""


_printed_warnings: dict[str, tuple[Identity | None, dict[str | tuple[str, type[Warning], int], int]]] = {}
"""The wrong version of each file and its registry of warnings, so that each version causes one warning in a process."""


_printed_line_warnings: dict[tuple[str, Form | Setting | RuleForm], set[str]] = {}
"""The warnings about the last version of a file, without their lines: they are not printed again."""


class CheckResult(Enum):
    """The result of a check of a file."""

    SAME = "same"
    RELOADED = "reloaded"
    FAILED = "failed"


class Labels:
    """IDs of the labels of all versions of a file: two labels are equal if and only if their IDs are equal."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def ids(self, texts: tuple[str, ...]) -> Numbers | None:
        """Return the ID of each text, and new IDs for new texts. Return None if each ID is the index of its text."""
        for text in texts:
            if text not in self._ids:
                self.texts.append(text)
                self._ids[text] = len(self.texts) - 1
        ids = np.array([self._ids[text] for text in texts], np.int64)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file.

    * `ids`: the IDs of its labels; None if the ID of a label is its index, as in the first version.
    * `names`: the labels of all versions, indexed by ID.
    """

    identity: Identity
    contents: Contents
    ids: Numbers | None
    names: list[str]


@dataclass(frozen=True, slots=True)
class WatchedFile:
    """The absolute `path` of a file, and its `form`: the form of a watchlist's lines, the setting to read, or rules.

    `read_from`: the path of a copy that is read in place of the file; empty for none.
    """

    path: str
    form: Form | Setting | RuleForm
    read_from: str = field(default="", compare=False, repr=False)

    @property
    def location(self) -> Path:
        """The path that is read."""
        return Path(self.read_from or self.path)

    @property
    def noun(self) -> str:
        """The word for the file in messages."""
        if isinstance(self.form, RuleForm):
            return f"file of {self.form}s"
        return "setting" if isinstance(self.form, Setting) else "watchlist"

    @property
    def unchanged(self) -> str:
        """The end of a message about a wrong version: the last version stays in use."""
        if isinstance(self.form, RuleForm):
            return f"the {self.form}s stay as they were"
        return f"the {self.noun} stays as it was"


class Watchlist:
    """An open watchlist file and its version in use. It replaces a `WatchedFile` in expressions. Thread safe."""

    def __init__(self, file: WatchedFile, is_followed: bool) -> None:
        """The file is read at the first use. If `is_followed`, each use of `version` checks for a new version."""
        self.path = file.path
        self.form = file.form
        self.is_followed = is_followed
        self.checks = dict.fromkeys(CheckResult, 0)
        """Number of checks of the file, by result."""
        self._file = file
        self._lock = threading.Lock()
        self._labels = Labels()
        self._version: Version | None = None
        self._last_identity: Identity | None = None
        self._checked_at = -CHECK_INTERVAL

    def __repr__(self) -> str:
        """Return the same text as the `WatchedFile`: names of columns may contain it."""
        return repr(self._file)

    @property
    def version(self) -> Version:
        """The version in use. The first use reads the file. Raises InputError if the file cannot be read."""
        if self.is_followed and self._version is not None:
            self.refresh(time.monotonic())
        return self.used_version

    @property
    def used_version(self) -> Version:
        """The version in use, without a check for a new one. Raises InputError if the file cannot be read."""
        return self._version or self.read()

    def read(self) -> Version:
        """Read the file unless it has been read. Raises InputError if the file cannot be read."""
        with self._lock:
            return self._version or self._set_version(*self._load())

    def refresh(self, now: float) -> CheckResult:
        """If the last check was at least CHECK_INTERVAL before `now` (s), check for a new version and read it.

        Each unreadable or invalid version causes one warning, and the old version stays in use. While another thread
        reads the file, the result is SAME.
        """
        if now - self._checked_at < CHECK_INTERVAL or not self._lock.acquire(blocking=False):
            return CheckResult.SAME
        try:
            self._checked_at = now
            result = self._check()
            self.checks[result] += 1
            return result
        finally:
            self._lock.release()

    def _check(self) -> CheckResult:
        """Read the file if its identity has changed since the last check."""
        identity = find_identity(self._file.location)
        if identity == self._last_identity:
            return CheckResult.SAME
        self._last_identity = identity
        old = self._version
        if old is not None and identity == old.identity:
            _printed_warnings.pop(self.path, None)
            return CheckResult.SAME  # the last version was wrong or missing, and this one is in use
        try:
            self._set_version(*self._load())
        except InputError as error:
            if is_shortage(error.__cause__):
                self._last_identity = old.identity if old else None  # the next check reads the file
                return CheckResult.FAILED
            text = f"{error}; {self._file.unchanged}" if old else str(error)
            self._warn(text, identity)
            return CheckResult.FAILED
        _printed_warnings.pop(self.path, None)
        return CheckResult.RELOADED

    def _warn(self, text: str, identity: Identity | None) -> None:
        """Emit a warning about a version. By default Python would not print the same text for a later version."""
        if self.path not in _printed_warnings or _printed_warnings[self.path][0] != identity:
            _printed_warnings[self.path] = identity, {}
        warnings.warn_explicit(text, RuntimeWarning, self.path, 0, registry=_printed_warnings[self.path][1])

    def _load(self) -> tuple[Identity, Contents]:
        """Return the identity and the contents of the file. Raises InputError if it cannot be read."""
        try:
            identity = _make_identity(self._file.location.stat())
            return identity, _contents(str(self._file.location), self._file.form, identity)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read as a {self._file.noun}: {error.strerror}") from error
        except WatchlistError as error:
            raise InputError(f"{self.path}: {error}") from None

    def _set_version(self, identity: Identity, contents: Contents) -> Version:
        """Make a version from the contents. The new version replaces the version in use."""
        self._version = Version(identity, contents, self._labels.ids(contents.labels), self._labels.texts)
        self._last_identity = identity
        if not self._file.read_from:  # the process that made the copy has printed them
            print_warnings(self._file, contents)
        return self._version


def print_warnings(file: WatchedFile, contents: Contents) -> None:
    """Emit the warnings about a version of a file that its last version in this process did not cause."""
    key, texts = (file.path, file.form), {text for _, text in contents.warnings}
    printed = _printed_line_warnings.pop(key, set())
    for line, text in contents.warnings:
        if text not in printed:
            warnings.warn_explicit(f"{file.path}: line {line}: {text}", RuntimeWarning, file.path, line, registry={})
    while len(_printed_line_warnings) >= CACHED_VERSIONS:
        _printed_line_warnings.pop(next(iter(_printed_line_warnings)), None)
    if texts:
        _printed_line_warnings[key] = texts


class Watchlists:
    """A registry of open files: one `Watchlist` per `WatchedFile`. Thread safe."""

    def __init__(self, *, is_followed: bool = False) -> None:
        """Create an empty registry. If `is_followed`, each use of a list checks for a new version of its file."""
        self.is_followed = is_followed
        self._opened: dict[WatchedFile, Watchlist] = {}
        self._lock = threading.Lock()

    def open(self, file: WatchedFile) -> Watchlist:
        """Return the list of `file`. The first use of its version reads the file."""
        with self._lock:
            if file not in self._opened:
                self._opened[file] = Watchlist(file, self.is_followed)
            return self._opened[file]

    @property
    def checked(self) -> list[Watchlist]:
        """The lists whose files were checked for a new version."""
        with self._lock:
            return [opened for opened in self._opened.values() if any(opened.checks.values())]

    def read(self, files: Iterable[WatchedFile]) -> list[Watchlist]:
        """Read the files that have not been read. Return their lists. Raises InputError if a file cannot be read."""
        lists = [self.open(file) for file in dict.fromkeys(files)]
        for opened in lists:
            opened.read()
        return lists


class NoWatchlists(Watchlists):
    """The registry for plans that are known to contain no file, so that they are not searched again.

    A run with a thousand queries would spend a third of its start with such searches.
    """


def read_watchlist(file: WatchedFile) -> Contents:
    """Return the current contents of a file. Raises InputError if the file cannot be read."""
    return Watchlists().open(file).version.contents


def find_identity(path: Path) -> Identity | None:
    """Return the identity of the present version of a file, None if the file is missing or not accessible."""
    try:
        return _make_identity(path.stat())
    except OSError:
        return None


def read_version(path: Path) -> bytes:
    """Return the bytes of one version of a file. Raises OSError, or WatchlistError if it changes during the read."""
    return _read_version(path, _make_identity(path.stat()))


def _make_identity(status: os.stat_result) -> Identity:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_version(path: Path, identity: Identity) -> bytes:
    with path.open("rb") as file:
        data = file.read()
        if _make_identity(os.fstat(file.fileno())) != identity or len(data) != identity[1]:
            raise WatchlistError("changed while it was read; write another file and rename it")
    return data


@lru_cache(CACHED_VERSIONS)
def _contents(path: str, form: Form | Setting | RuleForm, identity: Identity) -> Contents:
    """Read one version of a file. Raises OSError, or WatchlistError if it is invalid or changes during the read."""
    return read_contents(_read_version(Path(path), identity), form)
