"""The nodes of a plan: the inputs, the columns and the time columns of each.

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
    Over        columns computed from other rows of the answer (window functions of SQL: rank, lag, share of the total)
    Sample      groups of windows, from which a condition deletes groups (sampling operator of Gigascope)
    Fill        rows for windows without rows (FILL)
    Running     groups that live over several windows (CLOSING WHEN)
    Sort        rows in the order of keys, or the first of them (ORDER BY, LIMIT)

Nodes are values: immutable, hashable and picklable. Equal nodes are one node of the plan, so a node with several
readers runs once. Nodes have no state. `highlevel.plan.registry` maps each node type to its operator.

The watermark of a node is about its time columns. After a watermark `t` of one time column no row has a time below `t`.
After a joint watermark `(t, u)` of two time columns no row has both the first time below `t` and the second below `u`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import LATE, LINK, Aggregation, Output
from highlevel.joins.spec import JoinSpec, Port, WatermarkForm
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from highlevel.windows.kind import SlidingWindow
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
    """A node of a plan. The nodes among its fields, also within tuples, are its inputs, in the order of the fields."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Column, ...]:
        """The columns of the node's rows."""

    @property
    @abstractmethod
    def time_columns(self) -> tuple[str, ...]:
        """Return the columns that the watermark is about: none, one or two."""

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
    A column name without a prefix means a field of the IP layer `layer`.
    """

    name: str = field(compare=False)
    streams: tuple[str, ...]
    low: LowLevelPlan
    layer: str = Layer.OUTER

    @property
    def names(self) -> tuple[str, ...]:
        """The names in FROM. The second stream of a table is its time column."""
        return self.streams[:1] if self.low.kind == TABLE else self.streams

    @property
    def reads_all_links(self) -> bool:
        """Return True if FROM names a kind of rows such as `packets`, and no link."""
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
    """All rows of `branches`. Branches have equal columns. Branches with time columns have the same ones."""

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
    `origin` plus a multiple of `step`, as ends of windows are. So after a watermark the next value is known: the window
    after the last final one. A query that reads windows then need not wait for it.
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

    `time_outputs` are the time columns among them, in the order of the input. Without any, the only watermark is END.
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
        """Return the columns of the left side, then of the right side. SEMI and ANTI joins have only those of the left.

        Columns of a side are nullable if a row of the other side may have no match. The later or earlier time is the
        last column if the watermark is about it.
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
    a row becomes a partial. The watermark is about `window_end`. If the whole input is one window, `time` is not used.
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

    `weight` is +1 for a result and -1 for one that is withdrawn; `final` is true if its window cannot change any more.
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

    A group is final if its times are below the watermark. `times` has a triple for each time column in the key: the
    column of the input, the length of the interval (ns), and the key column with the number of the interval.
    `aggregation.group_by` lists all key columns. `aggregation.low` defines how a row becomes a partial.
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


@dataclass(frozen=True)
class Fill(Node):
    """The rows of `input`, and a row for each window and known group without one, from the first window to the last.

    A group is known from its first row on. `keys` are the columns with the groups, `end` and `start` those with the
    bounds of `window`. In a new row `computed` are evaluated over keys and bounds. The other columns have `value` if
    they are numbers, otherwise NULL. With `repeats` they have the values of the group's last row. `hidden` are columns
    of the input that only this node reads.

    Windows after the last row are not filled, because the number of them depends on the watermarks. With `fills_lulls`
    they are filled as soon as the watermark passes their end.
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
            if column.name in self.filled
            else column
            for column in kept
        )

    @cached_property
    def filled(self) -> tuple[str, ...]:
        """The columns of the input that are neither bounds nor keys nor computed."""
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

    It adds the values of the column `argument` in the last `length` windows, or in all since the group began if
    `length` is None. The value of a window that is n windows old has the weight `decay` ** n.
    """

    name: str
    argument: str
    type: Type
    length: int | None = None
    decay: float = 1.0


