"""Both Spark engines against the independent truth: every capture, each a link of its own, in one run.

The tests detect errors that need a special file: a link layer, a jump of years or a damaged end.
"""

import csv
import gzip
from ipaddress import ip_address
from pathlib import Path

import pyarrow as pa
import pytest

from highlevel.inline.engine import Input
from highlevel.spark.batch import run_batch
from highlevel.spark.stream import StreamRun
from queries.gsql import compile_query

pytestmark = pytest.mark.spark

PAIRS = compile_query(
    "SELECT link, srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM p [RANGE 1 minute, SLIDE 1 minute, WA ts]"
    " GROUP BY link, srcIP, destIP",
    "pairs",
)
Rows = set[tuple[str, int, bytes, bytes, int, int]]


@pytest.fixture(scope="module")
def inputs(captures: Path) -> list[Input]:
    """The captures of `pcap/`."""
    with (captures / "manifest.csv").open(newline="") as manifest:
        names = [row["file"] for row in csv.DictReader(manifest)]
    return [Input(name, captures / name) for name in names if name.startswith("pcap/")]


@pytest.fixture(scope="module")
def truth(captures: Path, inputs: list[Input]) -> Rows:
    """Packets and wire bytes per capture, minute and pair."""
    links = {each.link for each in inputs}
    with gzip.open(captures / "truth" / "pairs-60s.csv.gz", "rt", newline="") as file:
        return {
            (
                row["file"], int(row["window_start_ns"]), ip_address(row["src"]).packed, ip_address(row["dst"]).packed,
                int(row["packets"]), int(row["wire_bytes"]),
            )
            for row in csv.DictReader(file)
            if row["file"] in links
        }  # fmt: skip


def rows(table: pa.Table) -> Rows:
    names = ["link", "window_start", "srcIP", "destIP", "packets", "bytes"]
    found = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


def test_spark_batch_equals_the_truth_of_every_capture(spark, inputs: list[Input], truth: Rows) -> None:
    assert len(inputs) >= 190
    assert rows(run_batch(spark, PAIRS, inputs, slots=1024)) == truth


def test_the_spark_stream_equals_the_truth_of_every_capture(
    spark, inputs: list[Input], truth: Rows, tmp_path: Path
) -> None:
    tables: list[pa.Table] = []
    run = StreamRun(
        spark, [PAIRS], inputs, tmp_path, slots=1024, on_batch=lambda _, results, __: tables.append(results["pairs"])
    )
    run.start()
    try:
        while not run.wait(1):
            pass
    finally:
        run.stop()
    assert rows(pa.concat_tables(tables)) == truth
