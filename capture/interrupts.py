"""Code blocks of the main thread that Ctrl-C and SIGTERM do not interrupt.

A new folder or process is registered for removal. If an interrupt arrived before the registration, it would not be
removed. If an interrupt, such as a second Ctrl-C, arrived during the removal, a part of the folder or process would
stay.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]

DEFERRED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that `uninterrupted` defers."""


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer SIGINT and SIGTERM until the block ends, then call their previous handlers.

    Signals that are ignored or have their default action are not deferred. The first SIGTERM restores the default
    action, so a second SIGTERM still ends the process at once. In other threads this has no effect, because they
    receive no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Handler] = {}
    deferred: dict[int, FrameType | None] = {}
    deferring = True

    def defer(signal_number: int, frame: FrameType | None) -> None:
        if deferring:
            deferred[signal_number] = frame
        else:
            handlers[signal_number](signal_number, frame)

    try:
        for deferrable in DEFERRED_SIGNALS:
            handler = signal.getsignal(deferrable)
            if callable(handler):
                handlers[deferrable] = handler
                signal.signal(deferrable, defer)
        yield
    finally:
        deferring = False  # if a handler raises before all are restored, `defer` forwards later signals
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
        for signal_number, frame in deferred.items():
            handlers[signal_number](signal_number, frame)
