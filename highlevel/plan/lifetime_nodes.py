"""Nodes over rows with lifetimes (LIFETIME): a row is true (valid) from its start until its end.

    Snapshots             aggregates over the rows that are true at each instant
    ChangingSnapshots     the same, with provisional results and their corrections
    InstantRanks          the ranks of the rows that are true at each instant, or the first of them
    ChangingInstantRanks  the same, with changes of results
    OverlapJoin           pairs of rows, true while both rows are true
    ChangingOverlapJoin   the same, with changes of pairs
    TouchedWindows        a row for each window of a fixed length that its lifetime touches

The start of a row may differ from the time of the input, because a flow record arrives after the flow has ended.
`late_by`: how much earlier than the watermark of the input a row may begin, in ns.
"""

from __future__ import annotations

from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from highlevel.joins.spec import JoinKind, Port
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.answer_nodes import RowFunctionKind, SortKey
from highlevel.plan.nodes import CHANGE_COLUMNS, Node, Windowed
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type

TOUCHED = ".touched"
"""The time column of TouchedWindows: the start of the window. No column of a query begins with a dot."""


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of the rows of a node: from the column `start` until the column `end`, or for `length` ns.

    If the end is NULL, or if both are None, the row is true without an end. No row begins more than `late_by` ns before
    the watermark of the node. None: there is no such bound, so results follow at the end of the input.
    """

    start: str
    end: str | None = None
    length: int | None = None
    late_by: int | None = 0

    def waits_for_end(self, source: Node) -> bool:
        """Return True if no start is certain before the end of the input `source`."""
        return self.late_by is None or len(source.time_columns) != 1


@dataclass(frozen=True)
class Snapshots(Windowed):
    """The results of `aggregation` for each snapshot of a group: a period in which the same rows are true.

    A row is true from `time` until the column `end`, or for the length of the window (`LifetimeWindow`) if `end` is
    None. If the end of a row is NULL, the row is true without an end, and its last snapshot has NULL as `window_end`.
    `late_by`: as for `Lifetime`.
    """

    end: str | None = None
    late_by: int | None = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of Windowed. `window_end` may be NULL."""
        start, end, *others = super().columns
        return (start, replace(end, nullable=self.end is not None), *others)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the end of the snapshot."""
        return (WINDOW_END,)

    @property
    def waits_for_end(self) -> bool:
        """Return True if no result is final before the end of the input."""
        return self.lifetime.waits_for_end(self.input)

    @property
    def lifetime(self) -> Lifetime:
        """The lifetime of the rows of the input."""
        window = self.aggregation.window
        return Lifetime(
            self.time, self.end, None if self.end is not None else getattr(window, "length", None), self.late_by
        )


@dataclass(frozen=True)
class ChangingSnapshots(Snapshots):
    """The changes of the results of Snapshots.

    `consistency` states how long results wait for rows; later rows correct returned results. With `open_ended`, a
    snapshot is returned without an end when it begins, and corrected when it ends. Then the results at all instants
    before the watermark are known.
    """

    consistency: Consistency = Consistency()
    open_ended: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of Snapshots, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


RANK_FUNCTIONS = (RowFunctionKind.ROW_NUMBER, RowFunctionKind.RANK, RowFunctionKind.DENSE_RANK)
"""The window functions of rows that are true at an instant."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks that InstantRanks computes. Rows are ordered by `keys`, and then by the other columns.

    Rows are ranked separately for each combination of values of the columns `partition`. With `function`, the ranks are
    the column `name`. The first `offset` rows are omitted, and at most `limit` rows remain.
    """

    keys: tuple[SortKey, ...]
    partition: tuple[str, ...] = ()
    function: RowFunctionKind | None = None
    name: str = ""
    limit: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class InstantRanks(Node):
    """The rows of `input` that are true at an instant, with their ranks, or the first of them (`ranks`).

    A result is a row in a period `[window_start, window_end)` in which its rank is constant; `window_end` is NULL if
    the period has no end. Without `lifetime`, the input is a node with `open_ended`. With `lifetime`, the result does
    not contain the columns of the lifetime and the time columns of the input. `hidden`: columns that only the ranks
    need.
    """

    input: Node
    ranks: Ranks
    lifetime: Lifetime | None = None
    hidden: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """`window_start`, `window_end`, the columns of the input, and the rank."""
        dropped = {WINDOW_START, WINDOW_END, WEIGHT, FINAL, *self.hidden, *self.columns_of_lifetime}
        bounds = (Column(WINDOW_START, Type.TIME), Column(WINDOW_END, Type.TIME, nullable=self._may_be_endless))
        rank = () if self.ranks.function is None else (Column(self.ranks.name, Type.INT),)
        return (*bounds, *(column for column in self.input.columns if column.name not in dropped), *rank)

    @property
    def columns_of_lifetime(self) -> tuple[str, ...]:
        """The columns with the lifetime of the input, and its time column."""
        lifetime = self.lifetime
        if lifetime is None:
            return ()
        return (lifetime.start, *(() if lifetime.end is None else (lifetime.end,)), *self.input.time_columns)

    @property
    def _may_be_endless(self) -> bool:
        if self.lifetime is not None:
            return self.lifetime.end is not None
        return next(column.nullable for column in self.input.columns if column.name == WINDOW_END)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return the end of the period."""
        return (WINDOW_END,)

    @property
    def waits_for_end(self) -> bool:
        """Return True if no result is final before the end of the input."""
        return self.lifetime is not None and self.lifetime.waits_for_end(self.input)


