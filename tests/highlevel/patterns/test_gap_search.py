"""Watermarks of links: the runs and rows that no later row needs are removed, and no result changes.

Finds: a run or row that a late row still needed, a result that is not withdrawn because the search for it ended too
early, runs that continue over a removed row, and runs that stay although no row can extend them.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from highlevel.patterns.arc_links import arc_watermark, links_of
from highlevel.patterns.automaton import Arc, Automaton, Field, PatternError
from highlevel.patterns.kernels import gaps
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.model import change_schema, weighted
from lowlevel.expressions.tree import Binary, Column, Expression, InList, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END
from tests.harness.plain_kernels import plain
from tests.references.automata import (
    Row,
    Run,
    deadline_results,
    random_automaton,
    random_row,
    results,
    runs_by_row,
    tie_of,
    value_of,
)
from tests.references.gap_search import Entry, GapSearch
from tests.references.operator_contract import through_ipc

PAYLOAD = pa.schema([
    ("part", pa.string()), ("link", pa.string()), ("ts", pa.int64()),
    ("kind", pa.string()), ("size", pa.int64()), ("level", pa.float64()),
])  # fmt: skip
CHANGES = change_schema(PAYLOAD)
PARTITIONS = ["x", "y"]
LINKS = ["a", "b", "c"]
LINK = Column("link", Type.TEXT)


def is_of(*links: str) -> Expression:
    """Return the condition that a row is of one of the links."""
    if len(links) == 1:
        return Binary(Op.EQ, LINK, Literal(links[0], Type.TEXT))
    return InList(LINK, tuple(Literal(link, Type.TEXT) for link in links))


def random_links_automaton(draw: random.Random) -> Automaton:
    """Return a random automaton. Most of its arcs are for rows of one link."""
    automaton = random_automaton(draw)
    arcs = []
    for arc in automaton.arcs:
        if not arc.is_silent and draw.random() < 0.75:
            condition = is_of(draw.choice(LINKS))
            other = draw.choice([arc.fence, Literal(True, Type.BOOL)])
            is_whole = other == Literal(True, Type.BOOL)
            arc = replace(arc, fence=condition if is_whole else Binary(Op.AND, condition, other))
        if draw.random() < 0.1:
            begin = draw.randint(0, 30)
            arc = replace(arc, begin=begin, end=begin + draw.randint(1, 40))
        arcs.append(arc)
    if draw.random() < 0.7:
        return replace(automaton, arcs=tuple(arcs))
    asked = Field("asked", Literal(None, Type.TIME))
    begins = draw.randrange(len(arcs))
    if not arcs[begins].is_silent:
        arcs[begins] = replace(arcs[begins], transfer=(*arcs[begins].transfer, ("asked", Column("ts", Type.TIME))))
    time = Binary(Op.ADD, asked.column, Literal(draw.choice([1, 4, 15]), Type.INT))
    arcs.append(Arc(draw.choice([arc.target for arc in arcs]), "over", deadline=time))
    finals = (*automaton.finals, "over")
    return replace(automaton, arcs=tuple(arcs), finals=finals, register=(*automaton.register, asked))


class Stream:
    """Rows of three links, each in any order above its own watermark, and the operator with removal.

    With `has_other` there is also an operator without removal.
    """

    def __init__(self, seed: int, *, shares_runs: bool = False, has_other: bool = False) -> None:
        self.draw = random.Random(seed)
        self.automaton = random_links_automaton(self.draw)
        self.shares_runs = shares_runs
        self.operator, self.other = self._operator(), self._operator() if has_other else None
        self.rows: dict[str, list[Row]] = {name: [] for name in PARTITIONS}
        self.links = dict.fromkeys(LINKS, 0)
        self.slow = self.draw.choice(LINKS)
        self.low = BEGINNING
        self.order: list[str] = []
        self.changes: Counter[tuple[Any, ...]] = Counter()
        self.count = 0

    @property
    def watermarks(self) -> list[int]:
        """The watermark of each arc."""
        return [arc_watermark(arc, "link", self.links, self.low) for arc in self.automaton.arcs]

    def step(self) -> None:
        """Add rows, and advance the watermarks."""
        changes = pa.RecordBatch.from_pylist([self._row() for _ in range(self.draw.randint(1, 5))], CHANGES)
        for link in LINKS:
            if link != self.slow or self.draw.random() < 0.1:
                self.links[link] += self.draw.randint(0, 8)
        if self.draw.random() < 0.4:
            self.low = self.draw.randint(max(self.low, 0), max(self.low, 0, min(self.links.values())))
            changes = pa.concat_tables([
                pa.Table.from_batches([changes]), pa.Table.from_pylist([{"type": 2, "vs": self.low}], CHANGES),
            ]).combine_chunks().to_batches()[0]  # fmt: skip
        found = self.operator.process(changes)
        if self.other is not None:
            self.other.process(changes)
        for row in weighted(found).to_pylist():
            register = tuple(row[field.name] for field in self.automaton.register)
            self.changes[row["part"], row["match_start"], row["vs"], row["ve"], register] += row["weight"]

    def compare(self) -> None:
        """Compare the results with the definition."""
        expected = Counter(
            (part, first, start, stop, register)
            for part, rows in self.rows.items()
            for first, start, stop, register in [
                *(result[:4] for result in results(self.automaton, rows)),
                *deadline_results(self.automaton, rows, BEGINNING, self.low),
            ]
        )
        assert +self.changes == expected
        assert not -self.changes
        assert self.operator.late == 0

    def remove(self) -> None:
        """Remove what no later row needs."""
        self.operator.remove_unneeded(self.watermarks)

    def restart(self) -> None:
        """Continue with an operator that has loaded the state."""
        tables = through_ipc(self.operator.snapshot())
        self.operator = self._operator()
        self.operator.restore(tables)

    def _operator(self) -> PatternOperator:
        return PatternOperator(CHANGES, self.automaton, by=["part"], only_adds=True, shares_runs=self.shares_runs)

    def entries(self, part: str) -> list[Entry]:
        """Return the entries that are in memory without removal."""
        lists = runs_by_row(self.automaton, self.rows[part])
        made = [Entry(row.start, row.values, frozenset(runs)) for row, runs in lists]
        below = [entry for entry in made if entry.time < self.low]
        of_cover = below[-1].runs if below else frozenset()
        runs = frozenset((run, stop) for run, stop in of_cover if stop > self.low and self._may_continue(run))
        cover = [Entry(below[-1].time, None, runs)] if runs else []
        return [*cover, *(entry for entry in made if entry.time >= self.low)]

    def _may_continue(self, run: Run) -> bool:
        """Return whether a row from the watermark on, or a later deadline, may continue a run."""
        register = dict(zip((field.name for field in self.automaton.register), run[3], strict=True))
        arcs = [arc for arc in self.automaton.arcs if arc.source == run[2] and not arc.is_silent]
        times = [value_of(arc.deadline, register) for arc in arcs if arc.deadline is not None]
        consuming = [arc for arc in arcs if arc.deadline is None and arc.end > max(arc.begin, self.low)]
        return bool(consuming) or any(time is not None and time > self.low for time in times)

    def _row(self) -> dict[str, Any]:
        draw, part, link = self.draw, self.draw.choice(PARTITIONS), self.draw.choice(LINKS)
        time = max(self.links[link], self.low, 0) + draw.randint(0, 12)
        row = random_row(draw, time, 0)
        self.count += 1
        values = {"part": part, "link": link, "ts": time, **row.values}
        row = replace(row, values=values, sequence=tie_of(values, PAYLOAD, self.count))
        self.rows[part].append(row)
        if part not in self.order:
            self.order.append(part)
        return {"type": 0, "vs": row.start, "ve": row.stop, **values}


@pytest.mark.parametrize("part", range(2))
def test_A13_random_automata_have_the_same_results_with_less_memory(part: int, soak: bool) -> None:
    """200 automata, with --soak 16,000."""
    removed = all_runs = 0
    for seed in range(part, 16_000 if soak else 200, 2):
        stream = Stream(seed, shares_runs=seed % 4 < 2, has_other=seed % 12 < 4)
        try:
            for _ in range(7):
                stream.step()
                stream.compare()
                if stream.draw.random() < 0.7:
                    stream.remove()
                if stream.draw.random() < 0.2:
                    stream.restart()
                if stream.other is None:
                    continue
                all_runs += stream.other.matches.node_count
                removed += stream.other.matches.node_count - stream.operator.matches.node_count
                # In each partition the entry below the watermark may stay, although its runs were removed.
                most = stream.other.matches.entry_count + len(PARTITIONS)
                assert stream.operator.matches.entry_count <= most
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {stream.automaton}") from error
    assert removed > 0.05 * all_runs


@pytest.mark.parametrize("part", range(2))
def test_A13_the_runs_that_stay_are_those_of_the_search_over_states_and_gaps(part: int, soak: bool) -> None:
    """150 automata, with --soak 6,000."""
    for seed in range(part, 6_000 if soak else 150, 2):
        stream = Stream(seed)
        for _ in range(stream.draw.randint(2, 6)):
            stream.step()
        runs_before, rows_before = stream.operator.matches.node_count, stream.operator.matches.entry_count
        stream.remove()
        entries = {name: stream.entries(name) for name in stream.order}
        searches = {name: GapSearch(stream.automaton, entries[name], stream.watermarks) for name in stream.order}
        expected = Counter(
            (name, start, entry.time, state, register)
            for name, search in searches.items()
            for entry, runs in zip(entries[name], search.needed_runs, strict=True)
            for start, _, state, register in runs
        )
        fields = [field.name for field in stream.automaton.register]
        found = Counter(
            (row["part"], row["match_start"], row["last"], row["state"], tuple(row[name] for name in fields))
            for row in stream.operator.partial_matches().to_pylist()
        )
        assert found == expected, f"seed {seed}: {stream.automaton}"
        remaining = sum(len(search.remaining()) for search in searches.values())
        assert stream.operator.matches.entry_count == remaining, f"seed {seed}: {stream.automaton}"
        assert stream.operator.runs_removed == runs_before - sum(expected.values())
        assert stream.operator.rows_removed == rows_before - remaining


def test_the_kernel_reads_and_writes_within_its_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "remove_unneeded", plain(gaps.remove_unneeded))
    for seed in range(20):
        stream = Stream(seed, shares_runs=seed % 2 == 0)
        for _ in range(3):
            stream.step()
            stream.compare()
            stream.remove()


def link_rows(*rows: tuple[int, str, str]) -> pa.RecordBatch:
    """Return rows of the partition x as changes: time, link, kind."""
    values = [{"type": 0, "vs": time, "ve": END, "part": "x", "link": link, "kind": kind} for time, link, kind in rows]
    return pa.RecordBatch.from_pylist(values, CHANGES)


def chain(*steps: tuple[str, str]) -> Automaton:
    """Return an automaton of steps that follow each other: the link and the kind of each row."""
    kind = Column("kind", Type.TEXT)
    arcs = tuple(
        Arc(f"q{at}", f"q{at + 1}", Binary(Op.AND, is_of(link), Binary(Op.EQ, kind, Literal(value, Type.TEXT))))
        for at, (link, value) in enumerate(steps)
    )
    return Automaton("q0", (f"q{len(steps)}",), arcs)


def test_A13_the_counter_example_of_section_3_9_keeps_the_run_that_a_row_between_needs() -> None:
    """The printed rule of path punctuation frees the run that ends at 5, although a row at 6 completes it."""
    operator = PatternOperator(CHANGES, chain(("a", "0"), ("b", "1"), ("c", "2"), ("c", "3")), only_adds=True)
    found = [operator.process(link_rows((5, "a", "0"), (8, "c", "2"), (12, "c", "3")))]
    operator.remove_unneeded([100, 6, 100, 100])
    assert operator.partial_matches()["last"].to_pylist() == [5]
    assert operator.matches.entry_count == 3
    found.append(operator.process(link_rows((6, "b", "1"))))
    assert [(row["match_start"], row["vs"]) for each in found for row in weighted(each).to_pylist()] == [(5, 12)]


def test_runs_that_only_a_link_without_late_rows_extends_are_removed() -> None:
    """The second link is slow. Only the run that waits for its rows stays, and runs that newer rows may extend."""
    operator = PatternOperator(CHANGES, chain(("a", "0"), ("a", "1"), ("b", "2")), only_adds=True)
    operator.process(link_rows(*((10 * row, "a", "01"[row % 2]) for row in range(100))))
    operator.remove_unneeded([1000, 1000, 0])
    assert Counter(operator.partial_matches()["state"].to_pylist()) == {"q2": 50}
    assert operator.runs_removed == 50
    (row,) = weighted(operator.process(link_rows((511, "b", "2")))).to_pylist()
    assert (row["match_start"], row["vs"]) == (500, 511)


def test_a_late_row_withdraws_the_result_of_a_run_that_was_removed_below_the_watermark() -> None:
    """The first row is below the watermark, and the run that it begins was removed, but its result at 10 stays."""
    operator = PatternOperator(CHANGES, chain(("a", "0"), ("a", "1")), only_adds=True)
    operator.process(link_rows((1, "a", "0"), (10, "a", "1")))
    operator.remove_unneeded([100, 100])
    assert operator.runs_removed == 1
    operator.process(pa.RecordBatch.from_pylist([{"type": 2, "vs": 5}], CHANGES))
    (row,) = weighted(operator.process(link_rows((7, "b", "9")))).to_pylist()
    assert (row["match_start"], row["vs"], row["weight"]) == (1, 10, -1)


def test_a_row_stays_after_a_restart_if_a_run_that_ignored_rows_needs_it() -> None:
    """A run waits in q1 until 45. A late row at 46 continues it, and then the row at 50."""
    *steps, last = chain(("a", "0"), ("b", "1"), ("a", "2")).arcs
    automaton = Automaton("q0", ("q3",), (*steps, last, Arc("q1", "q1", end=45)))
    operator = PatternOperator(CHANGES, automaton, only_adds=True)
    operator.process(link_rows((1, "a", "0"), (44, "a", "9"), (50, "a", "2")))
    restarted = PatternOperator(CHANGES, automaton, only_adds=True)
    restarted.restore(through_ipc(operator.snapshot()))
    restarted.remove_unneeded([100, 0, 100, 100])
    (row,) = weighted(restarted.process(link_rows((46, "b", "1")))).to_pylist()
    assert (row["match_start"], row["vs"]) == (1, 50)


def test_rows_that_no_later_row_needs_are_removed_between_two_others() -> None:
    operator = PatternOperator(CHANGES, chain(("b", "0"), ("a", "1")), only_adds=True)
    operator.process(link_rows(*((time, "a", "1" if time == 50 else "9") for time in range(0, 101, 2))))
    operator.remove_unneeded([0, 101])
    assert operator.matches.entry_count == 5  # the first, the last, 50 and its neighbours
    assert operator.rows_removed == 46
    for time in (20, 49):
        operator.process(link_rows((time, "b", "0")))
    assert operator.matches.node_count == 2 + 1  # the run that ended at 49, and its result at 50


@pytest.mark.parametrize(
    ("fence", "links"),
    [
        (is_of("a"), {"a"}),
        (is_of("a", "b"), {"a", "b"}),
        (Binary(Op.AND, is_of("a", "b"), is_of("b", "c")), {"b"}),
        (Binary(Op.OR, is_of("a"), is_of("c")), {"a", "c"}),
        (Binary(Op.OR, is_of("a"), Literal(True, Type.BOOL)), None),
        (Binary(Op.NE, LINK, Literal("a", Type.TEXT)), None),
        (Binary(Op.AND, is_of("a"), is_of("b")), set()),
    ],
)
def test_the_links_of_an_arc_follow_from_its_condition(fence: Expression, links: set[str] | None) -> None:
    assert links_of(fence, "link") == links
    assert links_of(fence, "kind") is None
    watermark = arc_watermark(Arc("x", "y", fence), "link", {"a": 7, "b": 9, "c": 1}, 3)
    assert watermark == (3 if links is None else min(({"a": 7, "b": 9, "c": 3}[link] for link in links), default=END))


def test_withdrawn_rows_and_other_arcs_are_refused() -> None:
    automaton = chain(("a", "0"), ("b", "1"))
    with pytest.raises(PatternError, match="rows that are never withdrawn"):
        PatternOperator(CHANGES, automaton).remove_unneeded([0, 0])
    withdrawn = pa.RecordBatch.from_pylist([{"type": 1, "vs": 1, "ve": 9, "vnew": 1, "part": "x"}], CHANGES)
    with pytest.raises(PatternError, match="got a retraction, expected inserts only"):
        PatternOperator(CHANGES, automaton, only_adds=True).process(withdrawn)
    with pytest.raises(PatternError, match="got other arcs, expected the same arcs"):
        PatternOperator(CHANGES, automaton, only_adds=True).change_arcs(automaton.arcs[:1], [])
