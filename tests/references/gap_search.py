"""The runs and rows that a later row needs, by a search over pairs of a state and a gap (slow).

Gap 0 is before the first entry, gap n after entry n. A later row may be in any gap. Conditions over the register count
as true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from highlevel.patterns.automaton import Arc, Automaton, reachable
from lowlevel.expressions.tree import Binary, Expression, columns_of
from lowlevel.expressions.types import Op
from lowlevel.punctuation import BEGINNING, END
from tests.references.automata import Run, value_of

Pair = tuple[str, int]


@dataclass(frozen=True)
class Entry:
    """A row in memory, with the runs that end with it and the ends of their lifetimes. `values`: None if not stored."""

    time: int
    values: Mapping[str, Any] | None
    runs: frozenset[tuple[Run, int]]


class GapSearch:
    """The search over the entries of a partition. `watermarks`: those of the arcs, in the order of the automaton."""

    def __init__(self, automaton: Automaton, entries: Sequence[Entry], watermarks: Sequence[int]) -> None:
        self.automaton, self.entries, self.watermarks = automaton, entries, watermarks
        self.kept = {*automaton.finals, *(arc.source for arc in automaton.arcs if arc.deadline is not None)}
        silent: dict[str, set[str]] = {}
        for arc in automaton.arcs:
            if arc.is_silent:
                silent.setdefault(arc.source, set()).add(arc.target)
        self.begun = reachable(silent, automaton.start)
        self.needed_runs = [
            {run for run, stop in entry.runs if run[2] in self.kept or self._has_use(run[2], gap, stop)}
            for gap, entry in enumerate(entries, 1)
        ]
        self.needed_rows = self._rows_on_ways()

    def remaining(self) -> list[set[Run]]:
        """Return the needed runs of each entry that stays.

        An entry without runs that is not needed is removed between two others, unless later rows may continue over it.
        """
        kept: list[int] = []
        for row, entry in enumerate(self.entries):
            is_between = len(kept) > 1 and not any(self._is_needed(each) for each in (*kept[-2:], row))
            if is_between and not self._may_join(self.entries[kept[-2]].time, entry.time):
                kept.pop()
            kept.append(row)
        return [self.needed_runs[row] for row in kept]

    def _is_needed(self, row: int) -> bool:
        """Return whether a row has needed runs, is on a way, or had runs over which a later list has a run."""
        entry = self.entries[row]
        has_run_over = any(start <= entry.time for runs in self.needed_runs[row + 1 :] for start, *_ in runs)
        return bool(self.needed_runs[row] or (entry.runs and has_run_over) or row + 1 in self.needed_rows)

    def _may_join(self, left: int, right: int) -> bool:
        """Return whether two or more later rows between two times may be a run that ends in a final state."""
        gap = GapSearch.__new__(GapSearch)
        gap.automaton, gap.watermarks = self.automaton, self.watermarks
        gap.entries = [Entry(left, None, frozenset()), Entry(right, None, frozenset())]
        one = gap._reached({(target, 1) for state in self.begun for _, target in gap._uses(state, 1)})
        more = gap._reached({(target, 1) for state, _ in one for _, target in gap._uses(state, 1)})
        return any(state in self.kept for state, _ in more)

    def _uses(self, state: str, gap: int) -> Iterator[tuple[int, str]]:
        """Yield the earliest time and the target of each arc that a later row in a gap can use."""
        left = self.entries[gap - 1].time if gap else BEGINNING
        right = self.entries[gap].time if gap < len(self.entries) else END
        for arc, watermark in zip(self.automaton.arcs, self.watermarks, strict=True):
            if arc.source == state and not arc.is_silent and arc.deadline is None:
                time = max(left, watermark, arc.begin)
                if time <= right and time < arc.end:
                    yield time, arc.target

    def _moves(self, pair: Pair) -> Iterator[tuple[Pair, int]]:
        """Yield the next pairs, each with the number of the row in memory that leads to it, or 0."""
        state, gap = pair
        for _, target in self._uses(state, gap):
            yield (target, gap), 0
        for arc in self.automaton.arcs:
            if arc.source == state and arc.is_silent:
                yield (arc.target, gap), 0
            elif arc.source == state and gap < len(self.entries) and _fires(self.automaton, arc, self.entries[gap]):
                yield (arc.target, gap + 1), gap + 1

    def _reached(self, pairs: set[Pair]) -> set[Pair]:
        waiting = [*pairs]
        while waiting:
            new = {pair for pair, _ in self._moves(waiting.pop())} - pairs
            pairs |= new
            waiting += new
        return pairs

    def _is_final(self, pair: Pair) -> bool:
        return any(state in self.kept for state, _ in self._reached({pair}))

    def _has_use(self, state: str, gap: int, stop: int) -> bool:
        return any(time < stop and self._is_final((target, gap)) for time, target in self._uses(state, gap))

    def _rows_on_ways(self) -> set[int]:
        """Return the numbers of the rows through which a later row leads to a final state."""
        firsts: set[Pair] = set()
        for gap in range(len(self.entries) + 1):
            sources = self.begun | ({state for _, _, state, _ in self.needed_runs[gap - 1]} if gap else set())
            firsts |= {(target, gap) for state in sources for _, target in self._uses(state, gap)}
        return {
            row for pair in self._reached(firsts) for target, row in self._moves(pair) if row and self._is_final(target)
        }


def _fires(automaton: Automaton, arc: Arc, entry: Entry) -> bool:
    if entry.values is None or arc.deadline is not None or not arc.begin <= entry.time < arc.end:
        return False
    fields = {field.name for field in automaton.register}
    for part in _conjuncts(arc.fence):
        names = {column.name for column in columns_of(part)}
        if names and not names & fields and value_of(part, entry.values) is not True:
            return False
    return True


def _conjuncts(expression: Expression) -> list[Expression]:
    match expression:
        case Binary(Op.AND, left, right):
            return _conjuncts(left) + _conjuncts(right)
    return [expression]
