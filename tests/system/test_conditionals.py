"""CASE, COALESCE, NULLIF, GREATEST, LEAST and FILTER as SQL over captures, against plain Python over the rows.

The whole path runs: text, plan, keys of the table, partials of several links and threads. The tests detect groups of
texts whose IDs differ from batch to batch, a FILTER that also removes the group, and NULL as a true condition.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import wiretide
from capture.generate.profile import Profile
from capture.generate.write import generate

Row = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("captures") / "a.pcap"
    generate(Profile(packets=30_000), path)
    return path


@pytest.fixture(scope="module")
def rows(path: Path) -> list[Row]:
    found: list[Row] = wiretide.query("SELECT ts, srcIP, destPort, protocol, len, ttl FROM packets", path).to_pylist()
    return found


def service(row: Row) -> str | None:
    if row["destPort"] == 443:
        return "https"
    return None if row["protocol"] == 17 else "other"


@pytest.mark.parametrize("threads", [1, 3])
def test_groups_of_a_case_and_filters(threads: int, path: Path, rows: list[Row]) -> None:
    sql = """
        SELECT CASE WHEN destPort = 443 THEN 'https' WHEN protocol = 17 THEN NULL ELSE 'other' END AS service,
               count(*) AS n, count(*) FILTER (WHERE len > 1000) AS large, sum(len) FILTER (WHERE ttl < 60) AS far,
               max(len) FILTER (WHERE len > 100000) AS never, sum(len > 1000) AS also_large,
               count(DISTINCT srcIP) FILTER (WHERE len > 1000) AS sources,
               avg(CASE WHEN protocol = 6 THEN len END) AS mean
        FROM packets GROUP BY service"""
    groups: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        groups[service(row)].append(row)
    found = {row.pop("service"): row for row in wiretide.query(sql, path, threads=threads).to_pylist()}
    assert found.keys() == groups.keys()
    assert len(groups) == 3
    for name, of_group in groups.items():
        large = [row for row in of_group if row["len"] > 1000]
        far = [row["len"] for row in of_group if row["ttl"] < 60]
        tcp = [row["len"] for row in of_group if row["protocol"] == 6]
        assert found[name] == {
            "n": len(of_group),
            "large": len(large),
            "far": sum(far) if far else None,
            "never": None,
            "also_large": len(large),
            "sources": len({row["srcIP"] for row in large}),
            "mean": pytest.approx(sum(tcp) / len(tcp)) if tcp else None,
        }


def test_functions_of_null(path: Path, rows: list[Row]) -> None:
    sql = """
        SELECT ts, coalesce(destPort, 0 - protocol) AS port, nullif(protocol, 6) AS not_tcp,
               greatest(destPort, ttl, 50) AS most, least(destPort, ttl, 50.5) AS least,
               CASE protocol WHEN 6 THEN srcIP ELSE '192.0.2.1' END AS source
        FROM packets"""
    by_time = sorted(wiretide.query(sql, path).to_pylist(), key=lambda row: row["ts"])
    for found, row in zip(by_time, sorted(rows, key=lambda row: row["ts"]), strict=True):
        numbers = [number for number in (row["destPort"], row["ttl"]) if number is not None]
        assert found["port"] == (-row["protocol"] if row["destPort"] is None else row["destPort"])
        assert found["not_tcp"] == (None if row["protocol"] == 6 else row["protocol"])
        assert found["most"] == max(*numbers, 50)
        assert found["least"] == min(*numbers, 50.5)
        assert found["source"] == (row["srcIP"] if row["protocol"] == 6 else "192.0.2.1")


def test_a_condition_that_is_null_is_not_true(path: Path, rows: list[Row]) -> None:
    sql = "SELECT CASE WHEN destPort <> 443 THEN 1 ELSE 0 END AS one, count(*) AS n FROM packets GROUP BY one"
    found = {row["one"]: row["n"] for row in wiretide.query(sql, path).to_pylist()}
    ones = sum(row["destPort"] is not None and row["destPort"] != 443 for row in rows)
    assert found == {1: ones, 0: len(rows) - ones}
    assert any(row["destPort"] is None for row in rows)


def test_bytes_are_counted_with_a_filter(path: Path) -> None:
    sql = """SELECT count(payload) AS n, count(payload) FILTER (WHERE len > 100) AS large,
                    count(x'00') FILTER (WHERE len > 100) AS constant,
                    count(payload) FILTER (WHERE x'00' IS NULL) AS none
             FROM packets WHERE payload IS NOT NULL AND x'00' IS NOT NULL"""
    lengths = wiretide.query("SELECT len, length(payload) AS size FROM packets", path).to_pylist()
    known = [row["len"] for row in lengths if row["size"] is not None]
    large = sum(length > 100 for length in known)
    assert wiretide.query(sql, path).to_pylist() == [{"n": len(known), "large": large, "constant": large, "none": 0}]
    assert 0 < large < len(known)
