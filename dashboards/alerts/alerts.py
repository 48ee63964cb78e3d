"""The alerts of a running pipeline: evaluates the rules after each micro-batch, and delivers the messages."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from capture.errors import WiretideError
from capture.metrics import Samples
from dashboards.alerts.delivery import Delivery
from dashboards.alerts.evaluation import Evaluation, Message, RuleEvaluation, make_message
from dashboards.alerts.metrics import (
    DROPPED_GROUPS,
    EXCLUDED,
    FIRING,
    MESSAGES,
    METRICS,
    SILENCED,
    WAITING,
    WATCHED,
)
from dashboards.alerts.silences import Silences
from dashboards.alerts.states import Change
from dashboards.alerts.store import FILE, AlertStore
from dashboards.prometheus.exporter import Family, family_of

if TYPE_CHECKING:
    import pyarrow as pa

    from queries.pipeline.alert_settings import AlertSettings

RESULTS = ("sent", "failed", "refused", "dropped")


class AlertError(WiretideError):
    """The store of alerts failed. The run ends, because it would lose alerts."""


class Alerts:
    """The alerts of one run. It is a collector of prometheus-client. Must be closed."""

    def __init__(
        self, settings: AlertSettings, evaluation: Evaluation, folder: Path, say: Callable[[str], None]
    ) -> None:
        """Open the store in the folder of the run, and begin to send the messages of the last run.

        Raises OSError if the store cannot be used, PipelineError for a wrong file of silences.
        """
        self._evaluation = evaluation
        self._receivers = dict(settings.receivers or {})
        self._silences = Silences(settings.silences, [rule.name for rule in settings.rules], say)
        self._silenced: Counter[str] = Counter()
        self._lock = Lock()
        self._store = AlertStore(folder / FILE, evaluation.rules, list(self._receivers))
        self._deliveries = [Delivery(each, self._store, self._firing, say) for each in self._receivers.values()]

    @property
    def batch(self) -> int | None:
        """The last micro-batch that was evaluated; None if there was none."""
        return self._store.batch

    def evaluate(self, batch: int, results: Mapping[str, pa.Table], watermarks: Mapping[str, int]) -> list[Message]:
        """Evaluate the windows that a micro-batch closed; return the messages of alerts. Repeated ones are ignored.

        Raises AlertError if the store cannot be written, for example because the disk is full.
        """
        if self._store.batch is not None and batch <= self._store.batch:
            return []
        with self._lock:
            self._silences.refresh()
            changes = self._evaluation.evaluate(results, watermarks)
            messages, queued = self._announce(changes)
            try:
                self._store.save(batch, messages, queued)
            except sqlite3.Error as error:
                raise AlertError(f"{self._store.path}: alerts cannot be stored: {error}") from error
        for delivery in self._deliveries:
            if delivery.receiver.name in queued:
                delivery.notify()
        return messages

    def skip(self, batch: int) -> None:
        """Begin after a micro-batch: its windows and earlier ones raise no alerts."""
        self._store.save(batch, [], {})

    def _announce(
        self, changes: Sequence[tuple[RuleEvaluation, Change]]
    ) -> tuple[list[Message], dict[str, list[Message]]]:
        """Return all messages, and those for each receiver: without silenced alerts, with those whose silence ended."""
        messages: list[Message] = []
        queued: dict[str, list[Message]] = {}
        for evaluated, change in changes:
            group, name = change.group, evaluated.rule.name
            message = make_message(evaluated, change)
            messages.append(message)
            if change.ended is None and self._silences.covers(name, group.labels, group.fired or group.last):
                self._silenced[name] += 1
                continue
            if change.ended is None or group.announced:
                self._queue(evaluated, message, queued)
            group.announced = change.ended is None
        for evaluated in self._evaluation.rules:
            for labels, group in evaluated.states.groups.items():
                if group.fired is None or group.announced:
                    continue
                if not self._silences.covers(evaluated.rule.name, labels, evaluated.states.time or group.last):
                    group.announced = True
                    evaluated.states.changed.add(labels)
                    self._queue(evaluated, make_message(evaluated, Change.of(group)), queued)
        return messages, queued

    def _queue(self, evaluated: RuleEvaluation, message: Message, queued: dict[str, list[Message]]) -> None:
        for name in self._receivers:
            if evaluated.rule.receivers is None or name in evaluated.rule.receivers:
                queued.setdefault(name, []).append(message)

    def _firing(self, receiver: str) -> list[Message]:
        """Return messages about the alerts of a receiver that are firing and were announced."""
        with self._lock:
            return [
                make_message(evaluated, Change.of(group))
                for evaluated in self._evaluation.rules
                if evaluated.rule.receivers is None or receiver in evaluated.rule.receivers
                for group in evaluated.states.groups.values()
                if group.fired is not None and group.announced
            ]

    def current(self) -> list[Message]:
        """Return a message about each alert that is firing, also the silenced ones."""
        with self._lock:
            return [
                make_message(evaluated, Change.of(group))
                for evaluated in self._evaluation.rules
                for group in evaluated.states.groups.values()
                if group.fired is not None
            ]

    def last_messages(self, most: int) -> list[Message]:
        """Return the last messages, the newest first."""
        return self._store.last_messages(most)

    def close(self) -> None:
        """Send what waits, once, and close the store."""
        for delivery in self._deliveries:
            delivery.close()
        self._store.close()

    def describe(self) -> Iterator[Family]:
        """Yield every metric family of alerts without samples."""
        return (family_of(metric) for metric in METRICS)

    def collect(self) -> Iterator[Family]:
        """Yield every metric family of alerts with its samples."""
        samples = Samples()
        with self._lock:
            for evaluated in self._evaluation.rules:
                rule, states = evaluated.rule, evaluated.states
                firing = sum(group.fired is not None for group in states.groups.values())
                samples.set(FIRING, firing, rule.name, rule.severity)
                samples.set(WATCHED, len(states.groups), rule.name)
                samples.set(DROPPED_GROUPS, states.dropped, rule.name)
                samples.set(EXCLUDED, evaluated.excluded, rule.name)
                samples.set(SILENCED, self._silenced[rule.name], rule.name)
        for delivery in self._deliveries:
            name = delivery.receiver.name
            samples.set(WAITING, self._store.waiting(name), name)
            counts = {**delivery.counts(), "dropped": self._store.dropped[name]}
            for result in RESULTS:
                samples.set(MESSAGES, counts.get(result, 0), name, result)
        for metric in METRICS:
            family = family_of(metric)
            for (name, labels), value in samples.items():
                if name == metric.name:
                    family.add_metric(labels, value)
            yield family


def read_alerts(messages: Sequence[Message]) -> list[Message]:
    """Return the alerts of messages, each with its end if it has one, in the order of their begins."""
    alerts: dict[tuple[str, str], Message] = {}
    for message in messages:
        key = (message["id"], message["began"])
        alerts[key] = {**alerts.get(key, message), **message}
    return sorted(alerts.values(), key=lambda alert: alert["began"])
