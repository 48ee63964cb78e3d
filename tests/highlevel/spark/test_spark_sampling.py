"""The sampling operator and running aggregates on Spark: the same rows as inline, or a sample with the same bounds.

They detect a node whose rows are divided among partitions, and a state that a micro-batch loses. A stream reads the
capture in several micro-batches, so groups, superaggregates and running sums continue from one to the next. A sample
depends on the order of the rows, which Spark may change. So only its size and its estimate are compared.
"""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from queries.gsql import compile_query
from tests.harness.links import START, traffic
from tests.harness.spark_results import ordered, read_results
from tests.references.pcap_bytes import pcap_bytes

pytestmark = pytest.mark.spark
SIZE = 20

EQUAL = {
    "superaggregates": "SELECT m, destPort, count(*) AS n, count$(*) AS total, sum$(len) AS bytes FROM packets "
    "GROUP BY time/60 AS m, destPort SUPERGROUP m",
    "cleaning": "SELECT m, destPort, count(*) AS n, count$(*) AS total FROM packets "
    "GROUP BY time/60 AS m, destPort SUPERGROUP m CLEANING WHEN TRUE CLEANING BY destPort = 53",
    "running": "SELECT destPort, count(*) AS n, running_sum(len) AS r, moving_sum(len, 3) AS bytes FROM packets "
    "[RANGE 10 seconds] WHERE srcPort = 1 GROUP BY destPort CLOSING WHEN moving_sum(len, 3) = 0",
}
"""Queries whose rows do not depend on the order of arrival."""

SAMPLES = {
    "subset": f"SELECT m, ns, greatest(sum(len), ssthreshold()) AS bytes FROM packets WHERE ssample(len, {SIZE}, 5) "
    "GROUP BY time/3600 AS m, ts % 3600000000000 AS ns HAVING ssfinal_clean(sum(len)) "
    "CLEANING WHEN ssdo_clean(count_distinct$(*)) CLEANING BY ssclean_with(sum(len))",
    "reservoir": f"SELECT m, ns FROM packets WHERE rsample({SIZE}, 7) "
    "GROUP BY time/3600 AS m, ts % 3600000000000 AS ns HAVING rsfinal_clean() "
    "CLEANING WHEN rsdo_clean(count_distinct$(*)) CLEANING BY rsclean_with()",
}
"""Samples of all rows."""

ARCHIVED = ("cleaning", "running", "reservoir")
"""Queries of which the batch engine runs one job each."""

PLANS = [compile_query(sql, name) for name, sql in (EQUAL | SAMPLES).items()]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> list[Input]:
    """One capture of nine minutes."""
    path = tmp_path_factory.mktemp("sampling") / "tap.pcap"
    path.write_bytes(pcap_bytes(traffic(Random("sampling on Spark"), 1500, START, 540, 0)))
    return [Input("tap", path)]


@pytest.fixture(scope="module")
def expected(inputs: list[Input]) -> dict[str, pa.Table]:
    """The rows of the inline engine, and those of all packets as `bytes`."""
    plans = [*PLANS, compile_query("SELECT sum(len) AS bytes FROM packets", "bytes")]
    batches: list[list[pa.RecordBatch]] = [[] for _ in plans]
    for number, batch in InlineRun(plans, inputs, threads=1).results():
        batches[number].append(batch)
    tables = {plan.name: pa.Table.from_batches(rows, plan.schema) for plan, rows in zip(plans, batches, strict=True)}
    assert all(table.num_rows for table in tables.values())
    return tables


def check(found: pa.Table, name: str, expected: dict[str, pa.Table]) -> None:
    """Compare the rows of a query, or the size of its sample and its estimate of all bytes."""
    if name in EQUAL:
        assert ordered(found).equals(ordered(expected[name])), name
        return
    assert 0 < found.num_rows <= SIZE, name
    if name == "subset":
        total, estimate = expected["bytes"]["bytes"][0].as_py(), sum(found["bytes"].to_pylist())
        assert abs(estimate - total) < total / 4


def test_a_stream_continues_groups_and_samples_from_one_micro_batch_to_the_next(
    spark, inputs: list[Input], expected: dict[str, pa.Table], tmp_path: Path
) -> None:
    from highlevel.spark.stream import StreamRun

    run = StreamRun(spark, PLANS, inputs, tmp_path, block_records=100, max_blocks=5)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    for plan in PLANS:
        check(read_results(tmp_path, plan), plan.name, expected)


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.name in ARCHIVED], ids=lambda plan: plan.name)
def test_an_archive_has_the_same_rows(plan: Plan, spark, inputs: list[Input], expected: dict[str, pa.Table]) -> None:
    from highlevel.spark.batch import run_batch

    check(run_batch(spark, plan, inputs), plan.name, expected)
