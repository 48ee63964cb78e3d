"""Files and folders that only this user can read: captures, spools, state, results, machine code.

Their content is private (addresses and traffic of other people) and trusted (a later run continues from it). So:

* New folders have mode 0700, new files mode 0600; the umask is ignored.
* A folder that another user can write to is rejected, because that user could replace every file in it.
* Temporary files have names with a random UUID (128 bits) and are created with O_EXCL. Names with the process ID would
  not be unique: processes of two containers that share a folder can have the same ID.
* The last part of a path is never followed if it is a symbolic link (O_NOFOLLOW).

The owner of a folder must be this user or root. Its parent may be writable by everybody if it has the sticky bit, like
/tmp.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from capture.errors import WiretideError

if TYPE_CHECKING:
    from typing_extensions import Buffer

FOLDER_MODE, FILE_MODE = 0o700, 0o600
"""Modes of private folders and files: only the owner can read and write."""

SHARED_FILE_MODE = 0o666
"""Mode of a file that the user names (`-o`), before the umask is applied."""

NAME_PREFIX_LENGTH = 32
"""Maximum characters of a file's name that its temporary name repeats. File names have at most 255 bytes."""

WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
"""Mode bits that allow group or others to write."""


class UnsafeFolderError(WiretideError):
    """Another user can change the files of a folder that must be private: change its mode, or use another folder."""


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents with mode 0700, or check an existing folder.

    Raises UnsafeFolderError if other users can write to it, OSError if it cannot be created.
    """
    missing = []
    folder = path
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder_to_create in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            folder_to_create.mkdir(FOLDER_MODE)
            folder_to_create.chmod(FOLDER_MODE)  # a umask may have removed the owner's bits
    check_private_folder(path)


def check_private_folder(path: Path) -> None:
    """Raise UnsafeFolderError if another user can write to a folder, OSError if the folder does not exist."""
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "Not a directory", str(path))
    if not belongs_to_us(status):
        raise UnsafeFolderError(
            f"{path}: another user can change the files in this folder: got owner {status.st_uid}, expected user "
            f"{os.geteuid()} or root; name a folder that does not exist yet, or run as its owner"
        )
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise UnsafeFolderError(
            f"{path}: other users can change the files in this folder: got mode {stat.S_IMODE(status.st_mode):04o}, "
            f"expected no write permission for group and others; run: chmod go-w '{path}', or name a folder in it "
            "that does not exist yet"
        )


def belongs_to_us(status: os.stat_result) -> bool:
    """Return whether a file or folder is owned by this user or by root."""
    return status.st_uid in (os.geteuid(), 0)


def only_we_can_write(status: os.stat_result) -> bool:
    """Return whether only the owner, who must be this user or root, can change a file or folder."""
    return belongs_to_us(status) and not status.st_mode & WRITABLE_BY_OTHERS


def open_private(path: Path, flags: int) -> int:
    """Open a file and return its descriptor. A missing file is created with mode 0600.

    Raises OSError (ELOOP) for a symbolic link. An existing file keeps its content, but gets mode 0600 too.
    """
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) != FILE_MODE and status.st_uid == os.geteuid():
            os.fchmod(descriptor, FILE_MODE)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def create_temporary(path: Path, mode: int = FILE_MODE) -> tuple[int, Path]:
    """Create a new file next to `path`, with a hidden random name of limited length. Return descriptor and path.

    With `mode` SHARED_FILE_MODE the umask decides who can read it.
    """
    while True:
        temporary = path.with_name(f".{path.name[:NAME_PREFIX_LENGTH]}.{os.urandom(16).hex()}.part")
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        except FileExistsError:
            continue
        if mode == FILE_MODE:
            os.fchmod(descriptor, mode)
        return descriptor, temporary


@contextlib.contextmanager
def open_replacement(path: Path, mode: int = FILE_MODE) -> Iterator[tuple[int, Path]]:
    """Yield descriptor and path of a temporary file, which replaces `path` at the end of the block.

    If the block raises, the temporary file is removed and `path` stays unchanged. The descriptor is closed here. An
    OSError of a write, such as a full disk, contains `path`.
    """
    descriptor, temporary = create_temporary(path, mode)
    try:
        try:
            yield descriptor, temporary
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


class NamedFile(FileIO):
    """A file for writing whose errors contain `path`: the system does not name the file of a full disk."""

    def __init__(self, file: Path | int, path: Path) -> None:
        """Open `file` for writing. A descriptor stays open when the object is closed."""
        super().__init__(file, "wb", closefd=not isinstance(file, int))
        self._path = path

    def write(self, data: Buffer, /) -> int:
        """Write data, or a part of it, and return the number of bytes. Raises OSError with the path."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = str(self._path)
            raise


def replace_file(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Write a private file atomically: readers see either the old content or the new one. `sync`: call fsync."""
    with open_replacement(path) as (descriptor, _):
        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(descriptor, remaining) :]
        if sync:
            os.fsync(descriptor)
