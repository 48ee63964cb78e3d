"""Nodes over sources that repeat, extend or withdraw rows.

One row of the result follows from several rows of the input.

    FirstCopies          rows, except copies of a row a short time before (DISTINCT ON … WITHIN)
    FlowMerge            one row for all records of a flow (MERGE … WITHIN)
    NetRows              the rows that remain of a log of inserts and withdrawals (CHANGES BY)
    ChangingFirstCopies  the changes of the rows of FirstCopies
    ChangingFlowMerge    the changes of the rows of FlowMerge
    ChangingNetRows      the changes of the rows of NetRows

Rows have a key. Each result depends on the rows of one key only, and on times that are at most `within` apart. The
nodes without changes return a row when no later row of the input can change it.
"""

from __future__ import annotations

from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import CHANGE_COLUMNS, Node, Subset
from highlevel.speculation.consistency import Consistency
from lowlevel.expressions.tree import Column, Expression
from lowlevel.expressions.types import Type

RECORDS, OPEN = "records", "open"
"""The columns that FlowMerge adds: the number of records of the flow, and true if the last record does not end it."""


class Role(StrEnum):
    """The value of a column in the merged row, given the values of the records in the order of their times."""

    SUM = "sum"
    LEAST = "least"
    GREATEST = "greatest"
    BITS = "bitwise or"
    LAST = "last"


@dataclass(frozen=True)
class FirstCopies(Subset):
    """The rows that are not copies. A row is a copy if a row with equal `keys` is at most `within` ns earlier.

    The earlier row may be a copy itself. If rows have equal keys and times, the smallest row by all columns is no copy.
    """

    keys: tuple[str, ...]
    within: int


@dataclass(frozen=True)
class FlowMerge(Node):
    """One row for each flow. A flow consists of records with equal `keys`, in the order of their times.

    A record begins a new flow in three cases: the record before it has `ended`, its time is more than `within` ns
    later, or it starts more than `idle` ns after the time of the record before it. `roles` are the columns of a merged
    row and their roles; the time column is one of them. `start` is the column with the start of a record. `ended` is
    the condition that a record is the last one of its flow.
    """

    input: Node
    keys: tuple[str, ...]
    roles: tuple[tuple[str, Role], ...]
    within: int
    idle: int | None
    start: str
    ended: Expression

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `roles`, in the order of the input, `records` and `open`."""
        roles = dict(self.roles)
        kept = (column for column in self.input.columns if column.name in roles)
        return (*kept, Column(RECORDS, Type.INT), Column(OPEN, Type.BOOL))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time column of the input."""
        return self.input.time_columns


@dataclass(frozen=True)
class NetRows(Node):
    """The rows that remain when the changes of `input` are added up.

    The column `change` has an operation or a weight (`highlevel.speculation.change_logs`). Changes that are equal in
    all other columns concern the same row.
    """

    input: Node
    change: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the input except `change`."""
        return tuple(column.name for column in self.input.columns if column.name != self.change)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of `keys`."""
        return tuple(column for column in self.input.columns if column.name != self.change)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time column of the input."""
        return self.input.time_columns


@dataclass(frozen=True)
class ChangingFirstCopies(FirstCopies):
    """The changes of the rows of FirstCopies.

    Rows are compared when the newest row is `consistency.wait` ns later; if `wait` is None, they are compared when they
    are final.
    """

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of FirstCopies, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class ChangingFlowMerge(FlowMerge):
    """The changes of the rows of FlowMerge. `consistency` is that of ChangingFirstCopies."""

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of FlowMerge, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class ChangingNetRows(NetRows):
    """The changes of the rows of NetRows. `consistency` is that of ChangingFirstCopies."""

    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of NetRows, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)
