"""LIFETIME in SQL: flows, packets and tables, compared with the definition.

A snapshot of a group is the time between two neighbouring starts or ends of its rows. The tests detect a lifetime that
is not half-open, a row of another group, results before a row that began earlier, and late rows that are not counted.
"""

import math
import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import wiretide
from highlevel.inline.engine import InlineRun, Input
from highlevel.metrics import LATE_ROWS, OUTSIDE_WINDOWS
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.conftest import Rounds
from tests.harness.recorded_runs import RecordedRun, rows_in
from tests.references.pcap_bytes import NS
from tests.references.written_exports import write_exports

FLOWS = "FROM flows [LIFETIME start_ts TO end_ts]"


def snapshots(rows: list[tuple[int, int | None, object, int]]) -> Counter[tuple]:
    """Rows `start, end, group, value` as snapshots: `start, end, group, count, sum, max, different values`."""
    groups: dict[object, list[tuple[int, float, int]]] = defaultdict(list)
    for start, end, group, value in rows:
        last = float("inf") if end is None else max(end, start + 1)
        groups[group].append((start, last, value))
    found: Counter[tuple] = Counter()
    for group, lifetimes in groups.items():
        times = sorted({time for start, end, _ in lifetimes for time in (start, end)})
        for start, end in pairwise(times):
            values = [value for first, last, value in lifetimes if first <= start and end <= last]
            if values:
                last_time = None if end == float("inf") else end
                found[start, last_time, group, len(values), sum(values), max(values), len(set(values))] += 1
    return found


def answer(sql: str, path: Path) -> tuple[Counter[tuple], InlineRun]:
    run = InlineRun([compile_query(sql)], [Input("a", path)], block_records=16, threads=1)
    return Counter(tuple(row.values()) for _, batch in run.results() for row in batch.to_pylist()), run


