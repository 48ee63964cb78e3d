"""SELECT DISTINCT without a time column, and in windows: one row for each group of equal rows, against plain Python.

The tests detect a plan that deletes rows early, one that returns a row of each link or thread, and NULL as a missing
row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wiretide
from highlevel.plan.nodes import Distinct
from queries.gsql import compile_query
from tests.harness.links import write_links

Row = dict[str, Any]
MINUTE = 60 * 10**9


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


@pytest.fixture(scope="module")
def rows(paths: list[Path]) -> list[Row]:
    found: list[Row] = wiretide.query(
        "SELECT ts / 1 AS ns, srcIP, destIP, srcPort, protocol, len FROM packets", *paths
    ).to_pylist()
    return found


def values(sql: str, paths: list[Path], threads: int = 1) -> list[tuple]:
    return [tuple(row.values()) for row in wiretide.query(sql, *paths, threads=threads).to_pylist()]


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_of_links(threads: int, paths: list[Path], rows: list[Row]) -> None:
    found = values("SELECT DISTINCT srcIP, len % 3 AS r FROM packets WHERE len > 50", paths, threads)
    assert len(found) == len(set(found))
    assert set(found) == {(row["srcIP"], row["len"] % 3) for row in rows if row["len"] > 50}


def test_null_is_a_value_and_order_and_limit_follow(paths: list[Path], rows: list[Row]) -> None:
    ports = {row["srcPort"] for row in rows}
    expected = sorted(ports - {None}, reverse=True) + ([None] if None in ports else [])
    sql = "SELECT DISTINCT srcPort FROM packets ORDER BY srcPort DESC"
    assert [port for (port,) in values(sql, paths)] == expected
    assert [port for (port,) in values(f"{sql} LIMIT 2 OFFSET 1", paths)] == expected[1:3]
    assert len(expected) > 3


def test_rows_of_another_query(paths: list[Path], rows: list[Row]) -> None:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["srcIP"]] = counts.get(row["srcIP"], 0) + 1
    inner = "(SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP)"
    assert sorted(values(f"SELECT DISTINCT n % 4 AS m FROM {inner}", paths)) == sorted(
        {(count % 4,) for count in counts.values()}
    )
    everything = values(f"SELECT DISTINCT * FROM {inner}", paths)
    assert sorted(everything) == sorted(counts.items())


def test_rows_of_a_join(paths: list[Path]) -> None:
    join = "FROM packets a [RANGE 1 s, WA ts] JOIN packets b [RANGE 1 s, WA ts] ON a.srcIP = b.destIP"
    every = values(f"SELECT a.srcIP, b.len {join}", paths)
    found = values(f"SELECT DISTINCT a.srcIP, b.len {join}", paths)
    assert len(found) == len(set(found)) < len(every)
    assert set(found) == set(every)


@pytest.mark.parametrize("threads", [1, 3])
def test_windows(threads: int, paths: list[Path], rows: list[Row]) -> None:
    found = values(
        "SELECT window_start / 1 AS s, protocol FROM (SELECT DISTINCT protocol [RANGE 1 minute, WA ts] FROM packets)",
        paths,
        threads,
    )
    assert len(found) == len(set(found)) > 2
    assert set(found) == {(row["ns"] // MINUTE * MINUTE, row["protocol"]) for row in rows}


def test_a_time_column_still_deletes_keys_early() -> None:
    assert isinstance(compile_query("SELECT DISTINCT time, srcIP FROM M").root, Distinct)


def test_positions_in_group_by_mean_items_of_the_select_list() -> None:
    positions = compile_query("SELECT srcIP, len / 100 AS size, count(*) FROM M GROUP BY 1, 2")
    names = compile_query("SELECT srcIP, len / 100 AS size, count(*) FROM M GROUP BY srcIP, len / 100")
    assert positions.root == names.root


@pytest.mark.parametrize(
    "printed, spelled",
    [
        ("[RANGE 600, SLIDE 60, WA time]", "[RANGE 600 seconds, SLIDE 60 seconds, WA ts]"),
        ("[SLIDE 60 WA time RANGE 600]", "[RANGE 10 minutes, SLIDE 1 minute]"),
        ("[RANGE 1.5, WA time]", "[RANGE 1500 ms]"),
        ("[RANGE 300, RATTR time, SLIDE 1 row]", "[RANGE 300 s, RATTR ts, SLIDE 1 row]"),
        ("[RANGE 300, RATTR time, SLIDE 5 rows, SATTR rank(time)]", "[RANGE 300 s, SLIDE 5 rows, SATTR rank(ts)]"),
        ("[RANGE ALL, SLIDE 60, WA time]", "[RANGE ALL, SLIDE 1 minute]"),
        ("[SESSION 30, WA time]", "[SESSION 30 seconds]"),
    ],
)
def test_windows_over_time_count_seconds(printed: str, spelled: str) -> None:
    plans = [compile_query(f"SELECT count(*) {window} FROM M") for window in (printed, spelled)]
    assert plans[0].root == plans[1].root


def test_the_windows_of_a_join_over_time_count_seconds() -> None:
    sql = "SELECT S.srcIP FROM a S [RANGE 3{}, WA {}], b A [RANGE 0{}, WA {}] WHERE S.srcIP = A.destIP"
    plans = [compile_query(sql.format(unit, time, unit, time)) for unit, time in (("", "time"), (" s", "ts"))]
    assert plans[0].root == plans[1].root


@pytest.mark.parametrize("threads", [1, 3])
def test_having_top_returns_the_largest_groups_first(threads: int, paths: list[Path]) -> None:
    groups = "SELECT srcIP, count(*) AS n{} [RANGE 20 seconds] FROM packets GROUP BY srcIP"
    ordered = values(groups.format(", sum(len) AS b") + " ORDER BY b DESC", paths)
    expected = [
        row[:-1]
        for row in ordered
        if sum(other[:2] == row[:2] and other[-1] > row[-1] for other in ordered) < 3  # ties are all kept
    ]
    found = values(groups.format("") + " HAVING top(3, sum(len))", paths, threads)
    assert found == expected
    assert 6 < len(found) < len(ordered)
