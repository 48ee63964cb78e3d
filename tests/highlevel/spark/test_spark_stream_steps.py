"""The stream engine without Spark: planning, tasks and hosts called in the order in which Spark calls them.

Hundreds of micro-batches cost no more than one on a JVM. So this module tests cuts, retries and restarts at every step.
The results are compared with the inline engine. A watermark that overtakes its rows, is lost in an empty partition, or
is sent too early closes a window without all of its rows. Doing each micro-batch twice, the first time perhaps not
whole, catches state that depends on more than the micro-batch before.
"""

from concurrent.futures import CancelledError
from pathlib import Path
from random import Random
from threading import Event

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from capture.files.blocks import Index
from capture.files.capture import Capture
from capture.files.scan import Progress, scan
from capture.metrics import PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED, Samples
from capture.open import open_capture, open_mapped
from capture.packets.fields import SKIP_CAUSES
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import (
    LATE_PARTIALS,
    PARTIALS_BEYOND_CAP,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    RESULT_ROWS,
    ROWS_BEYOND_CAP,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from highlevel.spark.errors import RunError
from highlevel.spark.inputs import source
from highlevel.spark.inputs.admission import FIRST_ROW_BLOCKS
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.source import MAX_PARTIAL_BYTES, CaptureReader, StreamSpec, index_captures
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from highlevel.spark.stream import StreamRun
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.node.node import Node
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.stream_steps import PLANS, inline, same_rows, spec, steps

ALL = compile_query(
    "SELECT link, count(*) AS n FROM packets [RANGE 1 second, SLIDE 1 second, WA ts] GROUP BY link", "all"
)


@pytest.mark.parametrize("seed", range(12))
def test_stream_and_inline_give_the_same_rows_and_counters(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    inputs = write_links(tmp_path, seed)
    made = spec(inputs, random)
    got: dict[str, list[pa.Table]] = {plan.name: [] for plan in PLANS}
    totals = Totals()
    for results, after in steps(made, tmp_path / "state", random):
        totals = after
        for name, table in results.items():
            got[name].append(table)
    want, run = inline(PLANS, inputs)
    for plan in PLANS:
        assert same_rows(pa.concat_tables([plan.schema.empty_table(), *got[plan.name]]), want[plan.name]), plan.name
    expected = run.samples()
    for metric in (RECORDS_READ, PACKETS_DECODED, ROWS_ACCEPTED, ROWS_FILTERED, RESULT_ROWS, WINDOWS_CLOSED):
        assert totals.samples.total(metric) == expected.total(metric), metric.name
    for cause in SKIP_CAUSES:
        assert totals.samples.total(RECORDS_SKIPPED, cause=cause) == expected.total(RECORDS_SKIPPED, cause=cause)
    left = totals.samples.total(TABLE_EVICTIONS) + totals.samples.total(TABLE_FLUSHED)
    assert totals.samples.total(PARTIALS_RECEIVED) == left
    assert totals.samples.total(LATE_PARTIALS) == totals.samples.total(WINDOWS_OPEN) == 0
    assert totals.is_finished(range(len(inputs)))


def test_a_cap_is_one_for_all_partitions_and_what_is_beyond_it_is_counted(tmp_path: Path) -> None:
    sql = (
        "SELECT srcIP, count(*) AS n FROM packets [RANGE ALL, SLIDE 2 minutes, WA ts, "
        "ORIGIN '2020-01-01', CAP 4] GROUP BY srcIP"
    )
    plan = compile_query(sql, "since")
    inputs = write_links(tmp_path, 8)
    answers, run = inline([plan], inputs)
    made = StreamSpec(InputAssignment.of([plan], inputs, 3), 64, 100, 3, None, 2)
    got: list[pa.Table] = []
    totals = Totals()
    for results, after in steps(made, tmp_path / "state", Random(0)):
        totals = after
        got += results.values()
    assert same_rows(pa.concat_tables(got), answers["since"])
    assert len(set(answers["since"]["srcIP"].to_pylist())) == 4
    assert run.samples().total(ROWS_BEYOND_CAP) == totals.samples.total(ROWS_BEYOND_CAP) > 0
    assert totals.samples.total(PARTIALS_BEYOND_CAP) > 0


def test_a_window_closes_in_the_micro_batch_that_brings_the_promise(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 1)[:1]
    random = Random(0)
    made = StreamSpec(InputAssignment.of(PLANS[:1], inputs, 2), 64, 100, 1, None, 1)
    arrived = [results for results, _ in steps(made, tmp_path / "state", random)]
    assert len(arrived) == 18
    assert sum("pairs" in results for results in arrived) > 10


def test_a_damaged_capture_is_counted_and_the_position_is_a_warning(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 1)[:1]
    path = inputs[0].path
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-5])
    position = scan(open_mapped(path, "the test"), 100).blocks[-1].end
    assert size - 200 < position < size - 5
    made = StreamSpec(InputAssignment.of(PLANS[:1], inputs, 2), 64, 100, 1, None, 1)
    warnings = [line for _, totals in steps(made, tmp_path / "state", Random(0)) for line in totals.warnings]
    assert warnings == [
        f"{path}: damaged (cut in record) at byte {position:,}; the last {size - 5 - position:,} bytes are not read"
    ]


