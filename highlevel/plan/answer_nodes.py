"""The nodes that read the groups of a query, and order, extend or complete its answer.

    Fill      rows for windows without rows (FILL)
    Running   groups that exist over several windows (CLOSING WHEN)
    Over      columns computed from other rows of the answer (window functions of SQL: rank, lag, share of the total)
    Sort      rows in the order of keys, or the first of them (ORDER BY, LIMIT)

In a plan they follow each other in this order.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import cached_property

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.nodes import Node
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Column, Expression, computed_column
from lowlevel.expressions.types import Type


@dataclass(frozen=True)
class Fill(Node):
    """The rows of `input`, and a new row for each window in which a known group has no row.

    A group is known from its first row on. `keys`: the columns of the groups. `end`, `start`: the columns with the
    bounds of `window`. In a new row, `computed` are evaluated over keys and bounds. The other columns have `value` if
    they are numbers, otherwise NULL; with `repeats`, they have the values of the group's last row. `hidden`: columns of
    the input that only this node reads.

    Windows after the last row are not filled, because the number of them depends on the watermarks. With `fills_lulls`,
    each window is filled as soon as the watermark passes its end.
    """

    input: Node
    window: SlidingWindow
    keys: tuple[str, ...]
    computed: tuple[Output, ...] = ()
    value: int | float | None = None
    repeats: bool = False
    hidden: tuple[str, ...] = ()
    fills_lulls: bool = False
    end: str = WINDOW_END
    start: str | None = WINDOW_START

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input that are not hidden."""
        kept = (column for column in self.input.columns if column.name not in self.hidden)
        return tuple(
            replace(column, nullable=column.nullable or self._has_nulls(column), bits=64)
            if column.name in self.filled_columns
            else column
            for column in kept
        )

    @cached_property
    def filled_columns(self) -> tuple[str, ...]:
        """The columns of the input that are not bounds, keys or computed columns."""
        others = {self.end, self.start, *self.keys, *(out.name for out in self.computed)}
        return tuple(column.name for column in self.input.columns if column.name not in others)

    def value_of(self, column: Column) -> int | float | None:
        """Return the value of a filled column in a new row, without `repeats`."""
        if self.value is None or column.type not in (Type.INT, Type.FLOAT):
            return None
        return float(self.value) if column.type is Type.FLOAT else self.value

    def _has_nulls(self, column: Column) -> bool:
        return not self.repeats and self.value_of(column) is None

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The end of the window."""
        return (self.end,)


@dataclass(frozen=True, slots=True)
class RunningFunction:
    """A sum over the windows of a group. Its value is the column `name`.

    It adds the values of the column `argument` in the last `length` windows; if `length` is None, in all windows since
    the group began. The value of a window that is n windows old has the weight `decay` ** n.
    """

    name: str
    argument: str
    type: Type
    length: int | None = None
    decay: float = 1.0


@dataclass(frozen=True)
class Running(Node):
    """A row for each window and existing group: the bounds and `outputs`, over input columns and `functions`.

    A group (`keys`) exists from its first row to the first window for which `closing` is true, inclusive. In windows
    without a row of the group, the columns `counts` are 0 and the other columns NULL. Rows for which `having` is not
    true are not returned.

    As with Fill, the windows after the last row are returned only with `fills_lulls`.
    """

    input: Node
    window: SlidingWindow
    keys: tuple[str, ...]
    functions: tuple[RunningFunction, ...]
    outputs: tuple[Output, ...]
    closing: Expression
    having: Expression | None = None
    counts: tuple[str, ...] = ()
    fills_lulls: bool = False
    end: str = WINDOW_END
    start: str | None = WINDOW_START

    @property
    def columns(self) -> tuple[Column, ...]:
        """The bounds of the window, and the columns of `outputs`."""
        bounds = tuple(column for column in self.input.columns if column.name in (self.end, self.start))
        return (*bounds, *(computed_column(out.name, out.expression) for out in self.outputs))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The end of the window."""
        return (self.end,)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by. NULLs are last, unless `nulls_first`."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Sort(Node):
    """The rows of `input` in the order of `keys`. Rows with equal keys have the order of their other columns.

    `window_columns`: the bounds of the window if each window is sorted separately, () if all rows are sorted together.
    Each window (or the whole input) loses its first `offset` rows, and at most `limit` rows remain. `hidden`: columns
    of `input` that only the keys read.
    """

    input: Node
    keys: tuple[SortKey, ...]
    window_columns: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    hidden: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input that are not hidden."""
        return tuple(column for column in self.input.columns if column.name not in self.hidden)

    @property
    def passes_through(self) -> bool:
        """True if no order is required, so that rows need not be stored."""
        return not (self.keys or self.window_columns)

    @property
    def ends_early(self) -> bool:
        """Return True if all rows within the limit can be emitted before the end of the input."""
        by_time = bool(self.time_columns) and not self.window_columns
        return self.passes_through or (self.limit is not None and by_time)

    @property
    def order(self) -> tuple[SortKey, ...]:
        """Return all keys of the order: `window_columns`, `keys`, and then the other columns of the input."""
        keys = [*(SortKey(name) for name in self.window_columns), *self.keys]
        names = {key.column for key in keys}
        return (*keys, *(SortKey(column.name) for column in self.input.columns if column.name not in names))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the time column of the input if it is the first key, ascending.

        Otherwise return (), because the first row is known only after the last row of the input.
        """
        if self.passes_through or self.order[0].descending or self.order[0].nulls_first:
            return ()
        first = self.order[0].column
        return (first,) if self.input.time_columns == (first,) and first not in self.hidden else ()


