"""An aggregation: windows, groups, aggregates and the select list, without the input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from capture.errors import WiretideError
from capture.lazy_dataclasses import dataclass
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate, count_of_rows

# Holistic aggregates need all values of a group: a state of fixed size is not sufficient.
#
# The low level stores each distinct value of a group with the number of its rows: the value is an additional key of the
# table (Li 2008, §6.2.4). So partials can be merged in any order. The values are read only when a window is final.


class DetailFunction(StrEnum):
    """A holistic aggregate function."""

    COUNT_DISTINCT = "count_distinct"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    QUANTILE = "quantile"
    MODE = "mode"
    ENTROPY = "entropy"
    TOP = "top"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"
    APPROX_TOP = "approx_top"


SKETCH_FUNCTIONS = frozenset(
    {DetailFunction.APPROX_COUNT_DISTINCT, DetailFunction.APPROX_QUANTILE, DetailFunction.APPROX_TOP}
)
"""Functions that are computed from sketches of the values."""


@dataclass(frozen=True, slots=True)
class Detail:
    """A holistic aggregate. Its result is the column `name`.

    `key`: the column of the partials that contains the values; for functions in SKETCH_FUNCTIONS, the sketches of the
    values. `kind`: type of the values. `count`: the sub-aggregate that counts the rows of a value. `parameter`: the
    quantile, 0 to 1, or the number of values that `top` returns. `others`: the columns of further arguments of
    count_distinct, which counts distinct combinations without NULL. `time`: for first and last, the sub-aggregate that
    contains the smallest or the largest time of the value.
    """

    name: str
    function: DetailFunction
    key: str
    kind: Type
    count: str
    parameter: float = 0.0
    others: tuple[str, ...] = ()
    time: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of all arguments."""
        return (self.key, *self.others)

    @property
    def type(self) -> Type:
        """Type of the result."""
        return result_type(self.function, self.kind)


@dataclass(frozen=True, slots=True)
class Folding:
    """The column `column` of sketches for `function`.

    The sketches contain the values in the column `source` of partials.

    `kind`: type of the values.
    """

    function: DetailFunction
    source: str
    column: str
    count: str
    kind: Type = Type.INT


def result_type(function: DetailFunction, value_type: Type) -> Type:
    """Return the result type of a function over values of type `value_type`."""
    match function:
        case DetailFunction.COUNT_DISTINCT | DetailFunction.APPROX_COUNT_DISTINCT:
            return Type.INT
        case DetailFunction.QUANTILE | DetailFunction.APPROX_QUANTILE | DetailFunction.ENTROPY:
            return Type.FLOAT
        case DetailFunction.TOP | DetailFunction.APPROX_TOP:
            return Type.TEXT
        case _:
            return value_type


class SelectionKind(StrEnum):
    """A condition that compares a group with the other groups of its window.

    HEAVY: its value is at least the given share of the sum over all groups. TOP: fewer than the given number of groups
    have a greater value.
    """

    HEAVY = "heavy"
    TOP = "top"


@dataclass(frozen=True, slots=True)
class Selection:
    """A condition of the given `kind` that compares groups. Its result is the BOOL column `name`.

    `value`: an expression over groups, sub-aggregates and details. `parameter`: the share, as in the query text, or the
    number of groups.
    """

    name: str
    kind: SelectionKind
    value: Expression
    parameter: str


Finish = Callable[..., Any]
"""A function that receives one array per part, by the names of the parts, and returns an array of results of equal
length."""

RESULT = Type.FLOAT
"""Type of the results of user-defined aggregates."""


