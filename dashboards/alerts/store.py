"""The store of alerts: an SQLite file with the states of all rules, the messages to send, and the last messages.

One transaction contains all changes of a micro-batch and the ID of the micro-batch. So a repeated micro-batch is
recognised. A message stays in the outbox until its receiver has accepted it, so a crash before the delivery loses none.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from threading import Lock

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from capture.private_files import open_private
from dashboards.alerts.evaluation import RuleEvaluation
from dashboards.alerts.messages import Message
from dashboards.alerts.provisional import Events
from dashboards.alerts.states import Group, Labels

FILE = "alerts.sqlite"
"""Name of the file in the folder of a run."""

MAX_OUTBOX = 10_000
"""Maximum number of messages that wait for a receiver. If there are more, the oldest messages are dropped."""

KEPT_MESSAGES = 10_000
"""Number of messages that the store keeps: the newest messages, sent or not."""

_TABLES = """
CREATE TABLE IF NOT EXISTS progress (number INTEGER PRIMARY KEY CHECK (number = 1), batch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rules (rule TEXT PRIMARY KEY, signature TEXT NOT NULL, time INTEGER, previous BLOB);
CREATE TABLE IF NOT EXISTS groups (
    rule TEXT, labels TEXT, state TEXT NOT NULL, announcement TEXT, PRIMARY KEY (rule, labels)
);
CREATE TABLE IF NOT EXISTS provisional (rule TEXT PRIMARY KEY, events TEXT NOT NULL, announcements TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, message TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_by_receiver ON outbox (receiver, id);
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, status TEXT NOT NULL, message TEXT NOT NULL
);
"""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The message that an alert is firing, and the receivers to which it was sent."""

    message: Message
    receivers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An announced alert of a rule that does not exist any more, and the time (ns) up to which it was evaluated."""

    announcement: Announcement
    time: int


Announcements = dict[tuple[str, Labels], Announcement]
"""Announcements of alerts that are firing, by the name of the rule and the labels."""


class AlertStore:
    """The store of one run. Thread safe: one thread saves evaluations while others deliver messages."""

    def __init__(self, path: Path, rules: Sequence[RuleEvaluation], receivers: Sequence[str]) -> None:
        """Open or create the file, and load the states of the rules from it.

        The states of a rule are deleted if its query or labels have changed. Messages are deleted if their receiver is
        not among `receivers`. Raises OSError if the file cannot be used.
        """
        self.path = path
        self.announcements: Announcements = {}
        self.provisional: dict[str, Events] = {}
        """The events of windows that are not final, by rule."""
        self.open_alerts: list[OpenAlert] = []
        """Announced alerts of rules that were removed or changed; empty after the first `save`."""
        self.dropped = dict.fromkeys(receivers, 0)
        """Number of messages that were dropped, because more than MAX_OUTBOX waited, by receiver."""
        self._lock = Lock()
        self._rules = rules
        self._stored_previous: dict[str, pa.Table | None] = {}
        self._stored_provisional: dict[str, tuple[str, str]] = {}
        os.close(open_private(path, os.O_RDWR))
        self._file = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
        try:
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.executescript(_TABLES)
            self._load(receivers)
        except (sqlite3.Error, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            self._file.close()
            raise OSError(f"{path}: cannot be used as the store of alerts: {error}; delete the file") from error

    def _load(self, receivers: Sequence[str]) -> None:
        row = self._file.execute("SELECT batch FROM progress").fetchone()
        self.batch: int | None = None if row is None else row[0]
        """The last micro-batch that was evaluated; None if there was none."""
        marks = ", ".join("?" * len(receivers))
        deleted = self._file.execute(f"DELETE FROM outbox WHERE receiver NOT IN ({marks})", list(receivers))
        self.deleted = deleted.rowcount
        """Number of waiting messages that were deleted, because their receiver does not exist any more."""
        evaluated_by_name = {rule_evaluation.rule.name: rule_evaluation for rule_evaluation in self._rules}
        for name, signature, time, previous in self._file.execute("SELECT * FROM rules").fetchall():
            rule_evaluation = evaluated_by_name.get(name)
            provisional = self._file.execute(
                "SELECT events, announcements FROM provisional WHERE rule = ?", (name,)
            ).fetchone()
            if rule_evaluation is None or _signature(rule_evaluation) != signature:
                groups = self._file.execute("SELECT announcement FROM groups WHERE rule = ?", (name,))
                announced = [_announcement(text) for (text,) in groups if text is not None]
                if provisional is not None:
                    announced = [
                        Announcement(message, tuple(names)) for _, message, names in json.loads(provisional[1])
                    ]
                self.open_alerts += [OpenAlert(announcement, time or 0) for announcement in announced]
                continue
            if provisional is not None:
                self._stored_provisional[name] = provisional
                self.provisional[name] = {
                    (_labels(labels), began, status): message
                    for labels, began, status, message in json.loads(provisional[0])
                }
                for labels, message, names in json.loads(provisional[1]):
                    self.announcements[name, _labels(labels)] = Announcement(message, tuple(names))
            rule_evaluation.states.time = time
            if previous is not None and rule_evaluation.needs_previous:
                rule_evaluation.previous = self._stored_previous[name] = pa.ipc.open_stream(previous).read_all()
            rows = self._file.execute("SELECT labels, state, announcement FROM groups WHERE rule = ?", (name,))
            for labels_text, state, text in rows:
                labels = _labels(json.loads(labels_text))
                rule_evaluation.states.groups[labels] = Group(labels, **json.loads(state))
                if text is not None and provisional is None:
                    self.announcements[name, labels] = _announcement(text)

    def save(self, batch: int, messages: Sequence[Message], queued: Mapping[str, Sequence[Message]]) -> None:
        """Store the states of all rules after a micro-batch, its messages, and the queued messages of each receiver.

        Raises sqlite3.Error if the file cannot be written; then it is unchanged.
        """
        dropped = dict(self.dropped)
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._delete_old_rules()
                for rule_evaluation in self._rules:
                    self._save_rule(rule_evaluation)
                self._file.execute("INSERT OR REPLACE INTO progress VALUES (1, ?)", (batch,))
                rows = [(message["status"], json.dumps(message)) for message in messages]
                self._file.executemany("INSERT INTO messages VALUES (NULL, ?, ?)", rows)
                self._file.execute(
                    "DELETE FROM messages WHERE id <= (SELECT max(id) FROM messages) - ?", (KEPT_MESSAGES,)
                )
                for receiver, waiting in queued.items():
                    dropped[receiver] += self._queue(receiver, waiting)
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:  # a full disk has ended it already
                    self._file.execute("ROLLBACK")
                raise
            self.batch, self.dropped = batch, dropped
        self.open_alerts.clear()
        for rule_evaluation in self._rules:
            rule_evaluation.states.changed.clear()

    def _delete_old_rules(self) -> None:
        """Delete the states of rules that were removed or changed."""
        current = [(rule_evaluation.rule.name, _signature(rule_evaluation)) for rule_evaluation in self._rules]
        for name, signature in self._file.execute("SELECT rule, signature FROM rules").fetchall():
            if (name, signature) not in current:
                self._file.execute("DELETE FROM groups WHERE rule = ?", (name,))
                self._file.execute("DELETE FROM provisional WHERE rule = ?", (name,))
                self._file.execute("DELETE FROM rules WHERE rule = ?", (name,))

    def _save_rule(self, rule_evaluation: RuleEvaluation) -> None:
        rule, states = rule_evaluation.rule.name, rule_evaluation.states
        self._file.execute(
            "INSERT INTO rules VALUES (?, ?, ?, NULL) ON CONFLICT (rule) DO UPDATE SET time = excluded.time",
            (rule, _signature(rule_evaluation), states.time),
        )
        if rule_evaluation.previous is not self._stored_previous.get(rule):
            previous = self._stored_previous[rule] = rule_evaluation.previous
            packed = None if previous is None else _pack_table(previous)
            self._file.execute("UPDATE rules SET previous = ? WHERE rule = ?", (packed, rule))
        if rule_evaluation.is_provisional:
            self._save_provisional(rule)
        for labels in states.changed:
            group, key = states.groups.get(labels), json.dumps(labels)
            if group is None:
                self._file.execute("DELETE FROM groups WHERE rule = ? AND labels = ?", (rule, key))
                continue
            state = {one.name: getattr(group, one.name) for one in fields(Group) if one.name != "labels"}
            announcement = self.announcements.get((rule, labels))
            text = None if announcement is None else json.dumps([announcement.message, announcement.receivers])
            values = (rule, key, json.dumps(state), text)
            self._file.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?, ?)", values)

    def _save_provisional(self, rule: str) -> None:
        """Store the events of windows that are not final, and all announcements of the rule."""
        events = [[*key, message] for key, message in self.provisional.get(rule, {}).items()]
        announced = [
            [labels, announcement.message, announcement.receivers]
            for (name, labels), announcement in self.announcements.items()
            if name == rule
        ]
        texts = json.dumps(events), json.dumps(announced)
        if texts != self._stored_provisional.get(rule):
            self._file.execute("INSERT OR REPLACE INTO provisional VALUES (?, ?, ?)", (rule, *texts))
            self._stored_provisional[rule] = texts

    def _queue(self, receiver: str, messages: Sequence[Message]) -> int:
        """Add messages to the outbox. Return the number of old messages that were dropped."""
        rows = [(receiver, json.dumps(message)) for message in messages]
        self._file.executemany("INSERT INTO outbox VALUES (NULL, ?, ?)", rows)
        excess = max(0, self._count(receiver) - MAX_OUTBOX)
        self._file.execute(
            "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE receiver = ? ORDER BY id LIMIT ?)",
            (receiver, excess),
        )
        return excess

    def _count(self, receiver: str) -> int:
        row: tuple[int] = self._file.execute("SELECT count(*) FROM outbox WHERE receiver = ?", (receiver,)).fetchone()
        return row[0]

    def count_waiting(self, receiver: str) -> int:
        """Return the number of messages that wait for a receiver."""
        with self._lock:
            return self._count(receiver)

    def next_messages(self, receiver: str, limit: int) -> list[tuple[int, Message]]:
        """Return the oldest messages for a receiver, at most `limit`, each with its number in the outbox."""
        with self._lock:
            rows = self._file.execute(
                "SELECT id, message FROM outbox WHERE receiver = ? ORDER BY id LIMIT ?", (receiver, limit)
            ).fetchall()
        return [(number, json.loads(message)) for number, message in rows]

    def remove(self, receiver: str, last_number: int) -> None:
        """Remove the messages with numbers up to `last_number`. They were accepted, or will never be accepted."""
        with self._lock:
            self._file.execute("DELETE FROM outbox WHERE receiver = ? AND id <= ?", (receiver, last_number))

    def last_messages(self, limit: int, status: str) -> list[Message]:
        """Return at most `limit` messages with a status, the newest first."""
        query = "SELECT message FROM messages WHERE status = ? ORDER BY id DESC LIMIT ?"
        with self._lock:
            rows = self._file.execute(query, (status, limit)).fetchall()
        return [json.loads(message) for (message,) in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def _signature(rule_evaluation: RuleEvaluation) -> str:
    """Return a hash of the query and labels of a rule. If it changes, stored states of the rule are not valid."""
    rule, plan = rule_evaluation.rule, rule_evaluation.plan
    parts = [rule.labels, rule.absent is None, plan.sql, str(plan.schema)]
    parts += ["provisional"] if rule_evaluation.is_provisional else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _labels(stored: Sequence[Sequence[str]]) -> Labels:
    return tuple((column, value) for column, value in stored)


def _announcement(text: str) -> Announcement:
    message, receivers = json.loads(text)
    return Announcement(message, tuple(receivers))


def _pack_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()
