"""Temporary folders of a JVM, of `wiretide demo`, or of a task. They are removed after their use, or at a later start.

    TMPDIR/wiretide-spark-XXXXXXXX/lock    held with flock by the process that started the JVM
    TMPDIR/wiretide-demo-XXXXXXXX/lock     held with flock by the demo
    .../wiretide-attempt-XXXXXXXX/lock     held with flock by the Python worker of an attempt of a task

A killed process cannot remove its folder, but the operating system releases its lock. So the next start, or the next
task of the same executor, removes each folder of this user whose lock is free. A stored process ID would not be
sufficient, because a later process may have the same ID.

The folder itself is held with flock too. Otherwise systemd-tmpfiles(8) would remove files of a long run by their
age; it skips locked folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from capture.lazy_dataclasses import dataclass

PREFIX = "wiretide-spark-"


@dataclass(frozen=True)
class ScratchFolder:
    """A folder that is in use until `remove` is called or the process ends."""

    path: Path
    locks: tuple[int, int]  # descriptors of the folder and of its file `lock`

    @classmethod
    def create(cls, prefix: str = PREFIX, parent: Path | None = None) -> ScratchFolder:
        """Create a folder for this process. First remove the folders with this prefix that no process uses any more.

        `parent`: None for the temporary folder of the system.
        """
        parent = parent or Path(tempfile.gettempdir())
        remove_abandoned(parent, prefix)
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        lock = os.open(path / "lock.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # without locks in the file system, no other process removes the folder
            fcntl.flock(folder, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_EX)
            (path / "lock.new").rename(path / "lock")  # so a visible lock file is always locked
        return cls(path, (folder, lock))

    def remove(self) -> None:
        """Remove the folder, even if processes that are ending still write into it."""
        _remove_folder(self.path)
        for lock in self.locks:
            with contextlib.suppress(OSError):
                os.close(lock)


def _remove_folder(path: Path) -> None:
    """Remove a folder, and its lock file last: if this process is killed, another one can remove the rest."""
    with contextlib.suppress(OSError):
        for child in path.iterdir():
            if child.is_dir() and not child.is_symlink():
                shutil.rmtree(child, ignore_errors=True)
            elif child.name != "lock":
                child.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(folder: Path, prefix: str = PREFIX) -> list[Path]:
    """Remove the folders of this user whose processes have ended. Return the removed folders."""
    removed = []
    for path in folder.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_uid != os.geteuid():
                continue
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_folder(path)
                removed.append(path)
            finally:
                os.close(lock)
    return removed
