"""Handle Ctrl-C and SIGTERM: a request to finish for live inputs, an interrupt for everything else."""

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
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM. The next signal has its previous effect: Ctrl-C interrupts.

    `stop` runs between any two instructions of the main thread, so it may set a flag but must not wait. A signal that
    was ignored when this process started (by `nohup`, or a shell without job control) stays ignored. Raises ValueError
    outside the main thread.
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
def interrupting() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, as Ctrl-C does, so that files and Spark are closed.

    If SIGTERM was ignored when this process started, it stays ignored. In other threads this has no effect.
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


def forget_interrupted_text() -> None:
    """Let the process end with its exit status although Ctrl-C or SIGTERM has interrupted Python code held as text.

    `dataclass` and `namedtuple` run such text. CPython remembers that an interrupt left it, even if the interrupt was
    handled, and kills the process with SIGINT at its end. It forgets when it runs the next text.
    """
    exec("")
