"""Ctrl-C and SIGTERM as a request to finish, for runs that would not end by themselves."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM call `stop`, and the next do what it did before: Ctrl-C then interrupts.

    `stop` runs between any two instructions of the main thread: it may set a flag, and wait for nothing. A signal that
    this process was started to ignore, as `nohup` and shells without job control do, stays ignored. Only the main
    thread may use this; ValueError elsewhere.
    """
    before = {number: signal.getsignal(number) for number in NUMBERS}
    taken = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in taken.items():
            signal.signal(number, handler)

    def first(*_: object) -> None:
        restore()
        stop()

    for number in taken:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()
