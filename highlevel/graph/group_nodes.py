"""Nodes that group the rows of their input: by windows, or by the progressing columns themselves."""

from __future__ import annotations

from dataclasses import dataclass

from highlevel.graph.leaf import Leaf
from highlevel.graph.one_input import OneInput
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan import LATE, QueryPlan
from lowlevel.expressions.tree import Column, computed_column
from lowlevel.expressions.types import Type


@dataclass(frozen=True)
class Windowed(OneInput):
    """Groups of the windows of `plan` over `time`, a progressing column of `input`: merged, finished and selected.

    Over a leaf with `plan.low` partials are merged as they are; over other nodes `plan.low` says how each row becomes
    one. Results are promised by their `window_end`, strictly. Where the whole input is one window, no time is read.
    """

    plan: QueryPlan
    time: str

    @property
    def takes_partials(self) -> bool:
        """Whether the input gives the partials of the plan: a leaf that is reduced as it says."""
        return isinstance(self.input, Leaf) and self.input.low == self.plan.low

    @property
    def columns(self) -> tuple[Column, ...]:
        """`window_start, window_end` where the plan has windows, the select list, and `late` where it tells that."""
        bounds = tuple(Column(name, self.plan.bound_type) for name in (WINDOW_START, WINDOW_END))
        bounds = bounds if self.plan.windowed else ()
        selected = tuple(computed_column(out.name, out.expression) for out in self.plan.select)
        late = (Column(LATE, Type.BOOL),) if self.plan.emit_late else ()
        return (*bounds, *selected, *late)

    @property
    def progress(self) -> tuple[str, ...]:
        """The end of the window; nothing where the whole input is one."""
        return (WINDOW_END,) if self.plan.windowed else ()


@dataclass(frozen=True)
class PairGroups(OneInput):
    """Groups that hold progressing columns of `input`, plain or by intervals; each leaves when a promise covers it.

    `times` are (progressing column of the input, interval in ns it is counted by, name of the number among the groups).
    `plan.low` says how rows become partials, `plan.group_by` names the groups, those of `times` among them.
    """

    plan: QueryPlan
    times: tuple[tuple[str, int, str], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The select list."""
        return tuple(computed_column(out.name, out.expression) for out in self.plan.select)

    @property
    def progress(self) -> tuple[str, ...]:
        """The names under which the select list has the columns of `times`, where it has them all as they are."""
        shown = {out.expression.name: out.name for out in self.plan.select if isinstance(out.expression, Column)}
        names = [shown.get(name) for _, _, name in self.times]
        return tuple(name for name in names if name is not None) if None not in names else ()
