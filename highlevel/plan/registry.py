"""The registry: for each node type its operator, its partitioning and its counters.

The engines (inline, Spark stream, Spark batch) use nodes only through this registry.
`docs/internals/adding-an-operator.md` describes how to add an entry. `tests/highlevel/plan/test_plan_registry.py`
requires a reference implementation and the contract test for each node type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from capture.lazy_dataclasses import dataclass
from highlevel.plan.answer_nodes import Fill, Over, Running, Sort
from highlevel.plan.automaton_nodes import AcceptedRuns, ChangingAcceptedRuns, DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.change_nodes import (
    ChangingJoin,
    ChangingRepeat,
    ChangingResults,
    ChangingUnion,
    NetChanges,
    WatchedColumns,
)
from highlevel.plan.lifetime_nodes import (
    ChangingInstantRanks,
    ChangingOverlapJoin,
    ChangingSnapshots,
    InstantRanks,
    OverlapJoin,
    Snapshots,
    TouchedWindows,
)
from highlevel.plan.nodes import (
    Apply,
    ChangingWindows,
    Distinct,
    Filter,
    Join,
    Node,
    Repeat,
    TimeGroups,
    Union,
    Windowed,
)
from highlevel.plan.operators.apply import ApplyOperator, ByOutputs
from highlevel.plan.operators.counters import (
    AddCounters,
    count_accepted_runs,
    count_changing_results,
    count_copies,
    count_fill,
    count_flows,
    count_join,
    count_lifetimes,
    count_matches,
    count_net_rows,
    count_nothing,
    count_outside,
    count_overlaps,
    count_rows_held,
    count_running,
    count_snapshots,
    count_sums,
    count_windows,
)
from highlevel.plan.operators.filter import FilterOperator
from highlevel.plan.operators.operator import NodeOperator
from highlevel.plan.operators.union import UnionOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.partitioning import (
    ByDistinctKeys,
    ByGroups,
    ByJoinKeys,
    ByOverlapKeys,
    ByRankPartition,
    InOnePartition,
    Partitioning,
    SameRows,
)
from highlevel.plan.pattern_nodes import MatchedRows, Matches
from highlevel.plan.revision_nodes import (
    ChangingFirstCopies,
    ChangingFlowMerge,
    ChangingNetRows,
    FirstCopies,
    FlowMerge,
    NetRows,
)
from highlevel.plan.sample_node import Sample


@dataclass(frozen=True)
class Entry:
    """One node type: `operator` makes the operator of a node, `count` adds its counters to the samples of a query.

    `finite` makes a special operator for engines that provide all rows before the first watermark; None: `operator` is
    used.
    """

    operator: Callable[[Any], NodeOperator]
    partitioning: Partitioning
    count: AddCounters = count_nothing
    finite: Callable[[Any], NodeOperator] | None = None


# Most queries have none of the following nodes, so their operators and kernels are imported when the first such node is
# made.


def _make_changing_windows(node: ChangingWindows) -> NodeOperator:
    from highlevel.plan.operators.changing_windows import ChangingWindowsOperator

    return ChangingWindowsOperator(node)


def _make_snapshots(node: Snapshots) -> NodeOperator:
    from highlevel.plan.operators.snapshots import SnapshotsOperator

    return SnapshotsOperator(node)


def _make_touched_windows(node: TouchedWindows) -> NodeOperator:
    from highlevel.plan.operators.touched_windows import TouchedWindowsOperator

    return TouchedWindowsOperator(node)


def _make_changing_snapshots(node: ChangingSnapshots) -> NodeOperator:
    from highlevel.plan.operators.snapshots import ChangingSnapshotsOperator

    return ChangingSnapshotsOperator(node)


def _make_instant_ranks(node: InstantRanks) -> NodeOperator:
    from highlevel.plan.operators.instant_ranks import InstantRanksOperator

    return InstantRanksOperator(node)


def _make_changing_instant_ranks(node: ChangingInstantRanks) -> NodeOperator:
    from highlevel.plan.operators.instant_ranks import ChangingInstantRanksOperator

    return ChangingInstantRanksOperator(node)


def _make_overlap_join(node: OverlapJoin) -> NodeOperator:
    from highlevel.plan.operators.overlap_join import OverlapJoinOperator

    return OverlapJoinOperator(node)


def _make_changing_overlap_join(node: ChangingOverlapJoin) -> NodeOperator:
    from highlevel.plan.operators.overlap_join import ChangingOverlapJoinOperator

    return ChangingOverlapJoinOperator(node)


def _make_changing_results(node: ChangingResults) -> NodeOperator:
    from highlevel.plan.operators.changing_history import ChangingHistoryOperator
    from highlevel.plan.operators.changing_results import ChangingResultsOperator
    from highlevel.plan.operators.changing_sums import ChangingSumsOperator, is_sum_of_integers
    from highlevel.plan.result_windows import result_windows

    if result_windows(node.body) is None:
        return ChangingHistoryOperator(node, lambda body: entry_of(body).operator(body))
    kind = ChangingSumsOperator if is_sum_of_integers(node.body) else ChangingResultsOperator
    return kind(node, lambda: entry_of(node.body).operator(node.body))


def _make_changing_join(node: ChangingJoin) -> NodeOperator:
    from highlevel.plan.operators.changing_join import ChangingJoinOperator

    return ChangingJoinOperator(node, _make_join)


def _make_changing_union(node: ChangingUnion) -> NodeOperator:
    from highlevel.plan.operators.changing_union import ChangingUnionOperator

    return ChangingUnionOperator(node)


def _make_changing_repeat(node: ChangingRepeat) -> NodeOperator:
    from highlevel.plan.operators.changing_union import ChangingRepeatOperator

    return ChangingRepeatOperator(node)


def _make_watched_columns(node: WatchedColumns) -> NodeOperator:
    from highlevel.plan.operators.watched_columns import WatchedColumnsOperator

    return WatchedColumnsOperator(node)


def _make_net_changes(node: NetChanges) -> NodeOperator:
    from highlevel.plan.operators.changing_union import NetChangesOperator

    return NetChangesOperator(node)


def _make_first_copies(node: FirstCopies) -> NodeOperator:
    from highlevel.plan.operators.revision import RevisionOperator
    from highlevel.speculation.copies import CopyRule

    return RevisionOperator(node, CopyRule(node))


def _make_flow_merge(node: FlowMerge) -> NodeOperator:
    from highlevel.plan.operators.revision import RevisionOperator
    from highlevel.speculation.flow_records import FlowRule

    return RevisionOperator(node, FlowRule(node))


def _make_net_rows(node: NetRows) -> NodeOperator:
    from highlevel.plan.operators.revision import RevisionOperator
    from highlevel.speculation.change_logs import NetRule

    return RevisionOperator(node, NetRule(node))


def _make_distinct(node: Distinct) -> NodeOperator:
    from highlevel.plan.operators.distinct import DistinctOperator

    return DistinctOperator(node)


def _make_repeat(node: Repeat) -> NodeOperator:
    from highlevel.plan.operators.repeat import RepeatOperator

    return RepeatOperator(node)


def _make_join(node: Join) -> NodeOperator:
    from highlevel.plan.operators.join import JoinOperator

    return JoinOperator(node)


def _make_time_groups(node: TimeGroups) -> NodeOperator:
    from highlevel.plan.operators.time_groups import TimeGroupsOperator

    return TimeGroupsOperator(node)


def _make_matches(node: Matches) -> NodeOperator:
    from highlevel.plan.operators.matches import MatchesOperator

    return MatchesOperator(node)


def _make_accepted_runs(node: AcceptedRuns) -> NodeOperator:
    from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator

    return AcceptedRunsOperator(node)


def _make_rows_of_runs(node: RowsOfRuns) -> NodeOperator:
    from highlevel.plan.operators.rows_of_runs import RowsOfRunsOperator

    return RowsOfRunsOperator(node)


def _make_distinct_rows_of_runs(node: DistinctRowsOfRuns) -> NodeOperator:
    from highlevel.plan.operators.rows_of_runs import DistinctRowsOfRunsOperator

    return DistinctRowsOfRunsOperator(node)


def _make_over(node: Over) -> NodeOperator:
    from highlevel.plan.operators.over import OverOperator

    return OverOperator(node)


def _make_sample(node: Sample) -> NodeOperator:
    from highlevel.plan.operators.sample import SampleOperator

    return SampleOperator(node)


def _make_fill(node: Fill) -> NodeOperator:
    from highlevel.plan.operators.fill import FillOperator

    return FillOperator(node)


def _make_running(node: Running) -> NodeOperator:
    from highlevel.plan.operators.running import RunningOperator

    return RunningOperator(node)


def _make_sort(node: Sort) -> NodeOperator:
    from highlevel.plan.operators.sort import SortOperator

    return SortOperator(node)


REGISTRY: Mapping[type[Node], Entry] = {
    Union: Entry(UnionOperator, SameRows()),
    Filter: Entry(FilterOperator, SameRows()),
    Apply: Entry(ApplyOperator, ByOutputs()),
    Distinct: Entry(_make_distinct, ByDistinctKeys(), count_rows_held),
    Repeat: Entry(_make_repeat, SameRows()),
    Join: Entry(_make_join, ByJoinKeys(), count_join),
    Windowed: Entry(WindowedOperator, ByGroups(), count_windows, lambda node: WindowedOperator(node, is_finite=True)),
    ChangingWindows: Entry(_make_changing_windows, ByGroups(), count_windows),
    TouchedWindows: Entry(_make_touched_windows, SameRows(), count_outside),
    Snapshots: Entry(_make_snapshots, ByGroups(), count_snapshots),
    ChangingSnapshots: Entry(_make_changing_snapshots, ByGroups(), count_snapshots),
    InstantRanks: Entry(_make_instant_ranks, ByRankPartition(), count_lifetimes),
    ChangingInstantRanks: Entry(_make_changing_instant_ranks, ByRankPartition(), count_lifetimes),
    OverlapJoin: Entry(_make_overlap_join, ByOverlapKeys(), count_overlaps),
    ChangingOverlapJoin: Entry(_make_changing_overlap_join, ByOverlapKeys(), count_overlaps),
    ChangingResults: Entry(_make_changing_results, InOnePartition(), count_changing_results),
    ChangingJoin: Entry(_make_changing_join, ByJoinKeys(), count_join),
    ChangingUnion: Entry(_make_changing_union, SameRows()),
    ChangingRepeat: Entry(_make_changing_repeat, SameRows()),
    WatchedColumns: Entry(_make_watched_columns, SameRows(), count_rows_held),
    NetChanges: Entry(_make_net_changes, SameRows()),
    FirstCopies: Entry(_make_first_copies, ByDistinctKeys(), count_copies),
    FlowMerge: Entry(_make_flow_merge, ByDistinctKeys(), count_flows),
    NetRows: Entry(_make_net_rows, ByDistinctKeys(), count_net_rows),
    ChangingFirstCopies: Entry(_make_first_copies, ByDistinctKeys(), count_copies),
    ChangingFlowMerge: Entry(_make_flow_merge, ByDistinctKeys(), count_flows),
    ChangingNetRows: Entry(_make_net_rows, ByDistinctKeys(), count_net_rows),
    TimeGroups: Entry(_make_time_groups, ByGroups(), count_sums),
    Matches: Entry(_make_matches, ByDistinctKeys(), count_matches),
    MatchedRows: Entry(_make_matches, ByDistinctKeys(), count_matches),
    AcceptedRuns: Entry(_make_accepted_runs, ByDistinctKeys(), count_accepted_runs),
    ChangingAcceptedRuns: Entry(_make_accepted_runs, ByDistinctKeys(), count_accepted_runs),
    RowsOfRuns: Entry(_make_rows_of_runs, ByDistinctKeys(), count_accepted_runs),
    DistinctRowsOfRuns: Entry(_make_distinct_rows_of_runs, ByDistinctKeys(), count_accepted_runs),
    Over: Entry(_make_over, InOnePartition(), count_sums),
    Sample: Entry(_make_sample, InOnePartition(), count_rows_held),
    Fill: Entry(_make_fill, InOnePartition(), count_fill),
    Running: Entry(_make_running, InOnePartition(), count_running),
    Sort: Entry(_make_sort, InOnePartition(), count_rows_held),
}
"""The node types that read nodes. A leaf reads links: its operator merges the links (`highlevel.plan.pipeline`)."""


def entry_of(node: Node) -> Entry:
    """Return the registry entry of a node. Raises TypeError for a node type without an entry."""
    try:
        return REGISTRY[type(node)]
    except KeyError:
        known = ", ".join(kind.__name__ for kind in REGISTRY)
        raise TypeError(f"no operator for {type(node).__name__}: expected one of {known}") from None
