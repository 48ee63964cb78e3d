"""The evaluation of all rules of a pipeline over the results of its queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from dashboards.alerts.conditions import Condition
from dashboards.alerts.states import Change, Labels, RuleStates, Window, identity
from dashboards.page.rows import rows_of
from dashboards.prometheus.query_series import QuerySeries
from highlevel.aggregation import BOUNDS, LATE
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SessionWindow, TupleWindow
from lowlevel.punctuation import BEGINNING, END
from queries.pipeline.alert_settings import AlertRule
from queries.pipeline.sections import PipelineError

Message = dict[str, Any]
"""A message about an alert, with values of JSON; docs/guide/alerts.md describes it."""

_COLUMN = re.compile(r"\{([^{}]*)\}")


class RuleEvaluation:
    """One rule, its compiled condition and the states of its groups."""

    def __init__(self, rule: AlertRule, plan: Plan, series: QuerySeries | None) -> None:
        """Raises PipelineError for a query without windows of time, and for wrong columns and conditions."""
        if (
            series is None
            or not (plan.windowed and plan.window.timed and plan.window.slide > 0)
            or isinstance(plan.window, SessionWindow | TupleWindow)
        ):
            raise PipelineError(
                f"alerts.{rule.name}.query: the query {plan.name} has no windows that all groups share; "
                "expected for example [RANGE 1 minute, SLIDE 1 minute, WA ts]"
            )
        columns = [name for name in plan.schema.names if name not in (*BOUNDS, LATE)]
        labels = rule.labels if rule.labels is not None else series.key_columns
        for key, names in (("labels", labels), ("summary", _COLUMN.findall(rule.summary))):
            if unknown := [name for name in names if name not in columns]:
                expected = f"columns of the query {plan.name}: {', '.join(columns)}"
                raise PipelineError(f"alerts.{rule.name}.{key}: got {unknown[0]!r}, expected {expected}")
        self.rule = replace(rule, labels=tuple(labels))
        self.plan = plan
        self.condition = Condition(rule, plan, series.key_columns)
        self.states = RuleStates(self.rule, plan.window.slide)
        self.previous: pa.Table | None = None
        """The rows of the last window, if the condition refers to them."""
        self.previous_end: int | None = None
        self.excluded = 0
        self._values = tuple(value.column for value in series.values)

    def evaluate(self, rows: pa.Table, watermark: int) -> list[Change]:
        """Examine the rows of windows that have closed, and the watermark (ns) of the query."""
        windows = list(self._windows(rows))
        return self.states.add(windows, watermark if BEGINNING < watermark < END else None)

    def _windows(self, rows: pa.Table) -> Iterator[Window]:
        rows = rows.select(self.plan.schema.names).cast(self.plan.schema)
        if LATE in rows.column_names and self.plan.aggregation is not None and self.plan.aggregation.emit_late:
            rows = rows.filter(pc.invert(rows[LATE]))
        if rows.num_rows == 0:
            return
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("window_end", "ascending")])).combine_chunks()
        ends = rows["window_end"].to_numpy()
        cuts = np.append(np.flatnonzero(np.diff(ends, prepend=ends[0] - 1)), len(ends))
        for begin, after in pairwise(cuts.tolist()):
            yield self._window(rows.slice(begin, after - begin), int(ends[begin]))

    def _window(self, rows: pa.Table, end: int) -> Window:
        is_next = self.previous_end is not None and self.previous_end + self.states.slide == end
        matches = self.condition.matches(rows, self.previous if is_next else None)
        self.excluded += matches.excluded
        if self.condition.needs_previous:
            self.previous, self.previous_end = rows, end
        return Window(end, self._groups(matches.rows))

    def _groups(self, rows: pa.Table) -> dict[Labels, dict[str, Any]]:
        """Return the evidence by labels: the first rows of each group, and their number."""
        labels = self.rule.labels or ()
        if rows.num_rows == 0:
            return {}
        texts = rows_of(rows.select(labels), self.plan.times)["rows"] if labels else [[]] * rows.num_rows
        positions: dict[Labels, list[int]] = {}
        for number, row in enumerate(texts):
            key = tuple((name, "" if text is None else str(text)) for name, text in zip(labels, row, strict=True))
            positions.setdefault(key, []).append(number)
        groups = {}
        for key, numbers in positions.items():
            shown = rows_of(rows.take(numbers[: self.rule.evidence]), self.plan.times, self._values)
            evidence = [dict(zip(shown["columns"], row, strict=True)) for row in shown["rows"]]
            groups[key] = {"rows": len(numbers), "evidence": evidence}
        return groups


class Evaluation:
    """All rules of a pipeline."""

    def __init__(self, rules: Sequence[AlertRule], plans: Sequence[Plan], series: Sequence[QuerySeries]) -> None:
        """Raises PipelineError for a wrong rule."""
        by_plan = {each.plan.name: each for each in series}
        named = {plan.name: plan for plan in plans}
        self.rules = [RuleEvaluation(rule, named[rule.query], by_plan.get(rule.query)) for rule in rules]

    def evaluate(
        self, results: Mapping[str, pa.Table], watermarks: Mapping[str, int]
    ) -> list[tuple[RuleEvaluation, Change]]:
        """Return the changes that the closed windows cause, by rule and in the order of time."""
        changes = []
        for rule in self.rules:
            name = rule.plan.name
            rows = results.get(name)
            rows = rule.plan.schema.empty_table() if rows is None else rows
            found = rule.evaluate(rows, watermarks.get(name, BEGINNING))
            changes += [(rule, change) for change in found]
        return changes


def make_message(evaluated: RuleEvaluation, change: Change) -> Message:
    """Return the message about a change: an alert that is firing, or that has ended."""
    rule, group = evaluated.rule, change.group
    assert group.fired is not None, "a change belongs to an alert that has begun"
    alert_id = identity(rule.name, group.labels)
    status = "firing" if change.ended is None else "ended"
    evidence = change.details.get("evidence", [])
    return {
        "id": alert_id,
        "message": f"{alert_id}-{group.fired}-{status}",
        "status": status,
        "state": "final",
        "rule": rule.name,
        "severity": rule.severity,
        "labels": dict(group.labels),
        "summary": _summary(rule, group.labels, evidence),
        "began": utc(group.fired),
        "ended": None if change.ended is None else utc(change.ended),
        "true_since": utc(group.since),
        "query": evaluated.plan.name,
        "sql": evaluated.plan.sql,
        "condition": rule.where,
        "absent_for": rule.absent,
        "rows": change.details.get("rows", 0),
        "evidence": evidence,
    }


def utc(nanoseconds: int) -> str:
    """Return a time in the form of RFC 3339, with microseconds if it has them.

    >>> utc(0), utc(1_500_000_000)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.500000Z')
    """
    seconds, rest = divmod(nanoseconds, 10**9)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)
    return time.isoformat().replace("+00:00", "Z")


def _summary(rule: AlertRule, labels: Labels, evidence: Sequence[Mapping[str, Any]]) -> str:
    """Return the rule's text with the values of the first row; without a text, the name and the labels."""
    if not rule.summary:
        named = ", ".join(f"{name} {text}" for name, text in labels)
        return f"{rule.name}: {named}" if named else rule.name
    values = {**(evidence[0] if evidence else {}), **dict(labels)}
    return _COLUMN.sub(lambda match: str(values.get(match[1], "?")), rule.summary)
