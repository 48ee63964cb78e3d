"""A query as the engines run it: a low-level part, a high-level part, and the links it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

import pyarrow as pa

from capture.errors import WiretideError
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import ARROW_TYPES, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate, count_of_rows

# Details: aggregates over all values of a group, for which no part of a fixed size would do (holistic ones).
#
# The low level keeps a group's values apart, each with the number of its rows: the values are one more key of its table
# (Li 2008, §6.2.4). So partials still merge, in any order, and only when a window is final are its values looked at.


class DetailFunction(StrEnum):
    """What is told of the values of a group."""

    COUNT_DISTINCT = "count_distinct"
    QUANTILE = "quantile"
    MODE = "mode"
    ENTROPY = "entropy"
    TOP = "top"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"
    APPROX_QUANTILE = "approx_quantile"
    APPROX_TOP = "approx_top"


FOLDED = frozenset({DetailFunction.APPROX_COUNT_DISTINCT, DetailFunction.APPROX_QUANTILE, DetailFunction.APPROX_TOP})
"""Functions that are told from sketches."""


@dataclass(frozen=True, slots=True)
class Detail:
    """One such aggregate. Its result is the column `name`.

    The values are of `kind`, in the column `key` of the partials; of functions in FOLDED that has the sketches that
    were made of them. `count` is the sub-aggregate that counts the rows behind each. `parameter` is the share of a
    quantile, 0 to 1, or how many values `top` names.
    """

    name: str
    function: DetailFunction
    key: str
    kind: Type
    count: str
    parameter: float = 0.0

    @property
    def type(self) -> Type:
        """Type of the result."""
        return result_type(self.function, self.kind)


@dataclass(frozen=True, slots=True)
class Folding:
    """A sketch, for `function`, of the values of a column `source` of the partials; its column is `column`.

    The values are of `kind`, as those of a detail.
    """

    function: DetailFunction
    source: str
    column: str
    count: str
    kind: Type = Type.INT


def result_type(function: DetailFunction, kind: Type) -> Type:
    """Return the type of what is told of values of a kind."""
    match function:
        case DetailFunction.COUNT_DISTINCT | DetailFunction.APPROX_COUNT_DISTINCT:
            return Type.INT
        case DetailFunction.QUANTILE | DetailFunction.APPROX_QUANTILE | DetailFunction.ENTROPY:
            return Type.FLOAT
        case DetailFunction.MODE:
            return kind
        case DetailFunction.TOP | DetailFunction.APPROX_TOP:
            return Type.TEXT


class SelectionKind(StrEnum):
    """How a group is compared with the others of its window.

    HEAVY: its value is a share of the sum of all, at least. TOP: fewer than so many groups have a greater value.
    """

    HEAVY = "heavy"
    TOP = "top"


@dataclass(frozen=True, slots=True)
class Selection:
    """One such condition. Its result is the column `name`, BOOL.

    `value` is an expression over groups, sub-aggregates and details. `parameter` is the share as it was written, or how
    many groups.
    """

    name: str
    kind: SelectionKind
    value: Expression
    parameter: str


Finish = Callable[..., Any]
"""Takes an array per part by the parts' names, and returns the results in an array of the same length."""

RESULT = Type.FLOAT
"""The type of every result."""


class AggregateError(WiretideError, ValueError):
    """A user's aggregate that is not one: fix its definition."""

    status = 2


@dataclass(frozen=True, slots=True)
class UserColumn:
    """One use of such an aggregate in a query. Its result is the column `name`, FLOAT.

    `shown` is the use as messages name it. `parts` are expressions over merged sub-aggregates, by the names that
    `finish` has for them.
    """

    name: str
    shown: str
    parts: tuple[tuple[str, Expression], ...]
    finish: Finish


LINK = "link"
"""The column of every partial that names its link."""

LATE = "late"
"""The column of results that says whether a row adds to a window that was reported before."""

