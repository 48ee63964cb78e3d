"""Where the bytes of a capture that is not mapped come from: a file that is read in its order, a pipe."""

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

WAIT = 0.2
"""Seconds that one read waits for bytes at most."""

PIPE_BYTES = 1 << 20
"""Bytes that a pipe is asked to hold, where the system lets it (Linux): a writer in bursts then waits less often."""


class ByteSource(Protocol):
    """Bytes in their order, read by one thread."""

    @property
    def size(self) -> int:
        """Bytes in all; 0 where nobody knows."""
        ...

    @property
    def live(self) -> bool:
        """Whether more may come, and there may be nothing to read now."""
        ...

    @property
    def consumed(self) -> int:
        """Bytes read so far, as `size` counts them."""
        ...

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read what is there into `room`, which is not empty; return how many bytes.

        0 is the end; None says that nothing came within `wait` seconds. Raises OSError.
        """
        ...

    def rewind(self) -> None:
        """Go back to the first byte. Only what is not live can."""
        ...

    def close(self) -> None:
        """Let go of the file. May be called again."""
        ...


class FileBytes:
    """A regular file, from its first byte to where it ends now."""

    live = False

    def __init__(self, descriptor: int) -> None:
        """Take over an open file."""
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        self.consumed = 0
        self.close = weakref.finalize(self, os.close, descriptor)

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read; a file has its next byte or has ended."""
        count = os.preadv(self.descriptor, [room], self.consumed)
        self.consumed += count
        return count

    def read(self, most: int) -> bytes:
        """Read up to `most` bytes."""
        data = os.pread(self.descriptor, most, self.consumed)
        self.consumed += len(data)
        return data

    def seek(self, offset: int) -> None:
        """Go to a byte."""
        self.consumed = offset

    def rewind(self) -> None:
        """Go back to the first byte."""
        self.seek(0)


class PipeBytes:
    """A pipe or FIFO, until its last writer has closed it. One that nobody writes to yet is waited for."""

    live = True
    size = 0

    def __init__(self, descriptor: int) -> None:
        """Take over an open pipe."""
        self.descriptor = descriptor
        self.consumed = 0
        self.close = weakref.finalize(self, os.close, descriptor)
        self._readable = select.poll()
        self._readable.register(descriptor, select.POLLIN)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read what is in the pipe, as soon as there is anything."""
        if not self._readable.poll(wait * 1000):
            return None
        try:
            count = os.readv(self.descriptor, [room])
        except BlockingIOError:
            return None
        self.consumed += count
        return count

    def rewind(self) -> None:
        """Refuse: what was read of a pipe is gone."""
        raise OSError("a pipe cannot be read again")


def open_source(path: Path) -> FileBytes | PipeBytes:
    """Open a regular file, a pipe or standard input (`-`), without waiting for a pipe's writer.

    Raises OSError, and InputError for a device, a socket or a terminal.
    """
    if str(path) == STANDARD_INPUT:
        descriptor = os.dup(0)
    else:
        kind = path.stat().st_mode  # to open a device can do things
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISDIR(kind)):
            raise InputError(f"{path}: got a device or a socket, expected a file or a pipe")
        descriptor = os.open(path, os.O_RDONLY | (os.O_NONBLOCK if stat.S_ISFIFO(kind) else 0))
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return FileBytes(descriptor)
    if stat.S_ISFIFO(kind):
        return PipeBytes(descriptor)
    os.close(descriptor)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise InputError(f"{path}: got a terminal, a device or a socket as standard input, expected a file or a pipe")
