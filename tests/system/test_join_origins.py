"""Origins of tumbling windows in a join: any time is allowed, and only its remainder within a window matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness import in_ns
from tests.references.small_captures import udp, write

START = 1_700_000_000


@pytest.mark.parametrize(
    "origin, seconds",
    [
        (f"{START}000000000", START),
        (f"{START + 1}000000000", START + 1),
        ("'2023-11-14T22:13:22Z'", START + 2),
        ("'2008-10-01T12:00:00Z'", 1_222_862_400),
        ("1000000000", 1),
        ("-1000000000", -1),
        ("-2000000000", -2),
        ("'1969-12-31T23:59:59Z'", -1),
    ],
)
def test_an_origin_is_any_time(origin: str, seconds: int, tmp_path: Path) -> None:
    times = [START + second for second in (1, 2, 3, 4, 6)]
    link = [str(write(tmp_path / "a.pcap", [(time, udp("10.0.0.1", "10.0.0.2", 1, 2)) for time in times]))]
    sql = f"SELECT x.ts AS x, y.ts AS y FROM a x, a y [RANGE TUMBLING 3 s, ORIGIN {origin}] WHERE x.ts < y.ts"
    found = in_ns.query(sql, streams={"a": link}).to_pydict()
    rows = [(x // 10**9, y // 10**9) for x, y in zip(found["x"], found["y"], strict=True)]
    pairs = [(x, y) for x in times for y in times if x < y and (x - seconds) // 3 == (y - seconds) // 3]
    assert sorted(rows) == pairs


@pytest.mark.parametrize("origin", ["10000000000000000000000", "9223372036854775808", "-9223372036854775808"])
def test_an_origin_that_no_time_has_is_refused(origin: str) -> None:
    with pytest.raises(QueryError, match=r"ORIGIN \d+ is out of range; expected less than"):
        compile_query(f"SELECT a.ts FROM a, b [RANGE TUMBLING 3 s, ORIGIN {origin}]")


@pytest.mark.parametrize("origin", ["- '2008-10-01T12:00:00Z'", "1.5", "-1.5", "soon", "'soon'", "-"])
def test_groups_and_joins_refuse_the_same_origins(origin: str) -> None:
    for sql in (
        f"SELECT a.ts FROM a, b [RANGE TUMBLING 3 s, ORIGIN {origin}]",
        f"SELECT count(*) FROM a [RANGE 3 s, ORIGIN {origin}]",
    ):
        with pytest.raises(QueryError, match="whole nanoseconds since the epoch, or a time like"):
            compile_query(sql)


def test_a_range_that_is_too_long_is_told_how_long_it_may_be() -> None:
    with pytest.raises(QueryError, match="18 years at most"):
        compile_query("SELECT a.ts FROM a [RANGE 7000 days], b [RANGE 1 s]")
