"""Fill adds the rows of empty windows, at once if the input is live, and never without a bound.

These tests detect windows that are filled twice or not at all, a watermark that passes a row of a gap, memory and
results that grow with the clock, and groups that are never forgotten. DuckDB computes the rows of whole queries.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import duckdb
import pyarrow as pa
import pytest

import wiretide
from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.answer_nodes import Fill
from highlevel.plan.operators import fill
from highlevel.plan.operators.fill import MAX_GAP_ROWS, FillOperator
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END
from lowlevel.watermarks.idle import IdleRule
from queries.gsql import compile_query
from tests.conformance.traffic import START, draw_bursts, write_links
from tests.conftest import Rounds
from tests.harness.live_pipes import AGREED, Pipe, counts
from tests.harness.live_pipes import START as PIPE_START
from tests.harness.operator_calls import give_rows, pass_watermark
from tests.references.graph_streams import feed, stream
from tests.references.pcap_bytes import NS
from tests.references.plan_references import ROWS, by_ts, schema_of
from tests.references.small_captures import udp

NODE = Fill(ROWS, SlidingWindow(10, 10), ("g",), (), 0, end="ts", start=None)
LIVE = replace(NODE, fills_lulls=True)


def passed(operator: FillOperator, watermark: int) -> tuple[list[tuple], int | None]:
    """Return the rows `(ts, g, n)` that a watermark releases, sorted, and the watermark that follows."""
    rows, last = pass_watermark(operator, watermark)
    return sorted((ts, g, n) for ts, _, g, n in rows), last


def test_in_a_lull_a_window_is_filled_when_the_watermark_has_passed_its_end() -> None:
    operator = FillOperator(LIVE)
    assert passed(operator, 5) == ([], 5)
    give_rows(operator, ROWS, (10, 1, "a", 7))
    assert passed(operator, 20) == ([(10, "a", 7)], 20)
    assert passed(operator, 21) == ([(20, "a", 0)], 21)
    assert passed(operator, 22) == ([], 22)
    assert passed(operator, 45) == ([(30, "a", 0), (40, "a", 0)], 45)
    give_rows(operator, ROWS, (60, 1, "b", 8))
    assert passed(operator, 61) == ([(50, "a", 0), (60, "a", 0), (60, "b", 8)], 61)
    assert passed(operator, END) == ([], END)


def test_without_lulls_windows_wait_for_the_next_row_and_so_does_the_watermark() -> None:
    operator = FillOperator(NODE)
    give_rows(operator, ROWS, (10, 1, "a", 7))
    assert passed(operator, 45) == ([(10, "a", 7)], 20)
    assert passed(operator, 55) == ([], None)
    give_rows(operator, ROWS, (60, 1, "b", 8))
    expected = [*((end, "a", 0) for end in (20, 30, 40, 50, 60)), (60, "b", 8)]
    assert passed(operator, 61) == (expected, 61)
    assert passed(operator, END) == ([], END)


def test_live_results_have_the_rows_of_the_reference_up_to_the_last_row(rounds: Rounds) -> None:
    for seed in rounds(60):
        random = Random(f"lulls {seed}")
        rows = [(random.randrange(40) * 10, 1, random.choice(["a", "b", None]), number) for number in range(20)]
        rows.sort(key=lambda row: row[0] + random.random() * 60)
        found: dict[bool, list[tuple]] = {}
        for is_live in (False, True):
            operator = FillOperator(LIVE if is_live else NODE)
            items = [
                each for event in stream(random, rows, by_ts, 1) for each in feed(operator, (0, event), schema_of(ROWS))
            ]
            found[is_live] = [
                tuple(row.values()) for each in items if isinstance(each, pa.RecordBatch) for row in each.to_pylist()
            ]
        last = max(row[0] for row in rows)
        within = [row for row in found[True] if row[0] <= last]
        assert sorted(map(str, within)) == sorted(map(str, found[False])), seed
        assert all(row[3] == 0 for row in found[True] if row[0] > last), seed


@pytest.mark.parametrize("groups", [1, 3, 70])
@pytest.mark.parametrize("node", [NODE, LIVE], ids=["files", "live"])
def test_a_jump_of_the_clock_fills_a_bounded_number_of_rows_and_counts_the_others(node: Fill, groups: int) -> None:
    operator, later = FillOperator(node), 10**15
    give_rows(operator, ROWS, *((10, 1, str(group), 1) for group in range(groups)))
    assert len(passed(operator, 11)[0]) == groups
    give_rows(operator, ROWS, (later, 1, "0", 1))
    rows, _ = passed(operator, later + 1)
    windows = MAX_GAP_ROWS // groups
    in_gap = [row for row in rows if row[0] < later]
    assert {row[0] for row in in_gap} == set(range(20, 20 + 10 * windows, 10))
    assert len(in_gap) == windows * groups
    assert len(rows) - len(in_gap) == groups
    assert operator.left_out == (later // 10 - 2 - windows) * groups


def test_a_lull_of_many_small_watermarks_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "MAX_GAP_ROWS", 6)
    operator = FillOperator(LIVE)
    give_rows(operator, ROWS, (10, 1, "a", 1), (10, 1, "b", 1))
    found = [row for low in range(11, 100, 3) for row in passed(operator, low)[0]]
    assert sorted(found) == sorted((end, g, end == 10) for end in (10, 20, 30, 40) for g in "ab")
    assert operator.left_out == 2 * len(range(50, 98, 10))


def test_the_groups_with_the_oldest_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch, rounds: Rounds) -> None:
    monkeypatch.setattr(fill, "MAX_GROUPS", 3)
    for seed in rounds(40):
        random = Random(f"groups {seed}")
        windows = {10 * n: sorted(random.sample("abcdefg", random.randint(1, 5))) for n in range(1, 15)}
        rows = [(end, 1, g, 1) for end, present in windows.items() for g in present]
        rows.sort(key=lambda row: row[0] + random.random() * 30)
        operator = FillOperator(NODE)
        found: list[tuple] = []
        for event in stream(random, rows, by_ts, 1):
            for each in feed(operator, (0, event), schema_of(ROWS)):
                if isinstance(each, pa.RecordBatch):
                    found += [(row["ts"], row["g"], row["n"]) for row in each.to_pylist()]
        known, expected, forgotten = list[str](), list[tuple](), 0
        for end, present in windows.items():
            known = [g for g in known if g not in present] + present
            forgotten += max(0, len(known) - 3)
            known = known[-3:]
            expected += [(end, g, 1) for g in present] + [(end, g, 0) for g in known if g not in present]
        assert (sorted(found), operator.forgotten) == (sorted(expected), forgotten), seed


FILLED = """
WITH grouped AS (SELECT w * {slide} AS start, {group} AS g, count(*) AS n, sum(len) AS bytes, avg(ttl) AS a
    FROM packets, range({first}, {last}) r(w)
    WHERE ts >= w * {slide} AND ts < w * {slide} + {range} AND {where} GROUP BY ALL),
