"""All three engines give the same rows, and so does the definition of the windows, over packets in plain Spark SQL.

The definition shares the capture reader with the engines and nothing else: no table, no partials, no panes, no
operators. Generated links contain disorder, skew, lulls, silence and gaps of years. Real captures contain unforeseen
cases.
"""

import shutil
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from capture.metrics import PACKETS_DECODED
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.harness.links import START, packet, write_links
from tests.harness.spark_results import ordered, read_results
from tests.references.imitating_frames import IMITATION
from tests.references.pcap_bytes import NS, pcap_bytes
from tests.references.window_queries import QUERIES

if TYPE_CHECKING:
    from highlevel.spark.stream import StreamRun

pytestmark = pytest.mark.spark
PLANS = [compile_query(query.gsql, query.name) for query in QUERIES]
REAL = ["1kxun.pcap", "netflix.pcap", "gnutella.pcap", "KakaoTalk_talk.pcap", "teams.pcap"]


def inline(inputs: list[Input]) -> tuple[dict[str, pa.Table], InlineRun]:
    run = InlineRun(PLANS, inputs)
    found: list[list[pa.RecordBatch]] = [[] for _ in PLANS]
    for number, batch in run.results():
        found[number].append(batch)
    tables = zip(PLANS, found, strict=True)
    return {plan.name: ordered(pa.Table.from_batches(rows, plan.schema)) for plan, rows in tables}, run


def stream(spark, inputs: list[Input], folder: Path, **options) -> tuple[dict[str, pa.Table], "StreamRun"]:
    from highlevel.spark.stream import StreamRun

    run = StreamRun(spark, PLANS, inputs, folder, **options)
    run.start()
    try:
        assert run.wait()
    finally:
        run.stop()
    return {plan.name: ordered(read_results(folder, plan)) for plan in PLANS}, run


def by_definition(spark, inputs: list[Input]) -> dict[str, pa.Table]:
    from tests.references.spark_packets import packets_dataframe

    packets_dataframe(spark, inputs).createOrReplaceTempView("packets")
    tables = {query.name: spark.sql(query.definition()).toArrow() for query in QUERIES}
    return {plan.name: ordered(tables[plan.name].cast(plan.schema)) for plan in PLANS}


def check(spark, inputs: list[Input], folder: Path, **options) -> None:
    from highlevel.spark.batch import BatchRun

    want, run = inline(inputs)
    got, streamed = stream(spark, inputs, folder, **options)
    defined = by_definition(spark, inputs)
    batch = BatchRun(spark, PLANS, inputs)
    for plan, rows in zip(PLANS, batch.run(), strict=True):
        assert ordered(rows).equals(want[plan.name]), f"batch, {plan.name}"
        assert got[plan.name].equals(want[plan.name]), f"stream, {plan.name}"
        assert defined[plan.name].equals(want[plan.name]), f"definition, {plan.name}"
    for samples in (batch.samples, streamed.samples):
        assert samples.total(PACKETS_DECODED) == run.samples().total(PACKETS_DECODED)


@pytest.mark.parametrize("seed", range(3))
def test_the_engines_and_the_definition_agree_on_links_that_go_wrong(seed: int, spark, tmp_path: Path) -> None:
    inputs = write_links(tmp_path, 100 + seed)
    random = Random(seed)
    options = {"partitions": random.choice([1, 2, 3]), "block_records": 100, "max_blocks": random.choice([3, 9])}
    check(spark, inputs, tmp_path / "run", slots=256, **options)


@pytest.mark.drawn
@pytest.mark.parametrize("name", REAL)
def test_the_engines_and_the_definition_agree_on_real_captures(
    name: str, spark, captures: Path, tmp_path: Path
) -> None:
    check(spark, [Input("link", captures / "pcap" / name)], tmp_path / "run", block_records=512, max_blocks=4)


def test_an_answer_over_ranges_that_were_guessed_wrong_is_computed_again(spark, tmp_path: Path, monkeypatch) -> None:
    from highlevel.spark.batch import BatchRun
    from highlevel.spark.inputs import byte_ranges

    path = tmp_path / "imitations.pcap"
    random = Random(1)
    packets = [packet(random) + IMITATION * 500 for _ in range(41)]  # the cut falls into the middle of one
    path.write_bytes(pcap_bytes([(START + number * NS, frame) for number, frame in enumerate(packets)]))
    monkeypatch.setattr(byte_ranges, "MIN_RANGE_BYTES", 1)
    inputs = [Input("a", path)]
    run = BatchRun(spark, [PLANS[3]], inputs)
    (answer,) = run.run()
    assert answer.num_rows > 0
    assert ordered(answer).equals(inline(inputs)[0]["all"])
    assert run.has_wrong_guess


def test_a_replay_at_a_speed_gives_the_same_rows(spark, tmp_path: Path) -> None:
    inputs = [each for each in write_links(tmp_path, 6) if each.link.startswith(("main", "control"))]
    got, run = stream(spark, inputs, tmp_path / "run", speed=600.0)
    assert got["pairs"].equals(inline(inputs)[0]["pairs"])
    assert run.finished


def test_the_engines_agree_where_there_is_no_packet(spark, tmp_path: Path) -> None:
    path = tmp_path / "empty.pcap"
    path.write_bytes(pcap_bytes([]))
    check(spark, [Input("a", path)], tmp_path / "run")


def test_a_moved_run_of_copied_captures_can_not_be_told_from_the_first(spark, tmp_path: Path) -> None:
    """The answer depends only on contents: not on the time of a file, nor on earlier work of Spark."""
    inputs = write_links(tmp_path, 7)[:2]
    first, _ = stream(spark, inputs, tmp_path / "first")
    for each in inputs:
        shutil.copy(each.path, tmp_path / f"copy-{each.path.name}")
    copies = [Input(each.link, tmp_path / f"copy-{each.path.name}") for each in inputs]
    assert stream(spark, copies, tmp_path / "second")[0] == first
