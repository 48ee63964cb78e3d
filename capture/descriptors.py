"""The lack of file descriptors: a process (EMFILE) or the machine (ENFILE) has no more of them for a while.

Another part of the process, or another process, opened too many. That ends: connections are closed, files are read. So
a capture that needs a descriptor waits and tries again, and counts it. It does not fail.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

SHORTAGE = (errno.EMFILE, errno.ENFILE)

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds until the second attempt, and between two attempts at most; each pause is twice the one before."""

T = TypeVar("T")


def is_shortage(error: BaseException | None) -> bool:
    """Return whether an error says that there is no free file descriptor."""
    return isinstance(error, OSError) and error.errno in SHORTAGE


def retry_shortage(attempt: Callable[[], T], retried: Callable[[], None], give_up: Callable[[], bool]) -> T:
    """Return what `attempt` returns; call it again after a pause while there is no free descriptor.

    `retried` is called before each pause, to count it. If `give_up` returns true the error is raised.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except OSError as error:
            if not is_shortage(error) or give_up():
                raise
            retried()
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
