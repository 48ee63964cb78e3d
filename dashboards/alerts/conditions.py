"""The condition and the exclusions of a rule, as a query over rows of windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.tables import Tables
from highlevel.inline.tables import TableStream, run_tables
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from queries.binding.watchlists import paths_from
from queries.pipeline.alert_settings import AlertRule
from queries.pipeline.sections import PipelineError
from queries.plans.subquery_values import has_subqueries
from queries.text.errors import QueryError
from queries.text.lexer import Kind, tokenize
from queries.text.parser import parse_query

PREVIOUS_PREFIX = "previous_"
"""Prefix of the columns with the values that the same group had in the previous window."""

ROW_NUMBER_COLUMN = "alert row"
"""The column with the index of a row."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows that satisfy a condition, and the number of rows that exclusions removed."""

    rows: pa.Table
    excluded: int


class Condition:
    """The compiled condition of a rule over the results of a plan.

    `keys` are the columns that identify a group. `slide` is the time between two windows in ns. Relative paths in
    conditions are relative to `base`.
    """

    def __init__(self, rule: AlertRule, plan: Plan, keys: Sequence[str], slide: int, base: Path) -> None:
        """Raises PipelineError for a wrong condition, with the position in its text."""
        self._keys, self._slide, self._base = tuple(keys), slide, base
        self._table = plan.name.replace('"', "_")
        texts = {"where": rule.where or "TRUE"}
        texts |= {f"exclude[{number}].where": exclusion.where for number, exclusion in enumerate(rule.exclude, 1)}
        columns = {column.name: column for column in plan.root.columns if column.name in plan.schema.names}
        words = _words(texts.values()) - {name.lower() for name in columns}
        self._values = [name for name in columns if name not in keys and f"{PREVIOUS_PREFIX}{name}".lower() in words]
        self._columns = (*columns.values(), *map(_previous_column, (columns[name] for name in self._values)))
        for key, text in texts.items():
            self._check(f"alerts.{rule.name}.{key}", text)
        if self._values:
            _check_groups(f"alerts.{rule.name}", plan)
        outputs = ", ".join(f"({text}\n) AS match_{number}" for number, text in enumerate(texts.values()))
        self._columns = (*self._columns, Column(ROW_NUMBER_COLUMN, Type.INT))
        self._plan = self._compile(f'SELECT "{ROW_NUMBER_COLUMN}", {outputs} FROM "{self._table}"')

    @property
    def needs_previous(self) -> bool:
        """True if the condition refers to the previous window."""
        return bool(self._values)

    def _check(self, key: str, text: str) -> None:
        """Compile one condition alone, so that an error states the position in this condition."""
        before = f'SELECT 1 AS one FROM "{self._table}" WHERE (\n'
        sql = f"{before}{text}\n)"
        try:
            if has_subqueries(parse_query(sql)):
                raise QueryError("a sub-query in a condition", text, 0, "columns of the query, and functions of files")
            self._compile(sql)
        except QueryError as error:
            if error.sql == sql:
                at_end = error.position > len(before) + len(text)
                problem = "the condition ends too early" if at_end else error.message
                error = QueryError(problem, text, error.position - len(before), error.expected, error.choices)
            raise PipelineError(f"{key}: {error}") from error

    def _compile(self, sql: str) -> Plan:
        empty = pa.table({column.name: [] for column in self._columns})
        with paths_from(self._base):
            plan, _ = Tables(self._tables(empty)).bind(sql, None)
        return plan

    def _tables(self, rows: pa.Table) -> dict[str, TableStream]:
        return {self._table.lower(): TableStream(self._table, self._columns, (), rows)}

    def match(self, rows: pa.Table, previous: pa.Table | None) -> Matches:
        """Return the rows that satisfy the condition, in the order of `rows`.

        `previous`: the rows of the last window before `rows`, or None. They are used only if no window lies between.
        """
        inputs = rows.append_column(ROW_NUMBER_COLUMN, pa.array(np.arange(rows.num_rows)))
        if self._values:
            inputs = self._with_previous(inputs, previous)
        tables = self._tables(inputs.select([column.name for column in self._columns]))
        answer = pa.Table.from_batches(run_tables(self._plan, tables), self._plan.schema)
        is_match, *exclusions = (pc.fill_null(answer.column(number), False) for number in range(1, answer.num_columns))
        is_excluded = pa.chunked_array([pa.repeat(False, answer.num_rows)])
        for exclusion in exclusions:
            is_excluded = pc.or_(is_excluded, exclusion)
        kept = answer.column(0).filter(pc.and_(is_match, pc.invert(is_excluded)))
        excluded = pc.sum(pc.and_(is_match, is_excluded)).as_py() or 0
        return Matches(rows.take(pa.array(np.sort(kept.to_numpy()))), excluded)

    def _with_previous(self, rows: pa.Table, previous: pa.Table | None) -> pa.Table:
        """Add the values of the same group in the previous window; NULL if that window has no row of the group."""
        columns = ["window_end", *self._keys, *self._values]
        earlier = rows.select(columns)
        if previous is not None:
            earlier = pa.concat_tables([previous.select(columns), earlier])
        numbers = {key: number for number, key in enumerate(self._group_keys(earlier, 0))}
        positions = pa.array([numbers.get(key) for key in self._group_keys(rows, self._slide)], pa.int64())
        for value in self._values:
            rows = rows.append_column(PREVIOUS_PREFIX + value, earlier[value].take(positions))
        return rows

    def _group_keys(self, rows: pa.Table, offset: int) -> Iterable[tuple[object, ...]]:
        """Return for each row the end of its window minus `offset` (ns), and the values of its group columns."""
        ends = pc.subtract(rows["window_end"], offset)
        return zip(ends.to_pylist(), *(rows[name].to_pylist() for name in self._keys), strict=True)


def _previous_column(column: Column) -> Column:
    return replace(column, name=PREVIOUS_PREFIX + column.name, nullable=True)


def _check_groups(key: str, plan: Plan) -> None:
    """Raise PipelineError if several rows of a window may have equal values in the group columns."""
    if plan.aggregation is None:
        return
    selected = {output.expression.name for output in plan.aggregation.select if isinstance(output.expression, Column)}
    if missing := [name for name in plan.aggregation.group_by if name not in selected]:
        problem = f"{PREVIOUS_PREFIX}X needs all columns of GROUP BY in SELECT, to find the row of the same group"
        raise PipelineError(f"{key}: {problem}; the query {plan.name} does not select {', '.join(missing)}")


def _words(texts: Iterable[str]) -> set[str]:
    """Return the names that SQL texts contain, in lower case.

    A text that is not SQL has no names; the parser reports it.
    """
    words: set[str] = set()
    for text in texts:
        try:
            words |= {token.text.lower() for token in tokenize(text) if token.kind in (Kind.WORD, Kind.QUOTED)}
        except QueryError:
            continue
    return words
