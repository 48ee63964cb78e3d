"""CLOSING WHEN: groups live over several windows, at once if the input is live, and never without a bound.

These tests detect a window that is returned twice or not at all, a group that does not end or begins with old sums, a
watermark that passes a row of a gap, and results that grow with the clock.
"""

from __future__ import annotations

import operator as python_operator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import wiretide
from highlevel.aggregation import Output
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.answer_nodes import Running, RunningFunction
from highlevel.plan.operators.running import MAX_GAP_ROWS, MAX_GAP_WINDOWS, RunningOperator
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END
from queries.gsql import compile_query
from tests.conformance.traffic import Row, draw_bursts, write_links
from tests.conftest import Rounds
from tests.harness.live_pipes import AGREED, Pipe, counts
from tests.harness.operator_calls import give_rows, pass_watermark
from tests.references.pcap_bytes import NS
from tests.references.plan_references import ROWS
from tests.references.small_captures import udp

LAST_TWO = Column("last two", Type.INT)
NODE = Running(
    ROWS,
    SlidingWindow(10, 10),
    ("g",),
    (RunningFunction("last two", "n", Type.INT, 2),),
    (Output("group", Column("g", Type.TEXT, nullable=True)), Output("sum", LAST_TWO)),
    Binary(Op.EQ, LAST_TWO, Literal(0, Type.INT)),
    end="ts",
    start=None,
)
LIVE = replace(NODE, fills_lulls=True)
ENDLESS = replace(LIVE, closing=Binary(Op.LT, LAST_TWO, Literal(0, Type.INT)))


def test_in_a_lull_a_window_is_returned_when_the_watermark_has_passed_its_end() -> None:
    operator = RunningOperator(LIVE)
    assert pass_watermark(operator, 5) == ([], 5)
    give_rows(operator, ROWS, (10, 1, "a", 7))
    assert pass_watermark(operator, 20) == ([(10, "a", 7)], 20)
    assert pass_watermark(operator, 21) == ([(20, "a", 7)], 21)
    assert pass_watermark(operator, 22) == ([], 22)
    assert pass_watermark(operator, 75) == ([(30, "a", 0)], 75)
    assert operator.rows_held == 0
    give_rows(operator, ROWS, (80, 1, "a", 3))
    assert pass_watermark(operator, 81) == ([(80, "a", 3)], 81)
    assert pass_watermark(operator, END) == ([], END)


def test_without_lulls_windows_wait_for_the_next_row_and_so_does_the_watermark() -> None:
    operator = RunningOperator(NODE)
    give_rows(operator, ROWS, (10, 1, "a", 7))
    assert pass_watermark(operator, 45) == ([(10, "a", 7)], 20)
    assert pass_watermark(operator, 55) == ([], None)
    give_rows(operator, ROWS, (60, 1, "b", 8))
    assert pass_watermark(operator, 61) == ([(20, "a", 7), (30, "a", 0), (60, "b", 8)], 61)
    assert pass_watermark(operator, END) == ([], END)