def test_flows_are_counted_while_they_are_open(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(3):
        flows = write_exports(tmp_path / "exports.pcap", Random(seed), 60)
        columns = "protocol, count(*) AS n, sum(bytes) AS s, max(bytes) AS m, count(DISTINCT bytes) AS d"
        found, run = answer(f"SELECT {columns} {FLOWS} GROUP BY protocol", tmp_path / "exports.pcap")
        expected = snapshots([(flow["start_ts"], flow["ts"], flow["protocol"], flow["bytes"]) for flow in flows])
        assert found == expected, seed
        assert run.samples().total(LATE_ROWS) == 0


def test_remember_makes_flows_final_before_the_end_and_counts_those_that_began_earlier(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(4), 80)
    sql = f"SELECT count(*) AS n {FLOWS} WITH CONSISTENCY (REMEMBER %s)"
    enough = RecordedRun(sql % "6 minutes", path)
    steps = list(enough.steps())
    assert sum(map(len, map(rows_in, steps[:-2]))) > 50, "no results before the end"
    rows = [row for items in steps for row in rows_in(items)]
    assert Counter((*row[:2], None, row[2]) for row in rows) == Counter(
        row[:4] for row in snapshots([(flow["start_ts"], flow["ts"], None, 0) for flow in flows])
    )
    _, run = answer(sql % "30 seconds", path)
    assert 0 < run.samples().total(LATE_ROWS) < len(flows)


@pytest.mark.parametrize("clauses", ["WITH CONSISTENCY (WAIT 20 seconds, REMEMBER 10 minutes)", ""])
def test_changes_of_flows_add_up_to_the_final_rows(clauses: str, tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    write_exports(path, Random(9), 50)
    sql = f"SELECT protocol, count(*) AS n, median(bytes) AS m {FLOWS} GROUP BY protocol HAVING count(*) > 1"
    exact, _ = answer(sql, path)
    total: Counter[tuple] = Counter()
    corrections = 0
    for items in RecordedRun(f"{sql} {clauses} EMIT CHANGES", path).steps():
        for *row, weight, _ in rows_in(items):
            total[tuple(row)] += weight
            corrections += weight < 0
            assert total[tuple(row)] >= 0
    assert +total == exact
    assert corrections > 0


ROWS = pa.table(
    {
        "begin": pa.array([4, 1, 9, None, 7, 5], pa.timestamp("ns")),
        "finish": pa.array([8, None, 9, 3, 2, 6], pa.timestamp("ns")),
        "host": ["a", "b", "a", "a", "a", "a"],
        "load": [1.5, float("nan"), -2.0, 0.0, 0.0, 9.0],
    }
)


def table_rows(select: str, rows: pa.Table = ROWS) -> list[tuple]:
    """Return the rows of a query over ROWS in the order of their starts; times are numbers of ns."""
    found = wiretide.query(f"SELECT {select}", rows).sort_by("window_start").to_pylist()
    return [tuple(getattr(value, "value", value) for value in row.values()) for row in found]


def test_a_row_without_an_end_is_true_forever_and_one_of_no_length_for_a_nanosecond() -> None:
    found = table_rows("host, count(*) AS n FROM rows [LIFETIME begin TO finish] GROUP BY host")
    assert found == [(1, None, "b", 1), (4, 5, "a", 1), (5, 6, "a", 2), (6, 8, "a", 1), (9, 10, "a", 1)]


def test_extremes_of_floats_ignore_nan() -> None:
    found = table_rows("host, min(load) AS low, max(load) AS high FROM rows [LIFETIME begin TO finish] GROUP BY host")
    assert [row[3:] for row in found if row[2] == "a"] == [(1.5, 1.5), (1.5, 9.0), (1.5, 1.5), (-2.0, -2.0)]
    assert str([row[3:] for row in found if row[2] == "b"]) == "[(nan, nan)]"
    mixed = pa.table({"begin": [1, 1], "load": [float("nan"), 2.0]}).cast(
        pa.schema([("begin", pa.timestamp("ns")), ("load", pa.float64())])
    )
    assert table_rows("min(load) AS low, max(load) AS high FROM rows [LIFETIME 3 ns]", mixed) == [(1, 4, 2.0, 2.0)]


def test_sums_and_deviations_of_floats_are_exact_when_rows_end(rounds: Rounds) -> None:
    for seed in rounds(3):
        random = Random(f"floats {seed}")
        lifetimes = [(start, start + random.randint(1, 40)) for start in (random.randrange(90) for _ in range(80))]
        loads = [random.choice([0.1, 1e16, -1e16, random.gauss(0, 3)]) for _ in lifetimes]
        begin, finish = (pa.array(times, pa.timestamp("ns")) for times in zip(*lifetimes, strict=True))
        table = pa.table({"begin": begin, "finish": finish, "load": loads})
        aggregates = "sum(load) AS s, avg(load) AS a, stddev_pop(load) AS d, variance(load) AS v"
        for start, end, total, mean, deviation, variance in table_rows(
            f"{aggregates} FROM rows [LIFETIME begin TO finish]", table
        ):
            true = [x for (first, last), x in zip(lifetimes, loads, strict=True) if first <= start and end <= last]
            n, squares = len(true), math.fsum(x * x for x in true)
            assert total == math.fsum(true), seed
            assert mean == math.fsum(true) / n
            spread = max(squares - total * (total / n), 0.0)
            assert deviation == math.sqrt(spread / n)
            assert variance == (None if n == 1 else spread / (n - 1))


def test_with_slide_a_row_counts_in_each_window_that_it_touches() -> None:
    a = "WHERE host = 'a'"
    touched = table_rows(f"count(*) AS n FROM rows [LIFETIME begin TO finish, SLIDE 5 ns] {a}")
    assert touched == [(0, 5, 1), (5, 10, 3)]
    timed = ROWS.filter(ROWS["begin"].is_valid())
    of_length = table_rows(f"count(*) AS n FROM rows [LIFETIME 7 ns, SLIDE 5 ns] {a}", timed)
    assert of_length == [(0, 5, 1), (5, 10, 4), (10, 15, 4), (15, 20, 1)]


def test_flows_are_counted_in_each_minute_that_they_touch(tmp_path: Path, rounds: Rounds) -> None:
    for seed in rounds(2):
        path = tmp_path / "exports.pcap"
        flows = write_exports(path, Random(f"minutes {seed}"), 60)
        clause = "[LIFETIME start_ts TO end_ts, SLIDE 1 minute]"
        sql = f"SELECT protocol, count(*) AS n FROM flows {clause} GROUP BY protocol"
        expected: Counter[tuple] = Counter()
        for flow in flows:
            last = max(flow["ts"] - 1, flow["start_ts"])
            for minute in range(flow["start_ts"] // (60 * NS), last // (60 * NS) + 1):
                expected[minute * 60 * NS, (minute + 1) * 60 * NS, flow["protocol"]] += 1
        rows, _ = answer(sql, path)
        assert {row[:3]: row[3] for row in rows} == expected, seed
        total: Counter[tuple] = Counter()
        clauses = "WITH CONSISTENCY (REMEMBER 10 minutes) EMIT CHANGES"
        for items in RecordedRun(f"{sql} {clauses}", path).steps():
            for *row, weight, _ in rows_in(items):
                total[tuple(row)] += weight
        assert +total == rows
        largest, _ = answer(f"{sql} ORDER BY n DESC LIMIT 1", path)
        assert len(largest) == len({row[0] for row in expected})


def test_rows_without_a_lifetime_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(3), 20)
    _, run = answer("SELECT count(*) AS n FROM flows [LIFETIME end_ts TO start_ts]", path)
    assert run.samples().total(OUTSIDE_WINDOWS) == sum(flow["start_ts"] < flow["ts"] for flow in flows)


def test_a_query_can_read_snapshots(tmp_path: Path) -> None:
    path = tmp_path / "exports.pcap"
    flows = write_exports(path, Random(7), 40)
    open_flows = f"SELECT count(*) AS n {FLOWS}"
    found, _ = answer(f"SELECT max(n) AS most FROM ({open_flows}) [RANGE 100 seconds]", path)
    expected: dict[int, int] = {}
    for _, end, _, n, *_ in snapshots([(flow["start_ts"], flow["ts"], None, 0) for flow in flows]):
        window = end // (100 * NS)
        expected[window] = max(n, expected.get(window, 0))
    assert {start // (100 * NS): most for start, _, most in found} == expected


REFUSED = [
    ("count(*) FROM M [LIFETIME]", "got LIFETIME ']'; expected a length, for example 5 minutes, or columns"),
    ("count(*) FROM M.flows [LIFETIME start_ts]", "got ']' after the start; expected TO and the end"),
    ("count(*) FROM M [LIFETIME ts TO len]", "LIFETIME of len, which is integer; expected a column of times"),
    ("count(*) FROM M.flows [LIFETIME start_ts TO stop]", "unknown column 'stop'"),
    ("count(*) FROM M [LIFETIME 5 rows]", "got LIFETIME of rows; expected a length of time"),
    ("count(*) FROM M [LIFETIME 5 s, RANGE 1 s]", "RANGE together with LIFETIME; expected only LIFETIME, SLIDE, WA"),
    ("count(*) FROM M [LIFETIME 5 s, SLIDE 9 rows]", "SLIDE of rows together with LIFETIME; expected a length of time"),
    ("count(*) FROM M.flows [LIFETIME start_ts TO end_ts, WA ts]", "expected only LIFETIME, SLIDE"),
    ("entropy(len) FROM M [LIFETIME 5 s]", "entropy together with LIFETIME; expected one of count, sum, avg, min"),
    ("max(srcIP) FROM M [LIFETIME 5 s]", "max of type address together with LIFETIME; expected a column of type int"),
    ("count(DISTINCT srcIP, destIP) FROM M [LIFETIME 5 s]", "of several columns together with LIFETIME; expected one"),
    ("count(*) FROM M [LIFETIME 5 s] FILL 0", "FILL of sessions, lifetimes, windows of rows or RANGE ALL"),
    ("len FROM M [LIFETIME 5 s] GROUP BY len HAVING top(1, count(*))", "top over windows that differ between groups"),
    ("lag(count(*)) OVER () FROM M [LIFETIME 5 s]", "lag OVER together with LIFETIME; expected row_number, rank"),
    ("count(*) FROM M [LIFETIME 5 s] WITH CONSISTENCY (EARLY 1 s) EMIT CHANGES", "together with EARLY of lifetimes"),
]


@pytest.mark.parametrize(("select", "message"), REFUSED)
def test_what_lifetimes_cannot_have_is_refused_with_a_remedy(select: str, message: str) -> None:
    with pytest.raises(QueryError, match=re.escape(message)):
        compile_query(f"SELECT {select}")


def test_flows_without_remember_wait_for_the_end() -> None:
    assert compile_query(f"SELECT count(*) {FLOWS}").waiting_reason == "reads lifetimes without REMEMBER"
    assert compile_query(f"SELECT count(*) {FLOWS} WITH CONSISTENCY (REMEMBER FOREVER)").waiting_reason is not None
    assert compile_query(f"SELECT count(*) {FLOWS} WITH CONSISTENCY (REMEMBER 1 hour)").waiting_reason is None
    assert compile_query("SELECT count(*) FROM packets [LIFETIME 5 minutes]").waiting_reason is None
