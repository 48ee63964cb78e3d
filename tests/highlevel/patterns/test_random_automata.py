"""Random automata over rows in any order, compared with the definition: results and lists of runs.

Finds: a run that a late row should have ended, a run that is missing after a retraction, results that are withdrawn too
often, a removal by a watermark that a later row still needed, wrong NULLs in fences and transfers, and a kernel that
reads outside its arrays. With rows that runs ignore: a run that is shared although the row changes it, and a result of
a run that has ended. With arcs that change: an arc that applies at another time, runs in a state or with a register of
the arcs before, and a result that a removed arc leaves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from highlevel.patterns import compilation
from highlevel.patterns.automaton import Arc, Automaton, Field
from highlevel.patterns.kernels import arrivals, changed_arcs, cover
from highlevel.patterns.operator import PatternOperator
from highlevel.speculation.lifetimes.model import change_schema, weighted
from lowlevel.expressions.tree import Binary, Column, Expression, Literal, transform
from lowlevel.expressions.types import Op, Type
from lowlevel.punctuation import BEGINNING, END
from tests.harness.plain_kernels import plain
from tests.references.automata import (
    Row,
    Run,
    random_arc,
    random_automaton,
    random_row,
    random_waiting_automaton,
    results,
    runs_by_row,
    tie_of,
)

PAYLOAD = pa.schema([("part", pa.string()), ("kind", pa.string()), ("size", pa.int64()), ("level", pa.float64())])
CHANGES = change_schema(PAYLOAD)
PARTITIONS = ["x", "y"]
PARTS = 20
"""Number of tests that share the seeds of one comparison: a test with --soak must end within the limit of pytest."""


class Comparison:
    """A run of an operator and the rows that are true, with its results so far."""

    def __init__(self, seed: int, *, changes_arcs: bool = False, waits: bool = False) -> None:
        self.draw = random.Random(seed)
        self.automaton: Automaton = (random_waiting_automaton if waits else random_automaton)(self.draw)
        """The automaton by the definition. Its arcs apply to rows below the watermark as they did when it passed."""
        self.changes_arcs = changes_arcs
        self.waits = waits
        self.arcs = self.automaton.arcs
        self.operator = PatternOperator(CHANGES, self.automaton, by=["part"], arcs_change=changes_arcs)
        self.forgotten: dict[str, int] = {}
        """States with a watermark at which no arc left them: runs in them before it do not continue."""
        self.rows: dict[str, list[Row]] = {name: [] for name in PARTITIONS}
        self.all_rows: dict[str, list[Row]] = {name: [] for name in PARTITIONS}
        self.order: list[str] = []
        self.watermark = self.newest = BEGINNING
        self.changes: Counter[tuple[Any, ...]] = Counter()
        self.count = 0

    def step(self) -> None:
        """Apply one batch of changes, and compare."""
        batch = [self._change() for _ in range(self.draw.randint(1, 4))]
        self._add(self.operator.process(pa.RecordBatch.from_pylist([each for each in batch if each], CHANGES)))
        if self.changes_arcs and self.draw.random() < 0.6:
            self._change_arcs()
        expected = Counter(
            (part, first, start, stop, register)
            for part, rows in self.all_rows.items()
            for first, start, stop, register, _ in results(self.automaton, rows, forgotten=self.forgotten)
        )
        assert +self.changes == expected
        assert not -self.changes
        if self.draw.random() < 0.5:
            self._restart()
        for part in PARTITIONS:
            self._compare_runs(part)
        self._compare_open_runs()

    def _add(self, changes: pa.RecordBatch) -> None:
        for row in weighted(changes).to_pylist():
            register = tuple(row[field.name] for field in self.automaton.register)
            self.changes[row["part"], row["match_start"], row["vs"], row["ve"], register] += row["weight"]

    def _change_arcs(self) -> None:
        """Add, remove and end arcs, with lifetimes before, at and after the rows so far."""
        draw, now = self.draw, max([self.watermark, *(row.start + 1 for rows in self.rows.values() for row in rows)])
        arcs = [arc for arc in self.arcs if arc.end > self.watermark]
        for index in sorted(draw.sample(range(len(arcs)), min(len(arcs), draw.randint(0, 2))), reverse=True):
            if arcs[index].begin < now < arcs[index].end and draw.random() < 0.5:
                arcs[index] = replace(arcs[index], end=now)
            elif not arcs[index].is_silent:
                arcs.pop(index)
        states = [*dict.fromkeys(name for arc in self.automaton.arcs for name in (arc.source, arc.target)), "new"]
        for _ in range(draw.randint(0, 2)):
            arc = random_arc(draw, states, self.automaton.register)
            begin = draw.choice([BEGINNING, now, draw.randint(0, 40)])
            arcs.append(replace(arc, begin=begin, end=draw.choice([END, max(begin, 0) + draw.randint(1, 20)])))
        self._add(self.operator.change_arcs(*difference_of(self.arcs, arcs)))
        before = [replace(arc, end=min(arc.end, self.watermark)) for arc in self.automaton.arcs if self._is_older(arc)]
        after = [replace(arc, begin=max(arc.begin, self.watermark)) for arc in arcs if arc.end > self.watermark]
        self.arcs = tuple(arcs)
        self.automaton = replace(self.automaton, arcs=(*before, *after), other_states=self.automaton.finals)

    def _is_older(self, arc: Arc) -> bool:
        return arc.begin < self.watermark

    def _restart(self) -> None:
        """Load the partial matches from a snapshot, which contains the records in use only."""
        matches = self.operator.matches
        tables = matches.memory.snapshot(len(PARTITIONS))
        assert tables["entries"].num_rows == matches.entry_count
        assert tables["nodes"].num_rows == matches.node_count
        matches.memory.restore(tables)
        if self.changes_arcs:
            automaton = replace(self.automaton, arcs=self.arcs, other_states=self.automaton.finals)
            restored = PatternOperator(CHANGES, automaton, by=["part"])
            restored.restore(self.operator.snapshot())
            self.operator = restored

    def _change(self) -> dict[str, Any]:
        draw, part = self.draw, self.draw.choice(PARTITIONS)
        choice = draw.random()
        above = [row for row in self.rows[part] if row.start >= self.watermark]
        if choice < 0.2 and above:
            row = draw.choice(above)
            # Of rows that are equal within the window the last is retracted, as the operator does.
            row = [each for each in above if self._identity(each) == self._identity(row)][-1]
            self.rows[part].remove(row)
            self.all_rows[part].remove(row)
            new_stop = row.start
            if draw.random() < 0.3 and row.stop > row.start + 1:
                new_stop = draw.randint(row.start + 1, min(row.stop - 1, row.start + 20))
                if new_stop >= self.watermark:
                    self._keep(part, Row(row.start, self._sequence(part, row), new_stop, row.values))
                else:
                    new_stop = row.start
            return {"type": 1, "vs": row.start, "ve": row.stop, "vnew": new_stop, "part": part, **row.values}
        if choice < 0.35:
            watermark = draw.randint(0, 30)
            if watermark > self.watermark:
                self.watermark = watermark
                self._forget()
            return {"type": 2, "vs": self.watermark}
        row = random_row(draw, draw.randint(max(self.watermark, 0), max(self.watermark, 0) + 30), 0)
        if self.waits and draw.random() < 0.7:
            row = replace(row, stop=END, values={**row.values, "kind": "c"})
        row = replace(row, sequence=self._sequence(part, row))
        self._keep(part, row)
        return {"type": 0, "vs": row.start, "ve": row.stop, "part": part, **row.values}

    def _forget(self) -> None:
        """Forget the runs before the watermark that no arc can continue. If arcs change, only those that are final."""
        continued = {arc.source for arc in self.arcs if not arc.is_silent and arc.end > max(arc.begin, self.watermark)}
        states = self.automaton.finals if self.changes_arcs else self.automaton.states
        self.forgotten |= dict.fromkeys(set(states) - continued, self.watermark)

    def _identity(self, row: Row) -> tuple[Any, ...]:
        window = self.automaton.window
        return row.start, row.stop if window is None else min(row.stop, row.start + window), row.values

    def _sequence(self, part: str, row: Row) -> int:
        self.count += 1
        return tie_of({"part": part, **row.values}, PAYLOAD, self.count)

    def _keep(self, part: str, row: Row) -> None:
        self.newest = max(self.newest, row.start)
        self.rows[part].append(row)
        self.all_rows[part].append(row)
        if part not in self.order:
            self.order.append(part)

    def _compare_runs(self, part: str) -> None:
        """Compare the runs of each entry. Below the watermark, the operator keeps those that a new row can extend."""
        if part not in self.order:
            return
        expected = []
        for row, runs in runs_by_row(self.automaton, self.all_rows[part], forgotten=self.forgotten):
            expected.append((row.start, Counter(_visible(run) for run, _ in runs), runs))
        # Rows with equal times are one entry here, and rows without runs are left out.
        below = [entry for entry in expected if entry[0] < self.watermark]
        kept = [(time, runs) for time, runs, _ in expected if time >= self.watermark]
        if below:
            last, _, runs = below[-1]
            cover = Counter(_visible(run) for run, stop in runs if stop > self.watermark and self._is_kept(last, run))
            kept = [(last, cover), *kept]
        kept = _unite(kept)
        names = [field.name for field in self.automaton.register]
        found: list[tuple[int, Counter[Any]]] = []
        partial_matches = self.operator.partial_matches()
        for run in partial_matches.filter(pc.equal(partial_matches["part"], part)).to_pylist():
            if not found or found[-1][0] != run["last"]:
                found.append((run["last"], Counter()))
            found[-1][1][run["match_start"], run["state"], tuple(run[name] for name in names)] += 1
        assert found == kept

    def _is_kept(self, last: int, run: Run) -> bool:
        """Return whether a run that ends with a row at the time `last` is not forgotten."""
        return last >= self.forgotten.get(run[2], last)

    def _compare_open_runs(self) -> None:
        """Compare the runs that a later row may complete: those that end with the newest row of their partition."""
        expected: Counter[Any] = Counter()
        now = max(self.newest, self.watermark)
        sources = {state for state in self.operator.matches.compiled.states if self._may_complete(state, now)}
        for part in self.order:
            for row, runs in runs_by_row(self.automaton, self.all_rows[part], forgotten=self.forgotten)[-1:]:
                kept = [run for run, stop in runs if stop > now and self._is_kept(row.start, run)]
                expected.update((part, *_visible(run)) for run in kept if run[2] in sources)
        names = [field.name for field in self.automaton.register]
        found = Counter(
            (run["part"], run["match_start"], run["state"], tuple(run[name] for name in names))
            for run in self.operator.open_runs().to_pylist()
        )
        assert found == expected
        starts = [start for _, start, *_ in expected.elements()]
        assert self.operator.open_run_counts == (len(starts), min(starts, default=END))

    def _may_complete(self, state: str, now: int) -> bool:
        """Return whether arcs lead from a state to a final state, without those that change nothing."""
        silent = {arc.source for arc in self.arcs if arc.is_silent and arc.end > max(now, arc.begin)}
        waiting, reached = [(state, True)], set()
        while waiting:
            source, is_first = waiting.pop()
            for arc in self.arcs:
                if arc.source != source or arc.end <= max(now, arc.begin) or (arc.is_silent and is_first):
                    continue
                kept = all(isinstance(value, Column) and value.name == name for name, value in arc.transfer)
                if arc.target == source and kept and source not in silent.union(self.automaton.finals):
                    continue
                if arc.target in self.automaton.finals:
                    return True
                if arc.target not in reached:
                    reached.add(arc.target)
                    waiting.append((arc.target, False))
        return False


def difference_of(old: Sequence[Arc], new: Sequence[Arc]) -> tuple[list[Arc], list[Arc]]:
    """Return the arcs of `old` that `new` does not have, and the opposite."""
    before, after = set(map(id, old)), set(map(id, new))
    return [arc for arc in old if id(arc) not in after], [arc for arc in new if id(arc) not in before]


def _visible(run: Run) -> tuple[int, str, tuple[Any, ...]]:
    """Return the first row's time, the state and the register of a run."""
    start, _, state, register = run
    return start, state, register


