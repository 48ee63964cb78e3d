"""PartialMatches: rows and runs of an automaton, and the kernels that change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from highlevel.patterns.automaton import Automaton
from highlevel.patterns.compiled_automaton import CompiledAutomaton, Floats, Words
from highlevel.patterns.kernels import (
    arrivals,
    changed_arcs,
    cover,
    deadlines,
    derivations,
    distinct_rows,
    gaps,
    ignored_rows,
    layout,
    matches,
)
from highlevel.patterns.kernels.layout import (
    ENTRIES,
    ENTRY_WORDS,
    NODE_RECORDS,
    NODE_WORDS,
    RESULT_COUNT,
    Automata,
    Rows,
)
from highlevel.patterns.memory import MIN_ROOM, Results, RunMemory
from highlevel.speculation.lifetimes.kernels.records import NONE, USED_RECORDS
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END

PLACE_ROOM = 65_536
"""Number of places of rows for which there is memory."""

Mask = npt.NDArray[np.bool_]


class Skip(NamedTuple):
    """Where matching continues after a match.

    `rule`: NEXT_ROW, PAST_LAST_ROW or TO_FIELD of `kernels.matches`. `field`: for TO_FIELD, the index of the register
    field with the sequence number of that row.
    """

    rule: int
    field: int


class SelectedResults(NamedTuple):
    """Results of requests, ordered by request.

    `selects_all`: all results of each request are selected, and the arrays have no results. `firsts`: for each request
    the number of its first result, and then the number of results. `words`: for each result the end of its lifetime,
    and the integer fields of its register. `floats`: the other fields.
    """

    selects_all: bool
    firsts: Words
    words: Words
    floats: Floats


class PartialMatches:
    """Partial matches of an automaton in numbered partitions. Not thread safe."""

    def __init__(
        self,
        compiled: CompiledAutomaton,
        initial: tuple[Words, Floats],
        *,
        is_preferred: bool = False,
        is_numbered: bool = False,
        shares_runs: bool = True,
    ) -> None:
        """Begin without rows. `initial`: the words of the register before the first row.

        * `is_preferred`: only the preferred match of each start is a result, as for MATCH_RECOGNIZE. The arcs of
          `compiled` must be in the order of preference (`kernels.layout.Automata` has an example). Then these methods
          may be called: `match`, `end_runs`, `earliest_candidate`, `first_starts` and `trace`. All other methods that
          call kernels need an automaton without preference.
        * `is_numbered`: a run continues only with the row that has the next sequence number.
        * `shares_runs`: rows may share nodes. If False, or with `is_preferred`, each row has separate nodes.
        """
        self._is_preferred = is_preferred
        self._shares_runs = shares_runs and not is_preferred
        self._is_numbered = is_numbered
        self._use(compiled, *_with_addresses(initial))
        self.memory = RunMemory(self.automata)
        self.deadlines_outside = 0
        """Deadlines that have not applied, because the lifetime of the run ended before."""

    def _use(self, compiled: CompiledAutomaton, initial: Words, float_initial: Floats) -> None:
        """Make the tables of an automaton for kernels. `initial` and `float_initial`: of `_with_addresses`."""
        self.compiled = compiled
        all_fields = len(compiled.integers), len(compiled.floats)
        decisive_field_counts = compiled.decisive_field_counts if self._is_preferred else all_fields
        can_ignore = compiled.can_ignore & int(self._shares_runs)
        self.automata = Automata(
            compiled.arcs.reshape(-1),
            compiled.first_arcs,
            compiled.end_arcs,
            compiled.key_groups,
            compiled.first_key_groups,
            compiled.first_silent,
            compiled.is_final,
            initial,
            float_initial,
            len(compiled.integers),
            len(compiled.floats),
            compiled.row_words,
            len(compiled.row_floats),
            *decisive_field_counts,
            int(self._is_preferred),
            int(self._is_numbered),
            compiled.empty_condition,
            can_ignore,
            int(can_ignore.any()),
        )

    @property
    def state(self) -> Words:
        """The words of the state (`kernels.layout`)."""
        return self.memory.state

    @property
    def entry_count(self) -> int:
        """Number of rows with partial matches in memory."""
        return self.memory.entry_count

    @property
    def node_count(self) -> int:
        """Number of runs in memory."""
        return self.memory.node_count

    @property
    def bytes(self) -> int:
        """Memory of rows and runs."""
        return self.memory.bytes

    def apply(self, rows: Rows, partitions: int) -> Iterator[Results]:
        """Add and retract rows; partitions are below `partitions`. Yield the changes of results."""
        self.memory.make_partitions(partitions)
        begin, end = 0, len(rows.kind)
        while begin < end:
            store = self.memory.store()
            begin = arrivals.apply_rows(self.automata, self.compiled.machine, store, rows, begin, end)
            if self.state[RESULT_COUNT]:
                yield self.memory.take_results()
            elif begin < end:
                self.memory.grow()

    @property
    def used_states(self) -> tuple[str, ...]:
        """The states of all nodes in memory."""
        nodes = self.memory.nodes[: self.state[NODE_RECORDS + USED_RECORDS]]
        return tuple(self.compiled.states[number] for number in np.unique(nodes[:, layout.STATE]))

    def change_automaton(self, compiled: CompiledAutomaton, initial: tuple[Words, Floats] | None = None) -> None:
        """Continue with an automaton that has the same register, and the same states and words of a row, or more.

        `initial`: the words of the register before the first row, if they are others.
        """
        old = self.automata
        first = (old.initial, old.float_initial) if initial is None else _with_addresses(initial)
        self._use(compiled, *first)
        words, floats = compiled.row_words - old.row_words, len(compiled.row_floats) - old.float_row_words
        can_ignore = self.automata.can_ignore
        is_same = np.array_equal(can_ignore[: len(old.can_ignore)], old.can_ignore)
        if not is_same or self.automata.is_ignoring != old.is_ignoring:
            self._forget_list_states()
        if words or floats:
            self.memory.entries = np.pad(self.memory.entries, ((0, 0), (0, words)))
            self.memory.float_rows = np.pad(self.memory.float_rows, ((0, 0), (0, floats)))

    def replace_automaton(self, compiled: CompiledAutomaton, initial: tuple[Words, Floats]) -> None:
        """Continue with an automaton that has the same register, and all states of nodes in memory.

        The words of stored rows are zero.
        """
        old = self.compiled
        self._use(compiled, *_with_addresses(initial))
        entries = np.zeros((len(self.memory.entries), ENTRY_WORDS + compiled.row_words), np.int64)
        entries[:, :ENTRY_WORDS] = self.memory.entries[:, :ENTRY_WORDS]
        self.memory.entries, self.memory.float_rows = entries, np.zeros((len(entries), len(compiled.row_floats)))
        numbers = {name: number for number, name in enumerate(compiled.states)}
        self.renumber_states(np.array([numbers.get(name, 0) for name in old.states], np.int64))

    def renumber_states(self, numbers: Words) -> None:
        """Give each state of a node the number at its place in `numbers`."""
        self._forget_list_states()
        states = self.memory.nodes[: self.state[NODE_RECORDS + USED_RECORDS], layout.STATE]
        states[:] = numbers[states]

    def _forget_list_states(self) -> None:
        """Let the kernels find the states of all lists again."""
        self.memory.entries[: self.state[ENTRIES + USED_RECORDS], layout.LIST_STATES] = 1 << layout.LAST_BIT

    def row_words(self) -> tuple[Words, Floats]:
        """Return the words of all stored rows, as arrays that can be written to."""
        used = int(self.state[ENTRIES + USED_RECORDS])
        return self.memory.entries[:used, ENTRY_WORDS:], self.memory.float_rows[:used]

    def renew(self, partitions: int, since: int, until: int) -> Iterator[Results]:
        """Compute nodes again after the arcs for times in `[since, until)` have changed. Yield the changes of results.

        Rows without values, and those before them, keep their nodes.
        """
        begin, end = 0, min(partitions, len(self.memory.partitions))
        while begin < end:
            store, machine = self.memory.store(), self.compiled.machine
            begin = changed_arcs.renew_entries(self.automata, machine, store, begin, end, since, until)
            if self.state[RESULT_COUNT]:
                yield self.memory.take_results()
            elif begin < end:
                self.memory.grow()

    def match(self, rows: Rows, partitions: int, skip: Skip) -> Iterator[Results]:
        """Match rows that ascend in time and sequence number; partitions are below `partitions`. Yield matches."""
        self.memory.make_partitions(partitions)
        begin, end = 0, len(rows.kind)
        while begin < end:
            store = self.memory.store()
            begin = matches.match_rows(
                self.automata, self.compiled.machine, store, rows, begin, end, skip.rule, skip.field
            )
            if self.state[RESULT_COUNT]:
                yield self.memory.take_results()
            elif begin < end:
                self.memory.grow()

    def end_runs(self, partitions: int, watermark: int, skip: Skip) -> Iterator[Results]:
        """End the runs that no row from the watermark on can extend. Yield matches."""
        begin, end = 0, min(partitions, len(self.memory.partitions))
        while begin < end:
            store = self.memory.store()
            begin = matches.end_runs(self.automata, store, begin, end, watermark, skip.rule, skip.field)
            if self.state[RESULT_COUNT]:
                yield self.memory.take_results()
            elif begin < end:
                self.memory.grow()

    def earliest_candidate(self, partitions: int) -> int:
        """Return the time of the earliest last row of a match that may still be replaced, or END."""
        known = min(partitions, len(self.memory.partitions))
        return int(matches.earliest_candidate(self.automata, self.memory.store(), known))

    def first_starts(self, partitions: int) -> tuple[Words, int]:
        """Return the sequence number of each partition's earliest first row of a run or match, and the earliest time.

        Both are END if there is none. Only matches that may still be replaced are included.
        """
        sequence_numbers = np.full(max(partitions, 1), END)
        known = min(partitions, len(self.memory.partitions))
        earliest = int(matches.first_starts(self.automata, self.memory.store(), known, sequence_numbers))
        return sequence_numbers[:partitions], earliest

    def trace(self, rows: Rows, bounds: Words, finalities: Words) -> tuple[Words, Results]:
        """Return the state after each row of matches, and the registers (`kernels.matches.trace_matches`).

        This instance must have no other rows. `words` of the results contains only the integer fields.
        """
        count, automata = len(rows.kind), self.automata
        states = np.zeros(count + 1, np.int64)
        fields = np.zeros(count * automata.fields + 1, np.int64)
        floats = np.zeros(count * automata.float_fields + 1, np.float64)
        begin, end = 0, len(finalities)
        while begin < end:
            begin = matches.trace_matches(
                automata,
                self.compiled.machine,
                self.memory.store(),
                rows,
                bounds,
                finalities,
                begin,
                end,
                states,
                fields,
                floats,
            )
            if begin < end:
                self.memory.grow()
        registers = Results(
            fields[:-1].reshape(count, automata.fields), floats[:-1].reshape(count, automata.float_fields)
        )
        return states[:-1], registers

    def ignored_rows(self, rows: Rows, partitions: Words, roles: Words) -> Mask:
        """Return for each row whether no run needs it (`kernels.ignored_rows.mark_ignored_rows`)."""
        count, is_ignored = len(rows.kind), np.zeros(len(rows.kind) + 1, np.int64)
        partitions = np.append(partitions, 0)
        ignored_rows.mark_ignored_rows(self.automata, rows, partitions, roles, len(roles), count, is_ignored)
        mask: Mask = is_ignored[:-1] > 0
        return mask

    def trace_runs(self, rows: Rows, requests: Words) -> Iterator[tuple[Results, Words]]:
        """Yield the results of requests, and places of their rows (`kernels.derivations.trace_runs`).

        `requests` has a row for each request, ordered by its number. A place has the number of its result among those
        that are yielded with it. All places of a result are yielded together: at most PLACE_ROOM places, or twice those
        of the largest result. This instance must have no other rows, and share no runs.
        """
        first, words = self.compiled.first_deadlines, np.ascontiguousarray(requests).reshape(-1)
        seen = np.zeros(len(self.compiled.states), np.int64)
        edges, places = self._edges(MIN_ROOM), np.zeros((PLACE_ROOM, derivations.PLACE_WORDS), np.int64)
        of_nodes = self._words_of_nodes()
        progress = np.zeros(derivations.PROGRESS_WORDS, np.int64)
        progress[derivations.READ_FROM] = NONE
        begin, end = 0, len(requests)
        while begin < end:
            trace = derivations.Trace(
                edges.reshape(-1), of_nodes[0], of_nodes[1], of_nodes[2], seen, progress, places.reshape(-1),
                len(edges), len(places),
            )  # fmt: skip
            store, machine = self.memory.store(), self.compiled.machine
            begin = derivations.trace_runs(self.automata, machine, store, rows, first, words, begin, end, trace)
            full = progress[derivations.FULL]
            if self.state[RESULT_COUNT]:
                found = places[: progress[derivations.PLACE_COUNT]].copy()
                progress[derivations.PLACE_COUNT] = 0
                yield self.memory.take_results(), found
            elif begin < end and full == derivations.PLACES_FULL:
                places = np.zeros((2 * len(places), derivations.PLACE_WORDS), np.int64)
            elif begin < end and full == derivations.EDGES_FULL:
                edges = self._edges(2 * len(edges))
            elif begin < end:
                self.memory.grow()
                of_nodes = self._words_of_nodes()

    def list_rows(self, rows: Rows, requests: Words, selected: SelectedResults, is_listed: Mask) -> None:
        """List the rows that a derivation of a selected result contains (`kernels.distinct_rows.list_rows`).

        `is_listed`: for each row whether it is listed; it is updated. `requests` has a row for each request. This
        instance must have no other rows, and share no runs.
        """
        first, words = self.compiled.first_deadlines, np.ascontiguousarray(requests).reshape(-1)
        next_rows = np.arange(len(is_listed) + 1)
        next_rows[:-1] += is_listed
        results, floats = _with_addresses((selected.words.reshape(-1), selected.floats.reshape(-1)))
        edges, of_nodes, no_words = self._edges(MIN_ROOM), self._words_of_nodes(), np.zeros(1, np.int64)
        progress = np.zeros(derivations.PROGRESS_WORDS, np.int64)
        progress[derivations.READ_FROM] = NONE
        begin, end = 0, len(requests)
        while begin < end:
            trace = derivations.Trace(
                edges.reshape(-1), of_nodes[0], of_nodes[1], of_nodes[2], no_words, progress, no_words, len(edges), 0
            )
            begin = distinct_rows.list_rows(
                self.automata, self.compiled.machine, self.memory.store(), rows, first, words, selected.firsts, results,
                floats, int(selected.selects_all), begin, end, trace, next_rows,
            )  # fmt: skip
            if begin < end and progress[derivations.FULL] == derivations.EDGES_FULL:
                edges = self._edges(2 * len(edges))
            elif begin < end:
                self.memory.grow()
                of_nodes = self._words_of_nodes()
        is_listed[:] = next_rows[:-1] > np.arange(len(is_listed))

    @staticmethod
    def _edges(room: int) -> Words:
        return np.zeros((room, derivations.EDGE_WORDS), np.int64)

    def _words_of_nodes(self) -> Words:
        """Return the words of `kernels.derivations.Trace` for nodes."""
        return np.zeros((3, len(self.memory.nodes) + 1), np.int64)

    def pass_deadlines(self, partitions: int, low: int, high: int) -> Iterator[Results]:
        """Yield the results of deadlines in `(low, high]`, if no row below `high` is missing.

        Count the deadlines of runs that have ended before.
        """
        first, outside = self.compiled.first_deadlines, np.zeros(1, np.int64)
        begin, end = 0, min(partitions, len(self.memory.partitions)) if first[-1] > first[0] else 0
        while begin < end:
            store, machine = self.memory.store(), self.compiled.machine
            begin = deadlines.pass_deadlines(self.automata, machine, store, first, outside, begin, end, low, high)
            if self.state[RESULT_COUNT]:
                yield self.memory.take_results()
        self.deadlines_outside += int(outside[0])

    def forget(self, partitions: int, watermark: int, *, arcs_change: bool) -> int:
        """Remove the rows and runs that rows at or after the watermark do not need.

        `arcs_change`: whether the arcs may change later. Return the number of partitions with entries.
        """
        known, first, machine = (
            min(partitions, len(self.memory.partitions)),
            self.compiled.first_deadlines,
            self.compiled.machine,
        )
        return int(
            cover.forget_entries(self.automata, machine, self.memory.store(), first, known, watermark, int(arcs_change))
        )

    def remove_unneeded(self, partitions: int, automaton: Automaton, arc_watermarks: Words) -> int:
        """Remove the rows and runs that no result of a later row needs. Return the number of partitions with entries.

        `arc_watermarks`: for each arc of the automaton, no later row that satisfies its fence has a smaller time.
        """
        known, names = min(partitions, len(self.memory.partitions)), self.compiled.states
        states = gaps.states_of(automaton, names)
        watermarks = np.append(arc_watermarks, END)[gaps.order_of_arcs(automaton.arcs, names)]
        scratch = np.zeros(self.entry_count + 1, np.int64), np.zeros(states.number, np.int64)
        return int(gaps.remove_unneeded(self.automata, self.memory.store(), states, watermarks, *scratch, known))

    def numbers_of(self, kind: Type) -> list[Words]:
        """Return the numbers of values of a type in rows, registers and the initial register, as writable arrays."""
        compiled = self.compiled
        types = {field.name: field.initial.type for field in compiled.register}
        nodes = self.memory.nodes[: self.state[NODE_RECORDS + USED_RECORDS]]
        entries = self.memory.entries[: self.state[ENTRIES + USED_RECORDS]]
        fields = [index for index, name in enumerate(compiled.integers) if types[name] is kind]
        places = zip(compiled.row_integers, compiled.integer_places, strict=True)
        words = [place for expression, place in places if expression.type is kind]
        return [
            *(nodes[:, NODE_WORDS + index] for index in fields),
            *(self.automata.initial[index : index + 1] for index in fields),
            *(entries[:, ENTRY_WORDS + place] for place in words),
        ]


def _with_addresses(initial: tuple[Words, Floats]) -> tuple[Words, Floats]:
    """Return the words of a register with one more each, because an empty array has no address."""
    return np.append(initial[0], 0), np.append(initial[1], 0.0)
