"""Ctrl-C and SIGTERM: as a request to finish, for live inputs, or as an interrupt, for everything else."""

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


TERMINATED = threading.Event()
"""Set when SIGTERM has interrupted a command, which then ends with the exit status of SIGTERM."""


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, as Ctrl-C does: files are closed, Spark is stopped.

    A SIGTERM that this process was started to ignore stays ignored. In other threads this does nothing.
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
    """Return a command that SIGTERM interrupts from its first line to its last."""

    @functools.wraps(command)
    def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        with interrupting():
            return command(*arguments, **options)

    return run


def redeliver_interrupts() -> None:
    """Deliver a Ctrl-C again that Python could only print, because it arrived in a callback of the interpreter.

    Such callbacks (of weak references, while modules are imported) cannot raise: without this the Ctrl-C is lost.
    """

    def report(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            threading.Timer(0.01, _thread.interrupt_main).start()  # not in the callback itself
        else:
            sys.__unraisablehook__(unraisable)

    sys.unraisablehook = report
