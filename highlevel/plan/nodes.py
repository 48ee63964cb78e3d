"""The nodes of a plan: the inputs, the columns and the time columns of each.

    Leaf        rows or partials of links
    Union       all rows of nodes with the same columns
    Select      the rows that satisfy a condition
    Apply       computed, renamed and selected columns
    Distinct    the first row of each key
    Join        pairs of rows of two nodes (`highlevel.joins`)
    Windowed    groups of windows over one time column
    PairGroups  groups that contain the time columns themselves
    Sort        rows in the order of keys, or the first of them (ORDER BY, LIMIT)

Nodes are values: immutable, hashable and picklable. Equal nodes are one node of the plan, so a node that several others
read runs once. Nodes have no state. `highlevel.plan.registry` maps each node type to its operator.

Watermarks are strict. For a node with one time column no later row has a smaller time. For a node with two, no later
row is smaller in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

from highlevel.aggregation import LATE, LINK, Aggregation, Output
from highlevel.joins.spec import JoinSpec, Port, Progress
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from lowlevel.expressions.tree import Column, Expression, computed_column
from lowlevel.expressions.types import Type
from lowlevel.layers import Layer
from lowlevel.plan import LowLevelPlan

PANE = "pane"
"""The time column of a leaf: the pane of a partial, the ts of a single row."""


@dataclass(frozen=True)
class Node(ABC):
    """A node of a plan. Its inputs are all nodes in its fields, also in tuples, in the order of the fields."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of its rows."""

    @property
    @abstractmethod
    def progress(self) -> tuple[str, ...]:
        """Return the time columns of its watermarks: none, one or two."""

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that it reads, one for each port of its operator."""
        inputs: list[Node] = []
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            inputs += [part for part in (value if isinstance(value, tuple) else (value,)) if isinstance(part, Node)]
        return tuple(inputs)

    def with_inputs(self, inputs: Iterable[Node]) -> Self:
        """Return this node with other inputs, in the order of `inputs`."""
        remaining = iter(inputs)

        def exchanged(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(exchanged(member) for member in value)
            return next(remaining) if isinstance(value, Node) else value

        values = {parameter.name: exchanged(getattr(self, parameter.name)) for parameter in fields(self)}
        return replace(self, **values)

    def transform(self, change: Callable[[Node], Node]) -> Node:
        """Return this node and all its inputs after `change` of every node, inputs first."""
        inputs = tuple(node.transform(change) for node in self.inputs)
        return change(self if inputs == self.inputs else self.with_inputs(inputs))


@dataclass(frozen=True)
class Leaf(Node):
    """The rows or partials of the links of `streams`, as `low` describes them.

    Single rows (`low.reduced` is False) have keys with the names of their columns, and `pane` is their ts. `name` is
    the name of the query, the label of the low level's counters. Leaves that differ only in their
    names are equal. `layer` is the IP layer of plain column names.
    """

    name: str = field(compare=False)
    streams: tuple[str, ...]
    low: LowLevelPlan
    layer: str = Layer.OUTER

    @property
    def of_every_link(self) -> bool:
        """Return True if FROM contains only a kind of rows, so that the leaf reads all links."""
        return [stream.lower() for stream in self.streams] == [self.low.kind]

    @property
    def columns(self) -> tuple[Column, ...]:
        """`link`, `pane`, the keys and the sub-aggregates."""
        keys = [computed_column(key.name, key.expression) for key in self.low.keys]
        subs = [Column(sub.name, sub.type) for sub in self.low.subaggregates]
        pane = Column(PANE, Type.INT if self.low.reduced else Type.TIME)
        return (Column(LINK, Type.TEXT), pane, *keys, *subs)

    @property
    def progress(self) -> tuple[str, ...]:
        """The pane. Its watermarks are about ts, in ns."""
        return (PANE,)


@dataclass(frozen=True)
class Union(Node):
    """Rows of all `branches`, which have the same columns and the same time columns or none."""

    branches: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for branches with different columns."""
        first, *others = ([(column.name, column.type) for column in branch.columns] for branch in self.branches)
        if any(columns != first for columns in others):
            raise ValueError(f"a union needs equal columns, got {first} and {', '.join(map(str, others))}")
        progress = {branch.progress for branch in self.branches} - {()}
        if len(progress) > 1:
            raise ValueError(f"a union needs inputs with the same time columns, got {sorted(progress)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the branches, nullable if a branch has the column nullable."""
        first, *others = (branch.columns for branch in self.branches)
        return tuple(
            replace(column, nullable=any(columns[position].nullable for columns in (first, *others)), bits=64)
            for position, column in enumerate(first)
        )

    @property
    def progress(self) -> tuple[str, ...]:
        """Return the time columns of the branches, empty if a branch has none."""
        return min((branch.progress for branch in self.branches), key=len)


@dataclass(frozen=True)
class RowFilter(Node):
    """A node that passes on some rows of its input unchanged. Watermarks of the input remain valid."""

    input: Node

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input."""
        return self.input.columns

    @property
    def progress(self) -> tuple[str, ...]:
        """The time columns of the input."""
        return self.input.progress


@dataclass(frozen=True)
class Select(RowFilter):
    """The rows of `input` for which `where` is true."""

    where: Expression


@dataclass(frozen=True)
class Distinct(RowFilter):
    """The first row of each value of `keys`, which contain the time column (DupElim)."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progressing:
    """A time column `name` of Apply: `(of - shift) // length` of the input's time column `of`.

    The function is monotone, so a watermark of `of` implies a watermark of `name`.
    """

    name: str
    of: str
    shift: int = 0
    length: int = 1

    def watermark(self, low: int) -> int:
        """Return the watermark of this column for the input's watermark `low`, except BEGINNING and END."""
        return (low - self.shift) // self.length


@dataclass(frozen=True)
class Apply(Node):
    """Columns computed from each row of `input`.

    `progressing` are the time columns among them, in the input's order. Without one, the only watermark is the end.
    """

    input: Node
    outputs: tuple[Output, ...]
    progressing: tuple[Progressing, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The outputs."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def progress(self) -> tuple[str, ...]:
        """The names of `progressing`."""
        return tuple(column.name for column in self.progressing)


@dataclass(frozen=True)
class Join(Node):
    """Rows of `left` and `right` that match and are in each other's windows. `form` selects the time columns."""

    left: Node
    right: Node
    spec: JoinSpec
    form: Progress

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the sides, left and then right, nullable if a row may have no match.

        SEMI and ANTI joins have only the columns of the left. The later or earlier time is the last column if it is
        the time of the watermarks.
        """
        kind = self.spec.kind
        sides = [(self.left, self.spec.left, kind.keeps(Port.RIGHT))]
        if not kind.is_left_only:
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
        """The output names of the sides' times: one or both, depending on `form`."""
        return self.spec.progress_columns(self.form)


@dataclass(frozen=True)
class Windowed(Node):
    """The results of `aggregation` over `time`, a time column of `input`.

    Over a leaf with the same `low` partials are merged. Over other nodes `aggregation.low` defines how a row becomes a
    partial. Watermarks are about `window_end`, strictly. If the whole input is one window, `time` is not used.
    """

    input: Node
    aggregation: Aggregation
    time: str

    @property
    def merges_partials(self) -> bool:
        """Return True if the input provides the partials of the aggregation: a leaf with the same `low`."""
        return isinstance(self.input, Leaf) and self.input.low == self.aggregation.low

    @property
    def columns(self) -> tuple[Column, ...]:
        """`window_start, window_end` if there are windows, the select list, and `late` with `emit_late`."""
        bounds = tuple(Column(name, self.aggregation.bound_type) for name in (WINDOW_START, WINDOW_END))
        bounds = bounds if self.aggregation.windowed else ()
        selected = tuple(computed_column(out.name, out.expression) for out in self.aggregation.select)
        late = (Column(LATE, Type.BOOL),) if self.aggregation.emit_late else ()
        return (*bounds, *selected, *late)

    @property
    def progress(self) -> tuple[str, ...]:
        """Return the end of the window, or () if the whole input is one window."""
        return (WINDOW_END,) if self.aggregation.windowed else ()


@dataclass(frozen=True)
class PairGroups(Node):
    """Groups that contain time columns of `input`, plain or by intervals. A group below the watermark is final.

    `times`: (time column of the input, interval in ns, name of the interval's number among the groups).
    `aggregation.low` defines the conversion of rows to partials. `aggregation.group_by` names the groups, including the
    groups of `times`.
    """

    input: Node
    aggregation: Aggregation
    times: tuple[tuple[str, int, str], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The select list."""
        return tuple(computed_column(out.name, out.expression) for out in self.aggregation.select)

    @property
    def progress(self) -> tuple[str, ...]:
        """Return the output names of `times`, or () if the select list does not contain all of them unchanged."""
        outputs = {
            out.expression.name: out.name for out in self.aggregation.select if isinstance(out.expression, Column)
        }
        names = [outputs.get(name) for _, _, name in self.times]
        return tuple(name for name in names if name is not None) if None not in names else ()


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column to sort by. NULLs are last, unless `nulls_first`."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Sort(Node):
    """The rows of `input` in the order of `keys`. Rows with equal keys have the order of their other columns.

    The order begins again for each value of the columns `per`: the bounds of the windows, or none. `limit` and `offset`
    count the rows of one value of `per`: the first `offset` rows are left out, and at most `limit` rows follow.
    `hidden` are columns of `input` which are only keys.
    """

    input: Node
    keys: tuple[SortKey, ...]
    per: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0
    hidden: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input that are not hidden."""
        return tuple(column for column in self.input.columns if column.name not in self.hidden)

    @property
    def passes_through(self) -> bool:
        """True if any rows are the first ones, so that no row is stored."""
        return not (self.keys or self.per)

    @property
    def order(self) -> tuple[SortKey, ...]:
        """All keys: `per`, `keys`, and then the other columns of the input."""
        keys = [*(SortKey(name) for name in self.per), *self.keys]
        names = {key.column for key in keys}
        return (*keys, *(SortKey(column.name) for column in self.input.columns if column.name not in names))

    @property
    def progress(self) -> tuple[str, ...]:
        """The time column of the input if it is the first key, ascending. Otherwise rows are final at the end."""
        if self.passes_through or self.order[0].descending or self.order[0].nulls_first:
            return ()
        first = self.order[0].column
        return (first,) if self.input.progress == (first,) and first not in self.hidden else ()


def width_of(node: Node) -> int:
    """Return the number of bounds in a watermark of a node: one per time column, at least 1."""
    return max(1, len(node.progress))


def macs_of(node: Node) -> frozenset[str]:
    """Return the columns that are MACs. Arrow types do not distinguish them from addresses."""
    return frozenset(column.name for column in node.columns if column.type is Type.MAC)


def nodes_of(*roots: Node) -> tuple[Node, ...]:
    """Return each node of the plans with the given roots once. Inputs precede the nodes that read them.

    >>> leaf = Leaf("q", ("a",), LowLevelPlan(None, (), (), 1, reduced=False))
    >>> [type(node).__name__ for node in nodes_of(leaf, Union((leaf, leaf)))]
    ['Leaf', 'Union']
    """
    return tuple(dict.fromkeys(node for root in roots for node in _inputs_first(root, set())))


def _inputs_first(node: Node, known: set[Node]) -> Iterator[Node]:
    if node in known:
        return
    for source in node.inputs:
        yield from _inputs_first(source, known)
    known.add(node)
    yield node
