"""Window functions of SQL (OVER) over captures, against plain Python over the rows of the query without them.

The tests detect a function that sees rows before HAVING, rows of another window or of a single thread or link only,
a value that another row gets, and windows that are held back although they are final.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import wiretide
from dashboards.prometheus.query_series import QuerySeries
from queries.gsql import compile_query
from tests.harness.links import write_links

Row = dict[str, Any]
GROUPS = "FROM packets GROUP BY srcIP, protocol"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


def rows_of(sql: str, paths: list[Path], threads: int = 1) -> list[Row]:
    found: list[Row] = wiretide.query(sql, *paths, threads=threads).to_pylist()
    return found


def by_window(rows: list[Row]) -> list[list[Row]]:
    ordered = sorted(rows, key=lambda row: (row["window_end"], row["window_start"]))
    return [list(members) for _, members in groupby(ordered, key=lambda row: (row["window_end"], row["window_start"]))]


@pytest.mark.parametrize("threads", [1, 3])
def test_shares_and_ranks_are_of_one_window_and_of_all_links(threads: int, paths: list[Path]) -> None:
    groups = "FROM packets [RANGE 20 seconds] GROUP BY srcIP, protocol"
    plain = rows_of(f"SELECT srcIP, protocol, sum(len) AS b {groups}", paths)
    found = rows_of(
        f"SELECT srcIP, protocol, sum(len) AS b, sum(len) * 100.0 / sum(sum(len)) OVER () AS share, "
        f"rank() OVER (PARTITION BY protocol ORDER BY sum(len) DESC) AS place {groups}",
        paths,
        threads,
    )
    expected = [
        row
        | {
            "share": row["b"] * 100.0 / sum(other["b"] for other in window),
            "place": 1 + sum(o["protocol"] == row["protocol"] and o["b"] > row["b"] for o in window),
        }
        for window in by_window(plain)
        for row in window
    ]
    assert len(by_window(plain)) > 3
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_functions_see_the_rows_after_having(paths: list[Path]) -> None:
    kept = rows_of(f"SELECT srcIP, protocol, count(*) AS n {GROUPS} HAVING count(*) > 3", paths)
    found = rows_of(f"SELECT srcIP, protocol, count(*) OVER () AS all {GROUPS} HAVING count(*) > 3", paths)
    assert {row["all"] for row in found} == {len(kept)}
    assert len(found) == len(kept) > 2


def test_a_function_may_be_part_of_an_expression_or_only_a_key_of_the_order(paths: list[Path]) -> None:
    plain = rows_of(f"SELECT srcIP, protocol, count(*) AS n, sum(len) AS b {GROUPS}", paths)
    largest = max(row["b"] for row in plain)
    found = rows_of(
        f"SELECT srcIP, protocol, CASE WHEN sum(len) = max(sum(len)) OVER () THEN 'largest' ELSE 'other' END AS kind "
        f"{GROUPS} ORDER BY sum(count(*)) OVER (PARTITION BY protocol) DESC, protocol, srcIP",
        paths,
    )
    totals = {row["protocol"]: sum(o["n"] for o in plain if o["protocol"] == row["protocol"]) for row in plain}
    kinds = {(row["srcIP"], row["protocol"]): "largest" if row["b"] == largest else "other" for row in plain}
    assert [(-totals[row["protocol"]], row["protocol"]) for row in found] == sorted(
        (-totals[row["protocol"]], row["protocol"]) for row in found
    )
    assert {(row["srcIP"], row["protocol"]): row["kind"] for row in found} == kinds
    assert set(found[0]) == {"srcIP", "protocol", "kind"}


def test_differences_between_windows_of_one_group(paths: list[Path]) -> None:
    inner = "(SELECT srcIP, count(*) AS n [RANGE 20 seconds] FROM packets GROUP BY srcIP)"
    plain = rows_of(f"SELECT window_end, srcIP, n FROM {inner}", paths)
    found = rows_of(
        f"SELECT window_end, srcIP, n - lag(n) OVER (PARTITION BY srcIP ORDER BY window_end) AS change FROM {inner}",
        paths,
    )
    expected: dict[tuple, int | None] = {}
    before: dict[str, int] = {}
    for row in sorted(plain, key=lambda row: row["window_end"]):
        known = row["srcIP"] in before
        expected[row["window_end"], row["srcIP"]] = row["n"] - before[row["srcIP"]] if known else None
        before[row["srcIP"]] = row["n"]
    assert {(row["window_end"], row["srcIP"]): row["change"] for row in found} == expected
    assert None in expected.values()
    assert any(expected.values())


def test_rows_without_groups(paths: list[Path]) -> None:
    plain = rows_of("SELECT ts, srcIP, len FROM packets WHERE len > 60", paths)
    found = rows_of(
        "SELECT srcIP, len, length(payload) AS bytes, row_number() OVER (PARTITION BY srcIP ORDER BY len DESC) AS r, "
        "avg(len) OVER (PARTITION BY srcIP) AS mean FROM packets WHERE len > 60",
        paths,
    )
    assert sorted((row["srcIP"], row["len"]) for row in found) == sorted((row["srcIP"], row["len"]) for row in plain)
    for address, members in groupby(
        sorted(found, key=lambda row: (row["srcIP"], row["r"])), key=lambda row: row["srcIP"]
    ):
        rows = list(members)
        lengths = sorted((row["len"] for row in plain if row["srcIP"] == address), reverse=True)
        assert [row["len"] for row in rows] == lengths
        assert [row["r"] for row in rows] == list(range(1, len(rows) + 1))
        assert {row["mean"] for row in rows} == {sum(lengths) / len(lengths)}


def test_the_best_of_each_partition_by_a_query_over_it(paths: list[Path]) -> None:
    plain = rows_of(f"SELECT srcIP, protocol, sum(len) AS b {GROUPS}", paths)
    found = rows_of(
        "SELECT protocol, srcIP, b FROM (SELECT srcIP, protocol, sum(len) AS b, row_number() OVER "
        f"(PARTITION BY protocol ORDER BY sum(len) DESC, srcIP) AS r {GROUPS}) WHERE r = 1",
        paths,
    )
    best = {row["protocol"]: max(o["b"] for o in plain if o["protocol"] == row["protocol"]) for row in plain}
    assert {row["protocol"]: row["b"] for row in found} == best
    assert len(found) == len(best)


def test_windows_do_not_wait_for_the_end() -> None:
    plan = compile_query(
        "SELECT srcIP, count(*), rank() OVER (ORDER BY count(*)) AS r [RANGE 20 seconds] FROM packets GROUP BY srcIP"
    )
    assert plan.windowed
    assert plan.waiting_reason is None
    assert compile_query("SELECT len, rank() OVER (ORDER BY len) FROM packets").waiting_reason


FOLLOWING = "lag(count(*)) OVER (PARTITION BY srcIP ORDER BY window_end)"
RECENT = "avg(count(*)) OVER (ORDER BY window_start ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING)"


@pytest.mark.parametrize(
    "functions, waits",
    [
        ([FOLLOWING], False),
        ([RECENT, FOLLOWING, "rank() OVER (ORDER BY count(*))"], False),
        (["sum(count(*)) OVER (ORDER BY window_end RANGE 1 minute PRECEDING)"], False),
        (["sum(count(*)) OVER (ORDER BY window_end)"], True),  # the state of the first rows never ends
        (["lead(count(*)) OVER (ORDER BY window_end)"], True),
        (["lag(count(*)) OVER (ORDER BY window_end DESC)"], True),
        ([FOLLOWING, "avg(count(*)) OVER (ORDER BY window_end ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"], True),
    ],
)
def test_functions_that_look_back_by_a_bounded_distance_need_no_end(functions: list[str], waits: bool) -> None:
    query = f"SELECT srcIP, {', '.join(functions)} [RANGE 20 seconds] FROM packets GROUP BY srcIP"
    assert (compile_query(query).waiting_reason is not None) == waits


@pytest.mark.parametrize("threads", [1, 3])
def test_windows_are_compared_with_the_windows_before_them(threads: int, paths: list[Path]) -> None:
    query = "SELECT srcIP, count(*) AS n{} [RANGE 5 seconds] FROM packets GROUP BY srcIP"
    found = rows_of(query.format(f", {FOLLOWING} AS before, rank() OVER (ORDER BY count(*)) AS r"), paths, threads)
    before: dict[str, int] = {}
    expected = []
    for window in by_window(rows_of(query.format(""), paths)):
        ranks = {row["srcIP"]: 1 + sum(other["n"] < row["n"] for other in window) for row in window}
        expected += [row | {"before": before.get(row["srcIP"]), "r": ranks[row["srcIP"]]} for row in window]
        before |= {row["srcIP"]: row["n"] for row in window}
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert [row["window_end"] for row in found] == sorted(row["window_end"] for row in found)
    assert any(row["before"] for row in found)


def test_values_of_functions_are_exported_as_values_and_not_as_labels() -> None:
    plan = compile_query(
        "SELECT srcIP, sum(len) AS b, sum(len) * 100 / sum(sum(len)) OVER () AS share, "
        "rank() OVER (ORDER BY sum(len)) AS r [RANGE 1 s] FROM M GROUP BY srcIP"
    )
    series = QuerySeries(plan, 10)
    assert series.labels == ("src_ip",)
    assert [(value.column, value.fold) for value in series.values] == [("b", "sum"), ("share", None), ("r", None)]
