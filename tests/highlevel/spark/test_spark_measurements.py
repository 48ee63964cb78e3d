"""Measured runs on Spark: rows between nodes are those of the inline engine, on any number of partitions.

The tasks are called as Spark calls them, without a JVM, except in tests that are marked. The tests detect a node of a
fragment that is counted for another node of the query, a partition or a task that is not counted, and rows of an edge
that is cut and counted twice.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pyarrow as pa
import pytest

from dashboards.measured_plan import BatchAnalysis, InlineAnalysis, StreamAnalysis
from highlevel.inline.engine import Input
from highlevel.plan.fragments import FragmentInput, cut
from highlevel.plan.nodes import Leaf, Node
from highlevel.plan.plan import Plan, leaf_names
from highlevel.spark.batch import BatchRun
from highlevel.spark.inputs.byte_ranges import RangeReader, Task, input_size
from highlevel.spark.stream import StreamRun
from highlevel.spark.tasks.finite_host import FiniteLevelTask
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED
from queries.gsql import compile_query
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.spark_tasks import through_partitions

JOIN = "FROM office a [RANGE 3 s, WA ts], packets b [RANGE 1 s, WA ts] WHERE a.srcIP = b.destIP AND a.len > 60"
QUERIES = {
    "rows": "SELECT ts, srcIP, len FROM packets WHERE len > 60",
    "groups": "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] GROUP BY srcIP HAVING n > 3",
    "join": f"SELECT a.ts, b.len {JOIN}",
    "groups of a join": f"SELECT b.protocol, count(*) AS n {JOIN} GROUP BY b.protocol",
    "join of groups": "SELECT a.n, b.n FROM (SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] GROUP BY "
    "srcIP) a [RANGE 10 s, WA window_end], (SELECT destIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] GROUP BY "
    "destIP) b [RANGE 0 s, WA window_end] WHERE a.srcIP = b.destIP",
    "distinct": "SELECT DISTINCT ts/10 AS t, srcIP FROM packets WHERE protocol = 6",
    "operation": "SELECT srcIP FROM office INTERSECT SELECT destIP FROM Backbone_2",
    "over": "SELECT srcIP, len, rank() OVER (PARTITION BY srcIP ORDER BY len, ts) AS r FROM packets",
    "order": "SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP ORDER BY n DESC, srcIP",
    "levels": "SELECT max(n) AS m FROM (SELECT srcIP, count(*) AS n FROM (SELECT DISTINCT ts, srcIP, destIP FROM "
    "packets) [RANGE 10 s, WA ts] GROUP BY srcIP) [RANGE 20 s, WA window_end]",
}


class TaskRun(BatchRun):
    """A batch run without Spark: its tasks run one after the other, in `parts` partitions."""

    def _run_job(self, tasks: Sequence[Task]) -> pa.Table:
        feeds = self._assign_inputs()
        sizes = tuple(map(input_size, self.files))
        reader = RangeReader(feeds, sizes, tuple(tasks), self.slots, self.measure)
        batches = [batch for number in range(len(tasks)) for batch in reader(iter([pa.record_batch({"id": [number]})]))]
        for level in range(feeds.levels):
            host = FiniteLevelTask(feeds, level, self.measure)
            batches = through_partitions(host, batches, feeds.partitions, Random(level))
        return pa.Table.from_batches(batches)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Input]:
    paths, _ = generate_links(tmp_path_factory.mktemp("links"), packets=150)
    return [Input(name, path, name) for name, path in zip(LINKS, paths, strict=True)]


def measured(plan: Plan, inputs: list[Input], parts: int) -> TaskRun:
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=parts, master="local[2]"))
    run = TaskRun(spark, [plan], inputs, measure=True)  # type: ignore[arg-type]
    run.run()
    return run


def inline(plan: Plan, inputs: list[Input]) -> InlineAnalysis:
    analysis = InlineAnalysis(plan, inputs, threads=1)
    analysis.complete()
    return analysis


def runs_of(plan: Plan, node: Node) -> int:
    """Return the number of fragments that run a node."""
    fragments = cut(plan)
    parts = [part for fragment in fragments.fragments for part in fragment.nodes if not isinstance(part, FragmentInput)]
    return sum(fragments.origin_of(part) == node for part in parts)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", QUERIES)
def test_each_node_returns_the_rows_of_the_inline_engine(name: str, parts: int, inputs: list[Input]) -> None:
    plan = compile_query(QUERIES[name])
    expected, found = inline(plan, inputs), measured(plan, inputs, parts)
    assert len(found.measurements) == len(plan.nodes)
    rows = 0
    for node, ours, theirs in zip(plan.nodes, found.measurements, expected.measurements, strict=True):
        if isinstance(node, Leaf):
            assert ours.rows >= theirs.rows if node.low.reduced else ours.rows == theirs.rows
            assert (ours.seconds, ours.state_bytes > 0) == (0, node.low.reduced)
        else:
            assert runs_of(plan, node) == 1
            assert ours.rows == theirs.rows, node
            assert ours.seconds > 0
        rows += ours.rows
        assert (ours.bytes > 0) == (ours.rows > 0)
    assert rows > 20


def test_a_node_of_several_fragments_is_counted_in_each(inputs: list[Input]) -> None:
    """Both joins need the rows of the inner query by another key."""
    inner = "(SELECT ts, srcIP, destIP, len FROM packets WHERE len > 60)"
    sql = f"""SELECT a.ts, b.len, c.len FROM {inner} a [RANGE 1 s, WA ts] JOIN {inner} b [RANGE 1 s, WA ts]
        ON a.srcIP = b.srcIP JOIN {inner} c [RANGE 1 s, WA ts] ON b.destIP = c.destIP AND c.len > 90"""
    plan = compile_query(sql)
    expected, found = inline(plan, inputs), measured(plan, inputs, 3)
    several = 0
    for node, ours, theirs in zip(plan.nodes, found.measurements, expected.measurements, strict=True):
        times = 1 if isinstance(node, Leaf) else runs_of(plan, node)
        assert ours.rows == times * theirs.rows
        several += times > 1
    assert several


def test_the_low_level_counts_rows_by_leaf_and_seconds_by_task(inputs: list[Input]) -> None:
    plan = compile_query(QUERIES["join"])
    expected, found = inline(plan, inputs), measured(plan, inputs, 2)
    assert len(found.task_seconds) == len(inputs)
    assert all(seconds > 0 for seconds in found.task_seconds)
    for name in ("leaf 1", "leaf 2"):
        for metric in (ROWS_ACCEPTED, ROWS_FILTERED):
            assert found.samples.total(metric, query=name) == expected.run.samples().total(metric, query=name)


@pytest.mark.parametrize("name", ["groups", "join of groups"])
def test_the_figures_of_changes_are_those_of_the_plan_of_their_final_rows(name: str, inputs: list[Input]) -> None:
    plan = compile_query(f"{QUERIES[name]} EMIT CHANGES")
    run = measured(plan, inputs, 2)
    analysis = BatchAnalysis(plan, inputs, "local[2]")
    analysis.measure(run)
    final = inline(compile_query(QUERIES[name]), inputs)
    assert 0 < analysis.result_rows <= final.result_rows, "equal rows are one change"
    assert [line.split()[0] for line in analysis.lines()] == [line.split()[0] for line in final.lines()]


def test_without_measure_tasks_send_no_figures(inputs: list[Input]) -> None:
    plan = compile_query(QUERIES["join"])
    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2, master="local[2]"))
    run = TaskRun(spark, [plan], inputs)  # type: ignore[arg-type]
    (rows,) = run.run()
    assert (run.measurements, run.task_seconds) == ([], [])
    (expected,) = measured(plan, inputs, 2).run()
    assert sorted(rows.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    assert run.samples.total(ROWS_ACCEPTED, query="query") > 0


@pytest.mark.spark
def test_a_run_in_a_session_has_the_rows_of_the_inline_engine(spark: object, inputs: list[Input]) -> None:
    plan = compile_query(QUERIES["groups of a join"])
    analysis, expected = BatchAnalysis(plan, inputs, "local[2]"), inline(plan, inputs)
    analysis.measure(BatchRun(spark, [plan], inputs, measure=True))  # type: ignore[arg-type]
    assert [each.rows for each in analysis.measurements] == [each.rows for each in expected.measurements]
    assert analysis.result_rows == expected.result_rows > 0
    head, *lines = analysis.lines()
    assert f"low level {sum(analysis.low_level_seconds):.2f} s in 2 tasks" in head
    assert [line.split()[:4] for line in lines[1:3]] == [line.split()[:4] for line in [*expected.lines()][2:4]]
    assert "<svg" in analysis.drawing()
    assert analysis.warnings() == []


@pytest.mark.spark
@pytest.mark.parametrize("name", ["groups", "join of groups", "levels"])
def test_a_stream_has_the_rows_of_the_inline_engine(name: str, spark: object, inputs: list[Input]) -> None:
    plan = compile_query(QUERIES[name])
    analysis, expected = StreamAnalysis(plan, inputs, "local[2]"), inline(plan, inputs)
    analysis.complete_in(spark)
    for node, ours, theirs in zip(plan.nodes, analysis.measurements, expected.measurements, strict=True):
        assert ours.state_bytes > 0 or not theirs.state_bytes
        if isinstance(node, Leaf):
            assert ours.rows >= theirs.rows > 0
            assert ours.bytes > 0
        else:
            assert ours.rows == theirs.rows
            assert ours.seconds > 0
    assert analysis.result_rows == expected.result_rows > 0
    assert len(analysis.low_level_seconds) >= len(inputs)
    assert all(seconds > 0 for seconds in analysis.low_level_seconds)
    assert [line.split()[0] for line in analysis.lines()] == [line.split()[0] for line in expected.lines()]
    for leaf in leaf_names(plan):
        for metric in (ROWS_ACCEPTED, ROWS_FILTERED):
            assert analysis._samples.total(metric, query=leaf) == expected._samples.total(metric, query=leaf)


def test_one_query_is_measured(inputs: list[Input], tmp_path: Path) -> None:
    plans = [compile_query(QUERIES[name], name) for name in ("rows", "groups")]
    with pytest.raises(ValueError, match="got 2 queries to measure, expected one"):
        BatchRun(None, plans, inputs, measure=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 2 queries to measure, expected one"):
        StreamRun(None, plans, inputs, tmp_path, measure=True)  # type: ignore[arg-type]
