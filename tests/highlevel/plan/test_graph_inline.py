"""Whole queries that are graphs, built by hand, by the inline engine over generated captures, against plain Python.

They detect errors that tests of single operators cannot: leaves with the rows of others, ports that are swapped, nodes
that run twice or too seldom. They detect watermarks that do not reach the end of the graph, and counters that omit a
part.
"""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from highlevel.aggregation import Output
from highlevel.inline import schedule
from highlevel.inline.engine import InlineRun, Input
from highlevel.joins.spec import Band, JoinKind, Tumbling, WatermarkForm
from highlevel.metrics import (
    JOIN_PAIRS,
    JOIN_ROWS_STORED,
    LATE_ROWS,
    OPERATOR_RESULT_ROWS,
    OPERATOR_ROWS_HELD,
    PARTIALS_RECEIVED,
    RESULT_ROWS,
)
from highlevel.plan.nodes import Apply, Distinct, Filter, Leaf, Node, TimeGroups, TimeOutput, Union, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.tree import Binary, Column
from lowlevel.expressions.types import Op, Type
from lowlevel.metrics import TABLE_BYTES
from lowlevel.plan import Key
from queries.gsql import compile_query
from tests.references.graph_packets import SECOND, Links, Packet, address, made, pairs, rows_of, run, write
from tests.references.graph_plans import DEST, LEN, PANE, PORT, SRC, TS, join, leaf, longer, number, packets, totals
from tests.references.pcap_bytes import pcap_bytes
from tests.references.small_captures import RAW_IP, udp


def graph(root: Node) -> Plan:
    return Plan("q", "SELECT …", root)


def spelled(packet: Packet) -> tuple:
    return packet.ts, address(packet.src), address(packet.dest), packet.port, packet.length


