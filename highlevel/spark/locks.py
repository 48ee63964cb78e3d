"""Files that one process at a time may hold: the folder of a run, and the spools that it reads."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from capture.private_files import open_private
from highlevel.spark.errors import FolderError


class Locks:
    """Locks of this process.

    The kernel releases them at the end of the process, also after a crash. Not thread safe.
    """

    def __init__(self) -> None:
        """Create an object without locks."""
        self._held: dict[Path, IO[str]] = {}

    def hold(self, path: Path, otherwise: str) -> None:
        """Lock a file, and create it if necessary.

        Repeated calls have no effect. Raise FolderError(otherwise) if another process has the lock.
        """
        if path in self._held:
            return
        file = os.fdopen(open_private(path, os.O_RDWR), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise FolderError(otherwise) from None
        self._held[path] = file

    def release(self) -> None:
        """Release all locks. Does nothing without locks."""
        for file in self._held.values():
            file.close()
        self._held.clear()