@dataclass(frozen=True)
class Running(Node):
    """A row for each window and living group: the bounds and `outputs`, over input columns and `functions`.

    A group (`keys`) lives from its first row to the first window for which `closing` is true, inclusive. In windows
    without a row of the group `counts` are 0 and the other columns NULL. Rows without `having` are not returned.

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

    `window_columns` are the bounds of the window if each window is sorted by itself, and () if all rows are sorted
    together. Each window (or the whole input) loses its first `offset` rows, and at most `limit` rows remain. `hidden`
    are columns of `input` that are only keys.
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
        """Return True if the order of the rows does not matter, so that no row is stored."""
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
    """What a window function of SQL computes."""

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

    The bounds are relative to the current row, and negative before it: numbers of rows or, with `by_values`, distances
    between values of the only key of ORDER BY (ns for times). Rows with equal values are in the frame together.
    0 with `by_values` means the peers of the row. None is the first row of the partition, or its last.
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

    `argument`, `partition` and `order` are columns of the input. Without an argument `count` counts rows. `distance` is
    the number of rows of lag and lead. The default `frame` is the default of SQL: from the first row of the partition
    to the last peer of the current row.
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

        Either all rows of a partition have one time, or the rows are sorted by `time`, and the value needs no later
        row and finitely many earlier ones.
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

    `window_columns` are the bounds of the window or (). They are in the result, too. A function uses the rows of one
    window if they are in its partition, otherwise the rows of all windows.
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
    def final_by(self) -> str | None:
        """The time column of the input by whose watermark rows become final, or None: at the end of the input."""
        if len(self.input.time_columns) != 1:
            return None
        (time,) = self.input.time_columns
        return time if all(function.is_final_by(time) for function in self.functions) else None

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the output that is the column `final_by`, or ()."""
        if self.final_by is not None and self.final_by in self.window_columns:
            return (self.final_by,)
        names = (
            out.name
            for out in self.outputs
            if isinstance(out.expression, Column) and out.expression.name == self.final_by
        )
        return tuple(names)[:1]


class SampleKind(StrEnum):
    """Functions of aggregates of the sampling operator."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    GROUPS = "count_distinct"
    """The number of groups that exist, of a supergroup only."""


@dataclass(frozen=True, slots=True)
class SampleAggregate:
    """An aggregate of a group, or with `of_supergroup` of all rows of a supergroup. Its value is the column `name`.

    `argument` is an expression over the columns of the input. Without it `count` counts rows. The argument of FIRST is
    an expression over superaggregates; its value is that at the first row of the group.
    """

    name: str
    kind: SampleKind
    type: Type
    argument: Expression | None = None
    of_supergroup: bool = False

    @property
    def column(self) -> Column:
        """The column with the value."""
        return Column(self.name, self.type, nullable=self.kind not in (SampleKind.COUNT, SampleKind.GROUPS))


TICKET = Column(".ticket", Type.INT)
"""The random ticket of an admitted row (`highlevel.sampling.state`), which aggregates of groups can read."""

DUE, KEPT = Column(".due", Type.BOOL), Column(".kept", Type.BOOL)
"""Results of the functions with a state: DUE in CLEANING WHEN, KEPT in CLEANING BY and HAVING."""

STATE_VALUE = Column(".value", Type.FLOAT)
"""The value of the state at the end of the window, after HAVING."""


@dataclass(frozen=True, slots=True)
class StateFunctions:
    """Functions with a state, of the family `family` of `highlevel.sampling.families`.

    Superaggregates and groups contain only rows that the state admits. `weight` is a column of the input, or None.
    `due` is the argument of the function in CLEANING WHEN, over superaggregates. `clean` and `finish` are the arguments
    of the functions in CLEANING BY and HAVING, over groups. Each is None if the query does not call the function. The
    results of the functions are the columns DUE, KEPT and STATE_VALUE.
    """

    family: str
    size: int
    seed: int
    weight: str | None = None
    due: Expression | None = None
    clean: Expression | None = None
    finish: Expression | None = None


@dataclass(frozen=True)
class Sample(Node):
    """Groups of windows, from which conditions delete groups (Johnson et al. 2005, sampling operator).

    A row updates the superaggregates of its supergroup, then its group. If `when` is true, a condition over
    superaggregates, the groups of the supergroup for which `by` is not true are deleted. At the end of the window
    `having` selects the groups of the result. `keys` and `supergroup` are columns of the input. The window is the time
    column of the input, which is one of the keys; without one the whole input is one window.
    """

    input: Node
    keys: tuple[str, ...]
    supergroup: tuple[str, ...]
    aggregates: tuple[SampleAggregate, ...]
    when: Expression | None
    by: Expression | None
    having: Expression | None
    outputs: tuple[Output, ...]
    functions: StateFunctions | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `outputs`."""
        return tuple(computed_column(out.name, out.expression) for out in self.outputs)

    @property
    def group_columns(self) -> tuple[Column, ...]:
        """The keys and aggregates: the columns that the conditions and outputs read."""
        by_name = {column.name: column for column in self.input.columns}
        return (*(by_name[key] for key in self.keys), *(aggregate.column for aggregate in self.aggregates))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the output that is the time column of the input, or ()."""
        names = (
            out.name
            for out in self.outputs
            if isinstance(out.expression, Column) and out.expression.name in self.input.time_columns
        )
        return tuple(names)[:1]


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
