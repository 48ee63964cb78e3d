"""Shortage of file descriptors in this process (EMFILE) or on the machine (ENFILE).

The cause is another part of the process, or another process. The shortage ends when connections or files are closed.
So a capture that needs a descriptor waits, tries again and counts the attempt. It does not fail.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TypeVar

SHORTAGE = (errno.EMFILE, errno.ENFILE)

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds before the second attempt, and the maximum between two attempts. Each pause is twice the previous one."""

T = TypeVar("T")


def is_shortage(error: BaseException | None) -> bool:
    """Return whether `error` means that no file descriptor is free."""
    return isinstance(error, OSError) and error.errno in SHORTAGE


def retry_shortage(attempt: Callable[[], T], retried: Callable[[], None], give_up: Callable[[], bool]) -> T:
    """Return the result of `attempt`. If no descriptor is free, call it again after a pause.

    `retried` is called before each pause, to count it. If `give_up` returns True the error is raised.
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
