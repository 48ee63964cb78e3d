"""The thread of a receiver: order, repetitions, refusals, intervals, alerts that are firing, the end of the process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capture.units import SECOND
from dashboards.alerts.delivery import Delivery, DeliveryTimes
from dashboards.alerts.messages import Message
from dashboards.alerts.receivers import DeliveryError
from dashboards.alerts.store import AlertStore
from queries.pipeline.alert_settings import Receiver
from tests.conftest import StartedThreads

LOG = Receiver("log", "file", "alerts.jsonl")
MAIL = Receiver("mail", "mail", "smtp://h", interval=3600 * SECOND)
MANAGER = Receiver("am", "alertmanager", "http://h")
TIMES = DeliveryTimes(0.001, 0.004, 3600.0)


class Script:
    """A receiver that answers each delivery with the next outcome: None accepts it, an error refuses it."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.deliveries: list[list[int]] = []
        self._outcomes = list(outcomes)
        self._changed = threading.Condition()

    def __call__(self, receiver: Receiver, messages: Sequence[Message]) -> None:
        with self._changed:
            self.deliveries.append([message["number"] for message in messages])
            self._changed.notify_all()
            outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome

    def until(self, is_reached: Callable[[list[list[int]]], bool]) -> None:
        """Wait until the deliveries have reached a state."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_reached(self.deliveries), 60), self.deliveries


@contextmanager
def delivery(
    folder: Path,
    receiver: Receiver,
    send: Callable[..., None],
    times: DeliveryTimes = TIMES,
    firing: Sequence[Message] = (),
) -> Iterator[tuple[Delivery, AlertStore, list[str]]]:
    lines: list[str] = []
    store = AlertStore(folder / "alerts.sqlite", [], [receiver.name])
    started = Delivery(receiver, store, lambda name: firing, lines.append, send, times)
    try:
        yield started, store, lines
    finally:
        started.stop()
        started.join(60)
        store.close()


def put(store: AlertStore, sender: Delivery, numbers: Sequence[int]) -> None:
    messages: list[Message] = [{"number": number} for number in numbers]
    store.save(0, [], {sender.receiver.name: messages})
    sender.notify()


def test_messages_arrive_in_order_and_leave_the_store(tmp_path: Path) -> None:
    script = Script()
    with delivery(tmp_path, LOG, script) as (sender, store, lines):
        put(store, sender, range(250))
        script.until(lambda deliveries: sum(map(len, deliveries)) == 250)
        assert script.deliveries == [[*range(100)], [*range(100, 200)], [*range(200, 250)]]
    with delivery(tmp_path, LOG, script) as (sender, store, lines):
        assert (store.count_waiting("log"), lines) == (0, [])


def test_messages_that_are_not_accepted_are_sent_again_with_one_warning(tmp_path: Path) -> None:
    unreachable = DeliveryError("receivers.log: unreachable")
    script = Script(unreachable, unreachable, unreachable)
    with delivery(tmp_path, LOG, script) as (sender, store, lines):
        put(store, sender, range(3))
        script.until(lambda deliveries: len(deliveries) == 4)
        put(store, sender, range(3, 4))
        script.until(lambda deliveries: len(deliveries) == 5)
    assert script.deliveries == [[0, 1, 2]] * 4 + [[3]]
    assert dict(sender.counts) == {"failed": 9, "sent": 4}
    assert lines == [
        f"warning: receivers.log: unreachable; the messages stay in {tmp_path}/alerts.sqlite until they are accepted",
        "receivers.log: messages are sent again",
    ]


def test_messages_that_are_refused_are_removed_and_the_next_ones_are_sent(tmp_path: Path) -> None:
    script = Script(DeliveryError("receivers.log: status 400", final=True))
    with delivery(tmp_path, LOG, script) as (sender, store, lines):
        put(store, sender, range(150))
        script.until(lambda deliveries: len(deliveries) == 2)
    assert script.deliveries == [[*range(100)], [*range(100, 150)]]
    assert dict(sender.counts) == {"refused": 100, "sent": 50}
    assert lines == [
        "warning: receivers.log: status 400; 100 messages are removed, because they would be refused again"
    ]


def test_a_receiver_may_request_a_longer_wait(tmp_path: Path) -> None:
    script = Script(DeliveryError("busy", wait=3600.0))
    with delivery(tmp_path, LOG, script) as (sender, store, _):
        put(store, sender, [1])
        script.until(lambda deliveries: len(deliveries) == 1)
        put(store, sender, [2])  # does not shorten the wait
        assert script.deliveries == [[1]]
    assert script.deliveries == [[1], [1, 2]]  # the last attempt, at the end of the run


def test_mails_have_an_interval_and_contain_everything_that_waits(tmp_path: Path) -> None:
    script = Script()
    with delivery(tmp_path, MAIL, script) as (sender, store, _):
        put(store, sender, [0])
        script.until(lambda deliveries: len(deliveries) == 1)
        put(store, sender, range(1, 900))
        put(store, sender, range(900, 950))
    assert script.deliveries == [[0], [*range(1, 950)]]  # the second mail at the end of the run
    script = Script()
    with delivery(tmp_path, replace(MAIL, interval=1), script) as (sender, store, _):
        for number in range(5):
            put(store, sender, [number])
            script.until(lambda deliveries, number=number: len(deliveries) == number + 1)  # type: ignore[misc]
    assert script.deliveries == [[number] for number in range(5)]


def test_an_alertmanager_receives_firing_alerts_again_also_after_a_restart(tmp_path: Path) -> None:
    firing: list[Message] = [{"number": number} for number in range(150)]
    script = Script()
    with delivery(tmp_path, MANAGER, script, DeliveryTimes(0.001, 0.004, 0.02), firing):
        script.until(lambda deliveries: len(deliveries) >= 6)
    assert script.deliveries[:4] == [[*range(100)], [*range(100, 150)]] * 2
    script = Script()
    with delivery(tmp_path, LOG, script, DeliveryTimes(0.001, 0.004, 0.0), firing) as (sender, store, _):
        put(store, sender, [7])
        script.until(lambda deliveries: len(deliveries) == 1)
    assert script.deliveries == [[7]]  # other receivers receive each message once


def test_a_refused_repetition_does_not_stop_the_delivery(tmp_path: Path) -> None:
    script = Script(DeliveryError("no", final=True))
    with delivery(tmp_path, MANAGER, script, firing=[{"number": 1}]) as (sender, store, _):
        script.until(lambda deliveries: len(deliveries) == 1)
        put(store, sender, [2])
        script.until(lambda deliveries: len(deliveries) == 2)
    assert dict(sender.counts) == {"refused": 1, "sent": 1}


def test_a_store_that_fails_is_reported_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, failures = Script(), [sqlite3.OperationalError("disk I/O error")] * 3
    original = AlertStore.remove

    def remove(self: AlertStore, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        original(self, *arguments)

    monkeypatch.setattr(AlertStore, "remove", remove)
    with delivery(tmp_path, LOG, script) as (sender, store, lines):
        put(store, sender, [1])
        script.until(lambda deliveries: len(deliveries) == 4)
    assert lines == [
        f"warning: {tmp_path}/alerts.sqlite: messages for log are not sent: disk I/O error",
        "receivers.log: messages are sent again",
    ]


def test_a_receiver_that_hangs_does_not_keep_the_process_alive(tmp_path: Path, started_threads: StartedThreads) -> None:
    entered, released = threading.Event(), threading.Event()

    def hang(receiver: Receiver, messages: Sequence[Message]) -> None:
        entered.set()
        released.wait()

    store = AlertStore(tmp_path / "alerts.sqlite", [], ["log"])
    sender = Delivery(LOG, store, lambda name: [], print, hang, TIMES)
    put(store, sender, [1])
    assert entered.wait(60)
    (thread,) = started_threads()
    assert thread.daemon
    sender.stop()
    sender.join(0.01)  # returns, although the thread hangs
    store.close()
    released.set()  # the thread now finds a closed store, and ends without an error
    thread.join(60)
    assert not thread.is_alive()
