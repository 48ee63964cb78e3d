"""Byte sources of captures that are not mapped into memory: files that are read sequentially, and pipes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import stat
import weakref
from pathlib import Path
from typing import Protocol

from capture.errors import InputError

STANDARD_INPUT = "-"
"""The path that means standard input."""

WAIT_SECONDS = 0.2
"""Maximum seconds that one read waits for bytes."""

PIPE_BYTES = 1 << 20
"""Buffer size in bytes requested for pipes (Linux only). With a large buffer, a writer of bursts waits less often."""


class ByteSource(Protocol):
    """A sequence of bytes that one thread reads in order."""

    @property
    def size(self) -> int:
        """Total bytes; 0 if unknown."""
        ...

    @property
    def live(self) -> bool:
        """True if more bytes may arrive later. A read may then return None."""
        ...

    @property
    def consumed(self) -> int:
        """Bytes read so far, in the unit of `size`."""
        ...

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Read available bytes into `buffer`, which has at least one byte. Return their number.

        Returns 0 at the end, and None if no byte arrived within `wait` seconds. Raises OSError.
        """
        ...

    def rewind(self) -> None:
        """Go back to the first byte. A live source cannot rewind."""
        ...

    def close(self) -> None:
        """Close the file. May be called again."""
        ...


class FileBytes:
    """A regular file, from its first byte to its current end."""

    live = False

    def __init__(self, descriptor: int) -> None:
        """Take ownership of the descriptor of an open file."""
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.consumed = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Read the next bytes. Never returns None, because reads of a file do not wait."""
        count = os.preadv(self.descriptor, [buffer], self.consumed)
        self.consumed += count
        return count

    def read(self, max_bytes: int) -> bytes:
        """Read up to `max_bytes` bytes."""
        data = os.pread(self.descriptor, max_bytes, self.consumed)
        self.consumed += len(data)
        return data

    def seek(self, offset: int) -> None:
        """Move to byte `offset`."""
        self.consumed = offset

    def rewind(self) -> None:
        """Go back to the first byte."""
        self.seek(0)


class PipeBytes:
    """A pipe or FIFO. It ends when its last writer has closed it. Reads also wait for the first writer."""

    live = True
    size = 0

    def __init__(self, descriptor: int) -> None:
        """Take ownership of the descriptor of an open pipe."""
        self.descriptor = descriptor
        self.consumed = 0
        self.close = weakref.finalize(self, os.close, descriptor)
        self._readable = select.poll()
        self._readable.register(descriptor, select.POLLIN)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def read_into(self, buffer: memoryview, wait: float) -> int | None:
        """Read the bytes in the pipe; wait only if it is empty."""
        if not self._readable.poll(wait * 1000):
            return None
        try:
            count = os.readv(self.descriptor, [buffer])
        except BlockingIOError:
            return None
        self.consumed += count
        return count

    def rewind(self) -> None:
        """Raise OSError, because a pipe does not keep the bytes that were read."""
        raise OSError("a pipe cannot be read again")


def open_source(path: Path) -> FileBytes | PipeBytes:
    """Open a regular file, a pipe or standard input (`-`), without waiting for a pipe's writer.

    Raises OSError, and InputError for a device, a socket or a terminal.
    """
    if str(path) == STANDARD_INPUT:
        descriptor = os.dup(0)
    else:
        mode = path.stat().st_mode  # checked before open, because opening a device can have side effects
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
            raise InputError(f"{path}: got a device or a socket, expected a file or a pipe")
        descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if stat.S_ISFIFO(mode) else 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return FileBytes(descriptor)
    if stat.S_ISFIFO(mode):
        return PipeBytes(descriptor)
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise InputError(f"{path}: got a terminal, a device or a socket as standard input, expected a file or a pipe")
