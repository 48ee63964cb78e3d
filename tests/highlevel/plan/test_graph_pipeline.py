"""A whole graph as one operator: random rows and promises on all its ports, its state taken over, its counters.

They detect a node whose state is saved under another's name, and an item that overtakes another on an edge. They detect
a shared node that omits a reader, and a silent link that delays results that do not depend on it.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from highlevel.aggregation import Output
from highlevel.joins.spec import Band, JoinKind, Tumbling, WatermarkForm
from highlevel.metrics import LOW_WATERMARK, OPERATOR_METRICS, QUERY_METRICS, WINDOWS_CLOSED
from highlevel.plan.nodes import Apply, Distinct, Leaf, Node, TimeGroups, TimeOutput, Union, Windowed
from highlevel.plan.operators.operator import bounds_of
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key
from lowlevel.punctuation import BEGINNING, END, Punctuation
from tests.references.graph_plans import LEN, SRC, TS, join, longer, packets, totals
from tests.references.graph_streams import Bounds, Row, interleaved, is_covered, shuffled, stream
from tests.references.operator_contract import through_ipc

STS, ATS = Column("S.ts", Type.TIME), Column("A.ts", Type.TIME)
TEN = SlidingWindow(10, 5)
JOINED = join(packets("a"), packets("b"), Band(4, 2), WatermarkForm.JOINT)
BY_PAIRS = totals(WHOLE_INPUT, (Key("left", STS), Key("right", ATS)), Column("S.len", Type.INT))
RENAMED = Apply(JOINED, (Output("ts", ATS), Output("srcIP", Column("S.srcIP", Type.ADDRESS, True))), ())
BOTH = packets("a")

GRAPHS: dict[str, Node] = {
    "pairs": TimeGroups(JOINED, BY_PAIRS, (("S.ts", 1, "left"), ("A.ts", 1, "right"))),
    "distinct": Distinct(
        Apply(
            Union((BOTH, packets("b"))),
            (Output("ts", TS), Output("srcIP", SRC)),
            (TimeOutput("ts", "ts"),),
        ),
        ("ts", "srcIP"),
    ),
    "diamond": join(BOTH, Union((longer(BOTH, 1), packets("b"))), Tumbling(10), kind=JoinKind.LEFT, keys=((SRC, SRC),)),
    "later": Windowed(
        join(packets("a"), packets("b"), Band(4, 2), WatermarkForm.MAX),
        totals(TEN, (), Column("S.len", Type.INT)),
        "max_ts",
    ),
    "nothing promised": RENAMED,
    "rolled up": Windowed(
        Apply(
            Windowed(Union((BOTH, packets("b"))), totals(TEN, (Key("srcIP", SRC),), LEN), "ts"),
            (Output("t", Column("window_end", Type.TIME)), Output("n", Column("c", Type.INT))),
            (TimeOutput("t", "window_end"),),
        ),
        totals(SlidingWindow(20, 20), (), Column("n", Type.INT)),
        "t",
    ),
}


def made_rows(random: Random) -> list[Row]:
    """Rows of a leaf: link, ts, srcIP, destIP, srcPort, len."""
    late = random.choice([0, 5, 20])
    rows = []
    for _ in range(random.randint(1, 25)):
        ts, ends = random.randrange(40), random.choice([(b"aaaa", b"bbbb"), (b"bbbb", b"aaaa"), (b"aaaa", b"aaaa")])
        rows.append((ts + random.random() * late, ("link", ts, *ends, 9, random.randrange(4))))
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def feed(pipeline: Pipeline, event: tuple[int, Any]) -> list:
    port, what = event
    if isinstance(what, tuple):
        return list(pipeline.punctuate(port, Punctuation("link", what[0])))
    schema = next(leaf for leaf in pipeline.plan.leaves).low.schema
    columns = [pa.array(values, each.type) for values, each in zip(zip(*what, strict=True), schema, strict=True)]
    return list(pipeline.process_rows(port, pa.RecordBatch.from_arrays(columns, schema=schema)))


def rows_in(items: list) -> Counter:
    return Counter(
        tuple(row.values()) for each in items if isinstance(each, pa.RecordBatch) for row in each.to_pylist()
    )


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("seed", range(6))
def test_a_graph_keeps_the_contract_of_operators(name: str, seed: int) -> None:
    random = Random(seed)
    root = GRAPHS[name]
    plan = Plan("q", "", root)
    links = [["x", "y"] if leaf.streams == ("a",) else ["z"] for leaf in plan.leaves]
    streams = [stream(random, made_rows(random), lambda row: (row[1],), 1) for of in links for _ in of]
    events = interleaved(random, streams)
    whole = Pipeline(plan, links)
    trace = [feed(whole, event) for event in events]
    width = max(1, len(root.time_columns))
    said: Bounds = (BEGINNING,) * width
    for items in trace:
        for each in items:
            if isinstance(each, pa.RecordBatch):
                assert each.schema == plan.schema
                times = zip(*(each.column(column).to_pylist() for column in root.time_columns), strict=True)
                assert not any(BEGINNING not in said and is_covered(row, said) for row in times)
            else:
                lows = bounds_of(each, width)
                assert all(low >= before for low, before in zip(lows, said, strict=True))
                said = lows
    assert set(said) == {END}
    place = random.randrange(len(events))
    stopped, restarted = Pipeline(plan, links), Pipeline(plan, links)
    for event in events[:place]:
        feed(stopped, event)
    restarted.restore(through_ipc(stopped.snapshot()))
    assert [rows_in(feed(restarted, event)) for event in events[place:]] == [rows_in(each) for each in trace[place:]]
    again = Pipeline(plan, links)
    others = [item for event in shuffled(random, events) for item in feed(again, event)]
    assert rows_in(others) == rows_in([item for items in trace for item in items])
    held = [value for (metric, _), value in whole.samples(0).items() if metric == "wiretide_operator_rows_held"]
    assert not any(held)


def rows(*times: int, ends: tuple[bytes, bytes] = (b"aaaa", b"bbbb")) -> list[Row]:
    return [("x", ts, *ends, 9, 5) for ts in times]


BACK = (b"bbbb", b"aaaa")


def pipeline_of(root: Node, ports: Callable[[str], list[str]] = lambda name: [name]) -> Pipeline:
    plan = Plan("q", "", root)
    return Pipeline(plan, [ports(leaf.streams[0]) for leaf in plan.leaves])


def test_a_link_that_never_speaks_holds_back_what_waits_for_it_and_nothing_else() -> None:
    pipeline = pipeline_of(join(packets("a"), packets("b"), Band(4, 2), kind=JoinKind.LEFT))
    assert feed(pipeline, (0, rows(1, 30))) == []
    assert feed(pipeline, (0, (50,))) == []  # no watermark of b is known, so a later row of it may match the row of 1
    (pair,) = feed(pipeline, (1, rows(3, ends=BACK)))
    assert [row[0] for row in rows_in([pair])] == [1]  # pairs wait for nobody
    batch, mark = feed(pipeline, (1, (35,)))
    assert [row[0] for row in rows_in([batch])] == [30]
    assert mark == Punctuation("*", 31)

    pipeline = pipeline_of(longer(packets("a"), 1))
    assert rows_in(feed(pipeline, (0, rows(1)))).total() == 1
    union = pipeline_of(Windowed(Union((packets("a"), packets("b"))), totals(TEN, (), LEN), "ts"))
    assert feed(union, (0, rows(1))) + feed(union, (0, (90,))) == []
    assert rows_in(feed(union, (1, (90,)))).total() == 2  # both windows that hold 1


def test_a_node_with_two_readers_is_run_once() -> None:
    pipeline = pipeline_of(GRAPHS["diamond"])
    names = pipeline.plan.node_names
    assert names == ("leaf 1", "apply 1", "filter", "leaf 2", "apply 2", "union", "join")
    found = feed(pipeline, (0, rows(1, 2)))
    assert rows_in(found).total() == 4  # each of the two meets both, once
    samples = pipeline.samples(0)
    assert samples["wiretide_partials_received_total", ("q",)] == 2
    assert samples["wiretide_operator_rows_received_total", ("q", "join")] == 4


def test_a_leaf_without_a_link_is_refused() -> None:
    with pytest.raises(ValueError, match="query q: no input for b, expected at least one"):
        pipeline_of(JOINED, lambda name: [] if name == "b" else ["x"])


def test_counters_are_those_of_every_query_and_of_each_operator() -> None:
    pipeline = pipeline_of(GRAPHS["later"])
    for event in [(0, rows(1, 2)), (1, rows(3, ends=BACK)), (0, (40,)), (1, (30,)), (1, rows(1, ends=BACK))]:
        feed(pipeline, event)
    samples = pipeline.samples(50 * 10**9)
    assert {name for name, _ in samples} == {each.name for each in (*QUERY_METRICS, *OPERATOR_METRICS)}
    assert samples["wiretide_operator_late_rows_total", ("q", "join")] == 1
    assert samples["wiretide_late_rows_total", ("q",)] == 1
    assert samples["wiretide_operator_result_rows_total", ("q", "join")] == 2
    assert samples["wiretide_operator_result_rows_total", ("q", "windowed")] == 2
    assert samples["wiretide_result_rows_total", ("q",)] == 2
    assert samples.total(LOW_WATERMARK, link="b") == 30 / 10**9
    assert samples.total(WINDOWS_CLOSED) == pipeline.samples(0).total(WINDOWS_CLOSED) == 2


def test_plans_know_their_columns_times_and_streams() -> None:
    plan = Plan("q", "", GRAPHS["diamond"])
    assert plan.streams == ("a", "b")
    assert plan.times == {"S.ts", "A.ts"}
    assert not plan.windowed
    assert [column.nullable for column in plan.root.columns if column.name.endswith("ts")] == [False, True]
    rolled = Plan("q", "", GRAPHS["rolled up"])
    assert rolled.windowed
    assert rolled.times == {"window_start", "window_end"}
    assert rolled.window == SlidingWindow(20, 20)
    assert Plan("q", "", GRAPHS["pairs"]).times == {"left", "right"}
    assert Plan("q", "", RENAMED).times == {"ts"}
    counted = Plan("q", "", Windowed(packets("a"), totals(TEN, (), TS), "ts"))
    assert counted.with_row_counts() == counted  # it counts its rows


def test_windows_that_do_not_count_their_rows_do_so_where_rows_may_be_late() -> None:
    plan = totals(TEN, (Key("srcIP", SRC),), LEN)
    plan = replace(plan, low=replace(plan.low, subaggregates=plan.low.subaggregates[1:]), select=plan.select[2:])
    over_leaf = Windowed(Leaf("q", ("a",), plan.low), plan, "pane")
    both = Union((over_leaf, Windowed(packets("a"), plan, "ts")))
    of_leaf, of_rows = Plan("q", "", both).with_row_counts().root.inputs
    for each in (of_leaf, of_rows):
        assert isinstance(each, Windowed)
        assert [sub.name for sub in each.aggregation.low.subaggregates] == ["s", "rows"]
    assert isinstance(of_leaf, Windowed)
    assert of_leaf.merges_partials
    assert of_rows.inputs == (packets("a"),)


@pytest.mark.parametrize("name", GRAPHS)
def test_plans_are_pickled_whole(name: str) -> None:
    plan = Plan("q", "SELECT …", GRAPHS[name])
    read = pickle.loads(pickle.dumps(plan))
    assert read == plan
    assert (read.schema, read.leaves, hash(read)) == (plan.schema, plan.leaves, hash(plan))
