"""The batch engine's own care: what it counts, how it cuts, and captures that change meanwhile.

Its tasks are called here as Spark calls them, without Spark, unless a test is marked.
"""

import json
import resource
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from capture.errors import InputError
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_PARTIALS, OUTSIDE_WINDOWS, PARTIALS_RECEIVED, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.plan.plan import Plan
from highlevel.spark.inputs import byte_ranges
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.byte_ranges import RangeReader, guess_tasks, make_exact_tasks, open_with_size
from highlevel.spark.inputs.reading import COUNTERS
from lowlevel.metrics import TABLE_EVICTIONS, TABLE_FLUSHED
from queries.gsql import compile_query
from tests.harness.disordered_links import disordered_links
from tests.harness.links import write_links
from tests.references.window_queries import QUERIES

GAPS = """SELECT srcIP, count(*) AS n FROM packets [RANGE 1 minute, SLIDE 5 minutes, WA ts] GROUP BY srcIP"""
PLANS = [compile_query(query.gsql, query.name) for query in QUERIES] + [compile_query(GAPS, "gaps")]


def counted(plan: Plan, inputs: list[Input]) -> InlineRun:
    run = InlineRun([plan], inputs)
    for _ in run.results():
        pass
    return run


@pytest.mark.spark
@pytest.mark.parametrize("plan", PLANS, ids=[plan.name for plan in PLANS])
def test_what_comes_in_equals_what_goes_out(plan: Plan, spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun

    inputs = write_links(tmp_path, 31)
    batch = BatchRun(spark, [plan], inputs, slots=64)
    rows = batch.run()[0].num_rows
    got, want = batch.samples, counted(plan, inputs).samples()
    assert got.total(PARTIALS_RECEIVED) == got.total(TABLE_EVICTIONS) + got.total(TABLE_FLUSHED) > 0
    assert got.total(WINDOWS_CLOSED) == want.total(WINDOWS_CLOSED) > 0
    assert got.total(RESULT_ROWS) == rows == want.total(RESULT_ROWS)
    assert (got.total(OUTSIDE_WINDOWS) > 0) == (want.total(OUTSIDE_WINDOWS) > 0) == (plan.name == "gaps")
    assert got.total(LATE_PARTIALS) == 0


@pytest.mark.spark
def test_changes_are_answered_with_the_final_rows(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch

    inputs = disordered_links(tmp_path, Random(1), 2, 300, 5)
    sql = "SELECT srcIP, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcIP"
    final = run_batch(spark, compile_query(sql), inputs)
    plan = compile_query(f"{sql} WITH CONSISTENCY (REMEMBER 6 seconds) EMIT CHANGES")
    changes = run_batch(spark, plan, inputs)
    assert changes.schema.equals(plan.schema)
    expected = [{**row, "weight": 1, "final": True} for row in final.to_pylist()]
    assert sorted(changes.to_pylist(), key=str) == sorted(expected, key=str)


@pytest.mark.spark
@pytest.mark.parametrize("end", ["", "ORDER BY n DESC LIMIT 3"])
def test_windows_are_read_one_by_one(end: str, spark, tmp_path: Path) -> None:
    """The groups of a window are in several partitions of Spark; the iterator returns them in one table."""
    paths = [source.path for source in write_links(tmp_path, 33)]
    sql = f"SELECT srcIP, count(*) AS n FROM packets [RANGE 1 minute, WA ts] GROUP BY srcIP {end}"
    got, want = ([*wiretide.open(*paths, on=engine).query(sql)] for engine in ("local", "inline"))
    assert [table["n"].to_pylist() for table in got] == [table["n"].to_pylist() for table in want] or not end
    assert [table["window_end"][0] for table in got] == [table["window_end"][0] for table in want]
    assert [table.num_rows for table in got] == [table.num_rows for table in want]
    assert len(got) > 1


@pytest.mark.spark
def test_a_capture_that_grows_meanwhile_is_read_up_to_where_it_was_opened(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from tests.references.spark_packets import packets_dataframe

    path = write_links(tmp_path, 32)[0].path
    batch = BatchRun(spark, [PLANS[0]], [Input("a", path)])
    packets = packets_dataframe(spark, [Input("a", path)], ["ts"])
    want = packets.count(), counted(PLANS[0], [Input("a", path)]).samples().total(RESULT_ROWS)
    with path.open("ab") as file:
        file.write(path.read_bytes()[24:])
    assert (packets.count(), batch.run()[0].num_rows) == want


@pytest.mark.spark
def test_as_many_captures_are_opened_as_there_are(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from tests.references.spark_packets import packets_dataframe

    path = write_links(tmp_path, 33)[0].path
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for make in (lambda each: BatchRun(spark, [PLANS[0]], each), lambda each: packets_dataframe(spark, each, ["ts"])):
        held = sum(1 for _ in Path("/dev/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + 20, before[1]))
        made = None
        try:
            made = make([Input("a", path)] * 300)
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > held + 300
        finally:
            del made
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_capture_that_became_shorter_is_an_input_error(tmp_path: Path) -> None:
    path = write_links(tmp_path, 34)[0].path
    size = path.stat().st_size
    with pytest.raises(InputError, match=rf"changed while it was read: got {size} bytes, expected {size + 1}$"):
        open_with_size(path, size + 1)


def test_no_range_is_larger_than_the_largest(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(byte_ranges, "MAX_RANGE_BYTES", 10_000)
    files = [open_capture(each.path) for each in write_links(tmp_path, 35)]
    for tasks in (guess_tasks(files, 2), make_exact_tasks(files, 2)):
        assert len(tasks) > 10
        assert max(task.cut - task.start for task in tasks) < 10_000 + 200  # the record that straddles a cut


def test_a_task_hands_on_what_its_table_evicts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(byte_ranges, "BUFFERED_PARTIALS", 100)
    (each, *_) = write_links(tmp_path, 36)
    monkeypatch.setattr(byte_ranges, "BLOCK_RECORDS", 16)
    files = [open_capture(each.path)]
    tasks = tuple(guess_tasks(files, 1))
    reader = RangeReader(InputAssignment.of(PLANS[:1], [each], 2), (len(files[0].data),), tasks, 8)
    batches = list(reader(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    assert len(batches) > 1
    told = [row["payload"] for batch in batches for row in batch.to_pylist() if row["part"] == COUNTERS]
    assert len(told) == 1
    assert json.loads(told[0])["walked"]["end"] == len(files[0].data)
