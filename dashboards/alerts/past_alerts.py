"""The alerts of finished captures, and the number of alerts that were firing as samples for back-fill."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.alerts.evaluation import Evaluation, RuleEvaluation
from dashboards.alerts.messages import Message
from dashboards.alerts.metrics import FIRING
from dashboards.alerts.states import Group
from dashboards.prometheus.backfill import MILLISECOND, SampleFamily, SeriesSamples
from highlevel.plan.plan import Plan
from lowlevel.punctuation import END

MAX_SAMPLES = 100_000
"""Largest number of samples of a rule. A rule has one for each window while it has alerts."""


@dataclass(frozen=True, slots=True)
class PastAlert:
    """One alert: its rule, its begin and end in ns (None: it is firing at the end), its group, its last message."""

    rule: str
    began: int
    ended: int | None
    group: Group
    message: Message


class PastAlerts:
    """Evaluates rules over finished captures. Rows of windows are added in the order of the windows of each query.

    Memory: the rows of one window of each query, and the alerts.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._plans = {evaluated.plan.name: evaluated.plan for evaluated in evaluation.rules}
        self._waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._plans}
        self._alerts: dict[tuple[str, int], PastAlert] = {}
        self.samples_cut = 0
        """Number of samples that are left out, because a rule had more than MAX_SAMPLES."""

    @property
    def alerts(self) -> list[PastAlert]:
        """The alerts in the order of their begins."""
        return sorted(self._alerts.values(), key=lambda alert: (alert.began, alert.rule))

    def reads(self, plan: Plan) -> bool:
        """Return True if a rule reads the results of a query."""
        return plan.name in self._plans

    def add(self, plan: Plan, batch: pa.RecordBatch) -> None:
        """Add rows of a query. The rows of the newest window wait for further rows of this window."""
        if batch.num_rows == 0 or not self.reads(plan):
            return
        waiting = self._waiting[plan.name]
        waiting.append(batch)
        newest = pc.max(batch["window_end"])
        if waiting[0]["window_end"][0] == newest:
            return
        rows = pa.Table.from_batches(waiting, plan.schema)
        is_newest = pc.equal(rows["window_end"], newest)
        self._waiting[plan.name] = rows.filter(is_newest).to_batches()
        self._evaluate({plan.name: rows.filter(pc.invert(is_newest))}, {}, None)

    def finish(self, newest: int | None) -> None:
        """Evaluate the last windows. `newest` is the time of the newest packet in ns."""
        results = {
            name: pa.Table.from_batches(batches, self._plans[name].schema) for name, batches in self._waiting.items()
        }
        self._evaluate(results, dict.fromkeys(results, END), newest)

    def _evaluate(self, results: dict[str, pa.Table], watermarks: dict[str, int], newest: int | None) -> None:
        for evaluated, change in self._evaluation.evaluate(results, watermarks, newest):
            group, message = change.group, evaluated.message(change)
            assert group.began is not None, "a change belongs to an alert that has begun"
            alert = PastAlert(evaluated.rule.name, group.began, change.ended, group, message)
            self._alerts[message["id"], group.began] = alert

    def families(self) -> Iterator[SampleFamily]:
        """Yield the number of alerts that were firing, by rule, at the ends of windows, after `finish`.

        A rule has a sample of 0 before and after its alerts, and one for each window while it has some.
        """
        series: dict[tuple[str, ...], SeriesSamples] = {}
        for evaluated in self._evaluation.rules:
            alerts = [alert for alert in self._alerts.values() if alert.rule == evaluated.rule.name]
            if alerts:
                series[evaluated.rule.name, evaluated.rule.severity] = self._samples(evaluated, alerts)
        yield SampleFamily(FIRING.name, FIRING.help, FIRING.labels, series)

    def _samples(self, evaluated: RuleEvaluation, alerts: list[PastAlert]) -> SeriesSamples:
        slide, last = evaluated.plan.window.slide, evaluated.states.time or 0
        begins = np.sort([alert.began for alert in alerts])
        ends = np.sort([alert.ended for alert in alerts if alert.ended is not None]).astype(np.int64)
        parts = [begins - slide, ends]
        samples_left = MAX_SAMPLES
        for began, after in _merge_spans(
            (alert.began, last + 1 if alert.ended is None else alert.ended) for alert in alerts
        ):
            windows = -(-(after - began) // slide)
            parts.append(np.arange(min(windows, samples_left)) * slide + began)
            self.samples_cut += max(0, windows - samples_left)
            samples_left = max(0, samples_left - windows)
        times = np.unique(np.concatenate(parts))
        counts = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
        milliseconds, first = np.unique(times // MILLISECOND, return_index=True)
        shown = milliseconds >= 0
        return SeriesSamples(array("q", milliseconds[shown].tolist()), array("d", counts[first[shown]].tolist()))


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open spans of time as spans that do not touch.

    >>> _merge_spans([(5, 7), (1, 3), (2, 4), (4, 5), (9, 10)])
    [(1, 7), (9, 10)]
    """
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged
