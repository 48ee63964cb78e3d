"""Graphs over live inputs, and several of them in one run: what is answered while inputs are open, and by whom.

They detect a pair that waits for a watermark, and an outer row that leaves before one. They detect a silent link that
delays another query's rows, and items of a leaf that reach another plan's graph.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from highlevel.inline.engine import InlineRun, Input
from highlevel.joins.spec import Band, JoinKind
from highlevel.plan.nodes import Leaf, Node, Union, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import SlidingWindow
from lowlevel.plan import Key
from lowlevel.watermarks.idle import IdleRule, ReplayClock
from tests.harness.live_pipes import AGREED, START, Pipe
from tests.references.graph_plans import LEN, SRC, join, longer, packets, totals
from tests.references.pcap_bytes import NS
from tests.references.small_captures import udp, write

THERE, BACK = udp("10.0.0.1", "10.0.0.2", 1, 2), udp("10.0.0.2", "10.0.0.1", 2, 1)


def graph(root: Node, name: str = "q") -> Plan:
    return Plan(name, "", root)


def times(batch: pa.RecordBatch) -> list[tuple]:
    """Return the times of rows in seconds after START, with None for NULL."""
    columns = [batch.column(name).to_pylist() for name in batch.schema.names if name.endswith("ts")]
    return [tuple(None if ts is None else (ts - START) / NS for ts in row) for row in zip(*columns, strict=True)]


@pytest.fixture
def pipes(tmp_path: Path) -> tuple[Pipe, Pipe]:
    return Pipe(tmp_path / "a.pipe"), Pipe(tmp_path / "b.pipe")


def test_pairs_leave_at_once_and_rows_without_a_partner_when_nobody_can_come(pipes: tuple[Pipe, Pipe]) -> None:
    a, b = pipes
    plan = graph(join(packets("a"), packets("b"), Band(3 * NS, 0), kind=JoinKind.LEFT))
    run = InlineRun([plan], [Input("a", a.path, "a"), Input("b", b.path, "b")], slack=2 * NS)
    results = run.results()
    a.write(*[1] * AGREED, frame=BACK)  # they define where the link begins
    a.write(10, frame=THERE)
    b.write(*[5] * AGREED, frame=udp("10.0.0.9", "10.0.0.9", 1, 1))
    b.write(12, frame=BACK)
    answered = Counter[tuple]()
    while (10, 12) not in answered:
        answered.update(times(next(results)[1]))
    assert set(answered) <= {(10, 12), (1, None)}
    a.write(20, 40)
    b.write(60, frame=BACK)  # no later row is older than 58, so the rows of 20 and 40 have no partner
    while (40, None) not in answered:
        answered.update(times(next(results)[1]))
    assert answered == {(1, None): AGREED, (10, 12): 1, (20, None): 1, (40, None): 1}
    for each in pipes:
        each.close()
    assert list(results) == []


def test_a_silent_link_holds_back_only_who_waits_for_it(pipes: tuple[Pipe, Pipe]) -> None:
    a, b = pipes
    union = Windowed(Union((packets("a"), packets("b"))), totals(SlidingWindow(10 * NS, 10 * NS), (), LEN), "ts")
    plans = [graph(longer(packets("a"), 1), "rows"), graph(union, "union")]
    run = InlineRun(plans, [Input("a", a.path, "a"), Input("b", b.path, "b")], slack=0)
    results = run.results()
    a.write(*[1] * AGREED, 30, 50)
    rows: list[tuple] = []
    while len(rows) < AGREED + 2:
        reader, batch = next(results)
        assert reader == 0, "windows over a link that has said nothing"
        rows += times(batch)
    b.write(*[31] * AGREED)
    reader, batch = next(results)
    assert (reader, batch.column("c").to_pylist()) == (1, [AGREED])
    for each in pipes:
        each.close()
    assert {reader for reader, _ in results} == {1}


def test_a_lull_lets_windows_over_a_union_close(pipes: tuple[Pipe, Pipe]) -> None:
    a, b = pipes
    union = Windowed(Union((packets("a"), packets("b"))), totals(SlidingWindow(10 * NS, 10 * NS), (), LEN), "ts")
    inputs = [Input("a", a.path, "a"), Input("b", b.path, "b")]
    run = InlineRun([graph(union)], inputs, slack=0, lull=IdleRule(5 * NS, ReplayClock()))
    results = run.results()
    a.write(*[1] * AGREED, 30, 50)  # by the clock of the rows read, b is at least at 45
    closed: list[int] = []
    while len(closed) < 2:
        closed += next(results)[1].column("c").to_pylist()
    assert closed == [AGREED, 1]
    for each in pipes:
        each.close()
    assert [batch.column("c").to_pylist() for _, batch in results] == [[1]]


def test_several_graphs_and_a_plan_have_each_their_own_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.pcap", [(1, THERE), (2, THERE), (13, THERE)])
    write(tmp_path / "b.pcap", [(2, BACK), (30, BACK)])
    inputs = [Input(name, tmp_path / f"{name}.pcap", name) for name in "ab"]
    aggregation = totals(SlidingWindow(10 * NS, 10 * NS), (Key("srcIP", SRC),), LEN)
    plain = graph(Windowed(Leaf("q", ("b",), aggregation.low), aggregation, "pane"))
    joined = graph(join(packets("b"), packets("a"), Band(0, NS)))
    plans: list[Plan] = [graph(packets("b")), plain, joined, graph(packets("a"))]
    for threads in (1, 2):
        found: dict[int, Counter] = {number: Counter() for number in range(4)}
        for reader, batch in InlineRun(plans, inputs, 64, threads=threads).results():
            assert batch.schema == plans[reader].schema
            found[reader].update(next(iter(row.values())) // NS for row in batch.to_pylist())
        assert found == {0: {2: 1, 30: 1}, 1: {0: 1, 30: 1}, 2: {2: 2}, 3: {1: 1, 2: 1, 13: 1}}