grid AS (SELECT w * {slide} AS start, g
    FROM range({first}, {last}) r(w), (SELECT g, min(start) AS since FROM grouped GROUP BY g)
    WHERE w * {slide} >= since AND w * {slide} <= (SELECT max(start) FROM grouped))
SELECT grid.start, grid.g, coalesce(n, 0), coalesce(bytes, 0), coalesce(a, 0)
FROM grid LEFT JOIN grouped ON grid.start = grouped.start AND grid.g IS NOT DISTINCT FROM grouped.g
"""


@pytest.mark.parametrize("threads", [1, 3])
def test_queries_have_the_rows_of_duckdb(tmp_path: Path, threads: int, rounds: Rounds) -> None:
    for seed in rounds(8):
        random = Random(f"fill {seed}")
        rows = draw_bursts(f"bursts {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        paths = write_links(folder, rows)
        slide = random.choice([1, 2, 5])
        length = slide * random.choice([1, 1, 3])
        group = random.choice(["link", "protocol", "srcPort"])
        where = random.choice(["len > 0", "ttl < 60", "protocol = 17"])
        found = wiretide.query(
            f"SELECT {group}, count(*) AS n, sum(len) AS bytes, avg(ttl) AS a FROM packets "
            f"[RANGE {length} seconds, SLIDE {slide} seconds] WHERE {where} GROUP BY {group} FILL 0",
            *paths,
            threads=threads,
        )
        database = duckdb.connect()
        database.register("packets", pa.Table.from_pylist(rows))
        step = slide * NS
        text = FILLED.format(
            slide=step, range=length * NS, group=group, where=where, first=START // step - 5, last=START // step + 100
        )
        expected = database.execute(text).fetchall()
        starts = found.column("window_start").cast(pa.int64()).to_pylist()
        ours = [
            (start, *row.values())
            for start, row in zip(starts, found.drop_columns(["window_start", "window_end"]).to_pylist(), strict=True)
        ]
        assert sorted(map(rounded, ours)) == sorted(map(rounded, expected)), seed


def rounded(row: tuple) -> tuple:
    return (row[0], str(row[1]), int(row[2]), int(row[3]), round(float(row[4]), 6))


def test_a_live_query_fills_while_packets_of_others_arrive(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "p.pipe")
    plan = compile_query("SELECT count(*) AS n FROM p [RANGE 10 seconds] WHERE destPort = 2 FILL 0")
    run = InlineRun([plan], [Input("p", pipe.path, "p")], slack=2 * NS)
    results = run.results()
    pipe.write(*[1] * AGREED)
    pipe.write(5)
    pipe.write(45, frame=udp("10.0.0.1", "10.0.0.2", 1, 9))  # no later packet is older than 43
    found: list[tuple[float, int]] = []
    while len(found) < 4:
        found += counts(iter([next(results)]))
    assert found == [(0, AGREED + 1), (10, 0), (20, 0), (30, 0)]
    pipe.close()
    assert list(results) == []


def test_a_live_query_fills_while_no_packet_arrives(tmp_path: Path) -> None:
    pipe, now = Pipe(tmp_path / "p.pipe"), [PIPE_START]
    plan = compile_query("SELECT count(*) AS n FROM p [RANGE 10 seconds] FILL 0")
    run = InlineRun([plan], [Input("p", pipe.path, "p")], slack=2 * NS, lull=IdleRule(NS, lambda: now[0]))
    results = run.results()
    pipe.write(*[1] * AGREED)
    pipe.write(15)
    found = counts(iter([next(results)]))
    assert found == [(0, AGREED)]
    now[0] += 45 * NS  # the link is idle: no later packet is older than 44
    while len(found) < 4:
        found += counts(iter([next(results)]))
    assert found == [(0, AGREED), (10, 1), (20, 0), (30, 0)]
    pipe.close()
    assert list(results) == []
