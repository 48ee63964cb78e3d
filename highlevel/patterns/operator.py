"""Patterns over changes of rows with lifetimes (Chandramouli, Goldstein and Maier, 2010, §2 to §5).

    change of a row ──► partition ──► partial matches ──► changes of results

A result is the register of an accepted run, true in the intersection of the lifetimes of its rows. The results at any
moment are those of the automaton over the rows so far, whatever their order of arrival: a late row and a retraction
correct exactly the results over their place. Rows with equal times are in the order of arrival.

Equal registers with equal lifetimes are one result of a partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.patterns.automaton import Automaton, PatternError
from highlevel.patterns.compilation import NUMBERED, Floats, Words, compile_automaton
from highlevel.patterns.entry_kernels import (
    ADDED,
    MISSING,
    PARTITION,
    RESULT_START,
    RESULT_STOP,
    RESULT_WORDS,
    RETRACTED,
    WEIGHT,
    Rows,
)
from highlevel.patterns.row_words import RegisterColumns, RowWords, ValueNumbers
from highlevel.patterns.store import MIN_ROOM, PartialMatches, Results
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
from lowlevel.punctuation import BEGINNING, END


class PatternOperator:
    """Matches an automaton against the changes of rows. Takes and returns valid changes. Not thread safe."""

    def __init__(self, changes: pa.Schema, automaton: Automaton, by: Sequence[str] = ()) -> None:
        """Match rows in partitions with equal values of the columns `by`.

        The columns of a result are those of `by` and then the fields of the register. Without a window in the
        automaton, a run lasts while its rows are true. Raises PatternError for unknown columns and equal names.
        """
        self._payload = payload_schema(changes)
        names = [*by, *(field.name for field in automaton.register)]
        for name in by:
            if name not in self._payload.names:
                raise PatternError(f"got the partition column {name!r}, expected {', '.join(self._payload.names)}")
        for field in automaton.register:
            if field.name in self._payload.names:
                raise PatternError(f"got the field {field.name!r} with the name of a column, expected another name")
        self._by = list(by)
        self._window = automaton.window
        compiled = compile_automaton(automaton)
        self._numbers = ValueNumbers()
        self._row_words = RowWords(compiled, self._numbers)
        self._register = RegisterColumns(compiled, self._numbers)
        self._result = pa.schema([*(self._payload.field(name) for name in by), *self._register.schema])
        assert self._result.names == names
        self.schema = change_schema(self._result)
        self.matches = PartialMatches(compiled, self._register.initial())
        self._partitions = Keys([storable(self._payload.field(name)) for name in by])
        self._values = Keys([storable(field) for field in self._payload])
        self._arrivals = 0
        self._watermark = BEGINNING
        self.late = 0
        """Changes of rows below the watermark."""

    @property
    def missing(self) -> int:
        """Retractions of rows that are not in memory."""
        return int(self.matches.state[MISSING])

    @property
    def bytes(self) -> int:
        """Memory of rows, runs and values."""
        return self.matches.bytes + self._numbers.bytes + self._partitions.bytes + self._values.bytes

    def partial_matches(self) -> pa.Table:
        """Return the runs in memory: `first`, `last` (times of rows), `state`, the columns of results.

        They are ordered by partition, last row and first row.
        """
        runs = self.matches.runs(max(1, self._partitions.count))
        times = [array_of(np.ascontiguousarray(each)) for each in (runs.starts, runs.lasts)]
        columns = [*times, pa.array(runs.states, pa.string()), *self._columns(runs.partitions, runs.words, runs.floats)]
        return pa.Table.from_arrays(columns, names=["first", "last", "state", *self._result.names])

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

    def _apply(self, changes: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Add and retract rows. A retraction that only shortens a lifetime retracts the row and adds it again."""
        kind, start, stop, new_stop = times_of(changes)
        in_time = start >= self._watermark
        self.late += int(np.count_nonzero(~in_time))
        copies = np.where(in_time, 1 + ((kind == RETRACTION) & (new_stop > start)), 0)
        source = np.repeat(np.arange(len(kind)), copies)
        is_second = np.append(False, source[1:] == source[:-1])[: len(source)]
        stops = np.where(is_second, new_stop[source], stop[source])
        if self._window is not None:
            starts = start[source]
            stops = np.minimum(stops, np.where(starts > END - self._window, END, starts + self._window))
        rows = payload_of(changes)
        words, floats = self._row_words.words(rows)
        partitions = self._keys(self._partitions, rows.select(self._by))
        values = self._keys(self._values, rows)
        ties = self._arrivals + np.arange(len(source))
        self._arrivals += len(source)
        applied = Rows(
            np.where((kind[source] == INSERT) | is_second, ADDED, RETRACTED),
            partitions[source],
            start[source],
            stops,
            ties,
            values[source],
            np.ascontiguousarray(words[source]).reshape(-1),
            np.append(floats[source].reshape(-1), 0.0),
        )
        count = max(1, self._partitions.count)
        return [self._changes(results) for results in self.matches.apply(applied, count)]

    def _keys(self, keys: Keys, rows: pa.RecordBatch) -> Words:
        """Return the numbers of rows; 0 if there are no columns."""
        if not rows.num_columns:
            return np.zeros(rows.num_rows, np.int64)
        columns = [column.cast(kind) for column, kind in zip(rows.columns, keys.kinds, strict=True)]
        return keys.find_or_insert(columns, rows.num_rows)

    def _changes(self, results: Results) -> pa.RecordBatch:
        words = results.words
        start, stop = (np.ascontiguousarray(words[:, word]) for word in (RESULT_START, RESULT_STOP))
        columns = self._columns(words[:, PARTITION], words[:, RESULT_WORDS:], results.floats)
        payload = pa.RecordBatch.from_arrays(columns, schema=self._result)
        return make_changes(np.where(words[:, WEIGHT] > 0, INSERT, RETRACTION), start, stop, start, payload)

    def _columns(self, partitions: Words, words: Words, floats: Floats) -> list[pa.Array]:
        """Return the columns of results."""
        keys = self._partitions.columns(partitions) if self._by else []
        types = [self._result.field(name).type for name in self._by]
        return [
            *(column.cast(kind) for column, kind in zip(keys, types, strict=True)),
            *self._register.columns(words, floats),
        ]

    def _advance(self, watermark: int) -> list[pa.RecordBatch]:
        """Remove what no later row needs, and pass on the CTI."""
        if watermark <= self._watermark:
            return []
        self._watermark = watermark
        count = max(1, self._partitions.count)
        used = self.matches.forget(count, watermark)
        self.matches.compact_if_sparse()
        if count > 2 * used + MIN_ROOM:
            kept = self.matches.used_partitions(count)
            self._partitions = self._partitions.only(kept)
            self.matches.renumber(kept)
        if self._values.count > 2 * self.matches.entry_count + MIN_ROOM:
            stored = self.matches.stored_rows()
            kept, numbers = np.unique(stored, return_inverse=True)
            self._values = self._values.only(kept)
            stored[:] = numbers
        if self._numbers.count > 2 * (self.matches.entry_count + self.matches.node_count) + MIN_ROOM:
            for kind in NUMBERED:
                self._numbers.keep(kind, self.matches.numbers_of(kind))
        return [make_ctis([watermark], self._result)]
