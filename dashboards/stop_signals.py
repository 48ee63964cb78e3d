"""Handle Ctrl-C and SIGTERM: they end live inputs normally, and interrupt all other work."""

from __future__ import annotations

import _thread
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def call_at_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM. The second signal has its previous effect, for example an interrupt.

    `stop` may run between any two instructions of the main thread. So it may set a flag, but must not wait. A signal
    that was ignored when this process started (by `nohup`, or a shell without job control) stays ignored. Raises
    ValueError outside the main thread.
    """
    previous = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    replaced = {number: handler for number, handler in previous.items() if handler is not signal.SIG_IGN}

    def restore() -> None:
        for number, handler in replaced.items():
            signal.signal(number, handler)

    def on_first_signal(*_: object) -> None:
        restore()
        stop()

    for number in replaced:
        signal.signal(number, on_first_signal)
    try:
        yield
    finally:
        restore()


TERMINATED = threading.Event()
"""Set when SIGTERM has interrupted a command. The command then ends with the exit status of SIGTERM."""


@contextmanager
def interrupt_at_sigterm() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt in the main thread, as Ctrl-C does, so that files and Spark are closed.

    Has no effect in other threads, or if SIGTERM was ignored when this process started.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return

    def interrupt(*_: object) -> None:
        TERMINATED.set()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the process at once
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        if not TERMINATED.is_set():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def interruptible(command: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a command that SIGTERM interrupts."""

    @functools.wraps(command)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with interrupt_at_sigterm():
            return command(*arguments, **options)

    return run


def redeliver_interrupts() -> None:
    """Make Ctrl-C effective even if it arrives in a callback of the interpreter.

    Such callbacks (of weak references, while modules are imported) cannot raise errors, so Python only prints the
    KeyboardInterrupt. This function sends the interrupt again.
    """

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            threading.Timer(0.01, _thread.interrupt_main).start()  # after the callback has returned
        else:
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = report


def forget_interrupted_text() -> None:
    """Make the process end with its exit status, even if Ctrl-C or SIGTERM interrupted an `exec` of a text.

    `dataclass` and `namedtuple` call `exec`. CPython records that an interrupt ended it, even if the interrupt was
    handled, and at exit kills the process with SIGINT. The next `exec` clears this record.
    """
    exec("")
