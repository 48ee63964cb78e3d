"""The nodes of a query's graph: what each reads, what leaves it, and what its promises are about.

    Leaf        rows or partials of links
    Union       Meld over nodes with the same columns
    Select      rows that a condition keeps
    Apply       computed, renamed and chosen columns
    Distinct    the first row of each key
    Join        OA-Join of two nodes (`highlevel.joins`)
    Windowed    groups of windows over one progressing column
    PairGroups  groups that hold the progressing columns themselves

Nodes are immutable and picklable, and equal nodes are one node: what two branches of a query share is run once. They
know no state; `highlevel.plan.pipeline` makes the operator of each. Promises are strict: of a node with one
progressing column, that no later row has a value below; of one with two, that no later row is below in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from highlevel.aggregation import LATE, LINK, Output, QueryPlan
from highlevel.joins.spec import JoinSpec, Port, Progress
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from lowlevel.expressions.tree import Column, Expression, computed_column
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import LowLevelPlan


@dataclass(frozen=True)
class Join:
    """Rows of `left` and `right` that are in each other's windows and match; promises are of what `form` says."""

    left: Node
    right: Node
    spec: JoinSpec
    form: Progress

    @property
    def inputs(self) -> tuple[Node, ...]:
        """Left and right."""
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that the sides keep, left and then right; NULL where a row may have no partner.

        SEMI and ANTI joins have those of the left alone; the later or earlier time is last where promises are of it.
        """
        kind = self.spec.kind
        sides = [(self.left, self.spec.left, kind.keeps(Port.RIGHT))]
        if not kind.of_left_alone:
            sides.append((self.right, self.spec.right, kind.keeps(Port.LEFT)))
        kept = []
        for node, side, lacks in sides:
            of_input = {column.name: column for column in node.columns}
            for name, output in side.columns:
                column = of_input[name]
                kept.append(replace(column, name=output, nullable=column.nullable or lacks))
        made = [Column(name, Type.TIME) for name in self.progress if self.form in (Progress.MAX, Progress.MIN)]
        return (*kept, *made)

    @property
    def progress(self) -> tuple[str, ...]:
        """The times of the sides as the output names them: one or both, as the form of progress says."""
        return self.spec.progress_columns(self.form)


PANE = "pane"
"""The progressing column of a leaf: of single rows their ts."""


@dataclass(frozen=True)
class Leaf:
    """What comes up from the links of `streams`, each reduced by `low`; a port of the graph for each of them.

    Single rows (`low.reduced` is not set) have keys named as the columns they are, and `pane` is their ts.
    `name` is the query's, by which the low level's counters are labelled.
    """

    name: str
    streams: tuple[str, ...]
    low: LowLevelPlan
    layer: str = Layer.OUTER

    @property
    def of_every_link(self) -> bool:
        """Whether FROM names a kind of rows alone: those of all inputs."""
        return [stream.lower() for stream in self.streams] == [self.low.kind]

    @property
    def slide(self) -> int:
        """A pane: no window over it ends more often."""
        return self.low.pane

    @property
    def inputs(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """`link`, `pane`, the keys and the sub-aggregates."""
        keys = [computed_column(key.name, key.expression) for key in self.low.keys]
        subs = [Column(sub.name, sub.type) for sub in self.low.subaggregates]
        pane = Column(PANE, Type.INT if self.low.reduced else Type.TIME)
        return (Column(LINK, Type.TEXT), pane, *keys, *subs)

    @property
    def progress(self) -> tuple[str, ...]:
        """The pane; its promises are about ts, in ns."""
        return (PANE,)


@dataclass(frozen=True)
class OneInput:
    """A node that reads `input`."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The one input."""
        return (self.input,)


@dataclass(frozen=True)
class SomeRows(OneInput):
    """A node whose rows are some of the input's, as they are: what is promised of all is true of them."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the input."""
        return self.input.columns

    @property
    def progress(self) -> tuple[str, ...]:
        """That of the input."""
        return self.input.progress


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


@dataclass(frozen=True)
class Union:
    """All rows of `inputs`, which have the same columns, and the same progressing ones or none."""

    inputs: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Refuse inputs whose rows are no rows of one table."""
        first, *others = ([(column.name, column.type) for column in each.columns] for each in self.inputs)
        if any(each != first for each in others):
            raise ValueError(f"a union of different columns: {first} and {', '.join(map(str, others))}")
        progress = {each.progress for each in self.inputs} - {()}
        if len(progress) > 1:
            raise ValueError(f"a union of inputs that progress by different columns: {sorted(progress)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those of the inputs; NULL where one of them may be."""
        first, *others = (each.columns for each in self.inputs)
        return tuple(
            replace(column, nullable=any(each[place].nullable for each in (first, *others)), bits=64)
            for place, column in enumerate(first)
        )

    @property
    def progress(self) -> tuple[str, ...]:
        """That of the inputs; nothing where one of them has none."""
        return min((each.progress for each in self.inputs), key=len)


@dataclass(frozen=True)
class Select(SomeRows):
    """The rows of `input` for which `where` is true."""

    where: Expression


@dataclass(frozen=True, slots=True)
class Progressing:
    """A progressing column `name` of what Apply gives: `(of - shift) // length` of the input's progressing column `of`.

    Such a function is monotone, so what is promised of `of` is promised of it.
    """

    name: str
    of: str
    shift: int = 0
    length: int = 1

    def promise(self, low: int) -> int:
        """Return what P(low) of the input's column says of this one; not for the ends of the integers."""
        return (low - self.shift) // self.length


@dataclass(frozen=True)
class Apply(OneInput):
    """Columns computed from each row of `input`; `progressing` says which of them progress, in the input's order.

    With none of them nothing can be promised but the end.
    """

    outputs: tuple[Output, ...]
    progressing: tuple[Progressing, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The outputs."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def progress(self) -> tuple[str, ...]:
        """Those that were said to."""
        return tuple(each.name for each in self.progressing)


@dataclass(frozen=True)
class Distinct(SomeRows):
    """The first row of each value of `keys`, among which is the progressing column (DupElim)."""

    keys: tuple[str, ...]


Node = Leaf | Union | Select | Apply | Distinct | Join | Windowed | PairGroups
"""Every kind of node."""


def width_of(node: Node) -> int:
    """Return how many bounds a promise of a node has: one at least, which only END raises where none does."""
    return max(1, len(node.progress))


def macs_of(node: Node) -> frozenset[str]:
    """Return the columns that are MACs, which Arrow does not tell from addresses."""
    return frozenset(column.name for column in node.columns if column.type is Type.MAC)
