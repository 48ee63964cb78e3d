"""The bytes of a file that is still being written, waited for at its end."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable

POLL = 0.1
"""Seconds between two looks at a file that has not grown."""

QUIET = 1.0
"""Seconds without growth after which a file may be taken as complete, once there is something to go on with."""

KEPT = 64
"""First bytes of a file that tell whether it is still the one it was: of a pcap they reach into the first packet."""


class GrowingBytes:
    """A regular file that grows, until `over` says that nothing more comes, or its content is replaced.

    `over` is called at the end of the file, with its status and whether it is quiet. A file that has become shorter, or
    begins otherwise than it did, has been replaced: it ends, and what had not been read of it is lost.
    """

    live = True
    size = 0

    def __init__(self, descriptor: int, over: Callable[[os.stat_result, bool], bool]) -> None:
        """Take over an open file."""
        self.descriptor = descriptor
        self.consumed = 0
        self.head = b""
        self.changed = -1
        """Time of change, ns, of what was read; -1 once the file is known to be another."""
        self.close = weakref.finalize(self, os.close, descriptor)
        self._over = over
        self._complete = False
        self._grew = time.monotonic()

    def read_into(self, room: memoryview, wait: float) -> int | None:
        """Read what is there; at the end of the file look again until `wait` seconds have passed."""
        until = time.monotonic() + wait
        while True:
            count = os.preadv(self.descriptor, [room], self.consumed)
            if not self._is_itself(self.consumed + count):
                return 0
            if count:
                self.consumed += count
                self._grew = time.monotonic()
                return count
            if self._complete:
                return 0
            if self._is_over():
                self._complete = True  # and is read once more: it may have grown before that was said
                continue
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(POLL, left))

    def rewind(self) -> None:
        """Refuse: who follows does not go back."""
        raise OSError("a file that is followed cannot be read again")

    def _is_itself(self, known: int) -> bool:
        """Whether the file begins as it did, and still has the `known` bytes."""
        status = os.fstat(self.descriptor)  # before the head is read: what it says is of that content
        head = os.pread(self.descriptor, min(KEPT, known), 0)
        if status.st_size < known or len(head) < min(KEPT, known) or not head.startswith(self.head):
            self.changed = -1
            return False
        self.head, self.changed = head, status.st_mtime_ns
        return True

    def _is_over(self) -> bool:
        status = os.fstat(self.descriptor)
        quiet = time.monotonic() - self._grew >= QUIET or time.time() - status.st_mtime >= QUIET
        return self._over(status, quiet)
