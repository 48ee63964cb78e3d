"""Copies of the files with watchlists and settings, in the folder of a run. They change only between micro-batches.

    folder/watched/<digest>-limits.toml    the last valid version of a file; the digest is that of its path
    folder/watched/batch                   the newest micro-batch that uses these versions

Tasks read the copies, so all tasks of a micro-batch use the same version. The copies are made before the first task of
a micro-batch, and then `batch` is written. So a repeated micro-batch uses the version of its first attempt. If a new
version is invalid, or the file is missing, the run continues with the last valid version, also after a restart.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from capture.descriptors import is_shortage
from capture.errors import InputError
from capture.metrics import Samples
from capture.private_files import make_private_folder, replace_file
from highlevel.plan.plan import Plan
from highlevel.spark.errors import FolderError
from highlevel.spark.run_folder.checked_files import REMEDY, read_document, write_document
from lowlevel.metrics import WATCHLIST_FAILED, WATCHLIST_RELOADS
from lowlevel.node.node_watchlists import find_watched_files, replace_watched_files
from lowlevel.watch.contents import read_contents
from lowlevel.watch.errors import WatchlistError
from lowlevel.watch.watched_file import Identity, WatchedFile, find_identity, print_warnings, read_version

FOLDER = "watched"
"""Name of the folder of the copies in the folder of a run."""


class WatchedCopies:
    """The copies of the files that some plans read.

    `say` receives a line for each version that is accepted or refused.
    """

    def __init__(self, plans: Sequence[Plan], folder: Path, say: Callable[[str], None]) -> None:
        """`folder` is the folder of the run."""
        self._folder = folder / FOLDER
        self._say = say
        self._files: dict[str, list[WatchedFile]] = {}
        for file in find_watched_files(tuple(plans)):
            self._files.setdefault(file.path, []).append(file)
        self._seen: dict[str, Identity | None] = {}
        self.samples = Samples()
        """The counters of new versions since the start of this process."""
        for path in self._files:
            for metric in (WATCHLIST_RELOADS, WATCHLIST_FAILED):
                self.samples.add(metric, 0, "", path)

    def open(self) -> None:
        """Copy the files that have no valid copy yet. Report other files that are missing or invalid.

        Raises InputError for a file that is missing or invalid, and has no copy.
        """
        if not self._files:
            return
        make_private_folder(self._folder)
        for path in self._files:
            copy = self._copy_of(path)
            if not copy.exists() or not self._is_valid(path, read_copy(copy)):
                replace_file(copy, self._read(path))
            elif self._read_new(path, find_identity(Path(path))) is not None:
                del self._seen[path]  # the next micro-batch uses this version

    def bind(self, plans: Iterable[Plan]) -> tuple[Plan, ...]:
        """Return plans that read the copies. They compare equal to `plans`."""
        if not self._files:
            return tuple(plans)
        return replace_watched_files(tuple(plans), lambda file: replace(file, read_from=str(self._copy_of(file.path))))

    def refresh(self, batch_id: int) -> None:
        """Copy new valid versions before the tasks of a micro-batch, unless it is repeated."""
        if not self._files or self._last_batch() == batch_id:
            return
        for path, files in self._files.items():
            self._refresh(path, files[0])
        write_document(self._folder / "batch", {"batch": batch_id})

    def _last_batch(self) -> int:
        try:
            return int(read_document(self._folder / "batch")["batch"])
        except FileNotFoundError:
            return -1

    def _refresh(self, path: str, file: WatchedFile) -> None:
        identity = find_identity(Path(path))
        if path in self._seen and self._seen[path] == identity:
            return
        data, copy = self._read_new(path, identity), self._copy_of(path)
        if data is None:
            return
        if data != read_copy(copy):
            replace_file(copy, data)
            self.samples.add(WATCHLIST_RELOADS, 1, "", path)
            self._say(f"{path}: the new {file.noun} is used from this micro-batch on")
            for watched in self._files[path]:
                print_warnings(watched, read_contents(data, watched.form))

    def _read_new(self, path: str, identity: Identity | None) -> bytes | None:
        """Return the bytes of a version that this process has not read yet. Count and report it if it is wrong."""
        self._seen[path] = identity
        try:
            return self._read(path)
        except InputError as error:
            self.samples.add(WATCHLIST_FAILED, 1, "", path)
            if is_shortage(error.__cause__):
                del self._seen[path]  # the next micro-batch reads the file
            else:
                self._say(f"warning: {error}; {self._files[path][0].unchanged}")
            return None

    def _read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises InputError if it cannot be read, is invalid, or changes while it is read.
        """
        file = self._files[path][0]
        try:
            data = read_version(Path(path))
            self._check(path, data)
        except OSError as error:
            raise InputError(f"{path}: cannot be read as a {file.noun}: {error.strerror}") from error
        except WatchlistError as error:
            raise InputError(f"{path}: {error}") from None
        return data

    def _check(self, path: str, data: bytes) -> None:
        """Raise WatchlistError if `data` are invalid for one of the queries that read the file."""
        for watched in self._files[path]:
            read_contents(data, watched.form)

    def _is_valid(self, path: str, data: bytes) -> bool:
        """Return whether the queries accept a copy.

        The queries may have changed, and with them the allowed values of settings.
        """
        try:
            self._check(path, data)
        except WatchlistError:
            return False
        return True

    def _copy_of(self, path: str) -> Path:
        return self._folder / name_of_copy(path)


def name_of_copy(path: str) -> str:
    """Return the name of the copy of a file with an absolute path."""
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    return f"{digest}-{Path(path).name}"


def read_copy(copy: Path) -> bytes:
    """Return the bytes of a copy.

    Raises FolderError if it cannot be read, because another version would change results.
    """
    try:
        return copy.read_bytes()
    except OSError as error:
        raise FolderError(f"{copy}: cannot be read: {error.strerror}; {REMEDY}") from error
