"""Watermarks of single links for automata: partitions by link, and conditions of arcs that name links.

Finds: results that wait for a link that cannot change them, a row that is used although its link has promised none, a
removal that a row that waits still needed, the watermark of one file in place of that of all files of a link,
watermarks of links that a restart forgets, and partial matches of a link that ends before others.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from highlevel.metrics import LATE_ROWS, PARTIAL_MATCHES, ROWS_REMOVED_EARLY, RUNS_REMOVED_EARLY
from highlevel.plan.automaton_nodes import AcceptedRuns
from highlevel.plan.link_watermarks import link_of_arcs, link_of_partitions
from highlevel.plan.nodes import nodes_of
from highlevel.plan.operators import accepted_runs
from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator
from highlevel.plan.pipeline import Pipeline
from lowlevel.punctuation import END, Punctuation
from queries.gsql import compile_query
from tests.conftest import Rounds
from tests.references.operator_contract import through_ipc

BY_LINK = """SELECT * FROM packets AUTOMATON (PARTITION BY link ORDER BY ts REGISTER n INT START s FINAL e
    ARC s TO m WHEN srcPort = 1 SET n = len ARC m TO m WHEN srcPort = 2 ARC m TO e WHEN srcPort = 3 WITHIN 20 ns)"""
ACROSS = """SELECT * FROM packets AUTOMATON (PARTITION BY destPort ORDER BY ts REGISTER n INT START s FINAL e
    ARC s TO m WHEN srcPort < 3 AND link = 'a' SET n = len ARC m TO m WHEN link IN ('a', 'c') SET n = n + 1
    ARC m TO o WHEN link = 'a' ARC o TO e WHEN srcPort > 1 AND link = 'b' WITHIN 40 ns)"""
CHANGES = " WITH CONSISTENCY (WAIT {} ns, REMEMBER FOREVER) EMIT CHANGES"
PORTS = ["a", "b", "c", "a"]

Arrival = tuple[int, int, dict[str, int]]
"""The port and the time of a row, and its values."""


def rows_of(pipeline: Pipeline, arrivals: list[Arrival]) -> pa.RecordBatch:
    """Return rows of one port as the leaf provides them."""
    schema = pipeline.plan.leaves[0].low.schema
    rows = [{"link": PORTS[port], "pane": time, **values} for port, time, values in arrivals]
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


class Links:
    """A query over four ports: the links a, b and c, of which a has two."""

    def __init__(self, sql: str) -> None:
        self.pipeline = Pipeline(compile_query(sql, "q"), [PORTS])
        self.total: Counter[tuple[Any, ...]] = Counter()

    @property
    def operator(self) -> AcceptedRunsOperator:
        return next(each for each in self.pipeline.operators if isinstance(each, AcceptedRunsOperator))

    def add(self, *arrivals: Arrival) -> int:
        """Process rows of one port. Return the number of changes of results."""
        return self._take(self.pipeline.process_rows(arrivals[0][0], rows_of(self.pipeline, list(arrivals))))

    def punctuate(self, port: int, watermark: int) -> int:
        """Process a watermark. Return the number of changes of results."""
        return self._take(self.pipeline.punctuate(port, Punctuation(PORTS[port], watermark)))

    def restart(self) -> None:
        tables = through_ipc(self.pipeline.snapshot())
        self.pipeline = Pipeline(self.pipeline.plan, [PORTS])
        self.pipeline.restore(tables)

    def end(self) -> Counter[tuple[Any, ...]]:
        """End all links. Return the results."""
        for port in range(len(PORTS)):
            self.punctuate(port, END)
        assert not -self.total
        return +self.total

    def _take(self, items: Any) -> int:
        count = 0
        for item in items:
            for row in item.to_pylist() if isinstance(item, pa.RecordBatch) else []:
                weight = row.pop("weight", 1)
                row.pop("final", None)
                self.total[tuple(row.values())] += weight
                count += 1
        return count


def packet(port: int, time: int, kind: int, partition: int = 0) -> Arrival:
    return port, time, {"srcPort": kind, "len": time, "destPort": partition}


def test_a_link_with_its_own_partitions_waits_for_its_own_watermark_only() -> None:
    links = Links(BY_LINK)
    links.add(packet(1, 5, 1), packet(1, 7, 3))
    links.add(packet(0, 6, 1))
    assert links.punctuate(1, 8) == 1
    assert links.punctuate(1, 40) == 0
    assert links.operator.rows_held == 1  # that of the slow link
    links.add(packet(1, 39, 1), packet(1, 40, 1))
    assert links.pipeline.samples(0).total(LATE_ROWS) == 1
    assert links.punctuate(0, 8) == 0  # the other file of the link has no watermark yet
    assert links.operator.rows_held == 2
    links.punctuate(3, 7)
    assert links.operator.rows_held == 2  # the run that begins at 6, and the row at 40
    links.add(packet(3, 8, 3))
    assert links.end() == Counter([("b", 5, 7, 5), ("a", 6, 8, 6)])


@pytest.mark.parametrize("sql", [BY_LINK, BY_LINK + CHANGES.format(0), BY_LINK + CHANGES.format(4)])
@pytest.mark.parametrize("has_restarts", [False, True])
def test_partitions_by_link_give_the_same_results_in_every_order(sql: str, has_restarts: bool, rounds: Rounds) -> None:
    seeds = rounds(8)
    assert sum(compare(sql, seed, has_restarts=has_restarts) for seed in seeds) > 2.5 * len(seeds)


@pytest.mark.parametrize("wait", [0, 5])
@pytest.mark.parametrize("has_restarts", [False, True])
def test_arcs_that_name_links_give_the_same_results_with_less_memory(
    wait: int, has_restarts: bool, monkeypatch: pytest.MonkeyPatch, rounds: Rounds
) -> None:
    monkeypatch.setattr(accepted_runs, "MIN_ROOM", 0)
    removed = Counter[str]()
    seeds = rounds(40)
    found = sum(compare(ACROSS + CHANGES.format(wait), seed, removed, has_restarts=has_restarts) for seed in seeds)
    assert found > 2.5 * len(seeds)
    assert has_restarts or min(removed[ROWS_REMOVED_EARLY.name], removed[RUNS_REMOVED_EARLY.name]) > len(seeds)


def compare(sql: str, seed: int, removed: Counter[str] | None = None, *, has_restarts: bool = False) -> int:
    """Compare the results of rows in any order with those of all rows at once. Return their number."""
    draw = Random(seed)
    links, once = Links(sql), Links(sql)
    rows: list[Arrival] = []
    lows = [0] * len(PORTS)
    for _ in range(30):
        port = draw.randrange(len(PORTS))
        arrivals = [
            packet(port, lows[port] + draw.randint(0, 15), draw.choice([1, 1, 2, 2, 3]), draw.randint(0, 1))
            for _ in range(draw.randint(1, 4))
        ]
        links.add(*arrivals)
        rows += arrivals
        slow = seed % len(PORTS)
        if port != slow or draw.random() < 0.2:
            lows[port] += draw.randint(0, 10)
            links.punctuate(port, lows[port])
        if has_restarts and draw.random() < 0.2:
            links.restart()
    for arrival in rows:
        once.add(arrival)
    samples = links.pipeline.samples(0)
    assert samples.total(LATE_ROWS) == 0, f"seed {seed}"
    if removed is not None:
        removed.update({each.name: int(samples.total(each)) for each in (ROWS_REMOVED_EARLY, RUNS_REMOVED_EARLY)})
    results = links.end()
    assert results == once.end(), f"seed {seed}"
    return len(results)


def test_the_partial_matches_of_a_link_are_those_before_its_own_end() -> None:
    links = Links(BY_LINK)
    links.operator.keeps_unfinished = True
    links.add(packet(2, 4, 1))
    links.add(packet(1, 5, 1), packet(1, 7, 2))
    links.punctuate(1, 6)
    assert links.pipeline.samples(0).total(PARTIAL_MATCHES) == 1
    links.punctuate(1, END)
    assert links.operator.unfinished is None
    assert links.operator.list_partial_matches()["match_end"].to_pylist() == [7]
    links.end()
    assert links.operator.unfinished is not None
    assert links.operator.unfinished.to_pylist() == [
        {"link": "c", "match_start": 4, "match_end": 4, "state": "m", "n": 4},
        {"link": "b", "match_start": 5, "match_end": 7, "state": "m", "n": 5},
    ]


@pytest.mark.parametrize(
    ("rows", "rest", "partitions", "arcs"),
    [
        ("packets", "PARTITION BY link", "link", None),
        ("packets", "", None, "link"),
        ("(SELECT ts, link AS tap, srcPort FROM packets WHERE len > 9)", "PARTITION BY tap", "tap", None),
        ("(SELECT ts, link AS tap, srcPort FROM packets)", "", None, None),
        ("(SELECT ts, upper(link) AS link, srcPort FROM packets)", "PARTITION BY link", None, None),
        ("(SELECT ts, srcPort, link FROM packets UNION ALL SELECT ts, srcPort, link FROM frames)", "", None, None),
    ],
)
def test_the_link_of_the_rows_is_found_through_queries_over_one_kind_of_rows(
    rows: str, rest: str, partitions: str | None, arcs: str | None
) -> None:
    condition = "srcPort = 1" if "tap" in rows else "link = 'a' AND srcPort = 1"
    sql = f"SELECT * FROM {rows} AUTOMATON ({rest} ORDER BY ts START s FINAL e ARC s TO e WHEN {condition})"
    plan = compile_query(sql + CHANGES.format(0), "q")
    (node,) = (node for node in nodes_of(plan.root) if isinstance(node, AcceptedRuns))
    assert (link_of_partitions(node), link_of_arcs(node)) == (partitions, arcs)


def test_a_query_without_changes_has_no_use_for_links_in_conditions() -> None:
    plan = compile_query(ACROSS, "q")
    (node,) = (node for node in nodes_of(plan.root) if isinstance(node, AcceptedRuns))
    assert (link_of_partitions(node), link_of_arcs(node)) == (None, None)
