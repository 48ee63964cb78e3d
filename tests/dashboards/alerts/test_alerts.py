"""The alerts of a run: which receiver gets which message, at least once, over crashes, silences and changed rules."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dashboards.alerts import states as states_module
from dashboards.alerts.alerts import AlertError, Alerts
from dashboards.alerts.delivery import Delivery, DeliveryTimes
from dashboards.alerts.messages import Message, utc
from dashboards.alerts.receivers import DeliveryError
from dashboards.alerts.store import FILE, AlertStore
from queries.pipeline.alert_settings import Receiver
from tests.harness.alert_rules import MINUTE, Row, evaluation_of, pipeline, scans

RECEIVERS = """
[receivers]
log = { kind = "file", path = "alerts.jsonl" }
hook = { kind = "webhook", url = "http://127.0.0.1:9" }
"""
RULE = """
[alerts.scan]
query = "scans"
where = "packets > 100"
"""
TIMES = DeliveryTimes(0.001, 0.002, 3600.0)


class Outbox:
    """A delivery that leaves all messages in the store, where tests read them."""

    def __init__(self, receiver: Receiver, store: AlertStore, *_: object) -> None:
        self.receiver, self.store, self.counts = receiver, store, Counter[str]()
        self.notified = 0

    def notify(self) -> None:
        self.notified += 1

    def stop(self) -> None: ...

    def join(self, seconds: float) -> None: ...


class Run:
    """One run of the alerts of a pipeline, in a folder with its state."""

    def __init__(self, folder: Path, text: str, deliver: Callable[..., Any] = Outbox) -> None:
        file = pipeline(text, folder)
        self.lines: list[str] = []
        self.evaluation = evaluation_of(file)
        last_batch = 10**9 if (folder / FILE).exists() else 0  # of the run on Spark
        self.alerts = Alerts(file.alerts, self.evaluation, folder, self.lines.append, deliver)
        self.batch = self.alerts.continue_after(last_batch)

    def close(self) -> None:
        self.alerts.close()

    def evaluate(self, rows: Sequence[Row], until: int | None = None) -> list[Message]:
        """Evaluate the next micro-batch."""
        self.batch += 1
        watermarks = {} if until is None else {"scans": until * MINUTE}
        results = scans(self.evaluation, rows) if self.evaluation.rules else {}
        return self.alerts.evaluate(self.batch, results, watermarks)

    def count_waiting(self, receiver: str) -> list[str]:
        """Return the messages that wait for a receiver: status, rule and time."""
        (outbox,) = [delivery for delivery in self.alerts._deliveries if delivery.receiver.name == receiver]
        return [
            f"{message['status']} {message['rule']} {message['ended'] or message['began']}"
            for _, message in outbox.store.next_messages(receiver, 1000)  # type: ignore[attr-defined]
        ]


@contextmanager
def started(folder: Path, text: str, deliver: Callable[..., Any] = Outbox) -> Iterator[Run]:
    run = Run(folder, text, deliver)
    try:
        yield run
    finally:
        run.close()


def minute(number: int) -> str:
    return utc(number * MINUTE)


BUSY = [(1, "10.0.0.1", 200, 1)]


def test_messages_go_to_the_receivers_of_the_rule(tmp_path: Path) -> None:
    rules = RULE + '[alerts.any]\nquery = "scans"\nreceivers = ["hook"]\n[alerts.no]\nquery = "scans"\nreceivers = []\n'
    with started(tmp_path, rules + RECEIVERS) as run:
        messages = run.evaluate(BUSY, until=2)
        assert [(message["rule"], message["status"]) for message in messages] == [
            *(("scan", "firing"), ("any", "firing"), ("no", "firing")),
            *(("scan", "ended"), ("any", "ended"), ("no", "ended")),
        ]
        assert run.count_waiting("log") == [f"firing scan {minute(1)}", f"ended scan {minute(2)}"]
        assert run.count_waiting("hook") == [
            f"firing scan {minute(1)}", f"firing any {minute(1)}", f"ended scan {minute(2)}", f"ended any {minute(2)}",
        ]  # fmt: skip
        assert run.alerts.ended_messages(10) == messages[:2:-1]


def test_a_repeated_micro_batch_is_ignored(tmp_path: Path) -> None:
    with started(tmp_path, RULE + RECEIVERS) as run:
        assert len(run.evaluate(BUSY)) == 1
    with started(tmp_path, RULE + RECEIVERS) as run:  # after a crash Spark repeats micro-batch 1
        run.batch = 0
        assert run.evaluate(BUSY) == []
        assert run.count_waiting("log") == [f"firing scan {minute(1)}"]


def test_a_run_without_earlier_alerts_begins_after_its_last_micro_batch(tmp_path: Path) -> None:
    file = pipeline(RULE + RECEIVERS, tmp_path)
    alerts = Alerts(file.alerts, evaluation_of(file), tmp_path, print, Outbox)
    assert alerts.continue_after(41) == 41
    assert alerts.continue_after(43) == 41  # 42 and 43 must be evaluated from their files
    with pytest.raises(AlertError, match="got alerts up to micro-batch 41, but the run continues after 40; delete the"):
        alerts.continue_after(40)
    alerts.close()


SILENCE = """
[[silence]]
until = 1970-01-01T00:05:00Z
comment = "test"
"""


def test_a_silenced_alert_is_announced_when_its_silence_ends(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SILENCE)
    rules = '[alerts]\nsilences = "s.toml"\n' + RULE + RECEIVERS
    with started(tmp_path, rules) as run:
        messages = run.evaluate([(number, "10.0.0.1", 200, 1) for number in (1, 3, 4)])
        assert [message["status"] for message in messages] == ["firing", "ended", "firing"]
        assert run.count_waiting("log") == []  # neither the alert that ended nor the one that is firing
        assert [message["began"] for message in run.alerts.firing_messages()] == [minute(3)]
        assert run.alerts.firing_messages("log") == []
    with started(tmp_path, rules) as run:
        run.evaluate([(5, "10.0.0.1", 300, 1)])
        assert run.count_waiting("log") == run.count_waiting("hook") == [f"firing scan {minute(3)}"]
        run.evaluate([], until=6)
        assert run.count_waiting("log") == [f"firing scan {minute(3)}", f"ended scan {minute(6)}"]


def test_a_silence_that_is_written_during_the_run_takes_effect(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("")
    with started(tmp_path, '[alerts]\nsilences = "s.toml"\n' + RULE + RECEIVERS) as run:
        run.evaluate([(1, "10.0.0.1", 200, 1)])
        (tmp_path / "s.toml").write_text(SILENCE)
        run.evaluate([(2, "10.0.0.1", 200, 1), (2, "10.0.0.2", 200, 1)], until=3)
        # An alert that is known to receivers ends for them also during a silence.
        assert run.count_waiting("log") == [f"firing scan {minute(1)}", f"ended scan {minute(3)}"]


def test_a_new_receiver_learns_of_alerts_that_are_firing(tmp_path: Path) -> None:
    log = RECEIVERS.splitlines()[2]
    with started(tmp_path, f"{RULE}[receivers]\n{log}\n") as run:
        run.evaluate(BUSY)
    with started(tmp_path, RULE + RECEIVERS) as run:
        assert run.count_waiting("hook") == []
        run.evaluate([(2, "10.0.0.1", 200, 1)])
        assert (run.count_waiting("log"), run.count_waiting("hook")) == ([f"firing scan {minute(1)}"],) * 2
        run.evaluate([], until=3)
        assert run.count_waiting("hook") == [f"firing scan {minute(1)}", f"ended scan {minute(3)}"]


@pytest.mark.parametrize("text", [RULE.replace("alerts.scan", "alerts.other"), ""])
def test_alerts_of_a_removed_rule_end_for_the_receivers_that_know_them(text: str, tmp_path: Path) -> None:
    with started(tmp_path, RULE + RECEIVERS) as run:
        (begin,) = run.evaluate(BUSY)
    with started(tmp_path, text + RECEIVERS) as run:
        (end,) = run.alerts.ended_messages(9)
        changed = {"status": "ended", "ended": minute(1), "reason": "rule changed"}
        assert end == {**begin, **changed, "message": begin["message"].replace("firing", "ended")}
        assert (
            run.count_waiting("log")
            == run.count_waiting("hook")
            == [f"firing scan {minute(1)}", f"ended scan {minute(1)}"]
        )
        assert run.evaluate([], until=9) == []


def test_rules_over_the_limit_of_groups_are_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_module.RuleStates.__init__, "__defaults__", (0, 3))
    with started(tmp_path, RULE) as run:
        for number in (1, 2):
            assert len(run.evaluate([(number, f"10.0.{number}.{host}", 200, 1) for host in range(5)])) == 3 * number
        assert run.lines == ["warning: alerts.scan has 10,000 groups and ignores others; use fewer labels"]


def test_a_store_that_cannot_be_written_ends_the_run(tmp_path: Path) -> None:
    with started(tmp_path, RULE + RECEIVERS) as run:
        run.alerts._store._file.execute("PRAGMA max_page_count = 1")
        rows = [(1, f"10.0.{number // 250}.{number % 250}", 200, 1) for number in range(1000)]
        with pytest.raises(AlertError, match=r"alerts\.sqlite: alerts cannot be stored: database or disk is full"):
            run.evaluate(rows)


def test_metrics_count_alerts_and_messages(tmp_path: Path) -> None:
    rules = RULE + 'exclude = [{ where = "srcIP = \'10.0.0.9\'", comment = "c" }]\nseverity = "info"\n'
    registry = CollectorRegistry()
    with started(tmp_path, rules + RECEIVERS) as run:
        registry.register(run.alerts)
        run.evaluate([*BUSY, (1, "10.0.0.9", 200, 1)])
        values = {
            (sample.name.removeprefix("wiretide_alerts_"), *sample.labels.values()): sample.value
            for family in registry.collect()
            for sample in family.samples
        }
    results = {("messages_total", name, result): 0 for name in ("log", "hook") for result in
               ("sent", "failed", "refused", "dropped")}  # fmt: skip
    assert values == {
        ("firing", "scan", "info"): 1,
        ("groups", "scan"): 1,
        ("dropped_groups_total", "scan"): 0,
        ("excluded_rows_total", "scan"): 1,
        ("late_rows_total", "scan"): 0,
        ("silenced_total", "scan"): 0,
        ("waiting_messages", "log"): 1,
        ("waiting_messages", "hook"): 1,
        **results,
    }


class Recorder:
    """Receives messages in place of a receiver. With `hang` it does not return until `killed` is set."""

    def __init__(self, expected: int, *, hang: bool = False) -> None:
        self.messages: list[Message] = []
        self.complete, self.killed = threading.Event(), threading.Event()
        self._expected, self._hang = expected, hang

    def __call__(self, receiver: Receiver, messages: Sequence[Message]) -> None:
        self.messages += messages
        if len(self.messages) >= self._expected:
            self.complete.set()
        if self._hang:
            self.killed.wait()
            raise DeliveryError("killed")

    def ids(self) -> list[str]:
        return [message["message"] for message in self.messages]


def test_a_crash_between_the_store_and_the_delivery_loses_no_message(tmp_path: Path) -> None:
    text = RULE + RECEIVERS.replace("hook", "#hook")
    killed = Run(tmp_path, text)  # its delivery sends nothing, and it is not closed
    stored = killed.evaluate([(1, "10.0.0.1", 200, 1), (1, "10.0.0.2", 200, 1)], until=2)
    recorder = Recorder(len(stored))
    with started(tmp_path, text, partial(Delivery, send=recorder, times=TIMES)):
        assert recorder.complete.wait(60)
    assert recorder.messages == stored
    killed.close()


def test_a_crash_between_the_delivery_and_its_record_repeats_messages_with_equal_ids(tmp_path: Path) -> None:
    text = RULE + RECEIVERS.replace("hook", "#hook")
    first, second = Recorder(2, hang=True), Recorder(4)
    killed = Run(tmp_path, text, partial(Delivery, send=first, times=TIMES))
    killed.evaluate(BUSY, until=2)
    assert first.complete.wait(60)  # the messages have arrived, and are still in the store
    with started(tmp_path, text, partial(Delivery, send=second, times=TIMES)) as run:
        run.evaluate([(5, "10.0.0.3", 200, 1)], until=6)
        assert second.complete.wait(60)
    assert len(set(first.ids())) == 2
    assert second.ids()[:2] == first.ids()
    assert len(set(second.ids())) == 4
    first.killed.set()
    killed.close()
