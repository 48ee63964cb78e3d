"""The nodes over changes: rows with the last columns `weight` and `final` (`highlevel.speculation.changes`).

    ChangingWindows   windows over rows or partials; it is in `highlevel.plan.nodes`, because it is a Windowed
    ChangingResults   any node with one input, over changes
    ChangingJoin      a join over changes
    ChangingUnion     a union of changes
    NetChanges        changes of one batch that cancel each other are left out

Filter and Apply are the same over rows and over changes. A row of changes is final if its time is below the watermark
that follows the batch. So a final row with time t implies that no later change has a time of t or less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Self

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.plan.nodes import Apply, Filter, Join, Node, Subset, TimeOutput, Union
from highlevel.speculation.consistency import FINAL, WEIGHT
from lowlevel.expressions.tree import Column, Literal
from lowlevel.expressions.types import Type

CHANGE_COLUMNS = (Column(WEIGHT, Type.INT), Column(FINAL, Type.BOOL))
"""The last columns of changes."""


@dataclass(frozen=True)
class RowsOfChanges(Node):
    """The rows that the changes of `input` add up to. It is the input of the body of ChangingResults only."""

    input: Node

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input without `weight` and `final`."""
        return self.input.columns[: -len(CHANGE_COLUMNS)]

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time columns of the input."""
        return self.input.time_columns


@dataclass(frozen=True)
class ChangingResults(Node):
    """The changes of the results of `body`, a node over RowsOfChanges, when these rows change.

    With `at_once` results of windows that have not ended are changes too.
    """

    body: Node
    at_once: bool = False

    @cached_property
    def inputs(self) -> tuple[Node, ...]:
        """The node with the changes."""
        return self.body.inputs[0].inputs

    def with_inputs(self, inputs: Iterable[Node]) -> Self:
        """Return the same body over other changes."""
        (changes,) = inputs
        return replace(self, body=self.body.with_inputs([RowsOfChanges(changes)]))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the body, `weight` and `final`."""
        return (*self.body.columns, *CHANGE_COLUMNS)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time columns of the body."""
        return self.body.time_columns


@dataclass(frozen=True)
class ChangingJoin(Join):
    """The changes of the pairs of two inputs with changes, and of their rows without a match.

    A result is returned when the newest row of the inputs is `wait` ns later than its time. With None it is returned
    when it is final. With `aligned` it is returned when both inputs have a row with its time, or one has a later row.
    """

    wait: int | None = 0
    aligned: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of Join, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class ChangingUnion(Union):
    """All changes of `branches`."""


@dataclass(frozen=True)
class NetChanges(Subset):
    """The changes of `input`. Changes of a batch are added up, so a row that is withdrawn and returned is left out."""


def is_changing(node: Node) -> bool:
    """Return whether the rows of a node are changes."""
    return node.columns[-len(CHANGE_COLUMNS) :] == CHANGE_COLUMNS


def changes_of_rows(node: Node) -> Apply:
    """Return rows that are never withdrawn as changes."""
    outputs = tuple(Output(column.name, column) for column in node.columns)
    constants = (Output(WEIGHT, Literal(1, Type.INT)), Output(FINAL, Literal(False, Type.BOOL)))
    return Apply(node, (*outputs, *constants), tuple(TimeOutput(name, name) for name in node.time_columns))


def time_step(node: Node) -> int:
    """Return the distance of two times of changes: after all changes with a time t the next time is t + step."""
    match node:
        case Apply(time_outputs=(time,)):
            return max(time.step, time_step(node.input)) if time.length == 1 else 1
        case Filter() | NetChanges():
            return time_step(node.input)
        case ChangingUnion():
            return min(time_step(branch) for branch in node.branches)
        case _:
            return 1
