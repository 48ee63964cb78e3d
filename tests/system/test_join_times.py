"""Join items with several times: one of them is in the join condition, and the others have no watermark."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness import in_ns
from tests.references.graph_shapes import shape
from tests.references.small_captures import udp, write

MINUTES = "(SELECT count(*) AS n FROM a [RANGE 1 minute])"
JOIN = f"FROM {MINUTES} m [RANGE 5 s, WA window_end], b [RANGE 0 s]"


def test_the_other_times_of_an_item_are_columns_like_any(tmp_path: Path) -> None:
    links = {}
    for name, seconds in (("a", [10, 70, 130]), ("b", [57, 63, 121])):
        packets = [(each, udp("10.0.0.1", "10.0.0.2", 1, 2)) for each in seconds]
        links[name] = [str(write(tmp_path / f"{name}.pcap", packets))]
    found = in_ns.query(f"SELECT m.ts AS start, m.window_end AS ends, b.ts AS at {JOIN}", streams=links)
    rows = sorted(zip(*found.to_pydict().values(), strict=True))
    assert [tuple(each // 10**9 for each in row) for row in rows] == [(0, 60, 63), (60, 120, 121)]
    groups = in_ns.query(f"SELECT m.ts/60 AS minute, count(*) AS n {JOIN} GROUP BY m.ts/60, b.ts/60", streams=links)
    assert sorted(zip(*groups.select(["minute", "n"]).to_pydict().values(), strict=True)) == [(0, 1), (1, 1)]


def test_promises_are_of_the_time_that_is_joined_by() -> None:
    *_, last = shape(f"SELECT m.ts, b.len {JOIN}")
    assert last == "apply 2: ts=m.ts, len=b.len"
    *_, last = shape(f"SELECT m.ts, m.window_end {JOIN}")
    assert last == "apply 2: ts=m.ts, window_end=m.window_end | window_end < m.window_end"


def test_a_window_over_a_time_without_a_watermark_is_refused() -> None:
    with pytest.raises(QueryError, match=r"WA m\.window_end or WA b\.ts"):
        compile_query(f"SELECT count(*) [RANGE 1 hour, WA m.ts] {JOIN}")
