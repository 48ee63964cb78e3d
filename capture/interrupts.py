"""Blocks of the main thread that Ctrl-C and SIGTERM do not break off.

A step that makes something (a folder, a process) and notes it for its removal cannot be undone halfway. Neither can the
removal itself be repeated if a second Ctrl-C breaks it off.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the block ends, then call the handlers that they had before.

    A signal that is ignored or has its default action is not held: a second SIGTERM, whose action is the default after
    the first, still ends the process at once. In other threads this does nothing, because they receive no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Handler] = {}
    held: dict[int, FrameType | None] = {}
    holding = True

    def hold(number: int, frame: FrameType | None) -> None:
        if holding:
            held[number] = frame
        else:
            handlers[number](number, frame)

    try:
        for number in NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, hold)
        yield
    finally:
        holding = False  # if a handler raises before all are restored, `hold` passes the later signals on
        for restored, handler in handlers.items():
            signal.signal(restored, handler)
        for received, frame in held.items():
            handlers[received](received, frame)
