"""Messages about alerts: dictionaries with values of JSON, described in docs/guide/alerts.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from dashboards.alerts.states import Change, Reason, alert_id
from highlevel.plan.plan import Plan
from lowlevel.durations import duration_text
from queries.pipeline.alert_settings import AlertRule

Message = dict[str, Any]

FIRING, ENDED = "firing", "ended"
"""The status of a message."""

FINAL, PROVISIONAL = "final", "provisional"
"""The state of the windows that cause an alert. Final windows do not change any more, provisional windows may
change."""

ROWS = "rows"
"""The name that a summary uses for the number of matching rows, `{rows}`."""

_NAME = re.compile(r"\{([^{}]*)\}")


def make_message(rule: AlertRule, plan: Plan, change: Change, state: str = FINAL) -> Message:
    """Return the message about a change: an alert begins to fire, or has ended."""
    group = change.group
    assert group.began is not None, "a change belongs to an alert that has begun"
    details = group.details
    message: Message = {
        "id": alert_id(rule.name, group.labels),
        "message": "",
        "status": FIRING,
        "state": state,
        "rule": rule.name,
        "severity": rule.severity,
        "labels": dict(group.labels),
        "summary": _summary(rule, group.labels, details),
        "reason": change.reason,
        "began": utc(group.began),
        "ended": None,
        "since": utc(group.since),
        "window": details.get("window"),
        "query": plan.name,
        "sql": plan.sql,
        "condition": rule.where,
        "absent": None if rule.absent is None else duration_text(rule.absent),
        "rows": details.get("rows", 0),
        "evidence": details.get("evidence", []),
    }
    if change.ended is not None:
        message |= {"status": ENDED, "ended": utc(change.ended), "reason": change.reason}
    return {**message, "message": _message_id(message)}


def end_message(message: Message, ended: int, reason: Reason, state: str | None = None) -> Message:
    """Convert the message of a firing alert to the message that it ended at the time `ended` (ns)."""
    ending = {**message, "status": ENDED, "ended": utc(ended), "reason": reason, "state": state or message["state"]}
    return {**ending, "message": _message_id(ending)}


def with_batch_number(message: Message, batch: int) -> Message:
    """Return the message with the micro-batch in its ID, because a later micro-batch may send a correction."""
    return {**message, "message": f"{_message_id(message)}-{batch}"}


def has_same_content(message: Message, other: Message) -> bool:
    """Return True if two messages differ at most in their state and their IDs."""
    names = ("message", "state")
    return {**message, **dict.fromkeys(names)} == {**other, **dict.fromkeys(names)}


def make_test_message(now: datetime) -> Message:
    """Return a message that tests receivers. It belongs to no rule."""
    message: Message = {
        "id": alert_id("test", ()),
        "message": "",
        "status": FIRING,
        "state": FINAL,
        "rule": "test",
        "severity": "info",
        "labels": {},
        "summary": "a test message of wiretide alerts",
        "reason": Reason.TRUE,
        "began": rfc3339(now),
        "ended": None,
        "since": rfc3339(now),
        "window": None,
        "query": "",
        "sql": "",
        "condition": None,
        "absent": None,
        "rows": 0,
        "evidence": [],
    }
    return {**message, "message": _message_id(message)}


def _message_id(message: Message) -> str:
    """Return the ID of a message. Equal events have equal IDs, so receivers can ignore a repetition."""
    began = re.sub(r"[-:]", "", message["began"])
    return f"{message['id']}-{began}-{message['status']}"


def utc(nanoseconds: int) -> str:
    """Return a time in the form of RFC 3339, with microseconds if it has them.

    >>> utc(0), utc(1_500_000_000)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.500000Z')
    """
    seconds, remainder = divmod(nanoseconds, 10**9)
    return rfc3339(datetime.fromtimestamp(seconds, UTC).replace(microsecond=remainder // 1000))


def rfc3339(time: datetime) -> str:
    """Return a time in UTC as text (RFC 3339)."""
    return time.isoformat().replace("+00:00", "Z")


def names_in(summary: str) -> list[str]:
    """Return the names in braces of a summary.

    >>> names_in("{srcIP} asked for {ports} ports")
    ['srcIP', 'ports']
    """
    return _NAME.findall(summary)


def _summary(rule: AlertRule, labels: Iterable[tuple[str, str]], details: Mapping[str, Any]) -> str:
    """Return the summary of the rule with the values of the first row. Without a summary: its name and the labels."""
    if not rule.summary:
        texts = ", ".join(f"{name} {text}" for name, text in labels)
        return f"{rule.name}: {texts}" if texts else rule.name
    first: Mapping[str, Any] = next(iter(details.get("evidence", [])), {})
    values = {ROWS: details.get("rows", 0), **first, **dict(labels)}
    return _NAME.sub(lambda match: str(values.get(match[1], "?")), rule.summary)
