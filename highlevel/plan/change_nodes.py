"""Nodes over changes. A change is a row whose last columns are `weight` and `final` (`highlevel.speculation.changes`).

    ChangingWindows   windows over rows or partials; it is in `highlevel.plan.nodes`, because it is a Windowed
    ChangingResults   any node with one input, over changes
    ChangingJoin      a join over changes
    ChangingRepeat    Repeat over changes
    ChangingUnion     a union of changes
    NetChanges        changes of one batch that cancel each other are removed
    WatchedColumns    columns that are computed again when a watched file changes

Filter and Apply work in the same way over rows and over changes. A row of changes is final if its time is below the
watermark that follows the batch. So a final row with time t implies that no later change has a time of t or less. This
does not hold for the input of a fragment, because it contains the rows of several operators. For such an input, the
watermark follows the rows of all these operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Self

from capture.lazy_dataclasses import dataclass
from highlevel.aggregation import Output
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns
from highlevel.plan.lifetime_nodes import (
    ChangingInstantRanks,
    ChangingOverlapJoin,
    ChangingSnapshots,
    InstantRanks,
    OverlapJoin,
    Snapshots,
)
from highlevel.plan.nodes import (
    CHANGE_COLUMNS,
    Apply,
    ChangingWindows,
    Filter,
    Join,
    Leaf,
    Node,
    Repeat,
    Subset,
    TimeOutput,
    Union,
    Windowed,
)
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
)
from highlevel.speculation.consistency import FINAL, WEIGHT, Consistency
from lowlevel.expressions.tree import Column, Literal, computed_column
from lowlevel.expressions.types import Type
from lowlevel.plan import NEWEST_COLUMN


@dataclass(frozen=True)
class RowsOfChanges(Node):
    """The rows that result from the changes of `input`. Only bodies of ChangingResults have this input."""

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

    With `at_once`, the results of windows that have not ended are also returned. Different times of the input are at
    least `step` ns apart, so after all changes with the time t, the next possible time is t + step.
    """

    body: Node
    at_once: bool = False
    step: int = 1

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

    A result is returned when the newest row is `consistency.wait` ns later than the time of the result; if `wait` is
    None, when the result is final. With `aligned`, it is returned when both inputs have a row with this time, or one
    input has a later row.
    """

    consistency: Consistency = Consistency()
    aligned: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of Join, `weight` and `final`."""
        return (*super().columns, *CHANGE_COLUMNS)


@dataclass(frozen=True)
class ChangingRepeat(Repeat):
    """The changes of `input`, with weights multiplied by the column `count`. Rows with a count below 1 are dropped."""


@dataclass(frozen=True)
class ChangingUnion(Union):
    """All changes of `branches`."""


@dataclass(frozen=True)
class NetChanges(Subset):
    """The net changes of each batch of `input`. A row that one batch withdraws and returns is not a change."""


@dataclass(frozen=True)
class WatchedColumns(Node):
    """The changes of the rows of `input` with the columns `outputs`, which read watched files.

    If a file changes, the rows above the watermark are computed again. A row is returned when the newest row is
    `consistency.wait` ns later than it; if `wait` is None, when the watermark is later than it.
    """

    input: Node
    outputs: tuple[Output, ...]
    consistency: Consistency = Consistency()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the input and of `outputs`, `weight` and `final`."""
        computed = tuple(computed_column(out.name, out.expression) for out in self.outputs)
        return (*self.input.columns, *computed, *CHANGE_COLUMNS)

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The time column of the input."""
        return self.input.time_columns


def without_changes(node: Node) -> Node:
    """Return the node that computes results in place of their changes. Its inputs are converted already."""
    match node:
        case Leaf():
            return replace(node, low=replace(node.low, provisional=False))
        case ChangingWindows(input=source, aggregation=aggregation):
            subaggregates = tuple(sub for sub in aggregation.low.subaggregates if sub.name != NEWEST_COLUMN)
            low = replace(aggregation.low, provisional=False, subaggregates=subaggregates)
            if isinstance(source, Leaf):
                source = replace(source, low=low)
            return Windowed(source, replace(aggregation, low=low), node.time)
        case ChangingSnapshots(open_ended=True) | ChangingInstantRanks(open_ended=True):
            return replace(node, consistency=Consistency(wait=None))
        case Apply() if is_open_ended(node):
            return node
        case ChangingInstantRanks():
            return InstantRanks(node.input, node.ranks, node.lifetime, node.hidden)
        case ChangingSnapshots():
            return Snapshots(node.input, node.aggregation, node.time, node.end, node.late_by)
        case ChangingOverlapJoin():
            return OverlapJoin(node.left, node.right, node.sides, node.keys, node.time, node.kind, node.residual)
        case ChangingAcceptedRuns():
            return AcceptedRuns(node.input, node.automaton, node.keys, node.until, node.number, node.rules)
        case ChangingResults(body=body):
            return body.with_inputs(body.inputs[0].inputs)
        case ChangingJoin():
            return Join(node.left, node.right, node.spec, node.watermark_form)
        case ChangingUnion():
            return Union(node.branches)
        case ChangingRepeat():
            return Repeat(node.input, node.count)
        case NetChanges():
            return node.input
        case WatchedColumns():
            outputs = (*(Output(column.name, column) for column in node.input.columns), *node.outputs)
            return Apply(node.input, outputs, tuple(TimeOutput(name, name) for name in node.time_columns))
        case ChangingFirstCopies():
            return FirstCopies(node.input, node.keys, node.within)
        case ChangingFlowMerge():
            parameters = (node.keys, node.roles, node.within, node.idle, node.start, node.ended)
            return FlowMerge(node.input, *parameters)
        case ChangingNetRows():
            return NetRows(node.input, node.change)
        case Apply(outputs=(*outputs, Output(name=weight), Output(name=final))) if (weight, final) == (WEIGHT, FINAL):
            return replace(node, outputs=tuple(outputs))
        case _:
            return node


def implies_watermark(node: Node) -> bool:
    """Return True if a final row of a node implies a watermark.

    This is not so if the rows come from several operators.
    """
    return not isinstance(node, Leaf)


def is_changing(node: Node) -> bool:
    """Return True if the rows of a node are changes."""
    return node.columns[-len(CHANGE_COLUMNS) :] == CHANGE_COLUMNS


def is_open_ended(node: Node) -> bool:
    """Return True if a node returns its results when they begin, as ranks at each instant need."""
    below = node.input if isinstance(node, Apply) else node
    return isinstance(below, ChangingSnapshots | ChangingInstantRanks) and below.open_ended


def rows_as_changes(node: Node) -> Apply:
    """Return rows that are never withdrawn as changes."""
    outputs = tuple(Output(column.name, column) for column in node.columns)
    constants = (Output(WEIGHT, Literal(1, Type.INT)), Output(FINAL, Literal(False, Type.BOOL)))
    return Apply(node, (*outputs, *constants), tuple(TimeOutput(name, name) for name in node.time_columns))


def time_step(node: Node) -> int:
    """Return the smallest distance of two different times of changes."""
    match node:
        case Apply(time_outputs=(time,)):
            return max(time.step, time_step(node.input)) if time.length == 1 else 1
        case Filter() | NetChanges():
            return time_step(node.input)
        case ChangingUnion():
            return min(time_step(branch) for branch in node.branches)
        case _:
            return 1
