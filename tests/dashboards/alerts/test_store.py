"""The store of alerts: one transaction for each micro-batch, restarts, changed rules, limits, damaged files."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from random import Random

import pytest

from dashboards.alerts import store as store_module
from dashboards.alerts.evaluation import Evaluation
from dashboards.alerts.messages import Message
from dashboards.alerts.states import RuleStates
from dashboards.alerts.store import AlertStore, Announcement
from tests.harness.alert_rules import MINUTE, evaluation, scans

RULES = """
[alerts.scan]
query = "scans"
where = "packets > 100"
keep = "5m"
[alerts.jump]
query = "scans"
where = "packets > 2 * previous_packets"
[alerts.silent]
query = "scans"
absent = "3m"
"""
LABELS = (("srcIP", "10.0.0.1"),)


def opened(folder: Path, rules: str = RULES, receivers: tuple[str, ...] = ("log",)) -> tuple[AlertStore, Evaluation]:
    evaluated = evaluation(rules, folder)
    return AlertStore(folder / "alerts.sqlite", evaluated.rules, receivers), evaluated


def numbered(first: int, after: int) -> list[Message]:
    return [{"number": number, "status": "ended" if number % 2 else "firing"} for number in range(first, after)]


def test_a_reopened_store_continues_with_equal_states(tmp_path: Path) -> None:
    random = Random(3)
    whole = evaluation(RULES, tmp_path)
    expected, changes = [], []
    for batch in range(12):
        rows = [
            (minute, f"10.0.0.{host}", random.randrange(200), 1)
            for minute in range(3 * batch + 1, 3 * batch + 4)
            for host in range(1, 5)
            if random.random() < 0.5
        ]
        watermarks = {"scans": (3 * batch + 3) * MINUTE}
        expected += [str(change) for _, change in whole.evaluate(scans(whole, rows), watermarks)]
        store, evaluated = opened(tmp_path)
        assert store.batch == (batch - 1 if batch else None)
        changes += [str(change) for _, change in evaluated.evaluate(scans(evaluated, rows), watermarks)]
        store.save(batch, [], {})
        store.close()
    assert changes == expected
    assert len(expected) > 30


def test_messages_wait_until_they_are_removed(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, receivers=("log", "hook"))
    store.save(0, numbered(0, 3), {"log": numbered(0, 3), "hook": numbered(2, 3)})
    store.close()
    store, _ = opened(tmp_path, receivers=("log", "hook"))
    waiting = store.next_messages("log", 2)
    assert [message for _, message in waiting] == numbered(0, 2)
    store.remove("log", waiting[-1][0])
    assert (store.count_waiting("log"), store.count_waiting("hook")) == (1, 1)
    assert [message for _, message in store.next_messages("log", 9)] == numbered(2, 3)
    assert store.last_messages(1, "firing") == numbered(2, 3)
    assert store.last_messages(9, "ended") == numbered(1, 2)
    store.close()
    store, _ = opened(tmp_path, receivers=("hook",))  # the receiver log was removed from the pipeline file
    assert (store.deleted, store.next_messages("log", 9), store.count_waiting("hook")) == (1, [], 1)
    store.close()


def test_the_oldest_waiting_messages_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MAX_OUTBOX", 5)
    monkeypatch.setattr(store_module, "KEPT_MESSAGES", 4)
    store, _ = opened(tmp_path)
    store.save(0, numbered(0, 4), {"log": numbered(0, 4)})
    assert store.dropped == {"log": 0}
    store.save(1, numbered(4, 7), {"log": numbered(4, 7)})
    assert store.dropped == {"log": 2}
    assert [message for _, message in store.next_messages("log", 9)] == numbered(2, 7)
    assert store.last_messages(9, "ended") == [*numbered(5, 6), *numbered(3, 4)]
    store.close()


def test_a_failed_transaction_changes_nothing(tmp_path: Path) -> None:
    store, evaluated = opened(tmp_path)
    store.save(0, numbered(0, 1), {"log": numbered(0, 1)})
    evaluated.evaluate(scans(evaluated, [(1, "10.0.0.1", 200, 1)]), {})
    store._file.execute("PRAGMA max_page_count = 1")  # the smallest possible limit is the present size
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        store.save(1, numbered(1, 5000), {"log": numbered(1, 5000)})
    assert (store.batch, store.count_waiting("log"), store.dropped) == (0, 1, {"log": 0})
    store.close()
    store, evaluated = opened(tmp_path)
    assert (store.batch, [rule.states.groups for rule in evaluated.rules]) == (0, [{}, {}, {}])
    store.close()


def fired(folder: Path, rules: str) -> None:
    """Store an announced alert of the rule `scan` at minute 2."""
    store, evaluated = opened(folder, rules)
    evaluated.evaluate(scans(evaluated, [(2, "10.0.0.1", 200, 1)]), {"scans": 2 * MINUTE})
    store.announcements["scan", LABELS] = Announcement({"id": "x"}, ("log",))
    store.save(7, [], {})
    store.close()


def scan_states(evaluated: Evaluation) -> RuleStates:
    (states,) = [rule.states for rule in evaluated.rules if rule.rule.name == "scan"]
    return states


@pytest.mark.parametrize(
    "changed",
    [
        RULES.replace("> 100", "> 5"),
        RULES.replace('keep = "5m"', 'keep = "1h"\nfor = "9m"\nsummary = "s"\nseverity = "info"\nreceivers = []'),
        RULES + 'exclude = [{ where = "packets > 5", comment = "c" }]',
        RULES + '[alerts.more]\nquery = "scans"',
    ],
)
def test_changes_of_a_rule_take_effect_and_keep_its_states(changed: str, tmp_path: Path) -> None:
    fired(tmp_path, RULES)
    store, evaluated = opened(tmp_path, changed)
    assert (store.open_alerts, [*store.announcements]) == ([], [("scan", LABELS)])
    assert scan_states(evaluated).groups[LABELS].began == 2 * MINUTE
    store.close()


@pytest.mark.parametrize(
    "changed",
    [
        RULES.replace('keep = "5m"', "labels = []"),
        RULES.replace('keep = "5m"', 'absent = "5m"'),
        RULES.replace("[alerts.scan]", "[alerts.other]"),
        "",
    ],
)
def test_alerts_of_a_rule_with_another_meaning_are_left_to_end(changed: str, tmp_path: Path) -> None:
    fired(tmp_path, RULES)
    for _ in range(2):  # a run that ends before its first micro-batch changes nothing
        store, evaluated = opened(tmp_path, changed)
        assert [(alert.announcement, alert.time) for alert in store.open_alerts] == [
            (Announcement({"id": "x"}, ("log",)), 2 * MINUTE)
        ]
        assert all(rule.states.groups == {} for rule in evaluated.rules if rule.rule.name in ("scan", "other"))
        store.close()
    store, _ = opened(tmp_path, changed)
    store.save(8, [], {})
    assert store.open_alerts == []
    store.close()
    store, _ = opened(tmp_path, changed)
    assert store.open_alerts == []
    store.close()


def test_the_file_is_private(tmp_path: Path) -> None:
    (tmp_path / "alerts.sqlite").touch(0o666)
    store, _ = opened(tmp_path)
    assert stat.S_IMODE((tmp_path / "alerts.sqlite").stat().st_mode) == 0o600
    store.close()


@pytest.mark.parametrize("content", [b"no database " * 100, None])
def test_a_damaged_file_is_an_error_with_the_remedy(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "alerts.sqlite"
    if content is None:
        fired(tmp_path, RULES)
        with sqlite3.connect(path) as file:
            file.execute("UPDATE groups SET state = '{\"unknown\": 1}'")
        file.close()
    else:
        path.write_bytes(content)
    with pytest.raises(OSError, match=r"alerts.sqlite: cannot be used as the store of alerts: .*; delete the file$"):
        opened(tmp_path)
