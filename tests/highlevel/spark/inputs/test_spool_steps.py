"""Spools in the stream engine without Spark: planning, tasks, hosts and commits in the order in which Spark calls them.

The rows must equal those of the inline engine over the same captures. So a segment that is lost, read twice or given to
the wrong query changes the rows. The tests try four faults at every step: a planner without memory, repeated
micro-batches, segments that appear during reads, and a writer that deletes committed segments.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.units import SECOND
from highlevel.inline.engine import Input
from highlevel.metrics import (
    PARTIALS_RECEIVED,
    SPOOL_LATENESS,
    SPOOL_LINK_COUNTS,
    SPOOL_NEWEST,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_PASSED_OVER,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SAMPLED,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
    SPOOL_SEGMENTS_WITHOUT_QUERY,
)
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.estimates import ESTIMATED, mark_estimates
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
from highlevel.spark.inputs.spool_planner import report_earlier_runs
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from lowlevel.node.shedding import scale_partials
from lowlevel.spool.folder import SpoolError, segment_numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import LinkCounts
from lowlevel.spool.writer import SpoolWriter
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.spool_node import SpoolNode, named, spool_of, write_spools
from tests.harness.stream_steps import PLANS, hosted, inline, same_rows, source_rows
from tests.references.graph_step_plans import PLANS as GRAPHS


class Engine:
    """The calls of Spark to the source, micro-batch by micro-batch. All state except the log may be lost."""

    def __init__(self, plans: list[Plan], inputs: list[Input], folder: Path, **options: int) -> None:
        parts = options.pop("parts", 2)
        self.spec = StreamSpec(
            **{"slots": 64, "block_records": 100, "max_blocks": 3, "task_count": 2, "max_bytes": 20_000}
            | {"assignment": InputAssignment.of(plans, inputs, parts), "speed": None}
            | options
        )
        self.folder = folder
        self.reader = CaptureReader(self.spec, index_captures(self.spec))
        self.offsets = [self.reader.initialOffset()]
        self.totals = Totals()
        self.warnings: list[str] = []
        self.rows = {plan.name: plan.schema.empty_table() for plan in plans}

    def restart(self) -> None:
        """Forget what only the planner knows."""
        self.reader = CaptureReader(self.spec, index_captures(self.spec))

    def step(self, times: int = 1) -> bool:
        """Run one micro-batch `times` times. Return False if there are no data to read, and it is not the first one."""
        start = self.offsets[-1]
        for spool in self.reader.spools.values():
            spool.discard_listing()
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if end == start and len(self.offsets) > 1:
            return False
        self.offsets.append(json.loads(json.dumps(end)))
        self.reader.commit(start)  # Spark commits what went before once the next offsets are in its log
        for _ in range(times):
            batches = source_rows(self.reader, start, end)
            for level in range(self.spec.assignment.levels):
                host = LevelTask(self.spec.assignment, self.folder, len(self.offsets) - 2, level)
                answers = hosted(host, batches, self.spec.assignment.partitions)
                batches = answers.to_batches()
            self.restart()
        told: dict[bool, list[bytes]] = {True: [], False: []}
        for part, query, payload in zip(*(answers[name].to_pylist() for name in answers.column_names), strict=True):
            if query == COUNTERS:
                told[part == COUNTERS].append(payload)
            else:
                name = self.spec.assignment.plans[query].name
                self.rows[name] = pa.concat_tables([self.rows[name], unpack(payload)])
        self.totals.add(self.spec.assignment, told[True], told[False])
        self.warnings += self.totals.warnings
        return True

    def finish(self, random: Random | None = None) -> None:
        """Continue until all data are read."""
        while self.step(1 if random is None else random.choice([1, 1, 2])):
            pass

    @property
    def finished(self) -> bool:
        return self.totals.is_finished(self.spec.assignment.input_ids)

    def check(self, captures: list[Input]) -> None:
        """Compare the rows with those of the inline engine over captures."""
        assert self.finished
        want, _ = inline(list(self.spec.assignment.plans), captures)
        for name, rows in self.rows.items():
            assert same_rows(rows, want[name]), name


@pytest.fixture
def captures(tmp_path: Path) -> list[Input]:
    folder = tmp_path / "captures"
    folder.mkdir()
    return write_links(folder, 4)


@pytest.mark.parametrize("seed", range(3))
def test_queries_that_are_graphs_read_spools_leaf_by_leaf(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    (tmp_path / "captures").mkdir()
    captures = [replace(each, stream=each.link) for each in write_links(tmp_path / "captures", seed)]
    plans = random.sample(GRAPHS, 4)
    inputs = write_spools(captures, tmp_path / "spools", plans, random, random.choice([0.0, 0.2]), 150)
    engine = Engine(plans, inputs, tmp_path / "state", parts=random.choice([1, 2, 5]))
    engine.finish(random)
    engine.check(captures)
    assert not engine.warnings


def test_counters_of_the_newest_segment_are_gauges_of_the_link(captures: list[Input], tmp_path: Path) -> None:
    node = SpoolNode(captures[0], tmp_path / "first", PLANS, 150)
    node.writer.link_counts = LinkCounts(1, 2, 3, 4, 5, 6, 7, SECOND)
    node.step()
    node.writer.link_counts = newest = LinkCounts(11, 12, 13, 14, 15, 16, 17, 3 * SECOND // 2)
    node.finish()
    others = write_spools(captures[1:], tmp_path / "spools", PLANS, Random(1), 0.0, 150)
    engine = Engine(PLANS, [spool_of(tmp_path / "first", captures[0].link), *others], tmp_path / "state")
    engine.finish()
    samples = engine.totals.samples
    gauges = {field: samples[metric.name, (captures[0].link,)] for field, metric in SPOOL_LINK_COUNTS.items()}
    assert asdict(newest) == {**gauges, "lateness": round(samples[SPOOL_LATENESS.name, (captures[0].link,)] * SECOND)}


@pytest.mark.parametrize("seed", range(4))
def test_spools_give_the_rows_of_the_captures(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    (tmp_path / "captures").mkdir()
    captures = write_links(tmp_path / "captures", seed)
    inputs = write_spools(captures, tmp_path / "spools", PLANS, random, random.choice([0.0, 0.2]), 150)
    engine = Engine(
        PLANS,
        inputs,
        tmp_path / "state",
        parts=random.choice([1, 2, 5]),
        task_count=random.choice([1, 3]),
        max_bytes=random.choice([1, 20_000, 1 << 20]),
    )
    engine.finish(random)
    engine.check(captures)
    samples = engine.totals.samples
    assert samples.total(SPOOL_SEGMENTS_READ) == sum(len(SpoolReader(each.path).segments()) for each in inputs)
    assert samples.total(SPOOL_PARTIALS_READ) == samples.total(PARTIALS_RECEIVED) > 0
    assert samples.total(SPOOL_PARTIALS_PASSED_OVER) == samples.total(SPOOL_SEGMENTS_LOST) == 0
    assert not engine.warnings


def test_segments_that_appear_while_others_are_read_are_read_too(captures: list[Input], tmp_path: Path) -> None:
    random = Random(1)
    nodes = [SpoolNode(each, tmp_path / each.path.stem, PLANS[:2], 150) for each in captures]
    engine = Engine(PLANS[:2], [spool_of(node.folder, node.link) for node in nodes], tmp_path / "state")
    writing = list(nodes)
    while writing:
        node = random.choice(writing)
        if not node.step(random.randrange(1, 5)):
            writing.remove(node)
        if random.random() < 0.2:
            engine.step(random.choice([1, 2]))
        assert not (engine.finished and writing)
    engine.finish()
    engine.check(captures)


def test_a_commit_lets_nothing_go_that_the_checkpoint_has_not(captures: list[Input], tmp_path: Path) -> None:
    node = SpoolNode(captures[0], tmp_path / "spool", PLANS[:1], 100)
    engine = Engine(PLANS[:1], [spool_of(node.folder, node.link)], tmp_path / "state", max_bytes=1)
    (key,) = engine.offsets[0]
    steps = 0
    while node.step():
        if steps % 3:
            engine.step()
        steps += 1
        done = engine.offsets[-2][key] if len(engine.offsets) > 1 else 0
        assert SpoolReader(node.folder).committed == done - 1
        assert set(range(done, max(segment_numbers(node.folder)) + 1)) <= set(segment_numbers(node.folder))
    assert segment_numbers(node.folder)[0] > 3  # the writer did delete
    engine.finish()
    engine.check(captures[:1])


def test_captures_and_spools_go_together(captures: list[Input], tmp_path: Path) -> None:
    spools = write_spools(captures[:2], tmp_path / "spools", PLANS[:2], block_records=200)
    engine = Engine(PLANS[:2], [spools[0], *captures[2:], spools[1]], tmp_path / "state", block_records=400)
    engine.finish(Random(3))
    engine.check(captures)


@pytest.mark.slow("waits")
def test_a_spool_that_is_not_there_is_waited_for(captures: list[Input], tmp_path: Path) -> None:
    folder = tmp_path / "later" / "spool"
    engine = Engine(PLANS, [spool_of(folder, "main1"), captures[1]], tmp_path / "state")
    engine.finish()
    assert not engine.finished
    assert not any(rows.num_rows for rows in engine.rows.values())  # the link has not spoken: nothing is final
    folder.mkdir(parents=True)
    assert not engine.step()
    SpoolNode(captures[0], folder, PLANS).finish()
    engine.finish()
    engine.check(captures[:2])


def test_a_run_that_starts_before_its_node_has_a_first_micro_batch_without_data(
    captures: list[Input], tmp_path: Path
) -> None:
    spool = spool_of(tmp_path / "spool", "main1")
    engine = Engine(PLANS, [spool], tmp_path / "state")
    assert engine.step()
    assert not engine.step()
    SpoolNode(captures[0], spool.path, PLANS).finish()
    engine.finish()
    engine.check(captures[:1])


def test_a_run_begins_behind_what_another_one_has_committed(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    SpoolReader(spool.path).commit(4)
    (told,) = report_earlier_runs([spool, captures[1]])
    assert told.startswith(f"{spool.path}: read from segment 5 on")
    engine = Engine(PLANS, [spool], tmp_path / "state")
    engine.finish()
    assert engine.totals.samples.total(SPOOL_SEGMENTS_READ) == len(SpoolReader(spool.path).segments()) - 5
    assert engine.totals.samples.total(SPOOL_SEGMENTS_LOST) == 0


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_gap_is_counted_and_told_and_the_rest_is_read(tasks: int, captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS[3:])
    reader = SpoolReader(spool.path)
    gone = [0, 3, 4, 9]
    lost = sum(reader.read(number).rows for number in gone)
    for number in gone:
        segment_path(spool.path, number).unlink()
    engine = Engine(PLANS[3:], [spool], tmp_path / "state", task_count=tasks, max_bytes=20_000)
    engine.finish()
    samples = engine.totals.samples
    assert engine.finished
    assert samples.total(SPOOL_SEGMENTS_LOST, link="main1", cause="missing") == 4
    assert samples.total(SPOOL_PARTIALS_LOST) == lost > 0
    assert samples.total(SPOOL_SEGMENTS_READ) == len(reader.segments())
    assert any("missing between 0 and" in line for line in engine.warnings)


def test_a_damaged_segment_is_told_by_its_name_and_the_rest_is_read(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    path = segment_path(spool.path, 3)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    engine = Engine(PLANS, [spool], tmp_path / "state")
    engine.finish()
    assert engine.finished
    assert engine.totals.samples.total(SPOOL_SEGMENTS_LOST, link="main1", cause="damaged") == 1
    assert engine.totals.samples.total(SPOOL_SEGMENTS_LOST) == 1
    (told,) = engine.warnings
    assert told.startswith(f"{path}: not whole: ")
    assert told.endswith("; its rows are missing in the results")
    (damage,) = engine.totals.damages
    assert (damage.path, damage.place, damage.link) == (str(path), "segment 3", "main1")
    assert damage.copy == f"quarantine/main1/{path.name}"


def test_a_damaged_last_segment_is_told_too(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    path = segment_path(spool.path, segment_numbers(spool.path)[-1])
    path.write_bytes(path.read_bytes()[:-1])
    engine = Engine(PLANS, [spool], tmp_path / "state")
    engine.finish()
    assert not engine.finished
    (told,) = engine.warnings
    assert told.startswith(f"{path}: not whole: ")
    assert told.endswith("; its rows are missing in the results")


PER_LINK = "SELECT link, count(*) AS n FROM packets [RANGE {0} seconds, SLIDE {0} seconds, WA ts] GROUP BY link"


def test_partials_of_another_plan_are_not_taken_whatever_its_name(captures: list[Input], tmp_path: Path) -> None:
    before, after = (compile_query(PER_LINK.format(seconds), "per_link") for seconds in (10, 20))
    other = compile_query(PER_LINK.format(60), "other")
    (spool,) = write_spools(captures[:1], tmp_path / "spools", [before, other])
    engine = Engine([after, other], [spool, captures[1]], tmp_path / "state")
    engine.finish()
    want, _ = inline([after], captures[1:2])
    assert same_rows(engine.rows["per_link"], want["per_link"])  # of the other link all, once the spool has ended
    want, _ = inline([other], captures[:2])
    assert same_rows(engine.rows["other"], want["other"])
    samples = engine.totals.samples
    there = len(SpoolReader(spool.path).segments())
    assert samples.total(SPOOL_SEGMENTS_WITHOUT_QUERY, query="per_link", link="main1") == there
    assert samples.total(SPOOL_SEGMENTS_WITHOUT_QUERY) == there
    assert samples.total(SPOOL_PARTIALS_PASSED_OVER, link="main1") > 0
    (told,) = set(engine.warnings)
    (_, fingerprint), theirs = named([after])[0], named([before, other])
    assert f"per_link ({theirs[0][1]}), other ({theirs[1][1]}), with which the node was started" in told
    assert f"expected one with the fingerprint {fingerprint}" in told


def test_a_query_that_the_node_learns_with_a_new_start_goes_on_from_there(
    captures: list[Input], tmp_path: Path
) -> None:
    old, new = (compile_query(PER_LINK.format(seconds), f"per_{seconds}") for seconds in (10, 20))
    node = SpoolNode(captures[0], tmp_path / "spool", [old])
    node.step(9)
    node.restart([new, old])
    node.finish()
    engine = Engine([old, new], [spool_of(node.folder, node.link)], tmp_path / "state")
    engine.finish()
    want, _ = inline([old, new], captures[:1])
    assert same_rows(engine.rows["per_10"], want["per_10"])
    assert 0 < engine.rows["per_20"].num_rows < want["per_20"].num_rows


def test_queries_with_one_plan_each_count_a_partial_once(captures: list[Input], tmp_path: Path) -> None:
    twins = [
        compile_query(PER_LINK.format(10) + more, name) for name, more in (("a", ""), ("b", " HAVING count(*) > 1"))
    ]
    (spool,) = write_spools(captures[:1], tmp_path / "spools", twins)
    engine = Engine([twins[1], compile_query(twins[0].sql, "c")], [spool], tmp_path / "state")
    engine.finish()
    engine.check(captures[:1])
    assert named(twins)[0][1] == named(twins)[1][1]


def test_partials_that_were_sampled_are_counted_and_told(captures: list[Input], tmp_path: Path) -> None:
    (plan,) = plans = [compile_query(PER_LINK.format(10), "per_link")]
    partials = pa.record_batch([["main1", "main1"], [0, 1], [3, 4]], schema=plan.leaves[0].low.schema)
    items = {factor: scale_partials(partials, plan.leaves[0].low, factor) for factor in (1, 8)}
    writer = SpoolWriter(tmp_path / "spool", "main1", named(plans))
    for item in items.values():
        writer.append(0, item)
    writer.close(has_ended=True)
    engine = Engine(plans, [spool_of(tmp_path / "spool", "main1")], tmp_path / "state")
    engine.finish()
    samples = engine.totals.samples
    assert samples.total(SPOOL_PARTIALS_SAMPLED, query="per_link", link="main1") == items[8].num_rows
    assert sum(engine.rows["per_link"]["n"].to_pylist()) == 9 * sum(items[1].column(2).to_pylist())
    assert [line.partition(": ")[2] for line in engine.warnings] == [
        "some results are estimates: its node sampled packets, because its spool or ring was nearly full"
    ]


def test_windows_with_a_sampled_partial_or_a_skipped_block_are_marked_and_no_others(tmp_path: Path) -> None:
    random = Random(8)
    plans = [
        compile_query(PER_LINK.format(10), "tumbling"),
        compile_query(
            "SELECT link, count(*) AS n FROM packets [RANGE 30 seconds, SLIDE 10 seconds] GROUP BY link", "sliding"
        ),
    ]
    writer = SpoolWriter(tmp_path / "spool", "main1", named(plans))
    sampled: dict[str, set[int]] = {plan.name: set() for plan in plans}
    skipped: list[tuple[int, int]] = []
    for _ in range(40):
        (number, plan), pane = random.choice([*enumerate(plans)]), random.randrange(200)
        values = [[random.randrange(1, 5)] for _ in plan.leaves[0].low.schema.names[2:]]
        partials = pa.record_batch([["main1"], [pane], *values], schema=plan.leaves[0].low.schema)
        factor = random.choice([1, 1, 1, 4])
        sampled[plan.name] |= {plan.leaves[0].low.origin + pane * plan.leaves[0].low.pane} if factor > 1 else set()
        writer.append(number, scale_partials(partials, plan.leaves[0].low, factor))
        if random.random() < 0.05:  # a block that was not processed, and may be all of its time
            start = plan.leaves[0].low.origin + random.randrange(200 * 10**9)
            writer.skip(start, start + 10**9)
            skipped.append((start, start + 10**9))
    writer.close(has_ended=True)
    engine = Engine(plans, [spool_of(tmp_path / "spool", "main1")], tmp_path / "state", max_bytes=1)
    files = TotalsFiles(tmp_path / "totals")
    steps = 0
    while engine.step():  # each time with the totals that a restart would read
        files.save(steps, engine.totals)
        engine.totals = files.load(steps)
        steps += 1
    for plan in plans:
        rows = mark_estimates(engine.rows[plan.name], engine.totals.sampled_ranges[plan.name]).to_pylist()
        marked = [row[ESTIMATED] for row in rows]
        assert marked == [
            any(row["window_start"] <= time < row["window_end"] for time in sampled[plan.name])
            or any(start < row["window_end"] and row["window_start"] < end for start, end in skipped)
            for row in rows
        ]
        assert {True, False} == set(marked)


def test_the_spool_of_another_link_is_refused(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    engine = Engine(PLANS, [spool_of(spool.path, "main2")], tmp_path / "state")
    with pytest.raises(SpoolError, match="got the spool of the link main1, expected that of main2"):
        engine.step()


def test_a_spool_that_was_begun_again_is_refused(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    engine = Engine(PLANS, [spool], tmp_path / "state")
    engine.finish()
    for path in spool.path.iterdir():
        path.unlink()
    SpoolWriter(spool.path, "main1", named(PLANS)).close(has_ended=True)
    with pytest.raises(SpoolError, match="the spool was started again since it was read"):
        engine.step()


def test_a_spool_that_is_removed_while_it_is_read_is_told(captures: list[Input], tmp_path: Path) -> None:
    (spool,) = write_spools(captures[:1], tmp_path / "spools", PLANS)
    engine = Engine(PLANS, [spool], tmp_path / "state")
    spool.path.rename(tmp_path / "elsewhere")
    with pytest.raises(SpoolError, match="0-main1: the spool was removed while it was read"):
        engine.step()


def test_the_time_of_the_newest_segment_is_that_of_its_last_item(captures: list[Input], tmp_path: Path) -> None:
    node = SpoolNode(captures[0], tmp_path / "spool", PLANS)
    engine = Engine(PLANS, [spool_of(node.folder, node.link)], tmp_path / "state")
    for _ in range(4):
        node.step(3)
        engine.finish()
        newest = SpoolReader(node.folder).read(segment_numbers(node.folder)[-1])
        assert engine.totals.samples.total(SPOOL_NEWEST, link="main1") == newest.trailer.last / 1e9 > 0