@dataclass(frozen=True)
class ChangingInstantRanks(InstantRanks):
    """The changes of the results of InstantRanks.

    A result is returned when the newest row begins at least `consistency.wait` ns after the end of the result; if
    `wait` is None, when it is final. With `open_ended`, it is returned without an end when it begins.
    """

    consistency: Consistency = Consistency()
    open_ended: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of InstantRanks, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class JoinedSide:
    """One input of OverlapJoin: its lifetime, and its result columns as (column, name in the result)."""

    lifetime: Lifetime
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OverlapJoin(Node):
    """Pairs of rows with equal `keys`, true while both rows are true (CEDR, §3.4), and parts of single rows.

    The lifetime of a pair is `[window_start, window_end)`, the intersection of the lifetimes of both rows. `window_end`
    is NULL if both rows have no end. Rows whose lifetimes only meet are not a pair. `keys` are pairs of expressions
    over the columns of the left and the right input. NULL equals no value. `time` is the column of the watermark,
    `window_start` or `window_end`.

    For LEFT, RIGHT and FULL, the result also has the parts of the lifetimes of rows in which they have no pair. In
    these parts, the columns of the other side are NULL. For ANTI, the result has only the parts of left rows without a
    pair; for SEMI, only the parts of left rows with a pair. `residual` is a condition of pairs over the columns of the
    result of an inner join.
    """

    left: Node
    right: Node
    sides: tuple[JoinedSide, JoinedSide]
    keys: tuple[tuple[Expression, Expression], ...]
    time: str = WINDOW_START
    kind: JoinKind = JoinKind.INNER
    residual: Expression | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """`window_start`, `window_end`, and the result columns of both sides, or of the left side for SEMI and ANTI."""
        ends = [side.lifetime.end is not None for side in self.sides]
        alone = any(end for port, end in zip(Port, ends, strict=True) if self.kind.keeps(port))
        columns = [Column(WINDOW_START, Type.TIME), Column(WINDOW_END, Type.TIME, nullable=all(ends) or alone)]
        for port in (Port.LEFT,) if self.kind.is_left_only else Port:
            of_source = {column.name: column for column in self.inputs[port].columns}
            lacks = self.kind.keeps(Port(1 - port))
            columns += [
                replace(of_source[name], name=output, nullable=of_source[name].nullable or lacks)
                for name, output in self.sides[port].columns
            ]
        return tuple(columns)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return `time`."""
        return (self.time,)

    @property
    def waits_for_end(self) -> bool:
        """Return True if the only watermark is the end of the inputs."""
        return any(side.lifetime.waits_for_end(source) for source, side in zip(self.inputs, self.sides, strict=True))


@dataclass(frozen=True)
class ChangingOverlapJoin(OverlapJoin):
    """The changes of the pairs of OverlapJoin. `consistency` states when a row is used."""

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of OverlapJoin, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class TouchedWindows(Node):
    """Each row of `input` once for each window that its lifetime touches.

    Window k is `[k * window_length, (k + 1) * window_length)`, in ns. The lifetime is from the column `start` until the
    column `end`, or for `length` ns. The column TOUCHED is the start of the window. Rows without a start or an end, and
    rows that touch too many windows, are dropped. `late_by`: as for `Lifetime`.
    """

    input: Node
    start: str
    end: str | None
    length: int | None
    window_length: int
    late_by: int | None = 0

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input, and TOUCHED."""
        return (*self.input.columns, Column(TOUCHED, Type.TIME))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Return TOUCHED."""
        return (TOUCHED,)

    @property
    def waits_for_end(self) -> bool:
        """Return True if the only watermark is the end of the input."""
        return self.late_by is None or len(self.input.time_columns) != 1
