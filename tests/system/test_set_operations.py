"""Set operations over captures and tables, against sets and lists in plain Python.

The tests detect columns that are matched by name, a comparison of rows of different windows, an order over all windows
in place of one per window, and a result that waits for the end of the input. Random queries against DuckDB are in
`tests/conformance`.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

import wiretide
from queries.gsql import compile_query
from tests.harness.links import write_links

OPERATORS = ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]
WINDOW = "[RANGE 2 seconds, SLIDE 1 second]"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


def values(sql: str, *inputs: Path | pa.Table, threads: int | None = None) -> list[tuple]:
    return [tuple(row.values()) for row in wiretide.query(sql, *inputs, threads=threads).to_pylist()]


def combined(operator: str, first: list[tuple], second: list[tuple]) -> Counter[tuple]:
    a, b = Counter(first), Counter(second)
    rows = {"UNION": a + b, "INTERSECT": a & b, "EXCEPT": a - b if "ALL" in operator else Counter(a.keys() - b.keys())}
    multiset = rows[operator.removesuffix(" ALL")]
    return multiset if "ALL" in operator else Counter(set(multiset))


@pytest.mark.drawn
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_of_every_type(operator: str, threads: int, paths: list[Path]) -> None:
    first = "SELECT srcIP AS a, srcMAC AS b, link, len * 1.0 AS c, ts FROM packets WHERE len < 500"
    second = "SELECT destIP, destMAC, link, len, ts FROM packets WHERE len > 100"
    parts = [values(query, *paths) for query in (first, second)]
    assert Counter(values(f"{first} {operator} {second}", *paths, threads=threads)) == combined(operator, *parts)


@pytest.mark.drawn
@pytest.mark.parametrize("operator", OPERATORS)
def test_windows(operator: str, paths: list[Path]) -> None:
    first = f"SELECT srcIP, count(*) AS n FROM packets {WINDOW} GROUP BY srcIP"
    second = f"SELECT destIP, count(*) FROM packets {WINDOW} GROUP BY destIP"
    expected = combined(operator, values(first, *paths), values(second, *paths))
    sql = f"{first} {operator} {second}"
    assert Counter(values(sql, *paths)) == expected
    kept = values(f"{sql} ORDER BY n DESC LIMIT 2", *paths, threads=2)
    for bounds, rows in groupby(sorted(expected.elements()), key=lambda row: row[:2]):
        counts = sorted((row[3] for row in rows), reverse=True)
        assert [row[3] for row in kept if row[:2] == bounds] == counts[:2]
    assert len({row[:2] for row in expected}) == len({row[:2] for row in kept}) > 3


@pytest.mark.drawn
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("time", ["window_start", "window_end"])
def test_windows_are_grouped_by_either_bound(operator: str, time: str, paths: list[Path]) -> None:
    first = "SELECT srcIP FROM packets [RANGE 1 second] GROUP BY srcIP"
    second = "SELECT destIP FROM packets [RANGE 1 second] GROUP BY destIP"
    found = values(f"SELECT count(*) AS n FROM ({first} {operator} {second}) q [RANGE 4 seconds, WA {time}]", *paths)
    at = ("window_start", "window_end").index(time)
    rows = combined(operator, values(first, *paths), values(second, *paths)).elements()
    counts = Counter(row[at].value // (4 * 10**9) for row in rows)
    assert {start.value // (4 * 10**9): n for start, _, n in found} == counts


@pytest.mark.parametrize("operator", OPERATORS)
def test_windows_and_rows_with_a_time_do_not_wait_for_the_end(operator: str) -> None:
    minutes = "SELECT {0} AS ip FROM M [RANGE 1 minute] GROUP BY {0}"
    windows = f"{minutes.format('srcIP')} {operator} {minutes.format('destIP')} ORDER BY ip LIMIT 3"
    assert compile_query(windows).waiting_reason is None
    assert compile_query(f"SELECT ts, srcIP FROM M {operator} SELECT ts, destIP FROM N").waiting_reason is None


def test_union_between_tables_in_from_matches_columns_by_name(paths: list[Path]) -> None:
    sql = "SELECT a FROM (SELECT len AS a, ttl AS b FROM packets) UNION (SELECT ttl AS b, len AS a FROM packets)"
    lengths = values("SELECT len FROM packets", *paths)
    assert Counter(values(sql, *paths)) == Counter(2 * lengths)
    by_position = "(SELECT len AS a FROM packets) UNION ALL (SELECT ttl AS b FROM packets)"
    assert Counter(values(by_position, *paths)) == Counter(lengths + values("SELECT ttl FROM packets", *paths))


def test_tables() -> None:
    table = pa.table({"x": [1, 2, 2, None], "y": ["a", "b", None, "d"]})
    assert set(values("SELECT x, y FROM t EXCEPT SELECT x, y FROM t WHERE x = 1", table)) == {
        (2, "b"),
        (2, None),
        (None, "d"),
    }
    assert values("SELECT x FROM t INTERSECT SELECT 2 AS two FROM t ORDER BY x", table) == [(2,)]


def test_constant_texts_are_addresses_next_to_addresses(paths: list[Path]) -> None:
    totals = "SELECT '0.0.0.0' AS host, count(*) AS n FROM packets UNION ALL"
    groups = "SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP"
    (total,) = values("SELECT count(*) FROM packets", *paths)
    assert Counter(values(f"{totals} {groups}", *paths)) == Counter([("0.0.0.0", *total), *values(groups, *paths)])


def test_all_columns_of_joined_tables(paths: list[Path]) -> None:
    join = "FROM (SELECT ts, len FROM packets) a [RANGE 1 ms] "
    join += "JOIN (SELECT ts, ttl FROM packets) b [RANGE 1 ms] ON a.len = b.ttl"
    first, second = f"SELECT a.*, b.ttl {join}", "SELECT ts, len, ttl FROM packets"
    parts = [values(sql, *paths) for sql in (first, second)]
    assert Counter(values(f"{first} UNION {second}", *paths)) == combined("UNION", *parts)
    assert Counter(values(f"{second} EXCEPT {first}", *paths)) == combined("EXCEPT", *parts[::-1])


def test_sub_queries(paths: list[Path]) -> None:
    sources, destinations = (set(values(f"SELECT {name} FROM packets", *paths)) for name in ("srcIP", "destIP"))
    rows = values("SELECT srcIP, len FROM packets", *paths)
    both = "SELECT srcIP FROM packets INTERSECT SELECT destIP FROM packets"
    enclosed = "((SELECT srcIP FROM packets) INTERSECT (SELECT destIP FROM packets))"
    expected = Counter(row for row in rows if row[:1] in sources & destinations)
    for query in (f"({both})", enclosed):
        assert Counter(values(f"SELECT srcIP, len FROM packets WHERE srcIP IN {query}", *paths)) == expected
    assert values(f"SELECT count(*) AS n FROM {enclosed} q", *paths) == [(len(sources & destinations),)]
    assert values(f"WITH q AS ({both}) SELECT count(*) AS n FROM q", *paths) == [(len(sources & destinations),)]
