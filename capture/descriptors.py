"""Shortage of file descriptors in this process (EMFILE) or on the machine (ENFILE).

A capture does not cause the shortage. The shortage ends when another process, or another part of this process, closes
files or connections. So a capture that needs a descriptor does not fail: it counts a retry, waits and tries again.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

SHORTAGE_ERRNOS = (errno.EMFILE, errno.ENFILE)
"""Error numbers of system calls that found no free file descriptor."""

FIRST_PAUSE, MAX_PAUSE = 0.02, 1.0
"""Seconds before the second attempt, and maximum seconds between attempts. Each pause is twice the previous pause, but
at most MAX_PAUSE."""

T = TypeVar("T")


def is_shortage(error: BaseException | None) -> bool:
    """Return whether `error` means that no file descriptor is free."""
    return isinstance(error, OSError) and error.errno in SHORTAGE_ERRNOS


def retry_shortage(attempt: Callable[[], T], count_retry: Callable[[], None], give_up: Callable[[], bool]) -> T:
    """Return the result of `attempt`. If no file descriptor is free, call `attempt` again after a pause.

    `count_retry` is called before each pause. If `give_up` returns True, the error is raised.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except OSError as error:
            if not is_shortage(error) or give_up():
                raise
            count_retry()
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE)
