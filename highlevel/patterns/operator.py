"""Patterns over changes of rows with lifetimes (Chandramouli, Goldstein and Maier, 2010, §2 to §5).

    change of a row ──► partition ──► partial matches ──► changes of results

A result is the register of an accepted run and the time of its first row, true in the intersection of the lifetimes of
its rows. At any moment the results are those of the automaton over all rows that have arrived, sorted by time. So a
late row, or a retraction, corrects the results whose rows are around its time. Rows with equal times are in the order
of a hash of their values, or of their numbers if they are numbered. So the order does not depend on their arrival.

Equal results of a partition are one result. The result of a deadline is returned when the watermark has passed it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.arc_table import changed_times
from highlevel.patterns.automaton import Arc, Automaton, PatternError, keeps_run, reachable
from highlevel.patterns.compilation import AutomatonCompiler
from highlevel.patterns.compiled_automaton import NUMBERED, Floats, Words
from highlevel.patterns.kernels.layout import (
    ADDED,
    ENTRY_WORDS,
    MISSING,
    NO_NUMBER,
    PARTITION,
    RESULT_END,
    RESULT_START,
    RESULT_WORDS,
    RETRACTED,
    RUN_START,
    WEIGHT,
    Rows,
)
from highlevel.patterns.kernels.open_runs import BY_DEADLINE, BY_ROW, NO_CHANCE
from highlevel.patterns.listed_runs import Runs, all_runs, count_open_runs, open_runs, runs_of
from highlevel.patterns.memory import MIN_ROOM, Results
from highlevel.patterns.row_words import NOTHING_KNOWN, Known, RegisterColumns, RowWords, ValueNumbers
from highlevel.patterns.store import PartialMatches
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import (
    change_schema,
    concat,
    make_changes,
    make_ctis,
    payload_of,
    payload_schema,
    storable,
    times_of,
)
from lowlevel.expressions.hashing import hash_values
from lowlevel.punctuation import BEGINNING, END

MATCH_START = "match_start"
"""Column of a result: the time of the first row, in ns."""

COPY_BITS = 2**20 - 1
"""The bits of a sequence number that distinguish equal rows; the others are those of the hash."""

STATE, STATES, PARTITIONS = "state", "states", "partitions"
ROW_VALUES, VALUES, RUNS = "row values", "values of ", "runs: "
"""Tables of a snapshot, and the beginnings of names of tables."""


class PatternOperator:
    """Matches an automaton against the changes of rows. Takes and returns valid changes. Not thread safe."""

    def __init__(
        self,
        changes: pa.Schema,
        automaton: Automaton,
        by: Sequence[str] = (),
        *,
        number: str | None = None,
        macs: Sequence[str] = (),
        has_retractions: bool = True,
        only_adds: bool = False,
        arcs_change: bool = True,
        shares_runs: bool = True,
    ) -> None:
        """Match rows in partitions with equal values of the columns `by`.

        The columns of a result are those of `by`, MATCH_START, and the fields of the register. Without a window in the
        automaton, a run lasts while its rows are true. `number`: the column with the number of a row in its partition;
        a run continues only with the next number. `macs`: the columns of MAC addresses. Without `has_retractions` rows
        must arrive in the order of their times, those of equal times in one batch. Without `arcs_change` the arcs stay
        the same. With `only_adds` no row is withdrawn either, so `remove_unneeded` can be used. Without `shares_runs` a
        run is stored with each row that it ignores. Raises PatternError for unknown columns and equal names.
        """
        self._payload = payload_schema(changes)
        self._has_retractions = has_retractions
        self._only_adds = only_adds
        self._arcs_change = arcs_change and not only_adds
        self._number = number
        self._macs = macs
        names = [*by, MATCH_START, *(field.name for field in automaton.register)]
        for name in by:
            if name not in self._payload.names:
                raise PatternError(f"got the partition column {name!r}, expected {', '.join(self._payload.names)}")
        for field in automaton.register:
            if field.name in self._payload.names:
                raise PatternError(f"got the field {field.name!r} with the name of a column, expected another name")
        if number is not None and number not in self._payload.names:
            raise PatternError(f"got the number column {number!r}, expected {', '.join(self._payload.names)}")
        self._by = list(by)
        self._window = automaton.window
        self._automaton = automaton
        self._numbers = ValueNumbers()
        # The search over gaps reads all arcs of a state, so none has a key.
        self._compiler = AutomatonCompiler(automaton, None if only_adds else self._numbers.numbers_of)
        self._arcs = {id(arc): arc for arc in automaton.arcs}
        """The arcs by their identities."""
        compiled = self._compiler.compile(automaton.arcs)
        self._row_words = RowWords(compiled, self._numbers, macs)
        self._register = RegisterColumns(compiled, self._numbers)
        keys = (self._payload.field(name) for name in by)
        self._result = pa.schema([*keys, (MATCH_START, pa.int64()), *self._register.schema])
        assert self._result.names == names
        self.schema = change_schema(self._result)
        self._nothing = concat([], self.schema)
        self.matches = PartialMatches(
            compiled, self._register.initial(), is_numbered=number is not None, shares_runs=shares_runs
        )
        self._partitions = Keys([storable(self._payload.field(name)) for name in by])
        self._values = Keys([storable(field) for field in self._payload])
        self._arrivals = 0
        self._watermark = BEGINNING
        self._newest = BEGINNING
        """Time of the newest row."""
        self.late = 0
        """Changes of rows below the watermark."""
        self.rows_removed = 0
        self.runs_removed = 0
        """Rows and runs that `remove_unneeded` has removed."""

    @property
    def missing(self) -> int:
        """Retractions of rows that are not in memory."""
        return int(self.matches.state[MISSING])

    @property
    def bytes(self) -> int:
        """Memory of rows, runs, values and arcs."""
        return (
            self.matches.bytes
            + self._compiler.bytes
            + self._numbers.bytes
            + self._partitions.bytes
            + self._values.bytes
        )

    @property
    def _count(self) -> int:
        """Number of partitions."""
        return max(1, self._partitions.count)

    def partial_matches(self) -> pa.Table:
        """Return the runs in memory: their last rows, states, and the columns of results.

        They are ordered by partition, last row and first row. Columns of results may have the names of the first two.
        """
        return self._list_runs(all_runs(self.matches, self._count))

    def open_runs(self) -> pa.Table:
        """Return the runs that a later row or a deadline may complete: the columns of `partial_matches`.

        They end with the newest row of their partition.
        """
        places = open_runs(self.matches, self._count, self._chances(self._clock), self._clock, self._watermark)
        return self._list_runs(runs_of(self.matches, places))

    @property
    def open_run_counts(self) -> tuple[int, int]:
        """The number of open runs, and the time of their earliest first row; END without one."""
        return count_open_runs(self.matches, self._count, self._chances(self._clock), self._clock, self._watermark)

    @property
    def _clock(self) -> int:
        """The time of the newest row, or the watermark if it is later."""
        return max(self._newest, self._watermark)

    def _list_runs(self, runs: Runs) -> pa.Table:
        last, states = array_of(np.ascontiguousarray(runs.lasts)), pa.array(runs.states, pa.string())
        columns = [last, states, *self._columns(runs.partitions, runs.starts, runs.words, runs.floats)]
        return pa.Table.from_arrays(columns, names=["last", "state", *self._result.names])

    def _chances(self, now: int) -> Words:
        """Return a value of `kernels.open_runs` for each state: what may complete its runs from `now` on.

        An arc that keeps a run completes none, except in a final state, or before a silent arc to one.
        """
        arcs = [arc for arc in self._arcs.values() if arc.end > max(now, arc.begin)]
        finals = {*self._automaton.finals, *self._automaton.last_finals}
        repeating = finals | {arc.source for arc in arcs if arc.is_silent}
        sources: dict[str, set[str]] = {}
        for arc in arcs:
            sources.setdefault(arc.target, set()).add(arc.source)
        completing = set[str]().union(*(reachable(sources, name) for name in finals))
        chances = {arc.source: BY_DEADLINE for arc in arcs if arc.deadline is not None}
        for arc in arcs:
            consumes = not arc.is_silent and arc.deadline is None
            if consumes and arc.target in completing and (arc.source in repeating or not keeps_run(arc)):
                chances[arc.source] = BY_ROW
        return np.array([chances.get(state, NO_CHANCE) for state in self.matches.compiled.states], np.int64)

    def process(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Process changes. Return the changes of results."""
        kind = times_of(changes)[0]
        parts, begin = [], 0
        for end in [*np.flatnonzero(kind == CTI).tolist(), len(kind)]:
            if begin < end:
                parts += self._apply(changes.slice(begin, end - begin))
            if end < len(kind):
                parts += self._advance(changes.column("vs")[end].as_py())
            begin = end + 1
        return concat(parts, self.schema)

    def change_arcs(self, removed: Sequence[Arc], added: Sequence[Arc]) -> pa.RecordBatch:
        """Remove and add arcs. Return the changes of results that follow for rows in memory, from the watermark on.

        `removed`: the same instances as were added. Rows below the watermark have used the arcs before. Without
        retractions, no row from the watermark on may be in memory. Raises PatternError for arcs that contradict each
        other, and without `arcs_change`.
        """
        if not self._arcs_change:
            raise PatternError("got other arcs, expected the same arcs: rows and runs for them may have been removed")
        changed = changed_times(removed, added, self._watermark, self._newest + 1)
        if not self._compiler.patch(removed, added):
            gone = set(map(id, removed))
            self._use_arcs([*(arc for identity, arc in self._arcs.items() if identity not in gone), *added])
        for arc in removed:
            del self._arcs[id(arc)]
        for arc in added:
            self._arcs[id(arc)] = arc
        if changed is None:
            return self._nothing
        results = self.matches.renew(self._count, *changed)
        return concat([self._changes(each) for each in results], self.schema)

    def _use_arcs(self, arcs: Sequence[Arc]) -> None:
        """Continue with other arcs. Rows in memory get the words that they do not have."""
        if self._compiler.has_many_unused:
            self._begin_compiler(arcs, self.matches.used_states)
            return
        compiled, old = self._compiler.compile(arcs), self.matches.compiled
        self._row_words = RowWords(compiled, self._numbers, self._macs)
        self.matches.change_automaton(compiled)
        known = Known(len(old.conditions), len(old.row_integers), len(old.row_floats))
        if known != Known(len(compiled.conditions), len(compiled.row_integers), len(compiled.row_floats)):
            self._write_words(known)

    def _begin_compiler(self, arcs: Sequence[Arc], states: Sequence[str]) -> None:
        """Translate the arcs by a new compiler. `states` have nodes in memory."""
        self._compiler = AutomatonCompiler(self._automaton, self._numbers.numbers_of)
        compiled = self._compiler.compile(arcs, states)
        self._row_words = RowWords(compiled, self._numbers, self._macs)
        self._register = RegisterColumns(compiled, self._numbers)
        self.matches.replace_automaton(compiled, self._register.initial())
        self._write_words(NOTHING_KNOWN)

    def _write_words(self, known: Known) -> None:
        """Write the words of all rows in memory. Without retractions no arc reads these rows again."""
        numbers = self.matches.memory.stored_rows()
        if self._has_retractions and len(numbers):
            columns = self._values.columns(numbers) if len(self._payload) else []
            arrays = [column.cast(field.type) for column, field in zip(columns, self._payload, strict=True)]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._payload)
            self._row_words.write(rows, *self.matches.row_words(), known)

    def _apply(self, changes: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Add and retract rows. A retraction that only shortens a lifetime retracts the row and adds it again."""
        kind, start, stop, new_stop = times_of(changes)
        if self._only_adds and (kind == RETRACTION).any():
            raise PatternError("got a retraction, expected inserts only: rows and runs for it may have been removed")
        in_time = start >= self._watermark
        self.late += int(np.count_nonzero(~in_time))
        copies = np.where(in_time, 1 + ((kind == RETRACTION) & (new_stop > start)), 0)
        source = np.repeat(np.arange(len(kind)), copies)
        is_second = np.append(False, source[1:] == source[:-1])[: len(source)]
        stops = np.where(is_second, new_stop[source], stop[source])
        if self._window is not None:
            starts = start[source]
            stops = np.minimum(stops, np.where(starts > END - self._window, END, starts + self._window))
        self._newest = max(self._newest, int(start.max()))
        rows = payload_of(changes)
        words, floats = self._row_words.words(rows)
        partitions = self._keys(self._partitions, rows.select(self._by))
        values = self._keys(self._values, rows) if self._has_retractions else np.zeros(len(kind), np.int64)
        sequence_numbers = self._sequence_numbers(rows, start)
        applied = Rows(
            np.where((kind[source] == INSERT) | is_second, ADDED, RETRACTED),
            partitions[source],
            start[source],
            stops,
            sequence_numbers[source],
            values[source],
            np.append(words[source].reshape(-1), 0),
            np.append(floats[source].reshape(-1), 0.0),
        )
        if not self._has_retractions:
            order = np.lexsort((applied.sequence, applied.time))
            if (order[1:] < order[:-1]).any():
                applied = _reordered(applied, order, words.shape[1], floats.shape[1])
        return [self._changes(results) for results in self.matches.apply(applied, self._count)]

    def _sequence_numbers(self, rows: pa.RecordBatch, start: Words) -> Words:
        """Return the order of rows with equal times: their numbers, or hashes of their values."""
        if self._number is not None:
            numbers = rows.column(self._number)
            return pc.fill_null(numbers, NO_NUMBER).to_numpy(zero_copy_only=False).astype(np.int64)
        if not self._has_retractions and len(np.unique(start)) == len(start):
            return np.zeros(len(start), np.int64)
        columns = BatchColumns(rows, self._macs)
        hashes = hash_values([columns[name] for name in self._payload.names])
        arrivals = self._arrivals + np.arange(len(start))
        self._arrivals += len(start)
        return (np.asarray(hashes.data) & ~COPY_BITS) | (arrivals & COPY_BITS)

    def _keys(self, keys: Keys, rows: pa.RecordBatch) -> Words:
        """Return the number of each row's values in `keys`; 0 if there are no columns."""
        if not rows.num_columns:
            return np.zeros(rows.num_rows, np.int64)
        columns = [column.cast(kind) for column, kind in zip(rows.columns, keys.kinds, strict=True)]
        return keys.find_or_insert(columns, rows.num_rows)

    def _changes(self, results: Results) -> pa.RecordBatch:
        words = results.words
        start, stop = (np.ascontiguousarray(words[:, word]) for word in (RESULT_START, RESULT_END))
        columns = self._columns(words[:, PARTITION], words[:, RUN_START], words[:, RESULT_WORDS:], results.floats)
        payload = pa.RecordBatch.from_arrays(columns, schema=self._result)
        return make_changes(np.where(words[:, WEIGHT] > 0, INSERT, RETRACTION), start, stop, start, payload)

    def _columns(self, partitions: Words, firsts: Words, words: Words, floats: Floats) -> list[pa.Array]:
        """Return the columns of results."""
        keys = self._partitions.columns(partitions) if self._by else []
        types = [self._result.field(name).type for name in self._by]
        return [
            *(column.cast(kind) for column, kind in zip(keys, types, strict=True)),
            array_of(np.ascontiguousarray(firsts)),
            *self._register.columns(words, floats),
        ]

    def _advance(self, watermark: int) -> list[pa.RecordBatch]:
        """Return the results of deadlines that have passed, remove what no later row needs, and pass on the CTI."""
        if watermark <= self._watermark:
            return []
        count, low = self._count, self._watermark
        passed = [self._changes(results) for results in self.matches.pass_deadlines(count, low, watermark)]
        self._watermark = watermark
        self._release_memory(self.matches.forget(count, watermark, arcs_change=self._arcs_change))
        return [*passed, make_ctis([watermark], self._result)]

    def remove_unneeded(self, arc_watermarks: Sequence[int]) -> None:
        """Remove the runs and rows that no result of a later row needs (`kernels.gaps`).

        `arc_watermarks`: for each arc, no later row that satisfies its fence has a smaller time. Raises PatternError
        without `only_adds`: other arcs and the withdrawal of a row may need what no later row needs.
        """
        if not self._only_adds:
            raise PatternError("got watermarks of arcs, expected rows that are never withdrawn, and arcs that stay")
        matches = self.matches
        rows, runs = matches.entry_count, matches.node_count
        watermarks = np.maximum(np.array(arc_watermarks, np.int64), self._watermark)
        used = matches.remove_unneeded(self._count, self._automaton, watermarks)
        self.rows_removed += rows - matches.entry_count
        self.runs_removed += runs - matches.node_count
        self._release_memory(used)

    def _release_memory(self, used: int) -> None:
        """Release the memory of removed runs and rows if they are many. `used` partitions have rows."""
        count = self._count
        self.matches.memory.compact_if_sparse()
        if count > 2 * used + MIN_ROOM:
            kept = self.matches.memory.used_partitions(count)
            self._partitions = self._partitions.copy_of(kept)
            self.matches.memory.renumber(kept)
        if self._values.count > 2 * self.matches.entry_count + MIN_ROOM:
            stored = self.matches.memory.stored_rows()
            kept, numbers = np.unique(stored, return_inverse=True)
            self._values = self._values.copy_of(kept)
            stored[:] = numbers
        needed = self.matches.entry_count + self.matches.node_count + len(self._compiler.key_literals)
        if self._numbers.count > 2 * needed + MIN_ROOM:
            for kind in NUMBERED:
                self._numbers.keep(kind, self.matches.numbers_of(kind))
            self._renumber()

    def _renumber(self) -> None:
        """Number the constants of the automaton again."""
        self._compiler.renumber_keys()
        self.matches.change_automaton(self._compiler.compile(list(self._arcs.values())), self._register.initial())

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state as Arrow tables. The words of rows are computed again from their values."""
        numbers = {"watermark": self._watermark, "arrivals": self._arrivals, "newest": self._newest}
        state = pa.table({name: [number] for name, number in numbers.items()})
        runs = self.matches.memory.snapshot(self._count)
        runs["entries"] = runs["entries"].select(range(1 + ENTRY_WORDS))
        runs["float_rows"] = runs["float_rows"].select([0])
        return {
            STATE: state,
            STATES: pa.table({"name": pa.array(self.matches.compiled.states, pa.string())}),
            PARTITIONS: _known(self._partitions),
            ROW_VALUES: _known(self._values),
            **{f"{VALUES}{kind}": self._numbers.known(kind) for kind in NUMBERED},
            **{f"{RUNS}{name}": table for name, table in runs.items()},
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot that has the same arcs. Nothing has been processed yet."""
        (state,) = tables[STATE].to_pylist()
        self._watermark, self._arrivals, self._newest = state["watermark"], state["arrivals"], state["newest"]
        for keys, name in ((self._partitions, PARTITIONS), (self._values, ROW_VALUES)):
            table = tables[name].combine_chunks()
            if table.num_rows:
                columns = [table[str(at)].combine_chunks().cast(kind) for at, kind in enumerate(keys.kinds)]
                keys.find_or_insert(columns, table.num_rows)
        for kind in NUMBERED:
            self._numbers.load(kind, tables[f"{VALUES}{kind}"])
        names = tables[STATES]["name"].to_pylist()
        compiled = self._compiler.compile(list(self._arcs.values()), names)
        self._renumber()
        self.matches.memory.restore(
            {name.removeprefix(RUNS): each for name, each in tables.items() if name.startswith(RUNS)}
        )
        numbers = {name: number for number, name in enumerate(compiled.states)}
        self.matches.renumber_states(np.array([numbers[name] for name in names], np.int64))
        self._write_words(NOTHING_KNOWN)


def _known(keys: Keys) -> pa.Table:
    """Return the keys in the order of their numbers."""
    columns = dict(zip(map(str, range(len(keys.kinds))), keys.columns(), strict=True)) if keys.kinds else {}
    return pa.table({"number": np.arange(keys.count), **columns})


def _reordered(rows: Rows, order: Words, words: int, floats: int) -> Rows:
    """Return rows in another order; `words` and `floats` are the numbers of their words."""
    count = len(order)
    return Rows(
        rows.kind[order],
        rows.partition[order],
        rows.time[order],
        rows.stop[order],
        rows.sequence[order],
        rows.row[order],
        np.append(rows.words[: count * words].reshape(count, words)[order].reshape(-1), 0),
        np.append(rows.float_words[: count * floats].reshape(count, floats)[order].reshape(-1), 0.0),
    )
