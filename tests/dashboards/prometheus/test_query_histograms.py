"""Histograms of queries: cumulative buckets over all windows, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from math import inf
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.query_histograms import MAX_BOUNDS
from dashboards.prometheus.server import serve
from highlevel.plan.plan import Plan
from queries.gsql import compile_query
from tests.harness.prometheus_server import prometheus
from tests.references.exporter_rows import SECOND, exposition, samples

SIZES = compile_query(
    "SELECT bucket(len, 64, 512, 1518) AS size, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY size", "sizes"
)
NAME = "wiretide_query_sizes_n_histogram"


def window(plan: Plan, number: int, counts: dict[float | None, int]) -> pa.Table:
    bounds = [10 * number * SECOND, 10 * (number + 1) * SECOND]
    rows = [dict(zip(plan.schema.names, (*bounds, bound, n), strict=True)) for bound, n in counts.items()]
    return pa.Table.from_pylist(rows, plan.schema)


def buckets(exporter: Exporter) -> dict[float, float]:
    lines = samples(exporter, f"{NAME}_bucket")
    return {float(line.split('"')[1]): float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("seed", range(5))
def test_buckets_are_cumulative_over_all_windows(seed: int) -> None:
    random = Random(seed)
    exporter, total = Exporter([SIZES], [], histograms={"sizes": "size"}), Counter[float]()
    for number in range(20):
        counts: dict[float | None, int] = {
            bound: random.randint(1, 9) for bound in random.sample([64, 512, 1518, None], random.randint(1, 4))
        }
        for bound, n in counts.items():
            total[inf if bound is None else bound] += n
        exporter.add_results("sizes", window(SIZES, number, counts))
    found = buckets(exporter)
    assert found == {bound: sum(n for each, n in total.items() if each <= bound) for bound in (64, 512, 1518, inf)}
    assert f"{NAME}_count {float(total.total())}\n" in exposition(exporter)
    assert f"# TYPE {NAME} histogram\n" in exposition(exporter)


def test_too_many_bounds_are_part_of_the_next_larger_one() -> None:
    raw = compile_query("SELECT len, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY len", "sizes")
    exporter = Exporter([raw], [], histograms={"sizes": "len"})
    exporter.add_results("sizes", window(raw, 0, {10 * bound: 1 for bound in range(MAX_BOUNDS)}))
    exporter.add_results("sizes", window(raw, 1, {15: 1, 10_000: 1}))
    found = buckets(exporter)
    assert len(found) == MAX_BOUNDS + 1
    assert (found[10], found[20], found[inf]) == (2, 4, MAX_BOUNDS + 2)


@pytest.mark.slow("a real Prometheus")
def test_prometheus_computes_a_quantile(tmp_path: Path) -> None:
    exporter = Exporter([SIZES], [], histograms={"sizes": "size"})
    with serve(exporter, port=0) as server, prometheus(tmp_path, server.url) as asked:
        exporter.add_results("sizes", window(SIZES, 0, {64: 50, 512: 40, 1518: 10}))
        quantile = f"histogram_quantile(0.5, {NAME}_bucket)"
        asked.until(lambda: asked.values(quantile), "a quantile")
        assert asked.values(quantile) == {(): 64.0}


@pytest.mark.parametrize(
    ("sql", "column", "message"),
    [
        ("SELECT len, srcIP, count(*) AS n FROM p [RANGE 1 s] GROUP BY len, srcIP", "len", "expected only len"),
        ("SELECT srcIP, count(*) AS n FROM p [RANGE 1 s] GROUP BY srcIP", "srcIP", "got the type address of srcIP"),
        ("SELECT len, median(ttl) AS n FROM p [RANGE 1 s] GROUP BY len", "len", "got no count"),
        ("SELECT len, count(*) AS n FROM p [RANGE 2 s SLIDE 1 s] GROUP BY len", "len", "windows that do not overlap"),
        ("SELECT len, count(*) AS n FROM p [RANGE 1 s] GROUP BY len", "size", "got the group columns len"),
        ("SELECT ts FROM p", "ts", "has no windows, so it has no histogram"),
    ],
)
def test_a_query_without_a_histogram_is_refused(sql: str, column: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Exporter([compile_query(sql, "q")], [], histograms={"q": column})
