"""The evaluation of rules over the results of queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from dashboards.alerts.conditions import Condition
from dashboards.alerts.messages import FINAL, PROVISIONAL, ROWS, Message, make_message, names_in
from dashboards.alerts.states import Change, Group, Labels, Reason, RuleStates, Window
from dashboards.page.rows import rows_of
from dashboards.prometheus.names import Names, label_name
from dashboards.prometheus.query_series import QuerySeries
from highlevel.aggregation import BOUNDS, LATE
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END
from queries.pipeline.alert_settings import AlertRule, AlertSettings
from queries.pipeline.sections import PipelineError

Details = dict[str, Any]

RESERVED_LABELS = ("alertname", "severity")
"""Labels that each alert has in an Alertmanager."""


class RuleEvaluation:
    """One rule, its compiled condition and the states of its groups."""

    def __init__(self, rule: AlertRule, plan: Plan, series: QuerySeries | None, base: Path) -> None:
        """Raises PipelineError for a query without windows of time, and for wrong columns and conditions."""
        window = plan.window
        if series is None or not plan.windowed or not isinstance(window, SlidingWindow):
            raise PipelineError(
                f"alerts.{rule.name}.query: got {plan.name}, which has no windows of a fixed length of time; expected "
                "a query with, for example, [RANGE 1 minute, SLIDE 1 minute, WA ts], or another query that reads its "
                f"rows with such a window: FROM {plan.name} [RANGE 1 minute]"
            )
        labels = _check_columns(rule, plan, series.key_columns if rule.labels is None else rule.labels)
        self.rule = replace(rule, labels=labels)
        self.is_provisional = plan.has_changes and not rule.final and rule.absent is None
        """True if the rule also examines windows that are not final. Absence is certain only in final windows."""
        self.plan = plan = plan.with_final_rows()
        self.states = RuleStates(self.rule, window.slide, window.origin)
        """The states after the final windows."""
        self.shown = self.states
        """The states after all windows that were examined."""
        self.previous: pa.Table | None = None
        """The rows of the last window, if the condition refers to the previous window."""
        self.excluded_rows = 0
        """Number of matching rows that exclusions removed."""
        self.late_rows = 0
        """Number of ignored rows of queries with LATE EMIT. Such rows are only parts of windows."""
        self._condition = Condition(rule, plan, series.key_columns, window.slide, base)
        self._values = tuple(value.column for value in series.values)
        self._order = [("window_end", "ascending")]
        self._order += [(series.rank, "descending")] if series.rank is not None else []
        self._order += [(name, "ascending") for name in series.key_columns]

    @property
    def needs_previous(self) -> bool:
        """True if the condition refers to the previous window."""
        return self._condition.needs_previous

    def evaluate(self, rows: pa.Table, watermark: int | None) -> list[Change]:
        """Examine the rows of windows that have closed, and the watermark (ns) of the query."""
        return self.states.add(self._windows(rows), watermark)

    def preview(self, rows: pa.Table, newest: int | None) -> list[Change]:
        """Examine the rows of all windows that are not final. `newest`: the time of the newest packet in ns.

        Return the changes that these windows would cause if they were final. Each call begins with the states after the
        final windows.
        """
        self.shown = self.states.copy()
        return self.shown.add(self._windows(rows, are_final=False), None, END if newest is None else newest)

    def _windows(self, rows: pa.Table, *, are_final: bool = True) -> Iterator[Window]:
        rows = rows.select(self.plan.schema.names).cast(self.plan.schema)
        if LATE in rows.column_names and self.plan.aggregation is not None and self.plan.aggregation.emit_late:
            on_time = rows.filter(pc.invert(rows[LATE]))
            self.late_rows += rows.num_rows - on_time.num_rows
            rows = on_time
        if rows.num_rows == 0:
            return
        rows = rows.take(pc.sort_indices(rows, sort_keys=self._order)).combine_chunks()
        matches = self._condition.match(rows, self.previous)
        self.excluded_rows += matches.excluded if are_final else 0
        if self._condition.needs_previous and are_final:
            self.previous = rows.filter(pc.equal(rows["window_end"], rows["window_end"][-1]))
        matched = {end: self._describe_groups(window) for end, window in _split_by_end(matches.rows)}
        for end in pc.unique(rows["window_end"]).to_pylist():
            yield Window(end, matched.get(end, {}))

    def _describe_groups(self, rows: pa.Table) -> dict[Labels, Details]:
        """Return by the labels of each group of a window: the window bounds, the number of rows, the first rows."""
        labels = self.rule.labels or ()
        texts = rows_of(rows.select(labels), self.plan.times)["rows"] if labels else [[]] * rows.num_rows
        positions: dict[Labels, list[int]] = {}
        for number, row in enumerate(texts):
            key = tuple((name, "" if text is None else str(text)) for name, text in zip(labels, row, strict=True))
            positions.setdefault(key, []).append(number)
        chosen = [number for numbers in positions.values() for number in numbers[: self.rule.evidence]]
        shown = rows_of(rows.take(chosen), self.plan.times, self._values)
        evidence = iter([dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]])
        details: dict[Labels, Details] = {}
        for key, numbers in positions.items():
            first_rows = [next(evidence) for _ in numbers[: self.rule.evidence]]
            bounds = {name.removeprefix("window_"): first_rows[0][name] for name in BOUNDS}
            details[key] = {"window": bounds, "rows": len(numbers), "evidence": first_rows}
        return details

    def message(self, change: Change, *, is_final: bool = True) -> Message:
        """Return the message about a change. `is_final`: True if final windows have caused the change."""
        return make_message(self.rule, self.plan, change, FINAL if is_final else PROVISIONAL)

    def firing_message(self, group: Group) -> Message:
        """Return the message that the alert of a group is firing."""
        change = Change(group, Reason.TRUE if self.rule.absent is None else Reason.ABSENT)
        final = self.states.groups.get(group.labels)
        return self.message(change, is_final=final is not None and final.began == group.began)


class Evaluation:
    """All rules of a pipeline."""

    def __init__(self, settings: AlertSettings, plans: Sequence[Plan], series: Sequence[QuerySeries]) -> None:
        """Raises PipelineError for a wrong rule."""
        plan_by_name = {plan.name: plan for plan in plans}
        series_by_name = {one_series.plan.name: one_series for one_series in series}
        self.rules = [
            RuleEvaluation(rule, plan_by_name[rule.query], series_by_name.get(rule.query), settings.base)
            for rule in settings.rules
        ]

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels of the alerts of each rule."""
        return {rule_evaluation.rule.name: rule_evaluation.rule.labels or () for rule_evaluation in self.rules}

    def evaluate(
        self, results: Mapping[str, pa.Table], watermarks: Mapping[str, int], newest: int | None = None
    ) -> list[tuple[RuleEvaluation, Change]]:
        """Return the changes that closed windows cause, in the order of time.

        `results`: the rows of closed windows of each query. `watermarks`: the times (ns) up to which the windows of
        each query have closed. At the END of all input this is `newest`, the time of the newest packet.
        """
        changes = []
        for rule_evaluation in self.rules:
            name = rule_evaluation.plan.name
            watermark: int | None = watermarks.get(name, BEGINNING)
            if watermark in (BEGINNING, END):
                watermark = newest if watermark == END else None
            rows = results.get(name)
            rows = rule_evaluation.plan.schema.empty_table() if rows is None else rows
            changes += [(rule_evaluation, change) for change in rule_evaluation.evaluate(rows, watermark)]
        return sorted(changes, key=lambda pair: pair[1].time)


