"""PartialMatches: the memory of entries and nodes, which grows as kernels need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import Automaton, PatternError
from highlevel.patterns.compiled_automaton import (
    CompiledAutomaton,
    Floats,
    Words,
)
from highlevel.patterns.kernels import (
    arrivals,
    changed_arcs,
    cover,
    deadlines,
    derivations,
    gaps,
    layout,
    matches,
    open_runs,
)
from highlevel.patterns.kernels.layout import (
    ENTRIES,
    ENTRY_WORDS,
    NODE_RECORDS,
    NODE_WORDS,
    PARTITION_WORDS,
    RESULT_COUNT,
    RESULT_WORDS,
    STATE_WORDS,
    Automata,
    Rows,
    Store,
)
from highlevel.patterns.kernels.open_runs import (
    BY_DEADLINE,
    BY_ROW,
)
from highlevel.speculation.lifetimes.kernels.records import FREE_RECORD, LIVE_RECORDS, NONE, USED_RECORDS
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END

MIN_ROOM = 4_096


class Skip(NamedTuple):
    """Where matching continues after a match: a rule of `kernels.matches`, and the field with its number or 0."""

    rule: int
    field: int


MAX_NODES = 2**25
"""Maximum number of runs in memory. More runs are an error: if runs were dropped, users would not notice that matches
are missing."""


@dataclass(frozen=True)
class Results:
    """Results of runs. `words`: RESULT_WORDS and the integer fields of the register; `floats`: the other fields."""

    words: Words
    floats: Floats


@dataclass(frozen=True)
class Runs:
    """Runs: partition, times of the first and the last row, state, and the register as in Results."""

    partitions: Words
    starts: Words
    lasts: Words
    states: list[str]
    words: Words
    floats: Floats


class NodePlaces(NamedTuple):
    """Nodes with their partitions and their entries."""

    partitions: Words
    entries: Words
    nodes: Words


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

        With `is_preferred`, arcs are in the order of preference, and only `match` and `end_runs` may be used;
        otherwise only `apply`, `pass_deadlines` and `forget`. With `is_numbered`, a run continues only with the next
        sequence number. Without `shares_runs` each row has nodes of its own.
        """
        self._is_preferred = is_preferred
        self._shares_runs = shares_runs and not is_preferred
        self._is_numbered = is_numbered
        self._use(compiled, initial)
        self._entry_width = ENTRY_WORDS + self._automata.row_words
        self._node_width = NODE_WORDS + self._automata.fields
        self._entries: Words = np.zeros((MIN_ROOM, self._entry_width), np.int64)
        self._float_rows: Floats = np.zeros((MIN_ROOM, self._automata.float_row_words), np.float64)
        self._nodes: Words = np.zeros((MIN_ROOM, self._node_width), np.int64)
        self._float_nodes: Floats = np.zeros((MIN_ROOM, self._automata.float_fields), np.float64)
        self._partitions: Words = np.full((MIN_ROOM, PARTITION_WORDS), NONE, np.int64)
        self._results: Words = np.zeros((MIN_ROOM, RESULT_WORDS + self._automata.fields), np.int64)
        self._float_results: Floats = np.zeros((MIN_ROOM, self._automata.float_fields), np.float64)
        self.state: Words = np.zeros(STATE_WORDS, np.int64)
        for records in (ENTRIES, NODE_RECORDS):
            self.state[records + FREE_RECORD] = NONE
        self.deadlines_outside = 0
        """Deadlines that have not applied, because the lifetime of the run ended before."""

    def _use(self, compiled: CompiledAutomaton, initial: tuple[Words, Floats]) -> None:
        """Make the tables of an automaton for kernels."""
        self.compiled = compiled
        compared = compiled.compared if self._is_preferred else (len(compiled.integers), len(compiled.floats))
        can_ignore = compiled.can_ignore & int(self._shares_runs)
        self._automata = Automata(
            compiled.arcs.reshape(-1),
            compiled.first_arcs,
            compiled.end_arcs,
            compiled.parts,
            compiled.first_parts,
            compiled.first_silent,
            compiled.is_final,
            np.append(initial[0], 0),
            np.append(initial[1], 0.0),
            len(compiled.integers),
            len(compiled.floats),
            compiled.row_words,
            len(compiled.row_floats),
            *compared,
            int(self._is_preferred),
            int(self._is_numbered),
            compiled.empty_condition,
            can_ignore,
            int(can_ignore.any()),
        )

    @property
    def entry_count(self) -> int:
        """Number of rows with partial matches in memory."""
        return int(self.state[ENTRIES + LIVE_RECORDS])

    @property
    def node_count(self) -> int:
        """Number of runs in memory."""
        return int(self.state[NODE_RECORDS + LIVE_RECORDS])

    @property
    def bytes(self) -> int:
        """Memory of rows and runs."""
        arrays = (self._entries, self._float_rows, self._nodes, self._float_nodes, self._partitions)
        return sum(array.nbytes for array in arrays)

    def apply(self, rows: Rows, partitions: int) -> Iterator[Results]:
        """Add and retract rows; partitions are below `partitions`. Yield the changes of results."""
        if partitions > len(self._partitions):
            self._partitions = _longer(self._partitions, 2 * partitions, NONE)
        begin, end = 0, len(rows.kind)
        while begin < end:
            store = self._store()
            begin = arrivals.apply_rows(self._automata, self.compiled.machine, store, rows, begin, end)
            if self.state[RESULT_COUNT]:
                yield self._take_results()
            elif begin < end:
                self._grow()

    @property
    def used_states(self) -> tuple[str, ...]:
        """The states of all nodes in memory."""
        nodes = self._nodes[: self.state[NODE_RECORDS + USED_RECORDS]]
        return tuple(self.compiled.states[number] for number in np.unique(nodes[:, layout.STATE]))

    def change_automaton(self, compiled: CompiledAutomaton, initial: tuple[Words, Floats] | None = None) -> None:
        """Continue with an automaton that has the same register, and the same states and words of a row, or more.

        `initial`: the words of the register before the first row, if they are others.
        """
        old, self.compiled = self._automata, compiled
        words, floats = compiled.row_words - old.row_words, len(compiled.row_floats) - old.float_row_words
        can_ignore = compiled.can_ignore & int(self._shares_runs)
        self._automata = old._replace(
            arcs=compiled.arcs.reshape(-1),
            first_arcs=compiled.first_arcs,
            end_arcs=compiled.end_arcs,
            parts=compiled.parts,
            first_parts=compiled.first_parts,
            first_silent=compiled.first_silent,
            is_final=compiled.is_final,
            row_words=compiled.row_words,
            float_row_words=len(compiled.row_floats),
            can_ignore=can_ignore,
            is_ignoring=int(can_ignore.any()),
        )
        is_same = np.array_equal(can_ignore[: len(old.can_ignore)], old.can_ignore)
        if not is_same or self._automata.is_ignoring != old.is_ignoring:
            self._forget_list_states()
        if initial is not None:
            first_words, first_floats = np.append(initial[0], 0), np.append(initial[1], 0.0)
            self._automata = self._automata._replace(initial=first_words, float_initial=first_floats)
        if words or floats:
            self._entries = np.pad(self._entries, ((0, 0), (0, words)))
            self._float_rows = np.pad(self._float_rows, ((0, 0), (0, floats)))

    def replace_automaton(self, compiled: CompiledAutomaton, initial: tuple[Words, Floats]) -> None:
        """Continue with an automaton that has the same register, and all states of nodes in memory.

        The words of stored rows are zero.
        """
        old = self.compiled
        self._use(compiled, initial)
        entries = np.zeros((len(self._entries), ENTRY_WORDS + compiled.row_words), np.int64)
        entries[:, :ENTRY_WORDS] = self._entries[:, :ENTRY_WORDS]
        self._entries, self._float_rows = entries, np.zeros((len(entries), len(compiled.row_floats)))
        numbers = {name: number for number, name in enumerate(compiled.states)}
        self.renumber_states(np.array([numbers.get(name, 0) for name in old.states], np.int64))

    def renumber_states(self, numbers: Words) -> None:
        """Give each state of a node the number at its place in `numbers`."""
        self._forget_list_states()
        states = self._nodes[: self.state[NODE_RECORDS + USED_RECORDS], layout.STATE]
        states[:] = numbers[states]

    def _forget_list_states(self) -> None:
        """Let the kernels find the states of all lists again."""
        self._entries[: self.state[ENTRIES + USED_RECORDS], layout.LIST_STATES] = 1 << layout.LAST_BIT

    def row_words(self) -> tuple[Words, Floats]:
        """Return the words of all stored rows, as arrays that can be written to."""
        used = int(self.state[ENTRIES + USED_RECORDS])
        return self._entries[:used, ENTRY_WORDS:], self._float_rows[:used]

    def renew(self, partitions: int, since: int, until: int) -> Iterator[Results]:
        """Compute nodes again after the arcs for times in `[since, until)` have changed. Yield the changes of results.

        Rows without values, and those before them, keep their nodes.
        """
        begin, end = 0, min(partitions, len(self._partitions))
        while begin < end:
            store, machine = self._store(), self.compiled.machine
            begin = changed_arcs.renew_entries(self._automata, machine, store, begin, end, since, until)
            if self.state[RESULT_COUNT]:
                yield self._take_results()
            elif begin < end:
                self._grow()

    def match(self, rows: Rows, partitions: int, skip: Skip) -> Iterator[Results]:
        """Match rows that ascend in time and sequence number; partitions are below `partitions`. Yield matches."""
        if partitions > len(self._partitions):
            self._partitions = _longer(self._partitions, 2 * partitions, NONE)
        begin, end = 0, len(rows.kind)
        while begin < end:
            store = self._store()
            begin = matches.match_rows(
                self._automata, self.compiled.machine, store, rows, begin, end, skip.rule, skip.field
            )
            if self.state[RESULT_COUNT]:
                yield self._take_results()
            elif begin < end:
                self._grow()

    def end_runs(self, partitions: int, watermark: int, skip: Skip) -> Iterator[Results]:
        """End the runs that no row from the watermark on can extend. Yield matches."""
        begin, end = 0, min(partitions, len(self._partitions))
        while begin < end:
            store = self._store()
            begin = matches.end_runs(self._automata, store, begin, end, watermark, skip.rule, skip.field)
            if self.state[RESULT_COUNT]:
                yield self._take_results()
            elif begin < end:
                self._grow()

    def earliest_candidate(self, partitions: int) -> int:
        """Return the time of the earliest last row of a match that may still be replaced, or END."""
        known = min(partitions, len(self._partitions))
        return int(matches.earliest_candidate(self._automata, self._store(), known))

    def first_starts(self, partitions: int) -> tuple[Words, int]:
        """Return the sequence number of each partition's earliest first row of a run or match, and the earliest time.

        Both are END if there is none. Only matches that may still be replaced are included.
        """
        sequence_numbers = np.full(max(partitions, 1), END)
        known = min(partitions, len(self._partitions))
        earliest = int(matches.first_starts(self._automata, self._store(), known, sequence_numbers))
        return sequence_numbers[:partitions], earliest

    def trace(self, rows: Rows, bounds: Words, finalities: Words) -> tuple[Words, Results]:
        """Return the state after each row of matches, and the registers (`kernels.matches.trace_matches`).

        This instance must have no other rows. `words` of the results contains only the integer fields.
        """
        count, automata = len(rows.kind), self._automata
        states = np.zeros(count + 1, np.int64)
        fields = np.zeros(count * automata.fields + 1, np.int64)
        floats = np.zeros(count * automata.float_fields + 1, np.float64)
        begin, end = 0, len(finalities)
        while begin < end:
            begin = matches.trace_matches(
                automata,
                self.compiled.machine,
                self._store(),
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
                self._grow()
        registers = Results(
            fields[:-1].reshape(count, automata.fields), floats[:-1].reshape(count, automata.float_fields)
        )
        return states[:-1], registers

    def trace_runs(self, rows: Rows, requests: Words) -> Iterator[tuple[Results, Words]]:
        """Yield the results of requests, and places of their rows (`kernels.derivations.trace_runs`).

        `requests` has a row for each request, ordered by its number. A place has the number of its result among those
        that are yielded with it. This instance must have no other rows, and share no runs.
        """
        begin, end, room = 0, len(requests), MIN_ROOM
        first, words = self.compiled.first_deadlines, np.ascontiguousarray(requests).reshape(-1)
        places = np.zeros((room, derivations.PLACE_WORDS), np.int64)
        while begin < end:
            store, machine = self._store(), self.compiled.machine
            marks = np.zeros(len(self._nodes) + 1, np.int64)
            seen = np.zeros(len(self.compiled.states), np.int64)
            progress = np.zeros(derivations.PROGRESS_WORDS, np.int64)
            begin = derivations.trace_runs(
                self._automata, machine, store, rows, first, words, begin, end, marks, seen, progress,
                places.reshape(-1), room,
            )  # fmt: skip
            if self.state[RESULT_COUNT]:
                yield self._take_results(), places[: progress[derivations.COUNT]].copy()
            elif begin < end and progress[derivations.IS_FULL]:
                room *= 2
                places = np.zeros((room, derivations.PLACE_WORDS), np.int64)
            elif begin < end:
                self._grow()

    def pass_deadlines(self, partitions: int, low: int, high: int) -> Iterator[Results]:
        """Yield the results of deadlines in `(low, high]`, if no row below `high` is missing.

        Count the deadlines of runs that have ended before.
        """
        first, outside = self.compiled.first_deadlines, np.zeros(1, np.int64)
        begin, end = 0, min(partitions, len(self._partitions)) if first[-1] > first[0] else 0
        while begin < end:
            store, machine = self._store(), self.compiled.machine
            begin = deadlines.pass_deadlines(self._automata, machine, store, first, outside, begin, end, low, high)
            if self.state[RESULT_COUNT]:
                yield self._take_results()
        self.deadlines_outside += int(outside[0])

    def forget(self, partitions: int, watermark: int, *, arcs_change: bool) -> int:
        """Remove the rows and runs that rows at or after the watermark do not need.

        `arcs_change`: whether the arcs may change later. Return the number of partitions with entries.
        """
        known, first, machine = (
            min(partitions, len(self._partitions)),
            self.compiled.first_deadlines,
            self.compiled.machine,
        )
        return int(
            cover.forget_entries(self._automata, machine, self._store(), first, known, watermark, int(arcs_change))
        )

    def remove_unneeded(self, partitions: int, automaton: Automaton, arc_watermarks: Words) -> int:
        """Remove the rows and runs that no result of a later row needs. Return the number of partitions with entries.

        `arc_watermarks`: for each arc of the automaton, no later row that satisfies its fence has a smaller time.
        """
        known, names = min(partitions, len(self._partitions)), self.compiled.states
        states = gaps.states_of(automaton, names)
        watermarks = np.append(arc_watermarks, END)[gaps.order_of_arcs(automaton.arcs, names)]
        scratch = np.zeros(self.entry_count + 1, np.int64), np.zeros(states.number, np.int64)
        return int(gaps.remove_unneeded(self._automata, self._store(), states, watermarks, *scratch, known))

    def renumber(self, kept: Words) -> None:
        """Give the partitions `kept` the numbers 0, 1, 2, …; the others have no entries."""
        partitions = self._partitions[kept]
        self._partitions = _longer(partitions, max(MIN_ROOM, 2 * len(kept)), NONE)

    def forget_partitions(self, partitions: Words) -> None:
        """Forget the runs of partitions. Their memory is not returned: for an instance that is used once."""
        self._partitions[partitions[partitions < len(self._partitions)]] = NONE

    def used_partitions(self, partitions: int) -> Words:
        """Return the partitions with entries or candidates."""
        words = self._partitions[:partitions]
        return np.flatnonzero((words[:, layout.FIRST] != NONE) | (words[:, layout.CANDIDATES] != NONE))

    def compact_if_sparse(self) -> None:
        """Return the memory of freed records, if they are many."""
        for records in (ENTRIES, NODE_RECORDS):
            if self.state[records + USED_RECORDS] > 2 * self.state[records + LIVE_RECORDS] + MIN_ROOM:
                self._compact()
                return

    def _compact(self) -> None:
        """Move the records in use to the beginning of shorter arrays.

        This must not happen while a row is interrupted for lack of room.

        The cost is that of the records that were freed since the last call, and of those in use.
        """
        entries = self._records_in_use(self._entries, ENTRIES, layout.AFTER)
        nodes = self._records_in_use(self._nodes, NODE_RECORDS, layout.NEXT_NODE)
        new_entries = self._new_numbers(entries, ENTRIES)
        new_nodes = self._new_numbers(nodes, NODE_RECORDS)
        entry_room, node_room = (max(MIN_ROOM, 2 * len(kept)) for kept in (entries, nodes))
        self._entries = _longer(self._entries[entries], entry_room, 0)
        self._float_rows = _longer(self._float_rows[entries], entry_room, 0)
        self._nodes = _longer(self._nodes[nodes], node_room, 0)
        self._float_nodes = _longer(self._float_nodes[nodes], node_room, 0)
        self._results = np.zeros((node_room, self._results.shape[1]), np.int64)
        self._float_results = np.zeros((node_room, self._float_results.shape[1]), np.float64)
        stored_entries, stored_nodes = self._entries[: len(entries)], self._nodes[: len(nodes)]
        for links, numbers in (
            (stored_entries[:, layout.BEFORE], new_entries),
            (stored_entries[:, layout.AFTER], new_entries),
            (stored_entries[:, layout.NODES], new_nodes),
            (stored_nodes[:, layout.NEXT_NODE], new_nodes),
            (self._partitions[:, layout.FIRST], new_entries),
            (self._partitions[:, layout.LAST], new_entries),
            (self._partitions[:, layout.CANDIDATES], new_nodes),
        ):
            links[:] = numbers[links]
        for records, kept in ((ENTRIES, entries), (NODE_RECORDS, nodes)):
            self.state[records + FREE_RECORD] = NONE
            self.state[records + USED_RECORDS] = len(kept)

    def _records_in_use(self, memory: Words, records: int, link: int) -> Words:
        is_used = np.ones(int(self.state[records + USED_RECORDS]), np.bool_)
        is_used[list(self._chain(memory, int(self.state[records + FREE_RECORD]), link))] = False
        return np.flatnonzero(is_used)

    def _new_numbers(self, kept: Words, records: int) -> Words:
        """Return the new number of each record; the last one is that of NONE."""
        numbers = np.full(int(self.state[records + USED_RECORDS]) + 1, NONE)
        numbers[kept] = np.arange(len(kept))
        return numbers

    def snapshot(self, partitions: int) -> dict[str, pa.Table]:
        """Return the words of all records in use, a table for each kind of records."""
        if any(self.state[records + FREE_RECORD] != NONE for records in (ENTRIES, NODE_RECORDS)):
            self._compact()
        tables = {}
        for name, rows in self._used(partitions).items():
            array = getattr(self, name)
            columns = [np.ascontiguousarray(array[:rows, word]) for word in range(array.shape[1])]
            table = pa.table({"record": np.arange(rows), **{str(word): each for word, each in enumerate(columns)}})
            tables[name.strip("_")] = table
        return tables | {"state": pa.table({"words": self.state})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the words of a snapshot. Words of rows that it does not have are 0."""
        self.state[:] = tables["state"]["words"].to_numpy()
        for name in self._used(0):
            table, array = tables[name.strip("_")], getattr(self, name)
            fill = NONE if name == "_partitions" else 0
            array = _longer(array, max(len(array), 2 * table.num_rows), fill)
            for word in range(table.num_columns - 1):
                array[: table.num_rows, word] = table[str(word)].to_numpy()
            setattr(self, name, array)
        rooms = max(len(self._nodes), len(self._float_nodes))
        self._nodes, self._float_nodes = _longer(self._nodes, rooms, 0), _longer(self._float_nodes, rooms, 0)
        self._results = np.zeros((rooms, self._results.shape[1]), np.int64)
        self._float_results = np.zeros((rooms, self._float_results.shape[1]), np.float64)

    def _used(self, partitions: int) -> dict[str, int]:
        """Return the names of the arrays, and how many of their records are used."""
        entries, nodes = int(self.state[ENTRIES + USED_RECORDS]), int(self.state[NODE_RECORDS + USED_RECORDS])
        return {
            "_entries": entries,
            "_float_rows": entries,
            "_nodes": nodes,
            "_float_nodes": nodes,
            "_partitions": min(partitions, len(self._partitions)),
        }

    def stored_rows(self) -> Words:
        """Return the numbers of the values of all rows in memory, as an array that can be written to."""
        used = self._entries[: self.state[ENTRIES + USED_RECORDS]]
        return used[:, layout.ROW]

    def numbers_of(self, kind: Type) -> list[Words]:
        """Return the numbers of values of a type in rows, registers and the initial register, as writable arrays."""
        compiled = self.compiled
        types = {field.name: field.initial.type for field in compiled.register}
        nodes = self._nodes[: self.state[NODE_RECORDS + USED_RECORDS]]
        entries = self._entries[: self.state[ENTRIES + USED_RECORDS]]
        fields = [index for index, name in enumerate(compiled.integers) if types[name] is kind]
        places = zip(compiled.row_integers, compiled.integer_places, strict=True)
        words = [place for expression, place in places if expression.type is kind]
        return [
            *(nodes[:, NODE_WORDS + index] for index in fields),
            *(self._automata.initial[index : index + 1] for index in fields),
            *(entries[:, ENTRY_WORDS + place] for place in words),
        ]

    def runs(self, partitions: int) -> Runs:
        """Return all runs, ordered by partition, last row and first row."""
        places = [
            (partition, entry, node)
            for partition in range(min(partitions, len(self._partitions)))
            for entry in self._chain(self._entries, int(self._partitions[partition, layout.FIRST]), layout.AFTER)
            for node in self._chain(self._nodes, int(self._entries[entry, layout.NODES]), layout.NEXT_NODE)
        ]
        found = np.array(places, np.int64).reshape(-1, 3).T
        is_true = self._nodes[found[2], layout.RUN_END] > self._entries[found[1], layout.TIME]
        return self.runs_of(NodePlaces(*found[:, is_true]))

    def runs_of(self, places: NodePlaces) -> Runs:
        """Return the runs of nodes."""
        words, lasts = self._nodes[places.nodes], self._entries[places.entries, layout.TIME]
        states = np.array(self.compiled.states)[words[:, layout.STATE]].tolist()
        floats = self._float_nodes[places.nodes]
        return Runs(places.partitions, words[:, layout.START], lasts, states, words[:, NODE_WORDS:], floats)

    def open_runs(self, partitions: int, chances: Words, newest: int, watermark: int) -> NodePlaces:
        """Return the nodes of open runs (`kernels.open_runs`, which defines `chances`, a value for each state)."""
        count, _ = self._find_open_runs(partitions, chances, newest, np.zeros((1, 3), np.int64))
        places = np.zeros((count + 1, 3), np.int64)
        self._find_open_runs(partitions, chances, newest, places)
        is_open = np.zeros(count + 1, np.int64)
        if (chances == BY_DEADLINE).any():
            first, machine = self.compiled.first_deadlines, self.compiled.machine
            open_runs.check_deadlines(
                self._automata, machine, self._store(), first, places.reshape(-1), is_open, count, watermark
            )
        states = self._nodes[places[:count, 2], layout.STATE]
        return NodePlaces(*places[:count][(chances[states] == BY_ROW) | (is_open[:count] > 0)].T)

    def count_open_runs(self, partitions: int, chances: Words, newest: int, watermark: int) -> tuple[int, int]:
        """Return the number of open runs, and the time of their earliest first row; END without one."""
        if not (chances == BY_DEADLINE).any():
            return self._find_open_runs(partitions, chances, newest, np.zeros((1, 3), np.int64))
        starts = self._nodes[self.open_runs(partitions, chances, newest, watermark).nodes, layout.START]
        return len(starts), int(starts.min()) if len(starts) else END

    def _find_open_runs(self, partitions: int, chances: Words, newest: int, places: Words) -> tuple[int, int]:
        known, room, earliest = min(partitions, len(self._partitions)), len(places) - 1, np.full(1, END)
        count = open_runs.find_open_runs(
            self._automata, self._store(), chances, earliest, places.reshape(-1), known, newest, room
        )
        return int(count), int(earliest[0])

    @staticmethod
    def _chain(records: Words, record: int, link: int) -> Iterator[int]:
        """Yield the records of a list."""
        while record != NONE:
            yield record
            record = int(records[record, link])

    def _store(self) -> Store:
        return Store(
            self._entries.reshape(-1),
            _flat(self._float_rows),
            self._nodes.reshape(-1),
            _flat(self._float_nodes),
            self._partitions.reshape(-1),
            self._results.reshape(-1),
            _flat(self._float_results),
            self.state,
            len(self._entries),
            len(self._nodes),
            len(self._results),
        )

    def _take_results(self) -> Results:
        count = int(self.state[RESULT_COUNT])
        self.state[RESULT_COUNT] = 0
        return Results(self._results[:count].copy(), self._float_results[:count].copy())

    def _grow(self) -> None:
        """Make room for entries or nodes. The room for results is that for nodes, so it is sufficient for each list."""
        if self.entry_count == len(self._entries):
            self._entries = _longer(self._entries, 2 * len(self._entries), 0)
            self._float_rows = _longer(self._float_rows, len(self._entries), 0)
            return
        if 2 * len(self._nodes) > MAX_NODES:
            raise PatternError(
                f"got more than {MAX_NODES} partial matches, expected fewer: a shorter window (WITHIN), narrower "
                "conditions, or more partitions"
            )
        self._nodes = _longer(self._nodes, 2 * len(self._nodes), 0)
        self._float_nodes = _longer(self._float_nodes, len(self._nodes), 0)
        self._results = np.zeros((len(self._nodes), self._results.shape[1]), np.int64)
        self._float_results = np.zeros((len(self._nodes), self._float_results.shape[1]), np.float64)


def _longer(array: npt.NDArray[Any], rows: int, fill: int) -> npt.NDArray[Any]:
    """Return a copy with more rows."""
    longer = np.full((rows, array.shape[1]), fill, array.dtype)
    longer[: len(array)] = array
    return longer


def _flat(array: Floats) -> Floats:
    """Return the words of an array, which has an address also without words."""
    return array.reshape(-1) if array.size else np.zeros(1)
