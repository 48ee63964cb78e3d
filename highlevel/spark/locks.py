"""Files that one process at a time may hold: the folder of a run, and the spools that it reads."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from capture.private_files import open_private
from highlevel.spark.errors import FolderError


class Locks:
    """What this process holds. It is let go of with the process, however that ends. Not thread safe."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: dict[Path, IO[str]] = {}

    def hold(self, path: Path, otherwise: str) -> None:
        """Lock a file, which is made if need be; once is enough. Raise FolderError(otherwise) where another has."""
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
        """Let go of all; does nothing where nothing is held."""
        for file in self._held.values():
            file.close()
        self._held.clear()
