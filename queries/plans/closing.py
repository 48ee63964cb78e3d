"""CLOSING WHEN: divide the select list into columns below the node `Running` and columns above it.

SELECT srcIP, count(*) * 2 AS n, moving_sum(len, 5) AS m … CLOSING WHEN moving_sum(len, 5) = 0
.group 1 = srcIP, .aggregate 1 = count(*), .aggregate 2 = sum(len)       below: columns of the windows
moving_sum(len, 5) = the sum of .aggregate 2 in five windows             the functions
srcIP = .group 1, n = .aggregate 1 * 2, m = moving_sum(len, 5)           above: the outputs of Running
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from highlevel.aggregation import Output
from highlevel.plan.answer_nodes import Running, RunningFunction
from highlevel.plan.nodes import Node
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow, SlidingWindow
from lowlevel.expressions.tree import Column, Expression, computed_column
from queries.binding.running_aggregates import RunningUse
from queries.text.errors import QueryError
from queries.text.tree import Query

_COUNT_PREFIXES = ("count(", "count_distinct(", "approx_count_distinct(")
"""Prefixes of the names of aggregates that are 0 for no rows. Other aggregates are NULL."""


class ClosingStep:
    """Collects the columns below a node `Running`, and its functions and outputs."""

    def __init__(self) -> None:
        """Begin without columns."""
        self._groups: dict[Column, Output] = {}
        self._aggregates: dict[str, Output] = {}
        self._counts: list[str] = []
        self._functions: tuple[RunningFunction, ...] = ()
        self._outputs: tuple[Output, ...] = ()
        self._closing: Expression | None = None
        self._having: Expression | None = None

    def group(self, column: Column) -> Column:
        """Return the column below the node that contains a column of the groups."""
        output = self._groups.setdefault(column, Output(f".group {len(self._groups) + 1}", column))
        return computed_column(output.name, column)

    def aggregate(self, placeholder: Column, final_value: Expression) -> Column:
        """Return the column below the node that contains an aggregate of one window."""
        name = f".aggregate {len(self._aggregates) + 1}"
        output = self._aggregates.setdefault(placeholder.name, Output(name, final_value))
        is_count = placeholder.name.startswith(_COUNT_PREFIXES)
        if is_count and output.name not in self._counts:
            self._counts.append(output.name)
        return Column(output.name, final_value.type, nullable=not is_count)

    def complete(
        self,
        groups: Collection[Column],
        functions: Sequence[tuple[RunningUse, Expression]],
        outputs: Sequence[Output],
        closing: Expression,
        having: Expression | None,
    ) -> tuple[Output, ...]:
        """Set the parts of the node, and return the select list below it. The totals of `functions` are columns."""
        for group in groups:
            self.group(group)
        self._functions = tuple(
            RunningFunction(use.column.name, total.name, use.column.type, use.window_count, use.decay)
            for use, total in functions
            if isinstance(total, Column)
        )
        assert len(self._functions) == len(functions), "totals are columns of aggregates"
        self._outputs, self._closing, self._having = tuple(outputs), closing, having
        return (*self._groups.values(), *self._aggregates.values())

    def add_node(self, node: Node, window: AnyWindow) -> Running:
        """Return the node Running above the windows `node`."""
        assert isinstance(window, SlidingWindow)
        assert self._closing is not None
        keys = tuple(output.name for output in self._groups.values())
        return Running(
            node, window, keys, self._functions, self._outputs, self._closing, self._having, tuple(self._counts)
        )


def check_closing(query: Query, window: AnyWindow, *, emits_late: bool, compares_groups: bool) -> None:
    """Raise QueryError if the query must not contain CLOSING WHEN."""
    assert query.closing is not None
    start, grid = query.closing.keyword.start, "[RANGE 10 seconds] or another RANGE of time"
    if window == WHOLE_INPUT or not isinstance(window, SlidingWindow):
        kind = "without windows" if window == WHOLE_INPUT else "over sessions, windows of rows or RANGE ALL"
        raise QueryError(f"CLOSING WHEN {kind}", query.sql, start, grid)
    if emits_late:
        expected = "a query without LATE EMIT: late rows arrive when their window is already returned"
        raise QueryError("CLOSING WHEN together with LATE EMIT", query.sql, start, expected)
    if compares_groups:
        expected = "ORDER BY and LIMIT, or HAVING in a query that reads this one"
        raise QueryError("CLOSING WHEN together with HAVING top() or heavy()", query.sql, start, expected)


def refuse_closing(query: Query) -> None:
    """Raise QueryError for CLOSING WHEN in a query without groups."""
    if query.closing is not None:
        expected = "GROUP BY, and [RANGE 10 seconds] or another RANGE of time"
        raise QueryError("CLOSING WHEN without groups", query.sql, query.closing.keyword.start, expected)
