"""Window bounds in the result of a query are ordinary columns, unless they are windowed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.harness import in_ns
from tests.references.small_captures import udp, write

MINUTES = "(SELECT srcIP, count(*) AS n FROM a [RANGE 1 minute] GROUP BY srcIP) m"


@pytest.mark.parametrize(
    "sql, names",
    [
        (f"SELECT window_start, sum(n) AS n FROM {MINUTES} GROUP BY window_start", ["window_start", "n"]),
        (
            (
                f"SELECT window_start, n, window_end FROM (SELECT window_start, window_end, sum(n) AS n FROM {MINUTES} "
                "GROUP BY window_start, window_end) m"
            ),
            ["window_start", "n", "window_end"],
        ),
    ],
)
def test_groups_by_a_bound_show_it(sql: str, names: list[str], tmp_path: Path) -> None:
    packets = [(second, udp(f"10.0.0.{second % 2}", "10.0.0.9", 1, 2)) for second in (1, 2, 61, 130, 133, 134)]
    link = [str(write(tmp_path / "a.pcap", packets))]
    found = in_ns.query(sql, streams={"a": link}).to_pydict()
    assert list(found) == names
    starts = [value // (60 * 10**9) for value in found["window_start"]]
    assert sorted(zip(starts, found["n"], strict=True)) == [(0, 2), (1, 1), (2, 3)]


def test_a_bound_that_is_not_grouped_by_is_refused() -> None:
    with pytest.raises(QueryError, match="'window_start' is neither grouped by nor inside an aggregate"):
        compile_query(f"SELECT window_start, n, count(*) FROM {MINUTES} GROUP BY n")


def test_windows_over_it_have_their_own_bounds() -> None:
    plan = compile_query(f"SELECT window_start, sum(n) AS n FROM {MINUTES} [RANGE 1 hour]")
    assert plan.schema.names == ["window_start", "window_end", "n"]