def test_inputs_without_a_packet_end_in_the_first_micro_batch(tmp_path: Path) -> None:
    inputs = [each for each in write_links(tmp_path, 2) if each.link == "silent"]
    made = StreamSpec(InputAssignment.of(PLANS, inputs, 2), 64, 100, 1, None, 1)
    (only,) = steps(made, tmp_path / "state", Random(0))
    assert only[0] == {}
    assert only[1].is_finished([0])


def test_a_micro_batch_of_nothing_but_an_unread_input_carries_the_state_on(tmp_path: Path) -> None:
    inputs = [Input(each.link, each.path, stream=each.link) for each in write_links(tmp_path, 3)]
    plans = [compile_query("SELECT link, count(*) AS n FROM main1 GROUP BY link", "main1")]
    made = StreamSpec(InputAssignment.of(plans, inputs, 2), 64, 100, 1, None, 1)
    found = [results["main1"] for results, _ in steps(made, tmp_path / "state", Random(0)) if "main1" in results]
    assert pa.concat_tables(found).equals(inline(plans, inputs)[0]["main1"])


def test_a_query_reads_the_inputs_that_its_streams_name(tmp_path: Path) -> None:
    inputs = [Input(each.link, each.path, stream=each.link) for each in write_links(tmp_path, 3)]
    plans = [
        compile_query(f"SELECT link, count(*) AS n FROM {name} GROUP BY link", name) for name in ("main1", "jumps")
    ]
    made = spec(inputs, Random(5), plans)
    got = {name: table for results, _ in steps(made, tmp_path / "state", Random(0)) for name, table in results.items()}
    assert {name: table["link"].to_pylist() for name, table in got.items()} == {"main1": ["main1"], "jumps": ["jumps"]}


@pytest.mark.slow("many micro-batches")
def test_the_lag_is_behind_the_newest_packet_of_the_querys_own_links(tmp_path: Path) -> None:
    """The link `jumps` brings packets dated a year ahead, which are no business of a query on main1."""
    inputs = [Input(each.link, each.path, stream=each.link) for each in write_links(tmp_path, 3)]
    plans = [
        compile_query(
            f"SELECT link, count(*) AS n FROM {name} [RANGE 1 second, SLIDE 1 second, WA ts] GROUP BY link", name
        )
        for name in ("main1", "jumps")
    ]
    made = StreamSpec(InputAssignment.of(plans, inputs, 2), 64, 20, 1, None, 1)
    streamed = [Samples(after.samples) for _, after in steps(made, tmp_path / "state", Random(0))]
    run = InlineRun(plans, inputs, threads=1, block_records=20)
    for told in (streamed, [run.samples() for _ in run.results()]):
        assert max(samples.total(PUNCTUATION_LAG, query="jumps") for samples in told) > 300 * 86_400
        assert max(samples.total(PUNCTUATION_LAG, query="main1") for samples in told) < 3600