def _split_by_end(rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the end and the rows of each window. The rows are sorted by `window_end`."""
    if rows.num_rows == 0:
        return
    ends = rows["window_end"].to_numpy()
    cuts = np.append(np.flatnonzero(np.diff(ends, prepend=ends[0] - 1)), len(ends)).tolist()
    for begin, after in pairwise(cuts):
        yield int(ends[begin]), rows.slice(begin, after - begin)


def _check_columns(rule: AlertRule, plan: Plan, labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels as the query spells them. Raises PipelineError for unknown, reserved and equal names."""
    columns = [name for name in plan.schema.names if name not in (*BOUNDS, LATE)]
    spelled = {name.lower(): name for name in columns}
    for name in labels:
        if name.lower() not in spelled:
            expected = f"columns of the query {plan.name}: {', '.join(columns)}"
            raise PipelineError(f"alerts.{rule.name}.labels: got {name!r}, expected {expected}")
    for name in names_in(rule.summary):
        if name not in (ROWS, *plan.schema.names):
            expected = f"{ROWS} or columns of the query {plan.name}: {', '.join(plan.schema.names)}"
            raise PipelineError(f"alerts.{rule.name}.summary: got {{{name}}}, expected {expected}")
    chosen = tuple(spelled[name.lower()] for name in labels)
    label_names = Names("label")
    try:
        for reserved in RESERVED_LABELS:
            label_names.reserve(reserved, "each alert")
        for number, name in enumerate(chosen, 1):
            label_names.reserve(label_name(name), f"label {number}, {name!r},")
    except ValueError as error:
        raise PipelineError(f"alerts.{rule.name}.labels: {error}") from error
    return chosen
