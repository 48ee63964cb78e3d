"""Queries that are graphs on Spark itself, batch and stream: the rows and counters of the inline engine."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.metrics import LATE_ROWS, RESULT_ROWS, WINDOWS_CLOSED
from tests.harness.links import write_links
from tests.harness.stream_steps import inline, same_rows
from tests.references.graph_step_plans import PLANS

ABSENCES = ("overlaps or none", "without overlap")

METRICS = (RESULT_ROWS, WINDOWS_CLOSED, LATE_ROWS)


@pytest.mark.spark
def test_batch_gives_the_rows_of_one_process(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun

    inputs = write_links(tmp_path, 5)
    # If a plan ends early, its threads decide how many records one process reads.
    known = [plan for plan in PLANS if not plan.ends_early]
    plans = [
        *Random(5).sample(known, 9),
        *(plan for plan in known if plan.name in ("overlaps or none", "without overlap")),
    ]
    want, run = inline(plans, inputs)
    batch = BatchRun(spark, plans, inputs, slots=64)
    for plan, rows in zip(plans, batch.run(), strict=True):
        assert same_rows(rows, want[plan.name]), plan.name
        for metric in METRICS:
            found, expected = (samples.total(metric, query=plan.name) for samples in (batch.samples, run.samples()))
            assert found == expected, (plan.name, metric.name)
    assert [reading.records for reading in batch.readings] == [reading.records for reading in run.readings()]


@pytest.mark.spark
@pytest.mark.parametrize("name", ["first of windows", "sorted rows", "first of all", "first by time"])
def test_batch_returns_sorted_rows_in_their_order(name: str, spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch

    inputs = write_links(tmp_path, 7)
    (plan,) = (plan for plan in PLANS if plan.name == name)
    want, _ = inline([plan], inputs)
    assert run_batch(spark, plan, inputs, slots=64).to_pylist() == want[name].to_pylist()
    assert want[name].num_rows > 5


@pytest.mark.spark
def test_a_stream_goes_on_where_it_was_stopped(spark, tmp_path: Path) -> None:
    from highlevel.spark.stream import StreamRun

    (tmp_path / "captures").mkdir()
    inputs = write_links(tmp_path / "captures", 6)
    names = ("by another", "by both times", "rolled up", "no graph", "without", "first of windows", "sorted rows")
    names += ("first of all", "first by time", "shares of windows", "changes", "distinct groups", "cases")
    names += (
        "lifetimes",
        "first of lifetimes",
        *ABSENCES,
        "union of groups",
        "in both directions",
        "on one link",
    )
    plans = [plan for plan in PLANS if plan.name in names]
    got: dict[tuple[int, str], pa.Table] = {}

    def take(batch_id: int, tables: dict[str, pa.Table], _: object) -> None:
        got.update({(batch_id, name): table for name, table in tables.items()})

    options = {"partitions": 2, "max_blocks": 8, "block_records": 100, "slots": 64, "on_batch": take}
    for enough in (2, 1 << 20):
        run = StreamRun(spark, plans, inputs, tmp_path / "run", **options)
        run.start()
        try:
            while not run.wait(0.2) and len({batch_id for batch_id, _ in got}) < enough:
                pass
        finally:
            run.stop()
    want, expected = inline(plans, inputs)
    for plan in plans:
        found = pa.concat_tables([table for (_, name), table in sorted(got.items()) if name == plan.name])
        assert same_rows(found, want[plan.name]), plan.name
        for metric in METRICS:
            told = run.samples.total(metric, query=plan.name)
            assert told == expected.samples().total(metric, query=plan.name), (plan.name, metric.name)
