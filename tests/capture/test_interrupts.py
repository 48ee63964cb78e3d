"""Blocks that Ctrl-C and SIGTERM do not break off, with real signals to this process.

It can catch a signal that is lost, one that breaks the block off, and handlers that are not put back.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import wiretide
from capture.interrupts import DEFERRED_SIGNALS, uninterrupted


@pytest.fixture
def received() -> Iterator[list[int]]:
    """Let SIGINT raise KeyboardInterrupt and SIGTERM be noted."""
    numbers: list[int] = []
    before = {number: signal.getsignal(number) for number in DEFERRED_SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    for number, handler in before.items():
        signal.signal(number, handler)


def test_signals_take_effect_after_the_outermost_block(received: list[int]) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with uninterrupted():
            with uninterrupted():
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
                    os.kill(os.getpid(), number)
                done.append("inner")
            done.append("outer")
            assert received == []
        done.append("after")
    assert done == ["inner", "outer"]
    assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM] * 2


def test_a_signal_takes_effect_although_the_block_fails(received: list[int]) -> None:
    with pytest.raises(ValueError, match="of the block"), uninterrupted():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        raise ValueError("of the block")
    assert received == [signal.SIGTERM]


def test_signals_without_a_handler_keep_their_action(received: list[int]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        assert [signal.getsignal(number) for number in DEFERRED_SIGNALS] == [signal.SIG_IGN, signal.SIG_DFL]
        os.kill(os.getpid(), signal.SIGINT)


def test_in_other_threads_a_block_holds_nothing(received: list[int]) -> None:
    handlers = []

    def enter() -> None:
        with uninterrupted():
            handlers.extend(signal.getsignal(number) for number in DEFERRED_SIGNALS)

    before = [signal.getsignal(number) for number in DEFERRED_SIGNALS]
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == before


REDELIVERED = """
import time, weakref
from dashboards.stop_signals import redeliver_interrupts
redeliver_interrupts()
class Value:
    pass
def callback(_):
    raise KeyboardInterrupt
value = Value()
reference = weakref.ref(value, callback)
try:
    del value  # the interpreter cannot raise what a callback raises
    for _ in range(60_000):
        time.sleep(0.001)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_a_callback_of_the_interpreter_is_delivered_again() -> None:
    run = subprocess.run(
        [sys.executable, "-c", REDELIVERED],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(wiretide.__file__).parent,
    )
    assert (run.stdout, run.stderr) == ("interrupted\n", "")
