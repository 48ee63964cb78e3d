"""The registry: for each node type its operator, its partitioning and its counters.

Hosts (inline, Spark stream, Spark batch) know nodes only through this registry. `docs/internals/adding-an-operator.md`
describes how to add an entry. `tests/highlevel/plan/test_plan_registry.py` requires a reference implementation and
the contract test for each node type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import (
    Apply,
    Distinct,
    Fill,
    Filter,
    Join,
    Node,
    Over,
    Repeat,
    Running,
    Sample,
    Sort,
    TimeGroups,
    Union,
    Windowed,
)
from highlevel.plan.operators.apply import ApplyOperator, ByOutputs
from highlevel.plan.operators.counters import (
    Count,
    count_fill,
    count_join,
    count_nothing,
    count_rows_held,
    count_running,
    count_windows,
)
from highlevel.plan.operators.distinct import ByDistinctKeys, DistinctOperator
from highlevel.plan.operators.fill import FillOperator
from highlevel.plan.operators.filter import FilterOperator
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.operators.over import OverOperator
from highlevel.plan.operators.repeat import RepeatOperator
from highlevel.plan.operators.running import RunningOperator
from highlevel.plan.operators.sample import SampleOperator
from highlevel.plan.operators.sort import InOnePartition, SortOperator
from highlevel.plan.operators.time_groups import TimeGroupsOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.partitioning import ByGroups, ByJoinKeys, Partitioning, SameRows


@dataclass(frozen=True)
class Entry:
    """One node type: `operator` makes the operator of a node, `count` adds its counters to the samples of a query.

    `finite` makes a special operator for hosts that provide all rows before the first watermark, or is None.
    """

    operator: Callable[[Any], NodeOperator]
    partitioning: Partitioning
    count: Count = count_nothing
    finite: Callable[[Any], NodeOperator] | None = None


def _join(node: Join) -> NodeOperator:
    from highlevel.plan.operators.join import JoinOperator  # only queries with joins need its kernels

    return JoinOperator(node)


REGISTRY: Mapping[type[Node], Entry] = {
    Union: Entry(UnionOperator, SameRows()),
    Filter: Entry(FilterOperator, SameRows()),
    Apply: Entry(ApplyOperator, ByOutputs()),
    Distinct: Entry(DistinctOperator, ByDistinctKeys(), count_rows_held),
    Repeat: Entry(RepeatOperator, SameRows()),
    Join: Entry(_join, ByJoinKeys(), count_join),
    Windowed: Entry(WindowedOperator, ByGroups(), count_windows, lambda node: WindowedOperator(node, finite=True)),
    TimeGroups: Entry(TimeGroupsOperator, ByGroups(), count_rows_held),
    Over: Entry(OverOperator, InOnePartition(), count_rows_held),
    Sample: Entry(SampleOperator, InOnePartition(), count_rows_held),
    Fill: Entry(FillOperator, InOnePartition(), count_fill),
    Running: Entry(RunningOperator, InOnePartition(), count_running),
    Sort: Entry(SortOperator, InOnePartition(), count_rows_held),
}
"""The node types that read nodes. A leaf reads links: its operator unites them (`highlevel.plan.node_operators`)."""


def entry_of(node: Node) -> Entry:
    """Return the registry entry of a node. Raises TypeError for a node type without one."""
    try:
        return REGISTRY[type(node)]
    except KeyError:
        known = ", ".join(kind.__name__ for kind in REGISTRY)
        raise TypeError(f"no operator for {type(node).__name__}: expected one of {known}") from None
