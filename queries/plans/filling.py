"""FILL: which columns of a select list get a value in windows without rows.

    SELECT ts/60 AS minute, srcIP, count(*) AS n … GROUP BY srcIP FILL 0

There are three kinds of columns: groups (srcIP), columns that are computed from groups and bounds (minute), and filled
columns (n), which contain an aggregate. Groups that are not in the select list become hidden columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import isfinite

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import BOUNDS, Output
from highlevel.plan.answer_nodes import Fill
from highlevel.plan.nodes import Node
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow, SlidingWindow
from lowlevel.expressions.tree import Column, Expression, columns_of, transform
from lowlevel.expressions.types import Type
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.literals import INT64_MAX
from queries.text.tree import Constant, Query, Word

_EXPECTED_WINDOW = "[RANGE 10 seconds] or another RANGE of time"


@dataclass(frozen=True, slots=True)
class FillStep:
    """FILL of a query. `below`: the select list, followed by the columns `hidden`.

    `keys`: columns of the groups. `computed`: the outputs that are computed from groups and bounds. `value`: the
    value of filled columns. `repeats`: FILL PREVIOUS.
    """

    below: tuple[Output, ...]
    window: SlidingWindow
    keys: tuple[str, ...]
    computed: tuple[Output, ...]
    hidden: tuple[str, ...]
    value: int | float | None
    repeats: bool

    def add_node(self, node: Node) -> Fill:
        """Return the node Fill above the windows `node`, which have the columns `below`."""
        return Fill(node, self.window, self.keys, self.computed, self.value, self.repeats, self.hidden)


def bind_fill(
    sql: str, fill: tree.Fill, window: AnyWindow, select: Sequence[Output], groups: Collection[Column], emit_late: bool
) -> FillStep:
    """Bind FILL over the select list of windows. `groups` are the columns of GROUP BY."""
    if emit_late:
        expected = "a query without LATE EMIT: late rows arrive when their window is already filled"
        raise QueryError("FILL together with LATE EMIT", sql, fill.keyword.start, expected)
    if window == WHOLE_INPUT or not isinstance(window, SlidingWindow):
        problem = (
            "FILL without windows"
            if window == WHOLE_INPUT
            else "FILL of sessions, lifetimes, windows of rows or RANGE ALL"
        )
        raise QueryError(problem, sql, fill.keyword.start, _EXPECTED_WINDOW)
    below = list(select)
    names: dict[Expression, str] = {}
    for out in select:
        if isinstance(out.expression, Column) and out.expression in groups:
            names.setdefault(out.expression, out.name)
    hidden: list[str] = []
    for group in groups:
        if group not in names:
            names[group] = f".group {len(hidden) + 1}"
            hidden.append(names[group])
            below.append(Output(names[group], group))

    def above(part: Expression) -> Expression | None:
        return replace(part, name=names[part]) if isinstance(part, Column) and part in names else None

    keys, computed = tuple(names.values()), []
    value, repeats = _value(sql, fill), isinstance(fill.value, Word)
    for out in select:
        columns = set(columns_of(out.expression))
        if out.name in keys:
            continue
        if all(column in names or column.name in BOUNDS for column in columns):
            computed.append(Output(out.name, transform(out.expression, above)))
        elif isinstance(value, float) and out.expression.type is Type.INT:
            problem = f"FILL {value} of the column '{out.name}', which has integers"
            raise QueryError(problem, sql, fill.value.start, "an integer, NULL or PREVIOUS")
    return FillStep(tuple(below), window, keys, tuple(computed), tuple(hidden), value, repeats)


def _value(sql: str, fill: tree.Fill) -> int | float | None:
    """Return the number of a clause, or None."""
    constant = fill.value
    if not isinstance(constant, Constant):
        return None
    sign = "-" if constant.negative else ""
    if not constant.text.isdecimal():
        number = float(sign + constant.text)
        if not isfinite(number):
            raise QueryError(f"FILL {sign}{constant.text}", sql, constant.start, "a number that is not infinite")
        return number
    if int(constant.text[:25]) > INT64_MAX:
        raise QueryError(f"FILL {sign}{constant.text}", sql, constant.start, "an integer of 64 bits")
    return int(sign + constant.text)


def refuse_fill(query: Query) -> None:
    """Raise QueryError for FILL in a query whose result rows have no windows."""
    if query.fill is not None:
        raise QueryError("FILL without windows", query.sql, query.fill.keyword.start, f"groups, and {_EXPECTED_WINDOW}")