BOUNDS = (WINDOW_START, WINDOW_END)
"""The columns of results that say of which window a row is."""


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the select list: its name and the expression over keys and merged sub-aggregates."""

    name: str
    expression: Expression


class LeafPlan(Protocol):
    """What engines know of what a query reads of links: who asks, of which streams, and how rows are reduced there."""

    @property
    def name(self) -> str:
        """Name of the query."""
        ...

    @property
    def streams(self) -> tuple[str, ...]:
        """The names in FROM."""
        ...

    @property
    def low(self) -> LowLevelPlan:
        """What the low level does for it."""
        ...

    @property
    def of_every_link(self) -> bool:
        """Whether FROM names a kind of rows alone: those of all inputs."""
        ...

    @property
    def slide(self) -> int:
        """How far apart, ns, the ends of its windows are, where it is known to have some."""
        ...


@dataclass(frozen=True)
class QueryPlan:
    """One query. Immutable and picklable.

    `streams` are the names in FROM: links, or the kind of the rows alone, which is that of every link. `group_by` names
    the columns of the partials that form a group: keys of the low level, and `link` where the query groups by it.
    `having` and `select` are expressions over those columns and the merged sub-aggregates. `layer` is the IP layer that
    plain names in `sql` mean. `partition` are the columns of `group_by` for whose values windows
    of a number of rows are counted. With `emit_late` rows that are late for a window are reported, as rows of that
    window which say so in the column `late` and are to be added to what was reported before. `details` are what is told
    of all values of a group, as columns beside the sub-aggregates; `selections` compare the groups of a window, and
    `user_columns` are what users' functions make of merged sub-aggregates. `foldings` are the sketches that values
    become in the high level, where not all of them are to be kept.
    """

    name: str
    sql: str
    streams: tuple[str, ...]
    window: AnyWindow
    low: LowLevelPlan
    group_by: tuple[str, ...]
    having: Expression | None
    select: tuple[Output, ...]
    layer: str = Layer.OUTER
    partition: tuple[str, ...] = ()
    emit_late: bool = False
    details: tuple[Detail, ...] = ()
    selections: tuple[Selection, ...] = ()
    user_columns: tuple[UserColumn, ...] = ()
    foldings: tuple[Folding, ...] = ()

    @property
    def of_every_link(self) -> bool:
        """Whether FROM names a kind of rows alone: those of all inputs."""
        return [stream.lower() for stream in self.streams] == [self.low.kind]

    @property
    def leaves(self) -> tuple[QueryPlan, ...]:
        """What is read of links: this plan is its one leaf."""
        return (self,)

    @property
    def slide(self) -> int:
        """The distance of two windows' ends, ns; 0 where that is no length of time."""
        return self.window.slide

    @property
    def times(self) -> frozenset[str]:
        """The columns of the results that are times in ns: outputs of that type, and the bounds of windows in time."""
        found = {out.name for out in self.select if out.expression.type is Type.TIME}
        return frozenset(found.union(BOUNDS if self.windowed and self.window.timed else ()))

    @property
    def bound_type(self) -> Type:
        """Type of `window_start` and `window_end`: times, or the numbers of rows."""
        return Type.TIME if self.window.timed else Type.INT

    @property
    def windowed(self) -> bool:
        """Whether results carry `window_start, window_end`."""
        return self.window != WHOLE_INPUT

    @property
    def grain(self) -> tuple[str, ...]:
        """Columns by which partials merge: those of the groups, and those of the values that details are told of."""
        return tuple(dict.fromkeys([*self.group_by, *(detail.key for detail in self.details)]))

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns of the partials beside pane and sub-aggregates: `grain` with the values in place of sketches."""
        sources = {folding.column: folding.source for folding in self.foldings}
        return tuple(dict.fromkeys(sources.get(name, name) for name in self.grain))

    @property
    def macs(self) -> frozenset[str]:
        """Columns beside the sub-aggregates that are MACs."""
        keys = [key.name for key in self.low.keys if key.expression.type is Type.MAC]
        return frozenset([*keys, *(detail.name for detail in self.details if detail.type is Type.MAC)])

    @property
    def parted_by(self) -> tuple[str, ...]:
        """Columns by whose values rows may be dealt to partitions that know nothing of each other; none: to one."""
        if self.selections:
            return ()
        return self.partition or (self.group_by if self.window.by_group else ())

    @property
    def schema(self) -> pa.Schema:
        """Schema of the results: `window_start, window_end` (half-open) where windowed, then the select list.

        And `late` behind it, with `emit_late`.
        """
        bounds = [pa.field(name, pa.int64()) for name in BOUNDS] if self.windowed else []
        late = [pa.field(LATE, pa.bool_())] if self.emit_late else []
        return pa.schema(bounds + [pa.field(out.name, ARROW_TYPES[out.expression.type]) for out in self.select] + late)

    def counting_rows(self) -> QueryPlan:
        """Return this plan with count(*) among its sub-aggregates, so that rows left out of windows can be counted."""
        subaggregates = self.low.subaggregates
        if count_of_rows(subaggregates) is not None:
            return self
        return replace(self, low=replace(self.low, subaggregates=(*subaggregates, SubAggregate("rows", Kind.COUNT))))
