"""The alerts of a running pipeline: evaluates the rules after each micro-batch, and delivers the messages."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capture.errors import WiretideError
from capture.metrics import Samples
from dashboards.alerts.delivery import RESULTS, Delivery
from dashboards.alerts.evaluation import Evaluation, RuleEvaluation
from dashboards.alerts.messages import ENDED, FINAL, Message, end_message, has_same_content, with_batch_number
from dashboards.alerts.metrics import (
    DROPPED_GROUPS,
    EXCLUDED,
    FIRING,
    GROUPS,
    LATE,
    MESSAGES,
    METRICS,
    SILENCED,
    WAITING,
)
from dashboards.alerts.provisional import Publication, events_of, find_corrections
from dashboards.alerts.silences import Silences
from dashboards.alerts.states import MAX_GROUPS, Change, Group, Labels, Reason
from dashboards.alerts.store import FILE, AlertStore, Announcement
from dashboards.prometheus.exporter import Family, family_of
from queries.pipeline.alert_settings import AlertSettings, Receiver

if TYPE_CHECKING:
    import pyarrow as pa

CLOSE_SECONDS = 6.0
"""Maximum number of seconds for which `close` waits for the delivery of messages, in total for all receivers."""

Queue = dict[str, list[Message]]
"""Messages by the name of their receiver."""

FiringGroup = tuple[RuleEvaluation, Group, tuple[str, ...]]
"""An alert that is firing: its rule, its group, and the receivers to which it was sent."""


class AlertError(WiretideError):
    """The store of alerts failed. The run ends, because it would lose alerts."""


class Alerts:
    """The alerts of one run. A collector of prometheus-client. Must be closed.

    One thread evaluates rules. Other threads may read the metrics and the current alerts.
    """

    def __init__(
        self,
        settings: AlertSettings,
        evaluation: Evaluation,
        folder: Path,
        print_line: Callable[[str], None],
        deliver: Callable[..., Delivery] = Delivery,
    ) -> None:
        """Open the store in the folder of the run, and begin to send the messages of the last run.

        Raises OSError if the store cannot be used, PipelineError for a wrong file of silences.
        """
        self._evaluation, self._print_line = evaluation, print_line
        self._receivers: Mapping[str, Receiver] = settings.receivers
        self._final_receivers = {receiver.name for receiver in settings.receivers.values() if receiver.final}
        self._silences = Silences(settings.silences, evaluation.labels, print_line)
        self._silenced: Counter[str] = Counter()
        self._full_rules: set[str] = set()
        self._store = AlertStore(folder / FILE, evaluation.rules, list(self._receivers))
        if self._store.deleted:
            print_line(
                f"warning: {self._store.deleted:,} messages are deleted: their receivers are not in the pipeline file"
            )
        self._firing: tuple[FiringGroup, ...] = ()
        self._final_firing: tuple[FiringGroup, ...] = ()
        self._publish()
        self._deliveries = [
            deliver(receiver, self._store, self.firing_messages, print_line) for receiver in self._receivers.values()
        ]

    def evaluate(
        self,
        batch: int,
        results: Mapping[str, pa.Table],
        watermarks: Mapping[str, int],
        newest: int | None = None,
        provisional: Mapping[str, pa.Table] | None = None,
    ) -> list[Message]:
        """Evaluate the windows that a micro-batch closed; return the messages of alerts.

        A repeated micro-batch is ignored.

        `provisional`: for each query with changes, the rows of all windows that are not final.

        Raises AlertError if the store cannot be written, for example because the disk is full.
        """
        if self._store.batch is not None and batch <= self._store.batch:
            return []
        self._silences.refresh()
        queue: Queue = {}
        messages = []
        final_changes: dict[str, list[Change]] = {}
        for rule_evaluation, change in self._evaluation.evaluate(results, watermarks, newest):
            if rule_evaluation.is_provisional:
                final_changes.setdefault(rule_evaluation.rule.name, []).append(change)
                continue
            message = rule_evaluation.message(change)
            messages.append(message)
            if change.ended is None:
                self._announce_new(rule_evaluation, change.group, message, queue)
            else:
                self._announce_end(rule_evaluation, change, message, queue)
        for rule_evaluation in self._evaluation.rules:
            if rule_evaluation.is_provisional:
                rows = (provisional or {}).get(rule_evaluation.plan.name)
                changes = final_changes.get(rule_evaluation.rule.name, [])
                for publication in self._corrections(rule_evaluation, changes, rows, newest):
                    publication = replace(publication, message=with_batch_number(publication.message, batch))
                    self._send(rule_evaluation, publication, queue)
                    messages.append(publication.message)
            self._announce_late(rule_evaluation, queue)
        self._save(batch, messages, queue)
        return messages

    def continue_provisional(self, provisional: Mapping[str, pa.Table], newest: int | None) -> None:
        """Show the alerts of windows that are not final, after a restart. Nothing is sent."""
        for rule_evaluation in self._evaluation.rules:
            if rule_evaluation.is_provisional and rule_evaluation.plan.name in provisional:
                rule_evaluation.preview(provisional[rule_evaluation.plan.name], newest)
        self._publish()

    def _corrections(
        self,
        rule_evaluation: RuleEvaluation,
        final_changes: Sequence[Change],
        rows: pa.Table | None,
        newest: int | None,
    ) -> list[Publication]:
        """Evaluate the windows that are not final; return the messages that are new or have changed."""
        preview = rule_evaluation.preview(rule_evaluation.plan.schema.empty_table() if rows is None else rows, newest)
        final = events_of(final_changes, rule_evaluation.message)
        provisional = events_of(preview, partial(rule_evaluation.message, is_final=False))
        firing = {
            (labels, group.began): rule_evaluation.firing_message(group)
            for labels, group in rule_evaluation.states.groups.items()
            if group.began is not None
        }
        name, now = rule_evaluation.rule.name, rule_evaluation.shown.time or 0
        publications = find_corrections(self._store.provisional.get(name, {}), final, provisional, firing, now)
        self._store.provisional[name] = provisional
        return publications

    def _send(self, rule_evaluation: RuleEvaluation, sent: Publication, queue: Queue) -> None:
        """Send a message about windows that are not final, or were not final before."""
        rule, message, previous = rule_evaluation.rule.name, sent.message, sent.previous
        if self._silences.covers(rule, sent.labels, sent.began):
            self._silenced[rule] += message["status"] != ENDED and previous is None
            return
        receivers = self._receivers_of(rule_evaluation, message)
        if message["status"] != ENDED:
            self._announce(rule_evaluation, sent.labels, message, receivers, queue)
            return
        announcement = self._store.announcements.pop((rule, sent.labels), None)
        known = announcement.receivers if announcement is not None else ()
        if previous is None or has_same_content(message, previous):
            receivers = tuple(name for name in receivers if name in known)
        self._queue_message(message, receivers, queue)
        if announcement is not None and (others := tuple(name for name in known if name not in receivers)):
            self._store.announcements[rule, sent.labels] = Announcement(announcement.message, others)

    def continue_after(self, batch: int) -> int:
        """Return the ID of the last micro-batch that was evaluated. `batch`: the last micro-batch of the run.

        If no micro-batch was evaluated, `batch` is returned, so new rules raise no alerts about earlier windows. Alerts
        of rules that were removed or changed are ended. Raises AlertError if the store belongs to a later state of the
        run.
        """
        last_evaluated = batch if self._store.batch is None else self._store.batch
        if last_evaluated > batch:
            raise AlertError(
                f"{self._store.path}: got alerts up to micro-batch {last_evaluated}, but the run continues after "
                f"{batch}; "
                "delete the file"
            )
        queue: Queue = {}
        messages = self._end_alerts_of_old_rules(queue)
        self._save(last_evaluated, messages, queue)
        return last_evaluated

    def _save(self, batch: int, messages: list[Message], queue: Queue) -> None:
        try:
            self._store.save(batch, messages, queue)
        except sqlite3.Error as error:
            raise AlertError(f"{self._store.path}: alerts cannot be stored: {error}") from error
        self._publish()
        for delivery in self._deliveries:
            if delivery.receiver.name in queue:
                delivery.notify()
        for rule_evaluation in self._evaluation.rules:
            rule = rule_evaluation.rule.name
            if rule_evaluation.states.dropped and rule not in self._full_rules:
                self._full_rules.add(rule)
                self._print_line(
                    f"warning: alerts.{rule} has {MAX_GROUPS:,} groups and ignores others; use fewer labels"
                )

    def _announce_new(self, rule_evaluation: RuleEvaluation, group: Group, message: Message, queue: Queue) -> None:
        rule = rule_evaluation.rule
        assert group.began is not None, "a new alert has begun"
        if self._silences.covers(rule.name, group.labels, group.began):
            self._silenced[rule.name] += 1
            return
        self._announce(rule_evaluation, group.labels, message, self._receivers_of(rule_evaluation, message), queue)

    def _announce_end(self, rule_evaluation: RuleEvaluation, change: Change, message: Message, queue: Queue) -> None:
        """Send the end of an alert to the receivers that were informed that it is firing."""
        announcement = self._store.announcements.pop((rule_evaluation.rule.name, change.group.labels), None)
        if announcement is not None:
            self._queue_message(message, announcement.receivers, queue)

    def _announce_late(self, rule_evaluation: RuleEvaluation, queue: Queue) -> None:
        """Announce alerts that are firing and were not announced, because a silence has ended or a receiver is new."""
        states = rule_evaluation.shown
        if states.time is None:
            return
        for labels, group in states.groups.items():
            if group.began is None:
                continue
            message = rule_evaluation.firing_message(group)
            receivers = self._receivers_of(rule_evaluation, message)
            announcement = self._store.announcements.get((rule_evaluation.rule.name, labels))
            known = announcement.receivers if announcement is not None else ()
            missing = tuple(name for name in receivers if name not in known)
            if missing and not self._silences.covers(rule_evaluation.rule.name, labels, states.time):
                states.changed.add(labels)
                self._announce(rule_evaluation, labels, message, missing, queue)

    def _announce(
        self,
        rule_evaluation: RuleEvaluation,
        labels: Labels,
        message: Message,
        receivers: tuple[str, ...],
        queue: Queue,
    ) -> None:
        announcements, key = self._store.announcements, (rule_evaluation.rule.name, labels)
        earlier = announcements[key].receivers if key in announcements else ()
        announcements[key] = Announcement(message, tuple(dict.fromkeys((*earlier, *receivers))))
        self._queue_message(message, receivers, queue)

    def _end_alerts_of_old_rules(self, queue: Queue) -> list[Message]:
        messages = []
        for alert in self._store.open_alerts:
            message = end_message(alert.announcement.message, alert.time, Reason.RULE_CHANGED)
            messages.append(message)
            self._queue_message(message, alert.announcement.receivers, queue)
        return messages

    def _receivers_of(self, rule_evaluation: RuleEvaluation, message: Message) -> tuple[str, ...]:
        """Return the receivers of a message. Receivers that wait for final results receive only final messages."""
        names = filter(rule_evaluation.rule.sends_to, self._receivers)
        return tuple(name for name in names if message["state"] == FINAL or name not in self._final_receivers)

    def _queue_message(self, message: Message, receivers: tuple[str, ...], queue: Queue) -> None:
        for receiver in receivers:
            if receiver in self._receivers:
                queue.setdefault(receiver, []).append(message)

    def _publish(self) -> None:
        """Let other threads read the alerts that are firing, and their receivers. Groups are immutable."""
        self._firing = tuple(self._firing_groups(are_final=False))
        self._final_firing = tuple(self._firing_groups(are_final=True))

    def _firing_groups(self, *, are_final: bool) -> Iterator[FiringGroup]:
        announcements = self._store.announcements
        receivers = {key: announcement.receivers for key, announcement in announcements.items()}
        for rule_evaluation in self._evaluation.rules:
            for group in (rule_evaluation.states if are_final else rule_evaluation.shown).groups.values():
                if group.began is not None:
                    yield rule_evaluation, group, receivers.get((rule_evaluation.rule.name, group.labels), ())

    def firing_messages(self, receiver: str | None = None) -> list[Message]:
        """Return messages about the alerts that are firing.

        With `receiver`: only about the alerts sent to this receiver.
        """
        return [
            rule_evaluation.firing_message(group)
            for rule_evaluation, group, receivers in (
                self._final_firing if receiver in self._final_receivers else self._firing
            )
            if receiver is None or receiver in receivers
        ]

    def ended_messages(self, max_messages: int) -> list[Message]:
        """Return the messages about the last alerts that have ended, the newest first."""
        return self._store.last_messages(max_messages, ENDED)

    def close(self) -> None:
        """Send each waiting message once, and close the store. Messages that are not accepted stay in the store."""
        for delivery in self._deliveries:
            delivery.stop()
        end = time.monotonic() + CLOSE_SECONDS
        for delivery in self._deliveries:
            delivery.join(max(0.0, end - time.monotonic()))
        self._store.close()

    def describe(self) -> Iterator[Family]:
        """Yield every metric family of alerts without samples."""
        return (family_of(metric) for metric in METRICS)

    def collect(self) -> Iterator[Family]:
        """Yield every metric family of alerts with its samples."""
        samples = Samples()
        firing = Counter(rule_evaluation.rule.name for rule_evaluation, *_ in self._firing)
        for rule_evaluation in self._evaluation.rules:
            rule, states = rule_evaluation.rule, rule_evaluation.states
            samples.set(FIRING, firing[rule.name], rule.name, rule.severity)
            samples.set(GROUPS, len(states.groups), rule.name)
            samples.set(DROPPED_GROUPS, states.dropped, rule.name)
            samples.set(EXCLUDED, rule_evaluation.excluded_rows, rule.name)
            samples.set(LATE, rule_evaluation.late_rows, rule.name)
            samples.set(SILENCED, self._silenced[rule.name], rule.name)
        for delivery in self._deliveries:
            name = delivery.receiver.name
            samples.set(WAITING, self._store.count_waiting(name), name)
            counts = {**delivery.counts, "dropped": self._store.dropped[name]}
            for result in RESULTS:
                samples.set(MESSAGES, counts.get(result, 0), name, result)
        for metric in METRICS:
            family = family_of(metric)
            for (name, labels), value in samples.items():
                if name == metric.name:
                    family.add_metric(labels, value)
            yield family
