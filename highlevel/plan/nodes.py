"""The nodes of a plan. A node defines its inputs, its columns and its time columns.

    Leaf        rows or partials of links
    Union       all rows of nodes with the same columns
    Filter      the rows that satisfy a condition
    Apply       computed, renamed and selected columns
    Distinct    the first row of each key
    Repeat      each row as many times as a column states
    Join        pairs of rows of two nodes (`highlevel.joins`)
    Windowed    groups of windows over one time column
    ChangingWindows  the same, with provisional results and their corrections
    TimeGroups  groups whose key contains the time columns

`answer_nodes` contains the nodes above groups (Fill, Running, Over, Sort), and `sample_node` the sampling operator.
Nodes of corrected results are in `change_nodes`, of lifetimes in `lifetime_nodes`, of copies of rows in
`revision_nodes`.

Nodes are values: immutable, hashable and picklable. Equal nodes are one node of the plan, so a node with several
readers runs once. Nodes have no state. `highlevel.plan.registry` maps each node type to its operator.

The watermark of a node bounds its time columns. After a watermark `t` of one time column no row has a time below `t`.
After a joint watermark `(t, u)` of two time columns no row has both the first time below `t` and the second below `u`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields, replace
from functools import cached_property
from typing import Any, Self

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import LATE, LINK, Aggregation, Output
from highlevel.joins.spec import JoinSpec, Port, WatermarkForm
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from lowlevel.expressions.tree import Column, Expression, computed_column
from lowlevel.expressions.types import Type
from lowlevel.kinds import TABLE
from lowlevel.layers import Layer
from lowlevel.plan import LowLevelPlan

CHANGE_COLUMNS = (Column(WEIGHT, Type.INT), Column(FINAL, Type.BOOL))
"""The last columns of changes."""


PANE = "pane"
"""The time column of a leaf: the number of the pane of a partial, or the `ts` of a single row."""


@dataclass(frozen=True)
class Node(ABC):
    """A node of a plan. Its inputs are the nodes among its fields, also in tuples, in the order of the fields."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of the node's rows."""

    @property
    @abstractmethod
    def time_columns(self) -> tuple[str, ...]:
        """The columns that the watermark bounds: none, one or two."""

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes that this node reads. Input i of the operator (its `port`) receives the rows of `inputs[i]`."""
        inputs: list[Node] = []
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            members = value if isinstance(value, tuple) else (value,)
            inputs += [member for member in members if isinstance(member, Node)]
        return tuple(inputs)

    def with_inputs(self, inputs: Iterable[Node]) -> Self:
        """Return this node with other inputs, in the order of `inputs`."""
        remaining = iter(inputs)

        def replace_nodes(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(replace_nodes(member) for member in value)
            return next(remaining) if isinstance(value, Node) else value

        values = {parameter.name: replace_nodes(getattr(self, parameter.name)) for parameter in fields(self)}
        return replace(self, **values)

    def transform(self, change: Callable[[Node], Node]) -> Node:
        """Return the plan below this node with `change` applied to every node, inputs first."""
        inputs = tuple(node.transform(change) for node in self.inputs)
        return change(self if inputs == self.inputs else self.with_inputs(inputs))


@dataclass(frozen=True)
class Leaf(Node):
    """The rows or partials of the links of `streams`, as the low-level plan `low` defines them.

    If `low.reduced` is False, the leaf provides single rows: their keys are named like their columns, and `pane` is
    their `ts`. `name` is the name of the query, a label of counters. Leaves that differ only in `name` are equal.
    A column name without a prefix means a field of the IP layer `layer`. `key`: the columns that identify a row of a
    table; () if there are none.
    """

    name: str = field(compare=False)
    streams: tuple[str, ...]
    low: LowLevelPlan
    layer: str = Layer.OUTER
    key: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names in FROM. The second stream of a table is its time column."""
        return self.streams[:1] if self.low.kind == TABLE else self.streams

    @property
    def reads_all_links(self) -> bool:
        """True if FROM names a kind of rows such as `packets`, and no link."""
        return [stream.lower() for stream in self.streams] == [self.low.kind]

    @property
    def columns(self) -> tuple[Column, ...]:
        """`link`, `pane`, the keys and the sub-aggregates."""
        keys = [computed_column(key.name, key.expression) for key in self.low.keys]
        subs = [Column(sub.name, sub.type) for sub in self.low.subaggregates]
        pane = Column(PANE, Type.INT if self.low.reduced else Type.TIME)
        return (Column(LINK, Type.TEXT), pane, *keys, *subs)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return `pane`. The values of the watermarks are times `ts` in ns, not numbers of panes."""
        return (PANE,)


@dataclass(frozen=True)
class Union(Node):
    """All rows of `branches`. Branches have equal columns.

    All branches with time columns have the same time columns.
    """

    branches: tuple[Node, ...]

    def __post_init__(self) -> None:
        """Raise ValueError for branches with different columns."""
        first, *others = ([(column.name, column.type) for column in branch.columns] for branch in self.branches)
        if any(columns != first for columns in others):
            raise ValueError(f"a union needs equal columns, got {first} and {', '.join(map(str, others))}")
        time_columns = {branch.time_columns for branch in self.branches} - {()}
        if len(time_columns) > 1:
            raise ValueError(f"a union needs inputs with the same time columns, got {sorted(time_columns)}")

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the branches. A column is nullable if it is nullable in a branch."""
        first, *others = (branch.columns for branch in self.branches)
        return tuple(
            replace(column, nullable=any(columns[position].nullable for columns in (first, *others)), bits=64)
            for position, column in enumerate(first)
        )

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the time columns of the branches, or () if a branch has none."""
        return min((branch.time_columns for branch in self.branches), key=len)


@dataclass(frozen=True)
class Subset(Node):
    """A node that passes on rows of its input unchanged. Watermarks of the input remain valid."""

    input: Node

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input."""
        return self.input.columns

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time columns of the input."""
        return self.input.time_columns


@dataclass(frozen=True)
class Filter(Subset):
    """The rows of `input` for which `where` is true."""

    where: Expression


@dataclass(frozen=True)
class Distinct(Subset):
    """The first row of each value of the columns `keys` (DupElim). The time column is one of them."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class Repeat(Subset):
    """Each row of `input` as many times as its INT column `count` states, which is never NULL."""

    count: str


