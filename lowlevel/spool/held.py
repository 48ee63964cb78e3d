"""The segments that are on the disk, as their writer knows them."""

from __future__ import annotations

from pathlib import Path

from lowlevel.spool.durable import disk_bytes
from lowlevel.spool.errors import SpoolError
from lowlevel.spool.folder import numbers, segment_path


class HeldSegments:
    """Numbers of the files and the disk they take, oldest first. Raises SpoolError where one cannot be deleted."""

    def __init__(self, folder: Path) -> None:
        """Look at what is there."""
        self.folder = folder
        self.bytes = 0
        self._bytes: dict[int, int] = {}
        for number in numbers(folder):
            self.add(number, segment_path(folder, number).stat().st_size)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def oldest(self) -> int | None:
        """The lowest number."""
        return next(iter(self._bytes), None)

    def oldest_after(self, committed: int) -> int | None:
        """The lowest number above one."""
        return next((number for number in self._bytes if number > committed), None)

    def newest_first(self) -> list[int]:
        """All numbers, descending."""
        return list(reversed(self._bytes))

    def add(self, number: int, size: int) -> None:
        """Take note of a new file, of a greater number than all others."""
        self._bytes[number] = disk_bytes(size)
        self.bytes += disk_bytes(size)

    def delete(self, number: int) -> None:
        """Delete a file, if it still is there."""
        path = segment_path(self.folder, number)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise SpoolError(f"{path}: cannot be deleted: {error.strerror}") from error
        self.bytes -= self._bytes.pop(number)

    def delete_committed(self, committed: int) -> None:
        """Delete all up to and with a number, but never the newest: the next writer goes on from it."""
        while len(self._bytes) > 1 and (number := next(iter(self._bytes))) <= committed:
            self.delete(number)
