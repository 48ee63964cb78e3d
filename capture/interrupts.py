"""Code blocks of the main thread that Ctrl-C and SIGTERM do not interrupt.

A step that creates something (a folder, a process) and registers it for removal must be complete. The removal must be
complete too, because a second Ctrl-C would leave the rest.
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
    """Defer SIGINT and SIGTERM until the block ends, then call their previous handlers.

    Signals that are ignored or have their default action are not deferred. So a second SIGTERM, which has the default
    action after the first one, still ends the process at once. In other threads this has no effect, because they
    receive no signals.
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
