"""The condition and the exclusions of a rule, as a query over the rows of one window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from dashboards.tables import Tables
from highlevel.inline.tables import TableStream, run_tables
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from queries.pipeline.alert_settings import AlertRule
from queries.pipeline.sections import PipelineError
from queries.text.errors import QueryError
from queries.text.lexer import Kind, Token, tokenize

PREVIOUS = "previous_"
"""Prefix of the columns with the values of the same group in the window before."""

ROW = "alert_row"
"""The column with the number of a row."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of a window that satisfy a condition, and the number of rows that exclusions removed."""

    rows: pa.Table
    excluded: int


class Condition:
    """The compiled condition of a rule over the results of a plan. `keys` are the columns that identify a group."""

    def __init__(self, rule: AlertRule, plan: Plan, keys: tuple[str, ...]) -> None:
        """Raises PipelineError, with the position in the text, for a wrong condition."""
        self._names = plan.schema.names
        self._keys = keys
        columns = {column.name: column for column in plan.root.columns if column.name in self._names}
        texts = [("where", rule.where or "TRUE")]
        texts += [(f"exclude[{number}].where", each.where) for number, each in enumerate(rule.exclude, 1)]
        words = {token.text for _, text in texts for token in _tokens(rule, text)}
        self._values = [name for name in columns if name not in keys and PREVIOUS + name in words]
        previous = [replace(columns[name], name=PREVIOUS + name, nullable=True) for name in self._values]
        self._columns = (*columns.values(), *previous, Column(ROW, Type.INT))
        self._table = plan.name
        outputs = [f'"{ROW}"']
        for number, (key, text) in enumerate(texts):
            self._check(rule, key, text)
            outputs.append(f"({text}\n) AS alert_match_{number}")
        self._plan = self._compiled(f'SELECT {", ".join(outputs)} FROM "{self._table}"')

    @property
    def needs_previous(self) -> bool:
        """Whether the condition refers to the window before."""
        return bool(self._values)

    def _check(self, rule: AlertRule, key: str, text: str) -> None:
        try:
            plan = self._compiled(f'SELECT ({text}\n) AS alert_match FROM "{self._table}"')
        except QueryError as error:
            names = ", ".join(column.name for column in self._columns if column.name != ROW)
            raise PipelineError(f"alerts.{rule.name}.{key}: {error}; the columns are {names}") from error
        if not pa.types.is_boolean(plan.schema.field(0).type):
            raise PipelineError(f"alerts.{rule.name}.{key}: got {text!r}, expected a condition that is true or false")

    def _compiled(self, sql: str) -> Plan:
        schema = self._stream(pa.table({name: [] for name in (column.name for column in self._columns)}))
        plan, _ = Tables({self._table.lower(): schema}).bind(sql, None)
        return plan

    def _stream(self, rows: pa.Table) -> TableStream:
        return TableStream(self._table, self._columns, (), rows)

    def matches(self, window: pa.Table, previous: pa.Table | None) -> Matches:
        """Return the matching rows of a window. `previous`: the rows of the window before, None if it had none."""
        rows = window.append_column(ROW, pa.array(np.arange(window.num_rows)))
        if self._values:
            rows = self._with_previous(rows, previous)
        stream = self._stream(rows.select([column.name for column in self._columns]))
        batches = list(run_tables(self._plan, {self._table.lower(): stream}))
        answer = pa.Table.from_batches(batches, self._plan.schema)
        flags = [pc.fill_null(answer.column(number), False) for number in range(1, answer.num_columns)]
        excluded = pa.chunked_array([pa.repeat(False, answer.num_rows)])
        for flag in flags[1:]:
            excluded = pc.or_(excluded, flag)
        kept = pc.and_(flags[0], pc.invert(excluded))
        chosen = np.sort(answer.column(0).filter(kept).to_numpy())
        return Matches(window.take(pa.array(chosen)), pc.sum(pc.and_(flags[0], excluded)).as_py() or 0)

    def _with_previous(self, rows: pa.Table, previous: pa.Table | None) -> pa.Table:
        """Add the values of the same group in the window before; NULL if the group was not there."""
        names = [PREVIOUS + name for name in self._values]
        if previous is None or previous.num_rows == 0:
            for name, value in zip(names, self._values, strict=True):
                rows = rows.append_column(name, pa.nulls(rows.num_rows, rows.schema.field(value).type))
            return rows
        index = {key: number for number, key in enumerate(_keys(previous, self._keys))}
        positions = pa.array([index.get(key) for key in _keys(rows, self._keys)], pa.int64())
        for name, value in zip(names, self._values, strict=True):
            rows = rows.append_column(name, previous[value].take(positions))
        return rows


def _keys(rows: pa.Table, names: tuple[str, ...]) -> list[tuple[object, ...]]:
    """Return the group of each row."""
    if not names:
        return [()] * rows.num_rows
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def _tokens(rule: AlertRule, text: str) -> list[Token]:
    try:
        return [token for token in tokenize(text) if token.kind in (Kind.WORD, Kind.QUOTED)]
    except QueryError as error:
        raise PipelineError(f"alerts.{rule.name}: {error}") from error
