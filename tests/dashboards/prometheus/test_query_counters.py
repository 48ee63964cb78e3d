"""Counters of queries: every window is counted once, whatever the scrapes, the batches and the order of the rows."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.query_counters import values_with_counters
from dashboards.prometheus.query_series import QuerySeries
from queries.gsql import compile_query
from tests.references.exporter_rows import SECOND, exposition, plan, rows, samples

TALKERS = plan("srcIP, count(*) AS packets, sum(len) AS bytes, avg(len) AS mean", "srcIP")


def totals(exporter: Exporter, column: str) -> dict[str, float]:
    """Return the value of each series of a counter, by its label."""
    lines = samples(exporter, f"wiretide_query_talkers_{column}_added_total")
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize("seed", range(10))
def test_counters_add_up_to_all_windows(seed: int) -> None:
    random = Random(seed)
    exporter, sums, before = Exporter([TALKERS], [], top=3, counters=True), Counter[str](), dict[str, float]()
    for window in range(40):
        groups = random.sample(range(1, 30), random.randint(1, 20))
        values = [(f"10.0.0.{n}", random.randint(1, 9) + 100 * (n < 4), 1000, 1.0) for n in groups]
        for _, packets, size, _ in values:
            sums["packets"] += packets
            sums["bytes"] += size
        cut = random.randint(0, len(values))
        for part in (values[:cut], values[cut:]):  # as partitions do
            exporter.add_results("talkers", rows(TALKERS, 60 * window, *part))
        after = totals(exporter, "packets")
        assert len(after) <= 2 * 3 + 1
        assert all(after[name] >= number for name, number in before.items() if name in after)
        lost = sum(number for name, number in before.items() if name not in after)
        sums["packets"] -= int(lost)
        assert sum(after.values()) == sums["packets"]
        before = after
    assert totals(exporter, "mean") == {}


def test_a_call_with_many_windows_counts_all_of_them() -> None:
    exporter = Exporter([TALKERS], [], counters=True)
    windows = [rows(TALKERS, 60 * n, ("10.0.0.1", n, 10 * n, 1.0)) for n in range(1, 6)]
    exporter.add_results("talkers", pa.concat_tables(windows[::-1]))
    assert totals(exporter, "packets") == {"10.0.0.1": 15}
    assert samples(exporter, "wiretide_query_talkers_packets") == ['{src_ip="10.0.0.1"} 5.0']


def test_a_group_that_lost_its_place_keeps_its_counter_for_a_while() -> None:
    exporter = Exporter([TALKERS], [], top=1, counters=True)
    for window in range(20):
        size = 1000 if window else 1
        exporter.add_results(
            "talkers", rows(TALKERS, 60 * window, ("10.0.0.1", 10, 0, 1.0), ("10.0.0.2", size, 0, 1.0))
        )
    assert totals(exporter, "packets")["10.0.0.1"] == 10
    assert totals(exporter, "packets")["10.0.0.2"] == 19_000
    assert totals(exporter, "packets")["other"] == 20 * 10 - 10 + 1


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT count(*) AS n, max(len) AS m FROM p [RANGE 1 minute]", ["n"]),
        ("SELECT count(*) AS n FROM p [RANGE 1 minute SLIDE 10 s]", []),
        ("SELECT srcIP, count(*) AS n FROM p [SESSION 5 seconds] GROUP BY srcIP", ["n"]),
        ("SELECT count(*) AS n FROM p", []),
        ("SELECT count(*) AS n FROM p [RANGE 1000 rows]", []),
        ("SELECT median(len) AS n FROM p [RANGE 1 minute]", []),
    ],
)
def test_windows_that_overlap_have_no_counters(sql: str, columns: list[str]) -> None:
    series = QuerySeries(compile_query(sql, "q"), 3)
    assert [value.column for value in values_with_counters(series)] == columns


def test_counters_are_described_and_off_by_default() -> None:
    assert "added_total" not in exposition(Exporter([TALKERS], []))
    text = exposition(Exporter([TALKERS], [], counters=True))
    assert "# TYPE wiretide_query_talkers_packets_added_total counter" in text
    assert "added over all closed windows" in text


def test_a_column_with_the_name_of_a_counter_is_refused() -> None:
    query = compile_query("SELECT count(*) AS n, sum(len) AS n_added_total FROM p [RANGE 1 minute]", "q")
    with pytest.raises(ValueError, match="n_added_total"):
        Exporter([query], [], counters=True)


@pytest.mark.slow("a million groups")
def test_a_flood_of_a_million_sources_stays_within_the_limit() -> None:
    count = 1_000_000
    addresses = pa.Array.from_buffers(
        pa.binary(),
        count,
        [None, pa.py_buffer(np.arange(0, 4 * count + 4, 4, np.int32)), pa.py_buffer(np.arange(count, dtype=">u4"))],
    )
    plan_of_two = plan("srcIP, count(*) AS packets, sum(len) AS bytes", "srcIP")
    exporter = Exporter([plan_of_two], [], top=10, counters=True)
    for window in range(3):
        bounds = [pa.repeat(pa.scalar((60 * (window + each)) * SECOND), count) for each in (0, 1)]
        packets = np.ones(count, np.int64)
        packets[17] = 1000
        columns = [*bounds, addresses, pa.array(packets), pa.array(packets * 60)]
        exporter.add_results("talkers", pa.table(columns, plan_of_two.schema))
        text = exposition(exporter)
        for name, most in (("packets", 11), ("bytes", 11), ("packets_added_total", 21), ("bytes_added_total", 21)):
            lines = [line for line in text.splitlines() if line.startswith(f"wiretide_query_talkers_{name}{{")]
            assert len(lines) <= most
            total = sum(float(line.rpartition(" ")[2]) for line in lines)
            factor = (60 if "bytes" in name else 1) * (window + 1 if "added" in name else 1)
            assert total == (count + 999) * factor