def per_window(rows: Iterable[tuple[int, tuple, int]], spec: SlidingWindow) -> Counter:
    """Rows `time, group, amount` as the groups of windows: bounds, group, count, sum."""
    groups: dict[tuple, list[int]] = defaultdict(list)
    for time, group, amount in rows:
        since = time - spec.origin
        for wid in range(max(0, since // spec.slide), max(0, (since + spec.range) // spec.slide)):
            groups[(*spec.bounds(wid), *group)].append(amount)
    return Counter((*key, len(amounts), sum(amounts)) for key, amounts in groups.items())


def two_links(random: Random) -> Links:
    return {"a": made(random, 60), "b": made(random, 60, random.choice([0, 0, 20_000]))}


@pytest.fixture(params=range(6))
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_a_selection_gives_its_rows(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    found, engine = run(graph(longer(packets("a"), 80)), write(tmp_path, links), seed)
    assert found == Counter(spelled(each) for each in links["a"] if each.length > 80)
    samples = engine.samples()
    assert samples.total(PARTIALS_RECEIVED) == len(links["a"])
    assert samples.total(RESULT_ROWS) == found.total()


def test_windows_over_a_union_count_the_rows_of_all_its_inputs(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed)) | {"c": made(Random(seed + 99), 10)}
    window = SlidingWindow(10 * SECOND, 5 * SECOND)
    union = Union((longer(packets("a"), 80), packets("b", "c")))
    plan = graph(Windowed(union, totals(window, (Key("srcIP", SRC),), LEN), "ts"))
    rows = [each for each in links["a"] if each.length > 80] + links["b"] + links["c"]
    expected = per_window(((each.ts, (address(each.src),), each.length) for each in rows), window)
    assert run(plan, write(tmp_path, links), seed)[0] == expected


def test_windows_over_a_join_count_pairs(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    window = SlidingWindow(20 * SECOND, 10 * SECOND)
    joined = join(packets("a"), packets("b"), Band(3 * SECOND, SECOND))
    took = Binary(Op.SUB, Column("A.ts", Type.INT), Column("S.ts", Type.INT))
    plan = graph(Windowed(joined, totals(window, (Key("who", Column("S.srcIP", Type.ADDRESS, True)),), took), "S.ts"))
    found, engine = run(plan, write(tmp_path, links), seed)
    matches = pairs(links["a"], links["b"], -SECOND, 3 * SECOND)
    assert found == per_window(((s.ts, (address(s.src),), a.ts - s.ts) for s, a in matches), window)
    samples = engine.samples()
    assert samples.total(OPERATOR_RESULT_ROWS, operator="join") == len(matches)
    assert 0 < samples.total(JOIN_ROWS_STORED) <= 120
    assert samples.total(JOIN_PAIRS) == len(matches)
    assert samples.total(OPERATOR_ROWS_HELD) == 0


def test_a_tumbling_join_of_unions(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    links = {name: made(random, 25) for name in "abcd"}
    one, other = (Union((packets(first), packets(second))) for first, second in ("ab", "cd"))
    plan = graph(join(one, other, Tumbling(10 * SECOND), WatermarkForm.JOINT, keys=((SRC, SRC),)))
    left, right = links["a"] + links["b"], links["c"] + links["d"]
    expected = Counter(
        spelled(s) + spelled(a)
        for s in left
        for a in right
        if s.ts // (10 * SECOND) == a.ts // (10 * SECOND) and s.src == a.src
    )
    assert run(plan, write(tmp_path, links), seed)[0] == expected


def test_a_stream_that_is_joined_with_itself_is_read_once(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    both = packets("a")
    later = Binary(Op.LT, Column("S.ts", Type.INT), Column("A.ts", Type.INT))
    plan = graph(join(both, both, Band(2 * SECOND, 0), keys=((SRC, SRC), (LEN, LEN)), residual=later))
    found, engine = run(plan, write(tmp_path, links), seed)
    assert found == Counter(
        spelled(s) + spelled(a)
        for s in links["a"]
        for a in links["a"]
        if s.ts < a.ts <= s.ts + 2 * SECOND and (s.src, s.length) == (a.src, a.length)
    )
    assert len(plan.leaves) == 1
    assert engine.samples().total(PARTIALS_RECEIVED) == 60


def test_a_file_that_is_dealt_to_several_shards_is_joined_as_one(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SHARD_BYTES", 64)
    links = two_links(Random(seed))
    plan = graph(join(packets("a"), packets("b"), Band(3 * SECOND, SECOND), kind=JoinKind.ANTI))
    met = {s for s, _ in pairs(links["a"], links["b"], -SECOND, 3 * SECOND)}
    engine = InlineRun([plan], write(tmp_path, links), 64, threads=3, block_records=7)
    assert len(engine.shards) == 6
    expected = Counter(spelled(each) for each in links["a"] if each not in met)
    assert rows_of(batch for _, batch in engine.results()) == expected


def test_a_link_may_feed_several_leaves_of_a_query(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    short, long = (packets("a", where=Binary(op, LEN, number(80))) for op in (Op.LT, Op.GT))
    plan = graph(join(short, long, Band(3 * SECOND, 3 * SECOND), kind=JoinKind.LEFT))
    of_left = [each for each in links["a"] if each.length < 80]
    matches = pairs(of_left, [each for each in links["a"] if each.length > 80], -3 * SECOND, 3 * SECOND)
    expected = Counter(spelled(s) + spelled(a) for s, a in matches)
    met = {id(s) for s, _ in matches}
    expected.update(spelled(s) + (None,) * 5 for s in of_left if id(s) not in met)
    assert len(plan.leaves) == 2
    assert run(plan, write(tmp_path, links), seed)[0] == expected


@pytest.mark.parametrize("interval", [1, 10 * SECOND])
def test_groups_of_both_times_of_a_join(seed: int, interval: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    joined = join(packets("a"), packets("b"), Band(3 * SECOND, SECOND), WatermarkForm.JOINT)
    of = {name: Column(f"{name}.ts", Type.INT) for name in "SA"}
    keys = tuple(
        Key(f"{name}t", column if interval == 1 else Binary(Op.DIV, column, number(interval)))
        for name, column in of.items()
    )
    times = tuple((f"{name}.ts", interval, f"{name}t") for name in "SA")
    plan = graph(TimeGroups(joined, totals(WHOLE_INPUT, keys, Column("S.len", Type.INT)), times))
    groups: dict[tuple, list[int]] = defaultdict(list)
    for s, a in pairs(links["a"], links["b"], -SECOND, 3 * SECOND):
        groups[s.ts // interval, a.ts // interval].append(s.length)
    found, engine = run(plan, write(tmp_path, links), seed)
    assert found == Counter((*key, len(of_group), sum(of_group)) for key, of_group in groups.items())
    assert engine.samples().total(OPERATOR_ROWS_HELD) == 0


def test_windows_of_windows_roll_up(seed: int, tmp_path: Path) -> None:
    links = two_links(Random(seed))
    short, long = SlidingWindow(5 * SECOND, 5 * SECOND), SlidingWindow(20 * SECOND, 20 * SECOND)
    plan = totals(short, (Key("srcIP", SRC),), LEN)
    inner = Windowed(Leaf("q", ("a", "b"), plan.low), plan, "pane")
    outputs = (Output("ts", Column("window_start", Type.INT)), Output("n", Column("c", Type.INT)), Output("srcIP", SRC))
    rows = Apply(inner, outputs, (TimeOutput("ts", "window_end", short.range),))
    outer = graph(Windowed(rows, totals(long, (Key("srcIP", SRC),), Column("n", Type.INT)), "ts"))
    small = per_window(((each.ts, (address(each.src),), 0) for each in links["a"] + links["b"]), short)
    expected = per_window(((start, (src,), n) for (start, _, src, n, _) in small), long)
    assert run(outer, write(tmp_path, links), seed)[0] == expected


def test_the_same_packet_at_two_taps_is_one_row(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    links = two_links(random)
    links["b"] += [each for each in links["a"] if random.random() < 0.5]
    plan = graph(Distinct(Union((packets("a"), packets("b"))), ("ts", "srcIP", "destIP", "srcPort", "len")))
    found, engine = run(plan, write(tmp_path, links), seed)
    assert found == Counter({spelled(each) for each in links["a"] + links["b"]})
    assert engine.samples().total(OPERATOR_ROWS_HELD) == 0


def test_a_graph_of_windows_over_a_leaf_answers_what_a_plan_does(seed: int, tmp_path: Path) -> None:
    inputs = write(tmp_path, two_links(Random(seed)))
    plan = totals(SlidingWindow(10 * SECOND, 5 * SECOND), (Key("srcIP", SRC), Key("destIP", DEST)), LEN)
    sql = "SELECT srcIP, destIP, count(*) AS c, sum(len) AS s FROM a UNION b [RANGE 10 s, SLIDE 5 s] "
    expected, alone = run(compile_query(sql + "GROUP BY srcIP, destIP", "q"), inputs, seed)
    found, engine = run(graph(Windowed(Leaf("q", ("a", "b"), plan.low), plan, "pane")), inputs, seed)
    assert found == expected
    counters = {name for name in alone.samples() if name[0].endswith("_total")}
    assert {name: engine.samples()[name] for name in counters} == {name: alone.samples()[name] for name in counters}


def test_leaves_with_equal_low_plans_share_what_they_evaluate(tmp_path: Path) -> None:
    links = two_links(Random(1))
    inputs = write(tmp_path, links)
    plans = [graph(packets("a")), graph(longer(packets("a"), 80))]
    engine = InlineRun(plans, inputs[:1], 64, threads=1)
    rows = Counter(number for number, batch in engine.results() for _ in range(batch.num_rows))
    assert rows == {0: 60, 1: sum(each.length > 80 for each in links["a"])}
    engine = InlineRun(plans, inputs[:1], 64, threads=1)
    shard = engine.shards[0]
    for _ in engine.results():
        if shard.node is not None:
            assert len({id(query) for query in shard.node.reducers}) == 1
            break
    else:
        raise AssertionError("the shard had no node")


def test_a_late_row_is_counted_where_it_is_dropped_and_reaches_what_nothing_was_promised_of(tmp_path: Path) -> None:
    """A gzip file is read as a stream: with a slack its rows may be late."""
    times = [*[100] * 64, 140, 101, 141]
    records = [(each * SECOND, udp("10.0.0.1", "10.0.0.2", 1, 2, 60)) for each in times]
    path = tmp_path / "a.pcap.gz"
    path.write_bytes(gzip.compress(pcap_bytes(records, RAW_IP)))
    inputs = [Input("a", path, "a")]

    def answer(root: Node) -> tuple[Counter, float]:
        engine = InlineRun([graph(root)], inputs, 64, slack=10 * SECOND, threads=1, block_records=1)
        return rows_of(batch for _, batch in engine.results()), engine.samples().total(LATE_ROWS)

    rows = Apply(packets("a"), (Output("ts", TS),), (TimeOutput("ts", "ts"),))
    assert answer(rows) == (Counter((each * SECOND,) for each in times), 0)  # rows are not held to any watermark
    assert answer(Distinct(rows, ("ts",))) == (Counter({(each * SECOND,): 1 for each in (100, 140, 141)}), 1)
    by_ten = SlidingWindow(10 * SECOND, 10 * SECOND)
    counted, late = answer(Windowed(rows, totals(by_ten, (), TS), "ts"))
    assert {(start // SECOND, n) for start, _, n, _ in counted} == {(100, 64), (140, 2)}
    assert late == 1
    joined = join(packets("a"), packets("a"), Band(0, 0), keys=((SRC, SRC),))
    found, late = answer(Apply(joined, (Output("ts", Column("S.ts", Type.INT)),), (TimeOutput("ts", "S.ts"),)))
    assert found == {(100 * SECOND,): 64 * 64, (140 * SECOND,): 1, (141 * SECOND,): 1}
    assert late == 2  # once on either side


def test_a_kind_of_rows_alone_is_that_of_every_link(tmp_path: Path) -> None:
    links = two_links(Random(3))
    rows = Filter(leaf("packets"), Binary(Op.GT, LEN, number(80)))
    plan = graph(Apply(rows, (Output("link", Column("link", Type.TEXT)), Output("t", PANE)), ()))
    expected = Counter((name, each.ts) for name, of in links.items() for each in of if each.length > 80)
    assert run(plan, write(tmp_path, links))[0] == expected
    assert plan.times == {"t"}


def test_the_tables_of_all_leaves_of_a_query_count_as_its_memory(tmp_path: Path) -> None:
    inputs = write(tmp_path, two_links(Random(1)))[:1]
    window = SlidingWindow(10 * SECOND, 10 * SECOND)

    def windows(key: str, column: Column, amount: Column) -> Windowed:
        plan = totals(window, (Key(key, column),), amount)
        return Windowed(Leaf("q", ("a",), plan.low), plan, "pane")

    def most(root: Node) -> float:
        engine = InlineRun([graph(root)], inputs, 64, threads=1, block_records=20)
        return max(engine.samples().total(TABLE_BYTES) for _ in engine.results())

    hosts, ports = windows("k", SRC, LEN), windows("k", DEST, PORT)
    alone = most(hosts)
    assert alone > 0
    assert most(Union((hosts, ports))) > 1.5 * alone
