"""ORDER BY and LIMIT as SQL over captures: the rows of the same query without them, sorted in plain Python.

The whole path runs, in one thread and in several. The tests detect an order over all windows in place of one per
window, a hidden key that is shown, and a run that reads all of its input for the first rows.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import wiretide
from capture.generate.profile import Profile
from capture.generate.write import generate
from capture.metrics import PACKETS_DECODED
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query
from tests.harness.links import write_links

Row = dict[str, Any]
Rank = Callable[[Row], Any]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [each.path for each in write_links(tmp_path_factory.mktemp("captures"), 3)]


def rows_of(sql: str, paths: list[Path], threads: int | None = None) -> list[Row]:
    found: list[Row] = wiretide.query(sql, *paths, threads=threads).to_pylist()
    return found


def address(text: str) -> tuple[int, bytes]:
    """IPv4 before IPv6, then by the bytes."""
    packed = ip_address(text).packed
    return len(packed), packed


def descending(text: str) -> list[int]:
    length, packed = address(text)
    return [-length, *(-byte for byte in packed)]


CASES: list[tuple[str, str, Rank, int | None, int]] = [
    (
        "SELECT srcIP, count(*) AS n, sum(len) AS b FROM packets GROUP BY srcIP",
        "ORDER BY n DESC, srcIP LIMIT 5",
        lambda row: (-row["n"], address(row["srcIP"])),
        5,
        0,
    ),
    (
        "SELECT srcIP, destIP, max(len) AS m FROM packets [RANGE 10 seconds, SLIDE 5 seconds] GROUP BY srcIP, destIP",
        "ORDER BY 3 DESC, 2, srcIP LIMIT 2 OFFSET 1",
        lambda row: (-row["m"], address(row["destIP"]), address(row["srcIP"])),
        2,
        1,
    ),
    (
        "SELECT srcIP, sum(len) AS b, count(*) AS n FROM packets [RANGE 20 seconds] GROUP BY srcIP",
        "ORDER BY sum(len) / count(*) DESC, max(len) - max(len), srcIP DESC",
        lambda row: (
            -(row["b"] // row["n"]),
            [-part for part in (address(row["srcIP"])[0], *address(row["srcIP"])[1])],
        ),
        None,
        0,
    ),
    (
        "SELECT ts, srcIP, len FROM packets WHERE len > 50",
        "ORDER BY ts, len DESC, srcIP",
        lambda row: (row["ts"], -row["len"], address(row["srcIP"])),
        None,
        0,
    ),
    (
        "SELECT ts, srcIP, len FROM packets",
        "ORDER BY len DESC, ts, srcIP LIMIT 20 OFFSET 7",
        lambda row: (-row["len"], row["ts"], address(row["srcIP"])),
        20,
        7,
    ),
    (
        "SELECT DISTINCT ts/60 AS minute, protocol FROM packets",
        "ORDER BY protocol DESC, minute LIMIT 6",
        lambda row: (-row["protocol"], row["minute"]),
        6,
        0,
    ),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sql, clauses, rank, limit, offset", CASES, ids=[case[1] for case in CASES])
def test_the_rows_are_those_of_the_query_without_order_sorted(
    sql: str, clauses: str, rank: Rank, limit: int | None, offset: int, threads: int, paths: list[Path]
) -> None:
    def window(row: Row) -> tuple:
        return row.get("window_end"), row.get("window_start")

    plain = sorted(
        rows_of(sql, paths), key=lambda row: (*window(row), rank(row)) if row.get("window_end") else rank(row)
    )
    expected: list[Row] = []
    for _, of_window in groupby(plain, key=window):
        expected += list(of_window)[offset : None if limit is None else offset + limit]
    assert rows_of(f"{sql} {clauses}", paths, threads) == expected
    assert len(expected) > 3


def test_a_limit_without_order_ends_the_run_early(tmp_path: Path) -> None:
    path = tmp_path / "a.pcap"
    generate(Profile(packets=400_000), path)
    run = InlineRun([compile_query("SELECT ts, len FROM packets LIMIT 5")], [Input("a", path)], threads=1)
    assert sum(batch.num_rows for _, batch in run.results()) == 5
    assert run.samples().total(PACKETS_DECODED) < 400_000


def test_a_limit_larger_than_the_answer_changes_nothing(paths: list[Path]) -> None:
    sql = "SELECT ts, srcIP, len FROM packets"
    key = lambda row: (row["ts"], str(row["srcIP"]), row["len"])  # noqa: E731
    assert sorted(rows_of(f"{sql} LIMIT 1000000000", paths), key=key) == sorted(rows_of(sql, paths), key=key)
    assert rows_of(f"{sql} LIMIT 0", paths) == []


def test_a_subquery_keeps_the_first_rows_of_each_window(paths: list[Path]) -> None:
    inner = "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 seconds] GROUP BY srcIP"
    most: dict[Any, int] = {}
    for row in rows_of(inner, paths):
        most[row["window_end"]] = max(most.get(row["window_end"], 0), row["n"])
    sql = f"SELECT sum(n) AS s FROM ({inner} ORDER BY n DESC LIMIT 1) [RANGE 10 seconds, WA ts]"
    assert {row["window_end"]: row["s"] for row in rows_of(sql, paths)} == most
