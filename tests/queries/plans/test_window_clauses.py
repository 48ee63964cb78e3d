"""Windows in GSQL: each clause as the kind that it means, and the everyday spellings as the same plans.

The tests detect a parameter that is read as another, a spelling whose plan differs, and a window that becomes a key.
They detect a name in GROUP BY that does not mean the window.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from highlevel.plan.plan import Plan
from highlevel.windows.kind import (
    LandmarkWindow,
    LifetimeWindow,
    SessionWindow,
    SlideByTuple,
    SlidingWindow,
    TupleWindow,
    WindowKind,
)
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import Kind
from queries.gsql import compile_query
from queries.text.printer import expression_text
from tests.harness import in_ns
from tests.references import small_captures

SECOND = 10**9
MINUTE = 60 * SECOND

CLAUSES: list[tuple[str, WindowKind]] = [
    ("RANGE ALL, SLIDE 1 minute, WA ts", LandmarkWindow(MINUTE)),
    ("SLIDE 1 minute RANGE ALL ORIGIN 7 CAP 50", LandmarkWindow(MINUTE, 7, 50)),
    ("SESSION 30 seconds", SessionWindow(30 * SECOND)),
    ("gap 30 s, wa ts, late drop", SessionWindow(30 * SECOND)),
    ("RANGE 1000 rows, SLIDE 10 rows, WA row-num", TupleWindow(1000, 10)),
    ("RANGE 1000 rows, SLIDE 1 row, WA row_num", TupleWindow(1000, 1)),
    ("RANGE 1000 ROWS, WA seq-num", TupleWindow(1000, 1000)),
    ("RANGE 1000 rows, SLIDE 10 rows, WA row-num, PA srcIP", TupleWindow(1000, 10, True)),
    ("PA srcIP, destIP, RANGE 9 rows, IDLE 10 minutes", TupleWindow(9, 9, True, 10 * MINUTE)),
    ("RANGE 5 minutes, RATTR ts, SLIDE 1 row, SATTR row-num", SlideByTuple(5 * MINUTE)),
    ("RANGE 5 minutes, SLIDE 5 rows", SlideByTuple(5 * MINUTE, 5)),
    ("RANGE 5 minutes, RATTR ts, SLIDE 5 rows, SATTR rank(ts)", SlideByTuple(5 * MINUTE, 5, True)),
]


def test_lifetimes_are_columns_or_a_length_and_with_slide_tumbling_windows() -> None:
    windows = {
        "LIFETIME 5 minutes": LifetimeWindow(5 * MINUTE),
        "lifetime start_ts to end_ts": LifetimeWindow(),
        "LIFETIME start_ts TO end_ts, SLIDE 1 minute": SlidingWindow(MINUTE, MINUTE),
        "SLIDE 30 s LIFETIME 5 minutes WA ts": SlidingWindow(30 * SECOND, 30 * SECOND),
    }
    for clause, window in windows.items():
        assert compile_query(f"SELECT count(*) FROM flows [{clause}]").window == window
        assert compile_query(f"SELECT count(*) [{clause}] FROM flows").window == window


@pytest.mark.parametrize(("clause", "window"), CLAUSES)
def test_a_clause_is_the_kind_of_window_that_it_says(clause: str, window: WindowKind) -> None:
    plan = compile_query(f"SELECT count(*) FROM M [{clause}]")
    assert plan.window == window
    low = plan.leaves[0].low
    assert (low.pane, low.origin, low.reduced) == (window.pane, window.origin, window.reduced)
    assert low.in_arrival_order == window.in_arrival_order


def test_columns_of_a_partition_are_groups_that_need_no_group_by() -> None:
    plan = compile_query("SELECT inner.srcIP, max(len) [RANGE 9 rows, PA inner.srcIP, destPort, SLIDE 3 rows] FROM M")
    assert [(key.name, expression_text(key.expression)) for key in plan.leaves[0].low.keys] == [
        ("k0", "inner.srcIP"),
        ("k1", "destPort"),
    ]
    assert (plan.aggregation.group_by, plan.aggregation.partition, plan.aggregation.partitioned_by) == (
        ("k0", "k1"),
        ("k0", "k1"),
        ("k0", "k1"),
    )
    more = compile_query("SELECT count(*) [RANGE 9 rows, PA srcIP] FROM M GROUP BY destIP, srcIP")
    assert (more.aggregation.group_by, more.aggregation.partition, more.aggregation.partitioned_by) == (
        ("k0", "k1"),
        ("k0",),
        ("k0",),
    )


def test_windows_over_all_rows_are_not_dealt_to_partitions() -> None:
    for clause in ("RANGE 9 rows", "RANGE 9 s, SLIDE 1 row", "RANGE ALL, SLIDE 9 s"):  # the last for its cap
        assert (
            compile_query(f"SELECT srcIP, count(*) FROM M [{clause}] GROUP BY srcIP").aggregation.partitioned_by == ()
        )
    for clause in ("RANGE 9 s", "SESSION 9 s"):
        assert compile_query(f"SELECT srcIP, count(*) FROM M [{clause}] GROUP BY srcIP").aggregation.partitioned_by == (
            "k0",
        )


def test_a_session_keeps_the_times_that_tell_sessions_apart() -> None:
    plan = compile_query("SELECT srcIP, count(*), min(ts) FROM M [SESSION 9 s] GROUP BY srcIP")
    kept = [(sub.kind, sub.argument) for sub in plan.leaves[0].low.subaggregates]
    ts = Column("ts", Type.TIME)
    assert kept == [(Kind.COUNT, None), (Kind.MIN, ts), (Kind.MAX, ts)]


def same(plan: Plan, other: Plan) -> bool:
    return replace(plan, sql="") == replace(other, sql="")


@pytest.mark.parametrize(
    ("everyday", "clause"),
    [
        ("TUMBLE(ts, INTERVAL '1' MINUTE)", "RANGE 1 minute, SLIDE 1 minute"),
        ("tumble(ts, 1 minute)", "RANGE 1 minute"),
        ("TUMBLE(ts, INTERVAL '90 seconds')", "RANGE 90 s"),
        ("HOP(ts, INTERVAL '1' MINUTE, INTERVAL '10' MINUTE)", "RANGE 10 minutes, SLIDE 1 minute"),
        ("SESSION(ts, '30 s')", "SESSION 30 s"),
    ],
)
@pytest.mark.parametrize("place", ["{}, srcIP", "srcIP, {}", "{}"])
def test_an_everyday_spelling_is_the_same_plan(everyday: str, clause: str, place: str) -> None:
    groups = place.format("")
    keys = f" GROUP BY {groups.strip(', ')}" if groups else ""
    plan = compile_query(f"SELECT count(*) FROM M GROUP BY {place.format(everyday)} HAVING count(*) > 5")
    assert same(plan, compile_query(f"SELECT count(*) FROM M [{clause}]{keys} HAVING count(*) > 5"))


@pytest.mark.parametrize("quotient", ["ts/60", "ts / 60", "time/60", "ts/60000000000", "ts/1000000000/60"])
def test_time_divided_is_a_window_and_its_number(quotient: str) -> None:
    plan = compile_query(f"SELECT tb, srcIP, count(*) AS n FROM M GROUP BY {quotient} AS tb, srcIP HAVING tb > 5")
    wanted = compile_query(
        "SELECT window_start / 60000000000 AS tb, srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP "
        "HAVING window_start / 60000000000 > 5"
    )
    assert same(plan, wanted)
    assert plan.window == SlidingWindow(MINUTE, MINUTE)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT QUOTIENT, count(*) FROM M [RANGE 1 h] GROUP BY QUOTIENT",
        "SELECT count(*) FROM M GROUP BY ts/3600, QUOTIENT",
        "SELECT count(*) FROM M GROUP BY TUMBLE(ts, 1 hour), QUOTIENT AS minute",
    ],
)
@pytest.mark.parametrize("quotient", ["ts/60", "time/60", "ts/60000000000"])
def test_a_quotient_in_a_window_of_its_own_is_a_key_that_counts_minutes(sql: str, quotient: str) -> None:
    plan = compile_query(sql.replace("QUOTIENT", quotient))
    assert plan.window == SlidingWindow(60 * MINUTE, 60 * MINUTE)
    assert [expression_text(key.expression) for key in plan.leaves[0].low.keys] == ["ts / 60000000000"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT m, count(*) AS n FROM a [RANGE 1 hour, WA ts] GROUP BY ts/60 AS m",
        "SELECT m, count(*) AS n FROM (SELECT ts, srcIP FROM a) v [RANGE 1 hour, WA ts] GROUP BY ts/60 AS m",
        "SELECT m, sum(n) AS n FROM (SELECT count(*) AS n FROM a [RANGE 1 s]) v [RANGE 1 h, WA ts] GROUP BY ts/60 AS m",
        "SELECT m, count(*) AS n [RANGE 1 hour, WA x.ts] FROM a x, a y [RANGE TUMBLING 1 ms] GROUP BY x.ts/60 AS m",
    ],
    ids=["links", "rows", "windows", "pairs"],
)
def test_a_quotient_counts_minutes_over_links_and_over_other_queries(sql: str, tmp_path: Path) -> None:
    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    path = small_captures.write(tmp_path / "a.pcap", [(seconds, frame) for seconds in (5, 59, 60, 61, 300)])
    found = in_ns.query(sql, streams={"a": [str(path)]}).to_pylist()
    assert sorted((row["m"], row["n"]) for row in found) == [(0, 2), (1, 2), (5, 1)]


def test_bounds_may_be_named_and_used() -> None:
    plan = compile_query(
        "SELECT window_start, w, window_end - window_start AS length, window_end FROM M "
        "GROUP BY TUMBLE(ts, 1 minute) AS w, srcIP"
    )
    texts = [(out.name, expression_text(out.expression)) for out in plan.aggregation.select]
    assert texts == [("w", "window_start"), ("length", "window_end - window_start")]


def test_gigascopes_minutes_are_those_of_the_window_clause(tmp_path: Path) -> None:
    frame = small_captures.udp("10.0.0.1", "10.0.0.2", 1, 2)
    path = small_captures.write(tmp_path / "a.pcap", [(seconds, frame) for seconds in (5, 59, 60, 61, 300)])
    found = in_ns.query("SELECT tb, count(*) AS n FROM packets GROUP BY ts/60 AS tb", path).to_pylist()
    assert [(row["tb"], row["n"]) for row in found] == [(0, 2), (1, 2), (5, 1)]
    assert [(row["window_start"], row["window_end"]) for row in found] == [
        (minute * MINUTE, (minute + 1) * MINUTE) for minute in (0, 1, 5)
    ]
