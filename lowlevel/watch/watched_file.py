"""A watchlist as a query holds it: the name of a file, and what was last read of it.

What is compared, printed and pickled is the name and the form alone. So whoever takes a plan over, a task of Spark for
one, reads the file itself when it first needs it. What has been read stays until `refresh` finds another version of the
file, whole and without a mistake.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from capture.descriptors import is_shortage
from capture.errors import InputError
from lowlevel.watch.contents import Contents, Form, WatchlistError, read_contents
from lowlevel.watch.ranges import Numbers

EVERY = 1.0
"""Seconds between two looks at a file, at least."""

KEPT = 8
"""Versions of files that are kept for others who read the same."""

Identity = tuple[int, int, int]
"""When a file was changed (ns), its size and its inode: another version of it has another."""


class Looked(Enum):
    """What a look at a file has brought."""

    SAME = "same"
    RELOADED = "reloaded"
    FAILED = "failed"


class Labels:
    """The numbers of a file's labels, the same for all who read it in this process: equal numbers are equal texts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._places: dict[str, int] = {}
        self._lock = threading.Lock()

    def ids(self, texts: tuple[str, ...]) -> Numbers | None:
        """Return the number of each text, new ones for new texts; None where they are 0, 1, 2 and so on."""
        with self._lock:
            for text in texts:
                if text not in self._places:
                    self.texts.append(text)
                    self._places[text] = len(self.texts) - 1
            ids = np.array([self._places[text] for text in texts], np.int64)
        return None if np.array_equal(ids, np.arange(len(ids))) else ids


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a file; `ids` are the numbers of its labels, `names` what all numbers stand for.

    `ids` is None where the number of a label is its place, as in the first version of every file.
    """

    identity: Identity
    contents: Contents
    ids: Numbers | None
    names: list[str]


class _Held(threading.local):
    """The versions that this thread goes by in the block it is in, by the file's id; None outside of one."""

    versions: dict[int, Version] | None = None


_held = _Held()
_labels: WeakValueDictionary[str, Labels] = WeakValueDictionary()
_labels_lock = threading.Lock()


@dataclass(frozen=True)
class WatchedFile:
    """A file of the form that a query needs; `path` is absolute. Any threads may use it."""

    path: str
    form: Form

    def __post_init__(self) -> None:
        """Read nothing yet."""
        with _labels_lock:
            labels = _labels.setdefault(self.path, Labels())
        object.__setattr__(self, "_state", _State(labels))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave behind what was read."""
        return WatchedFile, (self.path, self.form)

    @property
    def version(self) -> Version:
        """What the file says, for this thread; read where it was not yet. Raises InputError where it cannot be."""
        state = self._own
        if _held.versions is not None and id(self) in _held.versions:
            return _held.versions[id(self)]
        if state.followed:
            self.refresh(time.monotonic())
        return state.version or self.read()

    def follow(self) -> None:
        """Look for changes whenever it is asked for, where nobody refreshes it."""
        self._own.followed = True

    def read(self) -> Version:
        """Read the file where that was not done yet; raises InputError where it cannot be."""
        state = self._own
        with state.lock:
            return state.version or self._take(*self._load())

    def refresh(self, now: float) -> Looked:
        """Look whether the file has changed, where the last look is EVERY seconds past at `now` (s); read it then.

        What cannot be read or is no watchlist is warned of once and left; what was read before stays. Whoever comes
        while another thread reads goes on with the old version.
        """
        state = self._own
        if now - state.looked < EVERY or not state.lock.acquire(blocking=False):
            return Looked.SAME
        try:
            state.looked = now
            return self._look(state)
        finally:
            state.lock.release()

    def _look(self, state: _State) -> Looked:
        try:
            seen: Identity | None = _identity(Path(self.path).stat())
        except OSError:
            seen = None
        if seen == state.seen:
            return Looked.SAME
        state.seen = seen
        if state.version is not None and seen == state.version.identity:
            return Looked.SAME  # one that had vanished is back
        before = state.version
        try:
            self._take(*self._load())
        except InputError as error:
            if is_shortage(error.__cause__):
                state.seen = before.identity if before else None  # it is read at the next look
                return Looked.FAILED
            text = f"{error}; the list stays as it was" if before else str(error)
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return Looked.FAILED
        return Looked.RELOADED

    def _load(self) -> tuple[Identity, Contents]:
        """Read the file whole; raises InputError."""
        try:
            identity = _identity(Path(self.path).stat())
            return identity, _contents(self.path, self.form, identity)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read as a watchlist: {error.strerror}") from error
        except WatchlistError as error:
            raise InputError(f"{self.path}: {error}") from None

    def _take(self, identity: Identity, contents: Contents) -> Version:
        state = self._own
        version = Version(identity, contents, state.labels.ids(contents.labels), state.labels.texts)
        state.version, state.seen = version, identity
        return version

    @property
    def _own(self) -> _State:
        state: _State = self._state  # type: ignore[attr-defined]
        return state


class _State:
    """What a WatchedFile has read, and when it last looked."""

    def __init__(self, labels: Labels) -> None:
        self.lock = threading.Lock()
        self.labels = labels
        self.version: Version | None = None
        self.seen: Identity | None = None
        self.looked = -EVERY
        self.followed = False


def hold(files: list[WatchedFile]) -> None:
    """Let this thread go by the versions that `files` have now, until `release`."""
    release()
    _held.versions = {id(file): file.version for file in files}


def release() -> None:
    """Let this thread go by what is newest again."""
    _held.versions = None


def _identity(status: os.stat_result) -> Identity:
    return status.st_mtime_ns, status.st_size, status.st_ino


@lru_cache(KEPT)
def _contents(path: str, form: Form, identity: Identity) -> Contents:
    """Read one version of a file. Raises OSError, or WatchlistError, also where it changes meanwhile."""
    with Path(path).open("rb") as file:
        data = file.read()
        if _identity(os.fstat(file.fileno())) != identity or len(data) != identity[1]:
            raise WatchlistError("changed while it was read; write another file and rename it")
    return read_contents(data, form)
