"""Unions of queries with links: columns of the one spelling and layer are read from each by its own names."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowlevel.expressions.tree import columns_of
from queries.gsql import compile_query
from tests.harness import in_ns
from tests.references.small_captures import udp, write


@pytest.mark.parametrize("ts", ["ts", "TS"])
def test_a_query_that_spells_columns_in_its_own_way_is_united_with_a_link(ts: str, tmp_path: Path) -> None:
    """The condition and the time are those of the link's own columns."""
    hosts = ["10.0.0.1", "10.0.0.2"]
    for name in "ab":
        write(tmp_path / f"{name}.pcap", [(second, udp(hosts[second % 2], hosts[0], 1, 2)) for second in range(6)])
    links = {name: [str(tmp_path / f"{name}.pcap")] for name in "ab"}
    united = f"FROM (SELECT ts AS {ts}, srcIP AS SRCIP FROM a) UNION b"
    rows = in_ns.query(f"SELECT * {united} WHERE SRCIP = '10.0.0.2' AND {ts} > 2000000000", streams=links).to_pylist()

    assert sorted(tuple(row.values()) for row in rows) == sorted([(3 * 10**9, "10.0.0.2"), (5 * 10**9, "10.0.0.2")] * 2)
    counted = in_ns.query(f"SELECT count(*) AS n {united} [RANGE 4 s, SLIDE 4 s, WA ts]", streams=links)
    assert counted["n"].to_pylist() == [8, 4]


def test_a_union_reads_the_layer_of_its_query_from_links() -> None:
    sql = "SELECT srcIP FROM (SELECT ts, srcIP FROM a) UNION b WHERE srcIP = '10.0.0.1'"
    plan = compile_query(sql, layer="inner")
    (leaf,) = (each for each in plan.leaves if each.streams == ("b",))
    assert [key.name for key in leaf.low.keys] == ["inner.srcIP"]
    assert leaf.low.where is not None
    assert [column.name for column in columns_of(leaf.low.where)] == ["inner.srcIP"]