class AggregateError(WiretideError, ValueError):
    """The definition of a user's aggregate is invalid."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserColumn:
    """One call of a user-defined aggregate in a query. Its result is the FLOAT column `name`.

    `parts`: expressions over merged sub-aggregates, by the parameter names of `finish`.
    """

    name: str
    name_in_messages: str
    parts: tuple[tuple[str, Expression], ...]
    finish: Finish


LINK = "link"
"""The column of partials with the name of their link."""

LATE = "late"
"""The column of results that marks additional rows of windows that were already reported."""

BOUNDS = (WINDOW_START, WINDOW_END)
"""The columns of results with the bounds of the row's window."""


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the select list: its name and the expression over keys and merged sub-aggregates."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class Aggregation:
    """The windows, groups, aggregates and select list of a query. Immutable and picklable.

    `low`: the low-level part. `group_by`: the columns of the partials that form a group: keys of `low`, and
    `link` if the query groups by it. `having`, `select`: expressions over these columns and the merged sub-aggregates.
    `partition`: the columns of `group_by` that partition windows of a number of rows. `emit_late`: True if late rows
    cause additional results of their window, marked in the column `late`. `details`: holistic aggregates. `selections`:
    conditions that compare the groups of a window. `user_columns`: user-defined aggregates. `foldings`: sketches that
    replace values in the high level.
    """

    window: AnyWindow
    low: LowLevelPlan
    group_by: tuple[str, ...]
    having: Expression | None
    select: tuple[Output, ...]
    partition: tuple[str, ...] = ()
    emit_late: bool = False
    details: tuple[Detail, ...] = ()
    selections: tuple[Selection, ...] = ()
    user_columns: tuple[UserColumn, ...] = ()
    foldings: tuple[Folding, ...] = ()

    @property
    def times(self) -> frozenset[str]:
        """The columns of the results that are times in ns: outputs of type TIME, and the bounds of windows in time."""
        outputs = {out.name for out in self.select if out.expression.type is Type.TIME}
        return frozenset(outputs.union(BOUNDS if self.windowed and self.window.timed else ()))

    @property
    def bound_type(self) -> Type:
        """Type of `window_start` and `window_end`: times, or the numbers of rows."""
        return Type.TIME if self.window.timed else Type.INT

    @property
    def windowed(self) -> bool:
        """True if results contain `window_start, window_end`."""
        return self.window != WHOLE_INPUT

    @property
    def merge_columns(self) -> tuple[str, ...]:
        """The columns by which partials are merged: the groups, and the values for holistic aggregates."""
        return tuple(dict.fromkeys([*self.group_by, *(key for detail in self.details for key in detail.keys)]))

    @property
    def partial_columns(self) -> tuple[str, ...]:
        """All columns of the partials except pane and sub-aggregates, with columns of values instead of sketches."""
        sources = {folding.column: folding.source for folding in self.foldings}
        return tuple(dict.fromkeys(sources.get(name, name) for name in self.merge_columns))

    @property
    def macs(self) -> frozenset[str]:
        """The columns with MAC addresses, without sub-aggregates."""
        keys = [key.name for key in self.low.keys if key.expression.type is Type.MAC]
        return frozenset([*keys, *(detail.name for detail in self.details if detail.type is Type.MAC)])

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """Columns by which partials are partitioned, so that one partition has a complete window; () if impossible."""
        if self.selections:
            return ()
        return self.partition or (self.group_by if self.window.by_group else ())

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of the results: `window_start, window_end` (half-open) if windowed, the select list, `late`.

        The column `late` exists only with `emit_late`.
        """
        bounds = [pa.field(name, pa.int64()) for name in BOUNDS] if self.windowed else []
        late = [pa.field(LATE, pa.bool_())] if self.emit_late else []
        return pa.schema(bounds + [pa.field(out.name, ARROW_TYPES[out.expression.type]) for out in self.select] + late)

    def with_row_counts(self) -> Aggregation:
        """Return this aggregation with a count(*) among its sub-aggregates, so that late rows can be counted."""
        subaggregates = self.low.subaggregates
        if count_of_rows(subaggregates) is not None:
            return self
        return replace(self, low=replace(self.low, subaggregates=(*subaggregates, SubAggregate("rows", Kind.COUNT))))
