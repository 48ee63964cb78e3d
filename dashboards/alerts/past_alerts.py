"""The alerts over complete captures, and metric samples for back-fill: the number of firing alerts."""

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
from dashboards.prometheus.backfill import NS_PER_MS, SampleFamily, SeriesSamples
from highlevel.plan.plan import Plan
from lowlevel.punctuation import END

MAX_SAMPLES = 100_000
"""Maximum number of metric samples of a rule. A rule has one sample per window while it has firing alerts."""


@dataclass(frozen=True, slots=True)
class PastAlert:
    """One alert: its rule, its begin and end in ns (None: it is firing at the end), its group, its last message."""

    rule: str
    began: int
    ended: int | None
    group: Group
    message: Message


class PastAlerts:
    """Evaluates rules over complete captures. The rows of each query are added in the order of its windows.

    Memory: the rows of one window of each query, and the alerts.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation
        self._plans = {rule_evaluation.plan.name: rule_evaluation.plan for rule_evaluation in evaluation.rules}
        self._waiting: dict[str, list[pa.RecordBatch]] = {name: [] for name in self._plans}
        self._alerts: dict[tuple[str, int], PastAlert] = {}
        self.omitted_samples = 0
        """Number of samples that were omitted, because a rule had more than MAX_SAMPLES."""

    @property
    def alerts(self) -> list[PastAlert]:
        """The alerts in the order of their begins."""
        return sorted(self._alerts.values(), key=lambda alert: (alert.began, alert.rule))

    def reads(self, plan: Plan) -> bool:
        """Return True if a rule reads the results of a query."""
        return plan.name in self._plans

    def add(self, plan: Plan, batch: pa.RecordBatch) -> None:
        """Add rows of a query. The newest window is evaluated later, because it may get further rows."""
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
        for rule_evaluation, change in self._evaluation.evaluate(results, watermarks, newest):
            group, message = change.group, rule_evaluation.message(change)
            assert group.began is not None, "a change belongs to an alert that has begun"
            alert = PastAlert(rule_evaluation.rule.name, group.began, change.ended, group, message)
            self._alerts[message["id"], group.began] = alert

    def families(self) -> Iterator[SampleFamily]:
        """Yield the number of alerts that were firing, by rule, at the ends of windows, after `finish`.

        A rule has a sample 0 before and after its alerts, and one sample per window while alerts are firing.
        """
        series: dict[tuple[str, ...], SeriesSamples] = {}
        for rule_evaluation in self._evaluation.rules:
            alerts = [alert for alert in self._alerts.values() if alert.rule == rule_evaluation.rule.name]
            if alerts:
                series[rule_evaluation.rule.name, rule_evaluation.rule.severity] = self._samples(
                    rule_evaluation, alerts
                )
        yield SampleFamily(FIRING.name, FIRING.help, FIRING.labels, series)

    def _samples(self, rule_evaluation: RuleEvaluation, alerts: list[PastAlert]) -> SeriesSamples:
        slide, last = rule_evaluation.plan.window.slide, rule_evaluation.states.time or 0
        begins = np.sort([alert.began for alert in alerts])
        ends = np.sort([alert.ended for alert in alerts if alert.ended is not None]).astype(np.int64)
        parts = [begins - slide, ends]
        samples_left = MAX_SAMPLES
        for began, after in _merge_spans(
            (alert.began, last + 1 if alert.ended is None else alert.ended) for alert in alerts
        ):
            windows = -(-(after - began) // slide)
            parts.append(np.arange(min(windows, samples_left)) * slide + began)
            self.omitted_samples += max(0, windows - samples_left)
            samples_left = max(0, samples_left - windows)
        times = np.unique(np.concatenate(parts))
        counts = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
        milliseconds, first = np.unique(times // NS_PER_MS, return_index=True)
        shown = milliseconds >= 0
        return SeriesSamples(array("q", milliseconds[shown].tolist()), array("d", counts[first[shown]].tolist()))


def _merge_spans(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open time spans, as spans that neither overlap nor touch.

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