@dataclass(frozen=True, slots=True)
class TimeOutput:
    """The time column `name` of an Apply: `(source - shift) // length`, where `source` is a time column of the input.

    The function is monotone, so a watermark of `source` implies a watermark of `name`. All values of `source` are
    `origin` plus a multiple of `step`, for example ends of windows. So after a watermark, the next possible value is
    known: the end of the window after the last final window. A query that reads windows need not wait for this window.
    """

    name: str
    source: str
    shift: int = 0
    length: int = 1
    step: int = 1
    origin: int = 0

    def convert(self, watermark: int) -> int:
        """Convert a watermark of `source`, which is not BEGINNING or END, to the watermark of this column."""
        smallest = self.origin - (self.origin - watermark) // self.step * self.step
        return (smallest - self.shift) // self.length


@dataclass(frozen=True)
class Apply(Node):
    """Columns computed from each row of `input`.

    `time_outputs`: the time columns among `outputs`, in the order of the input. If it is empty, the only watermark is
    END.
    """

    input: Node
    outputs: tuple[Output, ...]
    time_outputs: tuple[TimeOutput, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `outputs`."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The names of `time_outputs`."""
        return tuple(column.name for column in self.time_outputs)


@dataclass(frozen=True)
class Join(Node):
    """Pairs of rows of `left` and `right` that match and are in each other's windows.

    `watermark_form` selects the time columns: the time of one side, of both, or the earlier or later time.
    """

    left: Node
    right: Node
    spec: JoinSpec
    watermark_form: WatermarkForm

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the left side, then of the right side.

        SEMI and ANTI joins have only the columns of the left input.

        Columns of a side are nullable if a row of the other side may have no match. If the watermark bounds the later
        or earlier time, this time is the last column.
        """
        kind = self.spec.kind
        sides = [(self.left, self.spec.left, kind.keeps(Port.RIGHT))]
        if not kind.is_left_only:
            sides.append((self.right, self.spec.right, kind.keeps(Port.LEFT)))
        copied = []
        for node, side, may_be_missing in sides:
            by_name = {column.name: column for column in node.columns}
            for name, output in side.columns:
                column = by_name[name]
                copied.append(replace(column, name=output, nullable=column.nullable or may_be_missing))
        computed = [
            Column(name, Type.TIME)
            for name in self.time_columns
            if self.watermark_form in (WatermarkForm.MAX, WatermarkForm.MIN)
        ]
        return (*copied, *computed)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The output names of the sides' times: one or both, depending on `watermark_form`."""
        return self.spec.time_columns(self.watermark_form)


@dataclass(frozen=True)
class Windowed(Node):
    """The results of `aggregation` in windows over `time`, a time column of `input`.

    If `input` is a leaf with the same low-level plan, its partials are merged. Otherwise `aggregation.low` defines how
    a row becomes a partial. The watermark bounds `window_end`. If the whole input is one window, `time` is not used.
    """

    input: Node
    aggregation: Aggregation
    time: str

    @property
    def merges_partials(self) -> bool:
        """Return True if the input is a leaf with the same low-level plan, which provides partials."""
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
    def time_columns(self) -> tuple[str, ...]:
        """Return the end of the window, or () if the whole input is one window."""
        return (WINDOW_END,) if self.aggregation.windowed else ()


@dataclass(frozen=True)
class ChangingWindows(Windowed):
    """The changes of the results of sliding windows: `consistency` states when a window is published and corrected.

    `weight` is +1 for a result and -1 for a withdrawn result. `final` is true if its window cannot change any more.
    The sub-aggregates contain `lowlevel.plan.NEWEST`.
    """

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of Windowed, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class TimeGroups(Node):
    """Groups whose key contains time columns of `input`, exact or rounded to intervals, so the query needs no window.

    A group is final if its times are below the watermark. `times`: for each time column in the key, the column of the
    input, the length of the interval (ns), and the key column with the number of the interval. `aggregation.group_by`
    lists all key columns. `aggregation.low` defines how a row becomes a partial.
    """

    input: Node
    aggregation: Aggregation
    times: tuple[tuple[str, int, str], ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The select list."""
        return tuple(computed_column(out.name, out.expression) for out in self.aggregation.select)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the output columns with the key columns of `times`, or () if the select list lacks one of them."""
        outputs = {
            out.expression.name: out.name for out in self.aggregation.select if isinstance(out.expression, Column)
        }
        names = [outputs.get(name) for _, _, name in self.times]
        return tuple(name for name in names if name is not None) if None not in names else ()


DUE, KEPT = Column(".due", Type.BOOL), Column(".kept", Type.BOOL)
"""Columns with results of stateful functions: DUE in CLEANING WHEN, KEPT in CLEANING BY and HAVING."""


def bound_count(node: Node) -> int:
    """Return the number of bounds in a watermark of a node: one for each time column, at least 1."""
    return max(1, len(node.time_columns))


def macs_of(node: Node) -> frozenset[str]:
    """Return the names of the columns with MAC addresses. Their Arrow type is that of IP addresses."""
    return frozenset(column.name for column in node.columns if column.type is Type.MAC)


def nodes_of(*roots: Node) -> tuple[Node, ...]:
    """Return all different nodes of the plans with the given roots. Inputs precede the nodes that read them.

    >>> leaf = Leaf("q", ("a",), LowLevelPlan(None, (), (), 1, reduced=False))
    >>> [type(node).__name__ for node in nodes_of(leaf, Union((leaf, leaf)))]
    ['Leaf', 'Union']
    """
    return tuple(dict.fromkeys(node for root in roots for node in _inputs_first(root, set())))


def _inputs_first(node: Node, visited: set[Node]) -> Iterator[Node]:
    if node in visited:
        return
    for source in node.inputs:
        yield from _inputs_first(source, visited)
    visited.add(node)
    yield node