def _unite(entries: list[tuple[int, Counter[Any]]]) -> list[tuple[int, Counter[Any]]]:
    united: dict[int, Counter[Any]] = {}
    for time, runs in entries:
        united.setdefault(time, Counter()).update(runs)
    return [(time, runs) for time, runs in united.items() if runs]


def test_kernels_read_and_write_within_their_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "MIN_KEYS", 1)
    monkeypatch.setattr(arrivals, "apply_rows", plain(arrivals.apply_rows))
    monkeypatch.setattr(cover, "forget_entries", plain(cover.forget_entries))
    monkeypatch.setattr(changed_arcs, "renew_entries", plain(changed_arcs.renew_entries))
    for seed in range(20):
        comparison = Comparison(seed, changes_arcs=seed % 4 == 0)
        for _ in range(3):
            comparison.step()


@pytest.mark.parametrize("part", range(PARTS))
def test_random_automata_give_the_results_and_runs_of_the_definition_in_every_order(part: int, soak: bool) -> None:
    """10,000 automata, of which `make test` draws 2,000; with --soak 60,000."""
    for seed in range(part, 60_000 if soak else 10_000, PARTS):
        comparison = Comparison(seed)
        try:
            for _ in range(5):
                comparison.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {comparison.automaton}") from error


@pytest.mark.parametrize("part", range(PARTS))
def test_A08_random_changes_of_arcs_give_the_results_and_runs_of_the_definition(
    part: int, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 automata, with --soak 20,000. In half of the parts all comparisons with a constant are keys of arcs, and few
    places are unused."""
    if part % 2:
        monkeypatch.setattr(compilation, "MIN_KEYS", 1)
        monkeypatch.setattr(compilation, "MAX_UNUSED", 1)
        monkeypatch.setattr(compilation, "SPARE_ARCS", 0)
    for seed in range(part, 20_000 if soak else 200, PARTS):
        comparison = Comparison(seed, changes_arcs=True)
        try:
            for _ in range(6):
                comparison.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {comparison.automaton}") from error


@pytest.mark.parametrize("part", range(PARTS))
def test_A12_random_automata_that_ignore_rows_share_runs_and_give_those_of_the_definition(
    part: int, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 automata, half of them with arcs that change, and half with arcs that have keys; with --soak 60,000."""
    if part % 2:
        monkeypatch.setattr(compilation, "MIN_KEYS", 1)
    stored = listed = 0
    for seed in range(part, 60_000 if soak else 200, PARTS):
        comparison = Comparison(seed, changes_arcs=seed // PARTS % 2 == 0, waits=True)
        try:
            for _ in range(7):
                comparison.step()
                stored += comparison.operator.matches.node_count
                listed += comparison.operator.partial_matches().num_rows
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {comparison.automaton}") from error
    assert stored < listed


@pytest.mark.parametrize("constants", [7, 8])
def test_A12_runs_that_wait_for_one_of_many_constants_share_the_rows_that_they_ignore(constants: int) -> None:
    size = Column("size", Type.INT, nullable=True)
    begin = Arc("start", "waiting", Binary(Op.EQ, size, Literal(1000, Type.INT)))
    wait = Arc("waiting", "waiting", Binary(Op.LT, size, Literal(1000, Type.INT)))
    ends = [Arc("waiting", "end", Binary(Op.EQ, size, Literal(2000 + number, Type.INT))) for number in range(constants)]
    operator = PatternOperator(CHANGES, Automaton("start", ("end",), (begin, wait, *ends)))
    sizes = [1000, *[5] * 50, 2003, 5]
    rows = [Row(time, 0, END, {"kind": None, "size": size, "level": None}) for time, size in enumerate(sizes)]
    assert totals(operator.process(inserts(rows)), []) == Counter({(0, 51, END): 1})
    assert operator.matches.node_count == 2


def inserts(rows: list[Row], **more: list[int]) -> pa.RecordBatch:
    """Return rows of one partition as changes. `more`: values of further columns."""
    changes = [
        {"type": 0, "vs": row.start, "ve": row.stop, "part": "x", **row.values}
        | {name: values[index] for name, values in more.items()}
        for index, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(
        changes, change_schema(pa.schema([*PAYLOAD, *((name, pa.int64()) for name in more)]))
    )


def totals(changes: pa.RecordBatch, names: list[str]) -> Counter[tuple[Any, ...]]:
    """Return the sum of the weights of each result: the times of its first and last row, its end, and `names`."""
    total: Counter[tuple[Any, ...]] = Counter()
    for row in weighted(changes).to_pylist():
        total[row["match_start"], row["vs"], row["ve"], *(row[name] for name in names)] += row["weight"]
    return total


def rows_in_order(draw: random.Random, count: int) -> list[Row]:
    return [random_row(draw, time, 0) for time in sorted(draw.sample(range(40), count))]


def test_A11_random_numbered_rows_give_the_results_of_the_definition_and_withdraw_nothing() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        automaton = random_automaton(draw)
        rows = [replace(row, sequence=number) for number, row in enumerate(rows_in_order(draw, 9))]
        operator = PatternOperator(inserts([], number=[]).schema, automaton, number="number")
        total: Counter[tuple[Any, ...]] = Counter()
        arrived: list[Row] = []
        for row in draw.sample(rows, 8):  # one number is missing
            arrived.append(row)
            changes = operator.process(inserts([row], number=[row.sequence]))
            assert 1 not in changes.column("type").to_pylist(), f"seed {seed}"
            total += totals(changes, [field.name for field in automaton.register])
            expected = results(automaton, arrived, is_numbered=True)
            assert total == Counter((*times, *register) for *times, register, _ in expected), f"seed {seed}"


def test_A17_a_change_of_arcs_gives_the_results_of_a_restart_that_reads_all_rows_again() -> None:
    for seed in range(100):
        draw = random.Random(seed)
        automaton = random_automaton(draw)
        states = [name for name in automaton.states if name != "last"]
        added = [replace(random_arc(draw, states, automaton.register), begin=draw.randint(0, 40)) for _ in range(3)]
        kept = [arc for arc in automaton.arcs if arc.is_silent or draw.random() < 0.7]
        rows = inserts(rows_in_order(draw, 12))
        operator = PatternOperator(CHANGES, automaton)
        names = [field.name for field in automaton.register]
        total = totals(operator.process(rows), names)
        removed, _ = difference_of(automaton.arcs, kept)
        total.update(totals(operator.change_arcs(removed, added), names))
        restarted = replace(automaton, arcs=(*kept, *added), other_states=automaton.finals)
        assert +total == totals(PatternOperator(CHANGES, restarted).process(rows), names), f"seed {seed}"
        assert not -total, f"seed {seed}"


def with_prefix(automaton: Automaton, prefix: str) -> Automaton:
    """Return an automaton whose states and fields have a prefix."""
    fields = {field.name for field in automaton.register}

    def rename(part: Expression) -> Expression | None:
        return replace(part, name=prefix + part.name) if isinstance(part, Column) and part.name in fields else None

    arcs = tuple(
        replace(
            arc,
            source=prefix + arc.source,
            target=prefix + arc.target,
            fence=transform(arc.fence, rename),
            transfer=tuple((prefix + name, transform(value, rename)) for name, value in arc.transfer),
        )
        for arc in automaton.arcs
    )
    register = tuple(Field(prefix + field.name, field.initial) for field in automaton.register)
    return Automaton(prefix + automaton.start, tuple(prefix + name for name in automaton.finals), arcs, register, 8)


def test_A19_a_merged_automaton_has_the_results_of_its_parts() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        parts = [with_prefix(random_automaton(draw), prefix) for prefix in ("one.", "two.")]
        register = tuple(field for part in parts for field in part.register)
        branches = [Arc("start", part.start, is_silent=True) for part in parts]
        arcs = (*branches, *(arc for part in parts for arc in part.arcs))
        merged = Automaton("start", tuple(name for part in parts for name in part.finals), arcs, register, 8)
        rows = inserts(draw.sample(rows_in_order(draw, 12), 12))
        names = [field.name for field in register]
        expected: set[tuple[Any, ...]] = set()
        for part in parts:
            own = [field.name for field in part.register]
            for (*times, fields), weight in _with_fields(PatternOperator(CHANGES, part).process(rows), own):
                values = {field.name: field.initial.value for field in register} | fields
                expected |= {(*times, *(values[name] for name in names))} if weight else set()
        found = totals(PatternOperator(CHANGES, merged).process(rows), names)
        assert {result for result, weight in found.items() if weight} == expected, f"seed {seed}"


def _with_fields(changes: pa.RecordBatch, names: list[str]) -> list[tuple[tuple[Any, ...], int]]:
    """Return each result with its register as a dictionary, and its weight."""
    return [
        ((*result[:3], dict(zip(names, result[3:], strict=True))), weight)
        for result, weight in totals(changes, names).items()
    ]
