"""The store of alerts: an SQLite file with the states of all rules, the messages to send, and the last messages.

One transaction contains everything that a micro-batch changes, and its ID. So a repeated micro-batch is recognised, and
no message is lost between the evaluation and the delivery: a message stays in the outbox until its receiver has
accepted it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

import pyarrow as pa

from capture.private_files import open_private
from dashboards.alerts.evaluation import Message, RuleEvaluation
from dashboards.alerts.states import Group

FILE = "alerts.sqlite"
"""Name of the file in the folder of a run."""

MAX_OUTBOX = 10_000
"""Largest number of messages that wait for a receiver. The oldest are dropped first."""

KEPT_MESSAGES = 10_000
"""Number of last messages that the store keeps, sent or not."""

_TABLES = """
CREATE TABLE IF NOT EXISTS progress (one INTEGER PRIMARY KEY CHECK (one = 1), batch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS rules (
    rule TEXT PRIMARY KEY, signature TEXT NOT NULL, time INTEGER, previous_end INTEGER, previous BLOB
);
CREATE TABLE IF NOT EXISTS groups (rule TEXT, labels TEXT, state TEXT NOT NULL, PRIMARY KEY (rule, labels));
CREATE TABLE IF NOT EXISTS outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, message TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS outbox_by_receiver ON outbox (receiver, id);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL);
"""


class AlertStore:
    """The store of one run. Thread safe: one thread saves evaluations while others deliver messages."""

    def __init__(self, path: Path, rules: Sequence[RuleEvaluation], receivers: Sequence[str]) -> None:
        """Open or create the file, and give the rules their states.

        The states of a rule whose text or query has changed are deleted, and messages to receivers that are not among
        `receivers`. Raises OSError if the file cannot be used.
        """
        self.path = path
        self._lock = Lock()
        self._rules = rules
        self.dropped = dict.fromkeys(receivers, 0)
        """Number of messages that were dropped because too many waited, by receiver."""
        os.close(open_private(path, os.O_RDWR | os.O_CREAT))
        try:
            self._file = sqlite3.connect(path, timeout=5, check_same_thread=False, isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.executescript(_TABLES)
            self._load(receivers)
        except (sqlite3.Error, ValueError, pa.ArrowException) as error:
            raise OSError(f"{path}: cannot be used as the store of alerts: {error}; delete the file") from error

    def _load(self, receivers: Sequence[str]) -> None:
        row = self._file.execute("SELECT batch FROM progress").fetchone()
        self.batch: int | None = None if row is None else row[0]
        """The last micro-batch that was evaluated; None if there was none."""
        marks = ", ".join("?" * len(receivers))
        self._file.execute(f"DELETE FROM outbox WHERE receiver NOT IN ({marks})", list(receivers))
        names = [each.rule.name for each in self._rules]
        marks = ", ".join("?" * len(names))
        for table in ("rules", "groups"):
            self._file.execute(f"DELETE FROM {table} WHERE rule NOT IN ({marks})", names)
        for each in self._rules:
            self._load_rule(each)

    def _load_rule(self, each: RuleEvaluation) -> None:
        name, signature = each.rule.name, _signature(each)
        row = self._file.execute(
            "SELECT signature, time, previous_end, previous FROM rules WHERE rule = ?", (name,)
        ).fetchone()
        if row is None or row[0] != signature:
            self._file.execute("DELETE FROM groups WHERE rule = ?", (name,))
            self._file.execute("INSERT OR REPLACE INTO rules VALUES (?, ?, NULL, NULL, NULL)", (name, signature))
            return
        _, each.states.time, each.previous_end, previous = row
        each.previous = None if previous is None else pa.ipc.open_stream(previous).read_all()
        for labels, state in self._file.execute("SELECT labels, state FROM groups WHERE rule = ?", (name,)):
            key = tuple((column, text) for column, text in json.loads(labels))
            each.states.groups[key] = Group(key, **json.loads(state))

    def save(self, batch: int, messages: Sequence[Message], queued: Mapping[str, Sequence[Message]]) -> None:
        """Store the states of all rules after a micro-batch, its messages, and those for each receiver."""
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                for each in self._rules:
                    self._save_rule(each)
                self._file.execute("INSERT OR REPLACE INTO progress VALUES (1, ?)", (batch,))
                self._file.executemany(
                    "INSERT INTO messages VALUES (NULL, ?)", [(json.dumps(message),) for message in messages]
                )
                self._file.execute(
                    "DELETE FROM messages WHERE id <= (SELECT max(id) FROM messages) - ?", (KEPT_MESSAGES,)
                )
                for receiver, waiting in queued.items():
                    self._queue(receiver, waiting)
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
            for each in self._rules:
                each.states.changed.clear()
            self.batch = batch

    def _save_rule(self, each: RuleEvaluation) -> None:
        previous = _packed(each.previous) if each.previous is not None else None
        self._file.execute(
            "UPDATE rules SET time = ?, previous_end = ?, previous = ? WHERE rule = ?",
            (each.states.time, each.previous_end, previous, each.rule.name),
        )
        for labels in each.states.changed:
            group = each.states.groups.get(labels)
            key = (each.rule.name, json.dumps(labels))
            if group is None:
                self._file.execute("DELETE FROM groups WHERE rule = ? AND labels = ?", key)
                continue
            state = {name: getattr(group, name) for name in Group.__slots__ if name != "labels"}
            self._file.execute("INSERT OR REPLACE INTO groups VALUES (?, ?, ?)", (*key, json.dumps(state)))

    def _queue(self, receiver: str, messages: Sequence[Message]) -> None:
        self._file.executemany(
            "INSERT INTO outbox VALUES (NULL, ?, ?)", [(receiver, json.dumps(message)) for message in messages]
        )
        excess = self._count(receiver) - MAX_OUTBOX
        if excess > 0:
            self._file.execute(
                "DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE receiver = ? ORDER BY id LIMIT ?)",
                (receiver, excess),
            )
            self.dropped[receiver] += excess

    def _count(self, receiver: str) -> int:
        found: int = self._file.execute("SELECT count(*) FROM outbox WHERE receiver = ?", (receiver,)).fetchone()[0]
        return found

    def waiting(self, receiver: str) -> int:
        """Return the number of messages that wait for a receiver."""
        with self._lock:
            return self._count(receiver)

    def next_messages(self, receiver: str, most: int) -> list[tuple[int, Message]]:
        """Return the oldest messages for a receiver, with their numbers."""
        with self._lock:
            rows = self._file.execute(
                "SELECT id, message FROM outbox WHERE receiver = ? ORDER BY id LIMIT ?", (receiver, most)
            ).fetchall()
        return [(number, json.loads(message)) for number, message in rows]

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove messages that were accepted, or that a receiver will never accept."""
        with self._lock:
            self._file.executemany("DELETE FROM outbox WHERE id = ?", [(number,) for number in numbers])

    def last_messages(self, most: int) -> list[Message]:
        """Return the last messages, the newest first."""
        with self._lock:
            rows = self._file.execute("SELECT message FROM messages ORDER BY id DESC LIMIT ?", (most,)).fetchall()
        return [json.loads(message) for (message,) in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()


def _signature(each: RuleEvaluation) -> str:
    rule = each.rule
    parts = [rule.where, rule.absent, rule.labels, rule.hold, [one.where for one in rule.exclude]]
    return hashlib.sha256(f"{parts}\n{each.plan.sql}\n{each.plan.schema}".encode()).hexdigest()


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()