class RowFunctionKind(StrEnum):
    """The functions of SQL over the rows of an answer (OVER)."""

    ROW_NUMBER = "row_number"
    RANK = "rank"
    DENSE_RANK = "dense_rank"
    PERCENT_RANK = "percent_rank"
    CUME_DIST = "cume_dist"
    LAG = "lag"
    LEAD = "lead"
    FIRST_VALUE = "first_value"
    LAST_VALUE = "last_value"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


FRAMED = frozenset(
    (
        *(RowFunctionKind.COUNT, RowFunctionKind.SUM, RowFunctionKind.AVG, RowFunctionKind.MIN, RowFunctionKind.MAX),
        *(RowFunctionKind.FIRST_VALUE, RowFunctionKind.LAST_VALUE),
    )
)
"""Window functions that use the rows of a frame. The others use the partition."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The rows of a partition that a window function uses, from `first` to `last`, both included.

    The bounds are relative to the current row, and negative before it. They are numbers of rows or, with `by_values`,
    distances between values of the only key of ORDER BY (ns for times). With `by_values`, rows with equal values are
    all in the frame or all outside. With `by_values`, 0 means the peers of the row. None means the first or the last
    row of the partition.
    """

    first: int | float | None = None
    last: int | float | None = 0
    by_values: bool = True

    @property
    def text(self) -> str:
        """The frame in SQL; distances between times are in ns."""
        keyword = "RANGE" if self.by_values else "ROWS"
        return f"{keyword} BETWEEN {_bound_text(self.first, 'PRECEDING')} AND {_bound_text(self.last, 'FOLLOWING')}"


def _bound_text(distance: int | float | None, outermost: str) -> str:
    if distance is None:
        return f"UNBOUNDED {outermost}"
    if distance == 0:
        return "CURRENT ROW"
    return f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A window function: `kind(argument) OVER (PARTITION BY partition ORDER BY order)`. Its result column is `name`.

    `argument`, `partition` and `order` are columns of the input. Without an argument, `count` counts rows. `distance`
    is the number of rows of lag and lead. The default `frame` is the default of SQL: from the first row of the
    partition to the last peer of the current row.
    """

    name: str
    kind: RowFunctionKind
    type: Type
    argument: str | None = None
    partition: tuple[str, ...] = ()
    order: tuple[SortKey, ...] = ()
    distance: int = 1
    frame: Frame = Frame()

    def is_final_by(self, time: str) -> bool:
        """Return True if the value of a row is final when the watermark of `time` is later than the row.

        This is so if all rows of a partition have one time. It is also so if the rows are sorted by `time`, and the
        value needs no later row and a bounded number of earlier rows.
        """
        if time in self.partition:
            return True
        if not self.order or self.order[0] != SortKey(time):
            return False
        if self.kind in FRAMED:
            return self.frame.first is not None and self.frame.last is not None and self.frame.last <= 0
        return self.kind is RowFunctionKind.LAG


@dataclass(frozen=True)
class Over(Node):
    """The columns `outputs` over the columns of `input` and the window functions `functions`.

    `window_columns`: the bounds of the window, or (). The result contains these columns too. A function uses the rows
    of one window if `window_columns` are in its partition, otherwise the rows of all windows.
    """

    input: Node
    functions: tuple[RowFunction, ...]
    outputs: tuple[Output, ...]
    window_columns: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The bounds of the window, and the columns of `outputs`."""
        bounds = tuple(column for column in self.input.columns if column.name in self.window_columns)
        return (*bounds, *(computed_column(out.name, out.expression) for out in self.outputs))

    @cached_property
    def final_time_column(self) -> str | None:
        """The time column of the input whose watermark makes rows final.

        None: rows are final at the end of the input.
        """
        if len(self.input.time_columns) != 1:
            return None
        (time,) = self.input.time_columns
        return time if all(function.is_final_by(time) for function in self.functions) else None

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the output that is the column `final_time_column`, or ()."""
        if self.final_time_column is not None and self.final_time_column in self.window_columns:
            return (self.final_time_column,)
        names = (
            out.name
            for out in self.outputs
            if isinstance(out.expression, Column) and out.expression.name == self.final_time_column
        )
        return tuple(names)[:1]
