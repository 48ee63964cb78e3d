"""The operator of Matches and MatchedRows. Rows wait for the watermark, and are matched in the order of their times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.compilation import compile_automaton
from highlevel.patterns.compiled_automaton import NO_INDEX, NUMBERED, Words
from highlevel.patterns.kernels.expressions import NULL
from highlevel.patterns.kernels.layout import (
    ADDED,
    PARTITION,
    RESULT_END,
    RESULT_FIRST,
    RESULT_LAST,
    RESULT_START,
    RESULT_WORDS,
    WEIGHT,
    Rows,
)
from highlevel.patterns.kernels.matches import NEXT_ROW, PAST_LAST_ROW, TO_FIELD
from highlevel.patterns.listed_runs import all_runs
from highlevel.patterns.memory import MIN_ROOM, Results
from highlevel.patterns.row_words import RegisterColumns, RowWords, ValueNumbers
from highlevel.patterns.store import PartialMatches, Skip
from highlevel.plan.operators.counters import PartialMatchCounts
from highlevel.plan.operators.matched_rows import MatchCandidates
from highlevel.plan.operators.neighbour_rows import NeighbourRows
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from highlevel.plan.pattern_nodes import (
    FINAL,
    FIRST_ROW,
    MATCH_END,
    MATCH_NUMBER,
    MATCH_START,
    ROW_NUMBER,
    MatchedRows,
    Matches,
    SkipRule,
)
from lowlevel.expressions.evaluate import count_overflows
from lowlevel.expressions.tree import columns_of
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

SKIP_CODES = {SkipRule.NEXT_ROW: NEXT_ROW, SkipRule.PAST_LAST_ROW: PAST_LAST_ROW, SkipRule.TO_FIELD: TO_FIELD}

VARIABLE = "variable"
"""Column of a partial match: the variable of its last row."""

PARTITIONS, NEIGHBOURS, STATE, KEPT, VALUES, RUNS = (
    "partitions", "neighbours", "state", "kept rows", "values of ", "runs: "
)  # fmt: skip
"""Tables of a snapshot, and prefixes of names of tables."""


class MatchesOperator:
    """Stores rows that are not final, and the runs of the partitions.

    For MatchedRows, it also stores the rows of these runs.
    """

    def __init__(self, node: Matches) -> None:
        """Match the rows of `node`."""
        self.node = node
        (self._time,) = node.input.time_columns
        self._stored = StoredRows(node.input, self._time)
        compiled = compile_automaton(node.automaton)
        self._value_numbers = ValueNumbers()
        macs = [column.name for column in node.input.columns if column.type is Type.MAC]
        macs += [each.name for each in node.neighbours if each.column in macs]
        self._row_words = RowWords(compiled, self._value_numbers, macs)
        self._register = RegisterColumns(compiled, self._value_numbers)
        self._matches = PartialMatches(compiled, self._register.initial(), is_preferred=True)
        field = compiled.integers.index(node.skip_field) if node.skip is SkipRule.TO_FIELD else 0
        self._skip = Skip(SKIP_CODES[node.skip], field)
        self._partitions = Keys([self._stored.schema.field(key).type for key in node.keys])
        columns = {column.name for part in node.automaton.expressions for column in columns_of(part)}
        self._reads_first = FIRST_ROW in columns
        first = [pa.field(FIRST_ROW, pa.bool_())] if self._reads_first else []
        self._neighbours = NeighbourRows(node.neighbours, pa.schema([*self._stored.schema, *first]), self._time)
        self._remembers = bool(node.is_numbered or node.neighbours or self._reads_first)
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self._candidates: MatchCandidates | None = None
        if isinstance(node, MatchedRows):
            self._excluded = np.array([state in node.excluded for state in compiled.states], np.bool_)
            self._candidates = MatchCandidates(
                compiled, self._register.initial(), self._extended_schema(), self._to_kernel_rows
            )
        self._row_count = 0
        self._has_rows = False
        self._watermark = BEGINNING
        self._newest_matched_time = BEGINNING
        """The time of the newest row that was matched since the start or restart."""
        self.keeps_unfinished = False
        """True if `unfinished` is set at the end of the input."""
        self.unfinished: pa.Table | None = None
        """The partial matches that the end of the input ends."""
        self.received = 0
        self.results = 0
        self.overflowed_sums = 0
        """Sums in matches that are NULL, because they exceed 64 bits."""
        self.skip_errors = 0
        """Matches without a row, after the first, to which AFTER MATCH SKIP TO can go. Empty matches are none."""

    @property
    def late(self) -> int:
        """Number of late rows."""
        return self._stored.late

    @property
    def rows_held(self) -> int:
        """Number of rows that are stored, and of runs."""
        kept = 0 if self._candidates is None else self._candidates.num_rows
        return self._stored.num_rows + self._neighbours.num_rows + self._matches.node_count + kept

    @property
    def partial_matches(self) -> PartialMatchCounts:
        """The runs that a row may extend, and the matches that are not decided."""
        return PartialMatchCounts(self._matches.node_count, self._matches.first_starts(self._partition_count)[1])

    def list_partial_matches(self) -> pa.Table:
        """Return the runs that a later row may extend, the oldest first.

        The columns are the keys, the times of the first and the last row, the variable of the last row, and the fields
        of the register.
        """
        runs = all_runs(self._matches, self._partition_count)
        keys = self._partitions.columns(runs.partitions) if self.node.keys else []
        columns = dict(zip(self.node.keys, keys, strict=True))
        columns |= {MATCH_START: array_of(np.ascontiguousarray(runs.starts)), MATCH_END: array_of(runs.lasts)}
        columns |= {VARIABLE: pa.array(runs.states, pa.string())} | self._fields(Results(runs.words, runs.floats))
        window = self.node.automaton.window
        ended = BEGINNING if window is None else max(BEGINNING, self._newest_matched_time - window)
        table = pa.table(columns).filter(array_of(runs.starts > ended))
        return table.sort_by([(MATCH_START, "ascending"), (MATCH_END, "ascending")])

    @property
    def bytes(self) -> int:
        """Bytes of the rows, runs, partitions and values."""
        kept = self._partitions.bytes + self._value_numbers.bytes + self._neighbours.bytes
        kept += 0 if self._candidates is None else self._candidates.bytes
        return self._stored.nbytes + self._matches.bytes + kept

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows until they are final."""
        self.received += batch.num_rows
        self._stored.add(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Match the rows that become final. Return the matches that are decided, and then their watermark."""
        final, has_moved = self._stored.take_final(punctuation)
        is_end = has_moved and self._stored.watermark == END
        if final.num_rows or (is_end and self._neighbours.num_rows):
            yield from self._match(final, is_end=is_end)
        if not has_moved:
            return
        count, low = self._partition_count, min(self._stored.watermark, self._neighbours.earliest)
        if low == END and self.keeps_unfinished:
            self.unfinished = self.list_partial_matches()
        for results in self._matches.end_runs(count, low, self._skip):
            yield from self._batches(results)
        if self._candidates is None:
            watermark = min(low, self._matches.earliest_candidate(count))
        else:
            firsts, earliest = self._matches.first_starts(count)
            assert isinstance(self.node, MatchedRows)
            unmatched = self._candidates.forget(firsts, returns_unmatched=self.node.has_unmatched)
            if unmatched.num_rows:
                yield self._unmatched_rows(unmatched)
            watermark = min(low, earliest)
        self._forget()
        if watermark > self._watermark:
            self._watermark = watermark
            yield Punctuation(punctuation.link, watermark)

    @property
    def _partition_count(self) -> int:
        return self._partitions.count if self.node.keys else 1

    def _match(self, final: pa.Table, *, is_end: bool) -> Iterator[pa.RecordBatch]:
        batch = self._sort_by_time(final)
        rows, known = batch.num_rows, self._partition_count if self._has_rows else 0
        self._has_rows = True
        partitions = np.zeros(rows, np.int64)
        if self.node.keys:
            partitions = self._partitions.find_or_insert([batch.column(key) for key in self.node.keys], rows)
        if self._reads_first:
            places = np.unique(partitions, return_index=True)[1]
            is_first = np.zeros(rows, np.bool_)
            is_first[places] = partitions[places] >= known
            batch = batch.append_column(FIRST_ROW, array_of(is_first))
        batch, partitions = self._neighbours.add(batch, partitions, is_end=is_end)
        if not batch.num_rows:
            return
        rows = batch.num_rows
        sequence_numbers = self._row_count + np.arange(rows)
        self._row_count += rows
        self._newest_matched_time = max(self._newest_matched_time, int(times_of(batch.column(self._time)).max()))
        extended = batch.append_column(ROW_NUMBER, array_of(sequence_numbers))
        if self._candidates is not None:
            self._candidates.add(extended, partitions, sequence_numbers)
        for results in self._matches.match(
            self._to_kernel_rows(extended, partitions), self._partition_count, self._skip
        ):
            yield from self._batches(results)

    def _to_kernel_rows(self, extended: pa.RecordBatch, partitions: Words) -> Rows:
        """Return rows for kernels. `extended`: the columns of `_extended_schema`."""
        rows, times = extended.num_rows, times_of(extended.column(self._time))
        words, floats = self._row_words.words(extended)
        window = self.node.automaton.window
        stops = np.full(rows, END)
        if window is not None:
            stops = np.where(times > END - window, END, times + window)
        return Rows(
            np.full(rows, ADDED),
            partitions,
            times,
            stops,
            extended.column(ROW_NUMBER).to_numpy(),
            np.zeros(rows, np.int64),
            np.append(words.reshape(-1), 0),
            np.append(floats.reshape(-1), 0.0),
        )

    def _sort_by_time(self, rows: pa.Table) -> pa.RecordBatch:
        """Return rows in the order of their times, and then of the columns that runs read, and of the others."""
        (batch,) = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        times = times_of(batch.column(self._time))
        order = np.argsort(times, kind="stable")
        ordered = times[order]
        if (ordered[1:] == ordered[:-1]).any():
            names = dict.fromkeys((self._time, *self.node.matched, *batch.schema.names))
            keys = [(name, "ascending") for name in names]
            return batch.take(pc.sort_indices(batch, sort_keys=keys))
        return batch.take(array_of(order))

    def _extended_schema(self) -> pa.Schema:
        """Return the columns of the rows that are matched."""
        return pa.schema([*self._neighbours.schema, pa.field(ROW_NUMBER, pa.int64())])

    def _batches(self, results: Results) -> Iterator[pa.RecordBatch]:
        """Yield the rows of matches, if any are shown."""
        self._count_skip_errors(results.words)
        batch = (
            self._of_matches(results)
            if self._candidates is None
            else self._all_rows_per_match(self._candidates, results)
        )
        if batch.num_rows:
            yield batch

    def _count_skip_errors(self, words: Words) -> None:
        """Count the matches after which matching continues at the row after the first, against the rule."""
        if self._skip.rule == TO_FIELD:
            targets, firsts = words[:, RESULT_WORDS + self._skip.field], words[:, RESULT_FIRST]
            has_rows = words[:, RESULT_LAST] >= firsts
            self.skip_errors += int(np.count_nonzero(has_rows & ((targets == NULL) | (targets <= firsts))))

    def _of_matches(self, results: Results) -> pa.RecordBatch:
        words = results.words
        keys = self._partitions.columns(words[:, PARTITION]) if self.node.keys else []
        registers = Results(words[:, RESULT_WORDS:], results.floats)
        return self._result(dict(zip(self.node.keys, keys, strict=True)) | self._match_columns(words, registers))

    def _all_rows_per_match(self, kept: MatchCandidates, results: Results) -> pa.RecordBatch:
        node = self.node
        assert isinstance(node, MatchedRows)
        found = kept.rows_of_matches(results, is_end=self._stored.watermark == END)
        words = results.words[found.matches]
        columns = {name: found.rows[name].combine_chunks() for name in node.shown}
        columns |= self._match_columns(words, found.registers)
        lasts = self._fields(Results(words[:, RESULT_WORDS:], results.floats[found.matches]))
        is_shown = np.where(found.states == NO_INDEX, node.has_empty, ~self._excluded[found.states])
        return self._result(columns | {FINAL + name: lasts[name] for name in node.final}, is_shown)

    def _unmatched_rows(self, rows: pa.Table) -> pa.RecordBatch:
        """Return rows that are in no match."""
        node, initial, none = self.node, self._register.initial(), pa.nulls(rows.num_rows, pa.int64())
        assert isinstance(node, MatchedRows)
        columns = {name: rows[name].combine_chunks() for name in node.shown}
        words, floats = (np.tile(values, (rows.num_rows, 1)) for values in initial)
        fields = self._fields(Results(words.astype(np.int64), floats.astype(np.float64)))
        columns |= dict.fromkeys((MATCH_START, MATCH_END, MATCH_NUMBER), none) | fields
        return self._result(columns | {FINAL + name: fields[name] for name in node.final})

    def _match_columns(self, words: Words, registers: Results) -> dict[str, pa.Array]:
        """Return the columns of matches except the keys. `words`: RESULT_WORDS of the match of each register."""
        times = {MATCH_START: RESULT_START, MATCH_END: RESULT_END, MATCH_NUMBER: WEIGHT}
        columns = {name: array_of(np.ascontiguousarray(words[:, word])) for name, word in times.items()}
        return columns | self._fields(registers)

    def _fields(self, registers: Results) -> dict[str, pa.Array]:
        columns = self._register.columns(registers.words, registers.floats)
        return dict(zip(self._register.schema.names, columns, strict=True))

    def _result(self, columns: Mapping[str, pa.Array], is_shown: npt.NDArray[np.bool_] | None = None) -> pa.RecordBatch:
        """Return the columns of the node for the rows in the mask `is_shown` (None: all). Count rows and sums."""
        arrays = [columns[field.name].cast(field.type) for field in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if is_shown is not None and not is_shown.all():
            batch = batch.filter(array_of(is_shown))
        self.results += batch.num_rows
        self.overflowed_sums += count_overflows(self.node.sums, BatchColumns(batch), batch.num_rows)
        return batch

    def _forget(self) -> None:
        """Remove freed records, partitions without runs, and values that no run has, if there are many."""
        matches, count = self._matches, self._partition_count
        matches.memory.compact_if_sparse()
        if self.node.keys and not self._remembers:
            kept = matches.memory.used_partitions(count)
            if count > 2 * len(kept) + MIN_ROOM:
                self._partitions = self._partitions.copy_of(kept)
                matches.memory.renumber(kept)
                if self._candidates is not None:
                    self._candidates.renumber(kept)
        if self._value_numbers.count > 2 * (matches.entry_count + matches.node_count) + MIN_ROOM:
            for kind in NUMBERED:
                self._value_numbers.keep(kind, matches.numbers_of(kind))

    @property
    def partitions(self) -> pa.Table:
        """The keys of the known partitions."""
        return pa.table(dict(zip(self.node.keys, self._partitions.columns(), strict=True)))

    def forget_partitions(self, is_forgotten: npt.NDArray[np.bool_]) -> None:
        """Remove the runs and rows of the partitions in a mask."""
        self._matches.memory.forget_partitions(np.flatnonzero(is_forgotten))
        self._neighbours.remove_partitions(is_forgotten)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the partitions with the rows of neighbours, and the runs with their values."""
        numbers = {"count": self._row_count, "bound": self._watermark, "has rows": int(self._has_rows)}
        state = pa.table({name: [number] for name, number in {WATERMARK: self._stored.watermark, **numbers}.items()})
        places = {"number": np.arange(self._partitions.count)}
        keys = dict(zip(map(str, range(len(self.node.keys))), self._partitions.columns(), strict=True))
        return {
            ROWS: self._stored.rows,
            STATE: state,
            PARTITIONS: pa.table(places | keys),
            NEIGHBOURS: self._neighbours.snapshot(),
            **({} if self._candidates is None else {KEPT: self._candidates.snapshot()}),
            **{f"{VALUES}{kind}": self._value_numbers.known(kind) for kind in NUMBERED},
            **{f"{RUNS}{name}": table for name, table in self._matches.memory.snapshot(self._partition_count).items()},
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._stored.restore(tables[ROWS], state[WATERMARK])
        self._row_count, self._watermark = state["count"], state["bound"]
        partitions = tables[PARTITIONS].combine_chunks()
        if partitions.num_rows:
            columns = [
                partitions[str(index)].combine_chunks().cast(kind) for index, kind in enumerate(self._partitions.kinds)
            ]
            self._partitions.find_or_insert(columns, partitions.num_rows)
        self._has_rows = bool(state["has rows"])
        self._neighbours.restore(tables[NEIGHBOURS])
        if self._candidates is not None:
            self._candidates.restore(tables[KEPT])
        for kind in NUMBERED:
            self._value_numbers.load(kind, tables[f"{VALUES}{kind}"])
        self._matches.memory.restore(
            {name.removeprefix(RUNS): table for name, table in tables.items() if name.startswith(RUNS)}
        )