@pytest.mark.parametrize("tasks", [1, 3])
def test_memory_of_tables_is_that_of_all_tasks_of_a_link(tasks: int, tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 3)[:1]
    made = StreamSpec(InputAssignment.of([ALL], inputs, 2), 64, 100, 6, None, tasks)
    held = [after.samples.total(TABLE_BYTES) for _, after in steps(made, tmp_path / "state", Random(0))]
    assert held == [tasks * one_table(inputs[0], 100)] * 3


def test_memory_of_tables_is_that_of_all_open_files_of_a_link(tmp_path: Path) -> None:
    inputs = [Input("same", each.path) for each in write_links(tmp_path, 3)[:2]]
    run = InlineRun([ALL], inputs, slots=64, threads=1, block_records=100)
    held = [run.samples().total(TABLE_BYTES) for _ in run.results()]
    assert max(held) == 2 * one_table(inputs[0], 100)


def one_table(each: Input, capacity: int) -> int:
    """Bytes of the table of ALL, once it is made."""
    file = open_capture(each.path)
    node = Node(each.link, file, [ALL.leaves[0].low], 64, capacity)
    for _ in node.process(scan(file, 100).blocks[0]):
        pass
    return node.reducers[0].bytes


def test_the_planner_reads_the_bytes_of_earlier_micro_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = write_links(tmp_path, 1)[:1]
    made = StreamSpec(InputAssignment.of(PLANS[:1], inputs), 64, 1, None, None, 1, totals=tmp_path)
    reader = CaptureReader(made, index_captures(made))
    files, offsets, counts, loaded, load = TotalsFiles(tmp_path), reader.initialOffset(), [], [], TotalsFiles.load

    def load_and_count(files: TotalsFiles, batch_id: int) -> Totals:
        loaded.append(batch_id)
        return load(files, batch_id)

    monkeypatch.setattr(TotalsFiles, "load", load_and_count)
    for batch_id, sum_ in enumerate([10, 16 * MAX_PARTIAL_BYTES, 16 * MAX_PARTIAL_BYTES, 0]):
        for _ in range(3):
            end = reader.latestOffset(offsets, reader.getDefaultReadLimit())
        (start_position,), (position,) = offsets.values(), end.values()
        counts.append(position - max(start_position, 0))
        files.save(batch_id, Totals(progress={0: (position, 1_800)}, partial_bytes={0: sum_}))
        offsets = end
    assert counts == [256, 1024, 64, 84]
    assert loaded == [0, 1, 2]


def test_the_first_micro_batch_is_smaller_if_a_query_needs_rows(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 1)[:1]
    rows = compile_query(f"SELECT ts, len FROM {inputs[0].link}", "rows")
    made = StreamSpec(InputAssignment.of([rows], inputs), 64, 1, None, None, 1, totals=tmp_path)
    reader = CaptureReader(made, index_captures(made))
    assert [*reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()).values()] == [FIRST_ROW_BLOCKS]


def test_a_task_counts_the_bytes_of_its_partials(tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 1)[:1]
    made = StreamSpec(InputAssignment.of([ALL], inputs, 2), 64, 100, 6, None, 2)
    before = 0, 0
    for _, after in steps(made, tmp_path / "state", Random(0)):
        partials, bytes_ = sums = after.samples.total(PARTIALS_RECEIVED), after.partial_bytes[0]
        assert 20 * (partials - before[0]) <= bytes_ - before[1] <= 100 * (partials - before[0])
        before = sums
    assert before[1] > 0


@pytest.mark.parametrize("problem", [RunError("no Java"), KeyboardInterrupt()])
def test_captures_are_scanned_while_spark_starts_and_a_failed_start_ends_the_scan(
    problem: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = write_links(tmp_path, 1)
    has_begun, has_failed, ends = Event(), Event(), []

    def scan_slowly(file: Capture, block_records: int, progress: Progress) -> Index:
        has_begun.set()
        has_failed.wait()
        try:
            while True:
                progress(1)
        except CancelledError:
            ends.append(file.path)
            raise

    def fail_to_start() -> SparkSession:
        has_begun.wait()
        has_failed.set()
        raise problem

    monkeypatch.setattr(source, "scan", scan_slowly)
    with pytest.raises(type(problem)):
        StreamRun(fail_to_start, [ALL], inputs, tmp_path / "run").start()
    assert ends
