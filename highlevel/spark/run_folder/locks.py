"""The locks of a run on its folder, and on the spools that it reads.

    folder/lock        two runs must not write into one folder
    spool/.run.lock    two runs must not read one spool, because each lets the node delete segments

The operating system releases the locks at the end of the process, even after a crash.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from capture.private_files import check_private_folder, open_private
from highlevel.inline.engine import Input
from highlevel.spark.errors import FolderError

LOCK_FILE = "lock"


class Locks:
    """The locks that this process has. Not thread safe."""

    def __init__(self) -> None:
        """Create an object without locks."""
        self._locked_files: dict[Path, IO[str]] = {}

    def lock_folder(self, folder: Path, name: str | None = None) -> None:
        """Lock the folder of a run. Raises FolderError, with `name` or the path, if another process has the lock."""
        message = f"{name or folder} is in use by another run; take another folder, or stop that run"
        self._lock(folder / LOCK_FILE, message)

    def lock_spools(self, inputs: Iterable[Input]) -> None:
        """Lock the spools whose folders exist. Raises UnsafeFolderError if another user can write to one."""
        for input_ in inputs:
            if input_.spool and input_.path.is_dir():
                check_private_folder(input_.path)
                message = f"{input_.path} is read by another run; stop that run, or let the node write another spool"
                self._lock(input_.path.absolute() / ".run.lock", message)

    def _lock(self, path: Path, message: str) -> None:
        """Lock a file, and create it if necessary.

        Repeated calls have no effect. Raises FolderError(message) if another process has the lock.
        """
        if path in self._locked_files:
            return
        file = os.fdopen(open_private(path, os.O_RDWR), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FolderError(message) from None
        self._locked_files[path] = file

    def release(self) -> None:
        """Release all locks. Does nothing without locks."""
        for file in self._locked_files.values():
            file.close()
        self._locked_files.clear()


def is_in_use(folder: Path) -> bool:
    """Return True if a process runs the pipeline of this folder."""
    try:
        with (folder / LOCK_FILE).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released when the file is closed
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
