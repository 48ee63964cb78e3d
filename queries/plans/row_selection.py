"""SELECT without groups: columns, expressions over columns, and DISTINCT.

If a result column is an unchanged time column, windows of other queries can use it. If a result column is a time column
divided by an interval, it increases with the time. Then DISTINCT can remove stored rows when no later row can be equal
to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.plan.nodes import TimeOutput
from lowlevel.expressions.tree import Binary, Column, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.binding.binder import Binder
from queries.binding.names import Names, Scope
from queries.binding.window_functions import WindowFunctions
from queries.plans.output_names import check_missing_commas, find_given_names, name_without_table, output_names
from queries.plans.over import OverStep, split_select
from queries.text.errors import QueryError
from queries.text.literals import INT64_MAX
from queries.text.tree import Query


@dataclass(frozen=True)
class SelectList:
    """The columns of the result.

    `increasing_columns` contains tuples (name of the output, time column, interval in ns). `functions` are the window
    functions. If `over` is None, `outputs` contains placeholders for them. Otherwise `over` computes them, and
    `outputs` contains the columns from which it computes them.
    """

    outputs: tuple[Output, ...]
    increasing_columns: tuple[tuple[str, Column, int], ...]
    functions: WindowFunctions
    over: OverStep | None = None

    def split(self) -> SelectList:
        """Move the window functions, if there are any, to `over`."""
        if not self.functions.uses:
            return self
        over = split_select(self.outputs, list(self.functions.uses.values()))
        return replace(self, outputs=over.below, over=over)

    def outputs_of_time(self, time: str) -> list[TimeOutput]:
        """Return the outputs that increase with a time column, the smallest interval first."""
        groups_of_time = sorted(
            (interval, name) for name, column, interval in self.increasing_columns if column.name == time
        )
        return [TimeOutput(name, time, 0, interval) for interval, name in groups_of_time]

    @property
    def sources(self) -> list[str]:
        """The time columns of the outputs, unchanged or divided, in the order of the outputs."""
        return list(dict.fromkeys(column.name for _, column, _ in self.increasing_columns))

    @property
    def times(self) -> dict[str, str]:
        """The outputs that are unchanged time columns, each with the name of this column."""
        return {name: column.name for name, column, interval in self.increasing_columns if interval == 1}


def select_all(columns: Sequence[tuple[str, Column]], times: Sequence[Column]) -> SelectList:
    """Return the select list that `*` means."""
    outputs = tuple(Output(name, column) for name, column in columns)
    return _select_list(outputs, times, WindowFunctions())


def select_rows(query: Query, names: Names, times: Sequence[Column]) -> SelectList:
    """Bind the select list of a query without groups. `times` are the time columns that are never NULL."""
    sql, items = query.sql, query.select
    check_missing_commas(sql, items, names)
    scope = Scope(names)
    functions = WindowFunctions()
    bound = [Binder(sql, "SELECT", item.expression, scope.resolve_in_row, functions=functions).bind() for item in items]
    if query.window is not None:
        expected = "an aggregate like count(*), or the query without a window"
        raise QueryError("a window over rows without an aggregate", sql, query.window.start, expected)
    if query.having is not None:
        raise QueryError("HAVING without groups", sql, query.having.keyword.start, "WHERE, or GROUP BY before it")
    for item, expression in zip(items, bound, strict=True):
        if expression.type is Type.BYTES:
            expected = "length(…), byte(…, n), contains(…, 'text') or starts_with(…, x'0a') of them"
            raise QueryError("SELECT of bytes", sql, item.start, expected)
    output_names_of_items = output_names(
        sql, items, bound, find_given_names(items, bound), name_without_table(bound, names.result_name), ()
    )
    return _select_list(
        tuple(Output(name, each) for name, each in zip(output_names_of_items, bound, strict=True)), times, functions
    )


def _select_list(outputs: Sequence[Output], times: Sequence[Column], functions: WindowFunctions) -> SelectList:
    increasing_columns = tuple(
        (out.name, time, interval)
        for out in outputs
        for time in times
        if (interval := divisor_of_time(out.expression, time)) is not None
    )
    return SelectList(tuple(outputs), increasing_columns, functions)


def divisor_of_time(expression: Expression, time: Column) -> int | None:
    """Return the divisor if the expression divides the time column by a constant, 1 for the column, otherwise None.

    >>> ts = Column("ts", Type.TIME)
    >>> seconds = Binary(Op.DIV, ts, Literal(10**9, Type.INT))
    >>> divisor_of_time(ts, ts), divisor_of_time(Binary(Op.DIV, seconds, Literal(60, Type.INT)), ts)
    (1, 60000000000)
    """
    if expression == time:
        return 1
    if not isinstance(expression, Binary) or expression.op is not Op.DIV or not isinstance(expression.right, Literal):
        return None
    divisor, inner = expression.right.value, divisor_of_time(expression.left, time)
    if inner is None or not isinstance(divisor, int) or divisor < 1 or inner * divisor > INT64_MAX:
        return None
    return inner * divisor
