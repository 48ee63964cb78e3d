"""Runs that no later row can continue, without WITHIN: their memory, and the results that follow.

Finds: a run that stays in memory although nothing can continue it, a run that is removed although a later row, a
deadline or an arc that is added continues it, and a result that is returned twice or never.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.model import change_schema, weighted
from lowlevel.expressions.tree import Binary, Column, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import END
from tests.references.automata import Row, deadline_results, results, tie_of

PAYLOAD = pa.schema([("part", pa.int64()), ("size", pa.int64())])
CHANGES = change_schema(PAYLOAD)
SIZE = Column("size", Type.INT)
DUE = Field("due", Literal(None, Type.TIME))


def is_size(*sizes: int) -> Binary:
    condition, *others = (Binary(Op.EQ, SIZE, Literal(size, Type.INT)) for size in sizes)
    for other in others:
        condition = Binary(Op.OR, condition, other)
    return condition


BEGIN = Arc("idle", "hit", is_size(7))
SEEN = Arc("idle", "seen", is_size(7)), Arc("seen", "seen", is_size(1, 2)), Arc("seen", "hit", is_size(3))
AUTOMATA = {
    "nothing continues a result": (BEGIN,),
    "a run waits in seen": SEEN,
    "a final run continues, or is caught": (BEGIN, Arc("hit", "trap", is_size(1)), Arc("hit", "hit", is_size(2))),
    "an arc that ends at 500 continues a result": (BEGIN, Arc("hit", "hit", is_size(1), end=500)),
}


class Stream:
    """An operator, its rows and results so far. Each partition has few rows, so most partitions are old ones."""

    def __init__(self, automaton: Automaton, *, arcs_change: bool) -> None:
        self.automaton = automaton
        self.operator = PatternOperator(CHANGES, automaton, by=["part"], arcs_change=arcs_change)
        self.rows: dict[int, list[Row]] = {}
        self.found: Counter[tuple[Any, ...]] = Counter()
        self.watermark = self.count = 0

    def add(self, rows: list[tuple[int, int, int]]) -> None:
        """Add rows of a time, a partition and a size, in any order."""
        changes = []
        for time, part, size in rows:
            self.count += 1
            values = {"part": part, "size": size}
            self.rows.setdefault(part, []).append(Row(time, tie_of(values, PAYLOAD, self.count), END, values))
            changes.append({"type": 0, "vs": time, "ve": END, **values})
        self._process(changes)

    def retract(self, time: int, part: int) -> None:
        """Retract the last row of a partition with this time."""
        row = next(row for row in reversed(self.rows[part]) if row.start == time)
        self.rows[part].remove(row)
        self._process([{"type": 1, "vs": time, "ve": END, "vnew": time, **row.values}])

    def advance(self, watermark: int) -> None:
        self.watermark = watermark
        self._process([{"type": 2, "vs": watermark}])

    def _process(self, changes: list[dict[str, Any]]) -> None:
        for row in weighted(self.operator.process(pa.RecordBatch.from_pylist(changes, CHANGES))).to_pylist():
            register = tuple(row[field.name] for field in self.automaton.register)
            self.found[row["part"], row["match_start"], row["vs"], row["ve"], register] += row["weight"]

    def expected(self) -> Counter[tuple[Any, ...]]:
        """Return the results by the definition."""
        by_rows = ((part, *found[:4]) for part, rows in self.rows.items() for found in results(self.automaton, rows))
        by_deadlines = (
            (part, *found)
            for part, rows in self.rows.items()
            for found in deadline_results(self.automaton, rows, -1, self.watermark)
        )
        return Counter([*by_rows, *by_deadlines])


@pytest.mark.parametrize("arcs_change", [False, True])
@pytest.mark.parametrize("name", AUTOMATA)
def test_memory_is_bounded_without_WITHIN_and_results_are_those_of_the_definition(
    name: str, *, arcs_change: bool
) -> None:
    arcs = AUTOMATA[name]
    stream = Stream(Automaton("idle", ("hit",), arcs), arcs_change=arcs_change)
    draw, entries = random.Random(name), []
    for step in range(40):
        begin, parts = 50 * step, 10 * step
        rows = [(begin + draw.randrange(80), parts + draw.randrange(15), draw.choice((1, 2, 3, 7))) for _ in range(30)]
        stream.add([row for row in rows if row[0] >= stream.watermark])
        for part in draw.sample(sorted(stream.rows), min(5, len(stream.rows))):
            late = [row.start for row in stream.rows[part] if row.start >= stream.watermark]
            if late:
                stream.retract(draw.choice(late), part)
        stream.advance(begin + 30)
        entries.append(stream.operator.matches.entry_count)
    assert +stream.found == stream.expected()
    assert not -stream.found
    continued = {arc.source for arc in arcs if arc.end == END} - {"idle"}
    runs = [run for run in stream.operator.partial_matches().to_pylist() if run["last"] < stream.watermark]
    trapped = {arc.target for arc in arcs if arc.target == "trap"} if arcs_change else set()
    assert {run["state"] for run in runs} == continued | trapped
    if not continued:
        assert max(entries[20:]) <= max(entries[:20]) * 1.2


def test_a_run_is_removed_when_its_deadline_has_passed_and_not_before() -> None:
    base = Column("due", Type.TIME)
    arcs = (
        Arc("idle", "waiting", is_size(7), (("due", Literal(1_000, Type.TIME)),)),
        Arc("idle", "waiting", is_size(6), (("due", Literal(40, Type.TIME)),)),
        Arc("waiting", "missing", deadline=base),
    )
    stream = Stream(Automaton("idle", ("missing",), arcs, (DUE,)), arcs_change=False)
    stream.add([(time, time, 6 + time % 2) for time in range(30)])
    stream.advance(35)
    assert stream.operator.matches.entry_count == 30
    stream.advance(40)
    assert sum(stream.found.values()) == 15
    assert stream.operator.matches.entry_count == 15
    stream.advance(1_000)
    assert stream.found == stream.expected()
    assert sum(stream.found.values()) == 30
    assert (stream.operator.matches.entry_count, stream.operator.matches.node_count) == (0, 0)


def test_a_later_arc_continues_runs_that_wait_and_no_run_that_was_final() -> None:
    arcs = (Arc("idle", "hit", is_size(7)), Arc("idle", "seen", is_size(6)))
    stream = Stream(Automaton("idle", ("hit",), arcs), arcs_change=True)
    stream.add([(1, 1, 7), (2, 2, 6), (3, 3, 7)])
    stream.advance(3)
    stream.operator.change_arcs([], [Arc("hit", "hit", is_size(5)), Arc("seen", "hit", is_size(5))])
    stream.add([(4, 1, 5), (5, 2, 5), (6, 3, 5)])
    assert sorted((part, last) for part, _, last, _, _ in stream.found) == [(1, 1), (2, 5), (3, 3), (3, 6)]