@pytest.mark.parametrize("groups", [1, 70])
def test_a_jump_of_the_clock_ends_all_groups_and_counts_them(groups: int) -> None:
    operator, later = RunningOperator(ENDLESS), 10**15
    give_rows(operator, ROWS, *((10, 1, str(group), 1) for group in range(groups)))
    assert len(pass_watermark(operator, 11)[0]) == groups
    give_rows(operator, ROWS, (later, 1, "0", 1))
    rows, _ = pass_watermark(operator, later + 1)
    windows = min(MAX_GAP_WINDOWS, MAX_GAP_ROWS // groups)
    assert {row[0] for row in rows[:-1]} == set(range(20, 20 + 10 * windows, 10))
    assert len(rows) == windows * groups + 1
    assert rows[-1] == (later, "0", 1)
    assert operator.cut == groups


def test_a_snapshot_contains_the_groups_and_their_sums() -> None:
    for keys in (("g",), ()):
        node = replace(LIVE, keys=keys, outputs=LIVE.outputs[1:])
        first, second = RunningOperator(node), RunningOperator(node)
        give_rows(first, ROWS, (10, 1, "a", 7), (10, 1, "b", 2), (30, 1, "a", 1))
        assert pass_watermark(first, 11)[0] != []
        second.restore(first.snapshot())
        assert second.rows_held == first.rows_held > 1
        assert pass_watermark(second, 90) == pass_watermark(first, 90)


def expected_rows(rows: list[Row], group: str, slide: int, length: int, windows: int, limit: int) -> list[tuple]:
    """Return `start, group, count, sum, running sum, moving sum, decayed sum` of each window and living group."""
    slide, length = slide * NS, length * NS
    first = min(row["ts"] for row in rows) // slide * slide - length
    last = max(row["ts"] for row in rows) // slide * slide
    histories: dict[Any, list[int]] = {}
    results = []
    for start in range(first, last + 1, slide):
        present: dict[Any, list[int]] = {}
        for row in rows:
            if start <= row["ts"] < start + length:
                present.setdefault(row[group], []).append(row["len"])
        for key in {*histories, *present}:
            lengths = present.get(key, [])
            history = [*histories.pop(key, []), sum(lengths)]
            moving = sum(history[-windows:])
            decayed = sum(value * 0.5**age for age, value in enumerate(history[: -windows - 1 : -1]))
            shown = sum(lengths) if lengths else None
            results.append((start, key, len(lengths), shown, sum(history), moving, decayed))
            if moving > limit:
                histories[key] = history
    return results


@pytest.mark.parametrize("threads", [1, 3])
def test_queries_have_the_rows_of_a_walk_over_all_windows(tmp_path: Path, threads: int, rounds: Rounds) -> None:
    for seed in rounds(8):
        random, rows = Random(f"closing {seed}"), draw_bursts(f"running {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        paths = write_links(folder, rows)
        slide = random.choice([1, 2, 5])
        length = slide * random.choice([1, 1, 3])
        group = random.choice(["link", "protocol", "srcPort"])
        windows, limit = random.choice([1, 3, 20]), random.choice([0, 500])
        found = wiretide.query(
            f"SELECT {group} AS g, count(*) AS n, sum(len), running_sum(len) AS r, moving_sum(len, {windows}) AS m, "
            f"moving_sum_exp(len, {windows}, 0.5) AS e FROM packets [RANGE {length} seconds, SLIDE {slide} seconds] "
            f"GROUP BY {group} CLOSING WHEN m <= {limit}",
            *paths,
            threads=threads,
        )
        starts = found.column("window_start").cast(pa.int64()).to_pylist()
        shown = found.drop_columns(["window_start", "window_end"]).to_pylist()
        ours = [(start, *row.values()) for start, row in zip(starts, shown, strict=True)]
        expected = expected_rows(rows, group, slide, length, windows, limit)
        assert sorted(map(rounded, ours)) == sorted(map(rounded, expected)), seed


def rounded(row: tuple) -> tuple:
    return (row[0], str(row[1]), row[2], str(row[3]), *row[4:-1], round(row[-1], 6))


def test_other_clauses_read_the_rows_of_living_groups(tmp_path: Path) -> None:
    paths = write_links(tmp_path, draw_bursts("running 3"))
    sql = "SELECT protocol, count(*) AS n, moving_sum(1, 4) AS m FROM packets [RANGE 1 second] GROUP BY protocol"
    every = wiretide.query(f"{sql} CLOSING WHEN moving_sum(1, 4) = 0", *paths).to_pylist()
    assert any(row["n"] == 0 for row in every)
    for condition, test in (("n = 0", python_operator.eq), ("n > 0", python_operator.gt)):
        having = wiretide.query(f"{sql} HAVING {condition} CLOSING WHEN moving_sum(1, 4) = 0", *paths).to_pylist()
        assert having == [row for row in every if test(row["n"], 0)]
    filtered = f"SELECT * FROM ({sql} CLOSING_WHEN moving_sum(1, 4) = 0) WHERE n = 0 ORDER BY m DESC LIMIT 3"
    largest = sorted((row["m"] for row in every if row["n"] == 0), reverse=True)[:3]
    assert [row["m"] for row in wiretide.query(filtered, *paths).to_pylist()] == largest
    plain = wiretide.query(f"{sql.replace(', moving_sum(1, 4) AS m', '')}", *paths).to_pylist()
    closed = wiretide.query(f"{sql} CLOSING WHEN true", *paths).to_pylist()
    as_rows = [{**row, "m": row["n"]} for row in plain]
    assert sorted(as_rows, key=str) == sorted(closed, key=str)


def test_a_live_query_returns_windows_while_packets_of_others_arrive(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "p.pipe")
    sql = "SELECT moving_sum(1, 2) AS n FROM p [RANGE 10 seconds] WHERE destPort = 2 GROUP BY destPort "
    plan = compile_query(f"{sql} CLOSING WHEN moving_sum(1, 2) = 0")
    results = InlineRun([plan], [Input("p", pipe.path, "p")], slack=2 * NS).results()
    pipe.write(*[1] * AGREED)
    pipe.write(5)
    pipe.write(55, frame=udp("10.0.0.1", "10.0.0.2", 1, 9))  # no later packet is older than 53
    found: list[tuple[float, int]] = []
    while len(found) < 3:
        found += counts(iter([next(results)]))
    assert found == [(0, AGREED + 1), (10, AGREED + 1), (20, 0)]
    pipe.close()
    assert counts(results) == []
