"""The folder of compiled kernels. Machine code runs with the rights of this user, so only safe folders are used."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import functools
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from capture.private_files import (
    UnsafeFolderError,
    belongs_to_us,
    check_private_folder,
    make_private_folder,
    only_we_can_write,
)

CACHE_NAME = "kernels"
"""Name of the cache folder for machine code."""

SHIPPED_FOLDER = Path("share", "wiretide", CACHE_NAME)
"""Folder of the machine code that is shipped with an environment, relative to its prefix (`wiretide pack`)."""


def cache_folder() -> Path:
    """Return the folder of the machine code: `$XDG_CACHE_HOME/wiretide/kernels`, by default below `~/.cache`.

    Machine code runs with the rights of this user. A hash in the file would not protect the code, because an attacker
    who can replace the code can replace the hash. So a folder that another user can write to is not used: this process
    prints one warning and compiles into a temporary folder.
    """
    return _cache_folder_of(os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME"))


@functools.cache
def _cache_folder_of(cache_home: str | None, _home: str | None) -> Path:
    """Return the cache folder for two variables of the environment, on which it depends. It is needed per kernel."""
    try:
        return _safe_folder(Path(cache_home) if cache_home else Path.home() / ".cache")
    except RuntimeError:  # no HOME and no such user, as in some containers: compile again in every process
        return _temporary_folder()


def _safe_folder(base: Path) -> Path:
    """Return the cache folder below `base`, or the temporary folder if another user can change the cache folder."""
    folder = base / "wiretide" / CACHE_NAME
    for level in (base / "wiretide", folder):
        try:
            check_private_folder(level)
            is_owned = belongs_to_us(level.lstat())
        except FileNotFoundError:
            continue  # it will be created with mode 0700
        except (NotADirectoryError, PermissionError):
            return folder  # harmless, because it can be neither read nor written
        except UnsafeFolderError as error:
            _warn(f"{error}; until then kernels are compiled again in every process")
            return _temporary_folder()
        if not is_owned:
            _warn(f"{level}: a symbolic link of another user; delete it; kernels are compiled again in every process")
            return _temporary_folder()
    return folder


def _warn(text: str) -> None:
    print(f"wiretide: warning: the cache of machine code is not used: {text}", file=sys.stderr, flush=True)


@functools.cache
def _temporary_folder() -> Path:
    """Create a temporary folder that only this process uses, because code from a shared folder is not trusted."""
    import tempfile  # rarely needed, and it imports `random`

    scratch = tempfile.TemporaryDirectory(prefix="wiretide-kernels-")
    atexit.register(scratch.cleanup)
    return Path(scratch.name)


def has_lasting_cache() -> bool:
    """Return whether the machine code that this process stores is kept for other processes."""
    return cache_folder().name == CACHE_NAME


def read_trusted(path: Path) -> bytes:
    """Read a file that only this user or root can write. Raises OSError for other files and for symbolic links."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not only_we_can_write(status):
            raise PermissionError(errno.EPERM, "other users can write this file", str(path))
        return file.read()


def shipped_folder() -> Path:
    """Return the folder of the machine code that was shipped with the environment of this process."""
    return Path(sys.prefix) / SHIPPED_FOLDER


@contextlib.contextmanager
def locked_cache() -> Iterator[None]:
    """Lock the cache folder during a block, so that the processes of a host do not compile the same kernels.

    The system releases the lock of a process that ends. A temporary cache, and a file system without locks, are not
    locked: then several processes may compile the same kernel, and store equal files.
    """
    descriptor = None
    if has_lasting_cache():
        with contextlib.suppress(OSError, UnsafeFolderError):
            make_private_folder(cache_folder())
            descriptor = os.open(cache_folder(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)
