"""Both Spark engines agree with the inline engine on columns of both layers, frames, MACs, texts and payloads.

Spark SQL over the frames as a DataFrame agrees too.

The tests detect a type that does not survive the transfer between processes, and a group that two tasks put into
different partitions. They detect a plan whose layer or kind is lost in the transfer to a task.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from capture.errors import InputError
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from highlevel.spark.run_folder.result_files import read_results
from queries.gsql import compile_query
from tests.references.column_queries import comparable, plans
from tests.references.written_exports import write_exports

pytestmark = pytest.mark.spark
PLANS = plans()
REAL = ["ipv6_in_gtp.pcap", "teredo.pcap", "vxlan.pcap", "netbios.pcap"]


def rows_of(table: pa.Table) -> Counter[tuple]:
    return Counter(comparable(row.values()) for row in table.to_pylist())


def inline(inputs: list[Input]) -> list[Counter[tuple]]:
    found: list[list[pa.RecordBatch]] = [[] for _ in PLANS]
    for number, batch in InlineRun(PLANS, inputs).results():
        found[number].append(batch)
    return [rows_of(pa.Table.from_batches(rows, plan.schema)) for plan, rows in zip(PLANS, found, strict=True)]


def streamed(folder: Path, plan: Plan) -> Counter[tuple]:
    return rows_of(read_results(folder / "output", plan))


@pytest.mark.parametrize("name", REAL)
def test_all_engines_give_the_same_rows(name: str, spark, captures: Path, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.stream import StreamRun

    inputs = [Input("link", captures / "pcap" / name)]
    run = StreamRun(spark, PLANS, inputs, tmp_path / "run", block_records=64, max_blocks=4)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    answers = BatchRun(spark, PLANS, inputs).run()
    for plan, answer, want in zip(PLANS, answers, inline(inputs), strict=True):
        assert rows_of(answer) == want, f"batch, {plan.name}"
        assert streamed(tmp_path / "run", plan) == want, f"stream, {plan.name}"


FLOWS = compile_query(
    "SELECT protocol, srcIP, exporter, sum(bytes) AS bytes, count(*) AS n FROM flows [RANGE 1 minute, SPREAD] "
    "GROUP BY protocol, srcIP, exporter",
    "flows",
)


def test_flows_of_many_files_are_answered_by_a_batch_and_refused_by_a_stream(spark, tmp_path: Path) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.stream import StreamRun

    inputs = [Input(f"link{number}", tmp_path / f"{number}.pcap") for number in range(3)]
    flows = [flow for number, each in enumerate(inputs) for flow in write_exports(each.path, Random(number), 40)]
    batches = [batch for _, batch in InlineRun([FLOWS], inputs).results()]
    batch = BatchRun(spark, [FLOWS], inputs)
    answer = batch.run()[0]
    assert rows_of(answer) == rows_of(pa.Table.from_batches(batches, FLOWS.schema))
    assert sum(answer["bytes"].to_pylist()) == sum(flow["bytes"] for flow in flows)
    assert not batch.has_wrong_guess
    with pytest.raises(InputError, match="query flows: flows must be read in one pass"):
        StreamRun(spark, [FLOWS], inputs, tmp_path / "run")


def test_samples_are_answered_by_both_engines(spark, captures: Path, tmp_path: Path) -> None:
    from highlevel.spark.batch import run_batch
    from highlevel.spark.stream import StreamRun

    plan = compile_query(
        "SELECT exporter, agent, srcMAC, inner.srcIP, count(*) AS n, sum(sampling_rate) AS packets FROM samples "
        "GROUP BY exporter, agent, srcMAC, inner.srcIP",
        "samples",
    )
    inputs = [Input("link", captures / "pcap" / "sflow.pcap")]
    want = rows_of(pa.Table.from_batches([batch for _, batch in InlineRun([plan], inputs).results()], plan.schema))
    run = StreamRun(spark, [plan], inputs, tmp_path / "run", block_records=2)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    assert want
    assert rows_of(run_batch(spark, plan, inputs)) == want
    assert streamed(tmp_path / "run", plan) == want


def test_frames_and_inner_columns_are_a_dataframe(spark, captures: Path) -> None:
    from tests.references.spark_packets import packets_dataframe

    inputs = [Input("link", captures / "pcap" / "netbios.pcap")]
    columns = ["srcMAC", "destMAC", "ethertype", "interface", "srcIP", "inner.ttl", "payload"]
    packets_dataframe(spark, inputs, columns, "frames").createOrReplaceTempView("frames")
    sql = """SELECT srcMAC, destMAC, ethertype, interface, count(*) AS n, count(srcIP) AS ips FROM frames
             GROUP BY srcMAC, destMAC, ethertype, interface
             HAVING destMAC <> unhex('ffffffffffff') OR destMAC IS NULL"""
    (place,) = (number for number, plan in enumerate(PLANS) if plan.name == "macs")
    assert rows_of(spark.sql(sql).toArrow()) == inline(inputs)[place]
    (total,) = spark.sql("SELECT sum(length(payload)), max(`inner.ttl`) FROM frames").collect()
    assert total[0] > 0 < total[1]
    with pytest.raises(ValueError, match="got rows of the kind flows, expected packets or frames"):
        packets_dataframe(spark, inputs, kind="flows")
