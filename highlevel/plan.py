"""A query as the engines run it: a low-level part, a high-level part, and the links it reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from highlevel.detail import Detail, Folding
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.selection import Selection
from highlevel.user_column import UserColumn
from highlevel.windows.kind import WHOLE_INPUT, AnyWindow
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import ARROW_TYPES, LowLevelPlan
from lowlevel.subaggregates import Kind, SubAggregate, count_of_rows

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
