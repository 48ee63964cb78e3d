"""Rows that a match may contain, stored until no later match can contain them. ALL ROWS PER MATCH returns them.

    final rows ──► stored rows ──┬──► the rows of each match, with the state and the register after each row
                                 └──► rows older than all partial matches of their partition: removed

Removed rows that were in no match are returned for WITH UNMATCHED ROWS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.patterns.compiled_automaton import ALWAYS, AT_END, NO_INDEX, CompiledAutomaton, Words
from highlevel.patterns.kernels.layout import PARTITION, RESULT_FIRST, RESULT_LAST, Rows
from highlevel.patterns.memory import MIN_ROOM, Results
from highlevel.patterns.store import PartialMatches

PARTITION_COLUMN, IS_MATCHED = "partition", "matched"
"""Columns of a snapshot: the number of a row's partition, and True if a match contained the row."""

Mask = npt.NDArray[np.bool_]


class MatchRows(NamedTuple):
    """Rows of matches.

    `matches`: for each row the index of its match in the results. `rows`: the columns of the rows. `states`: the state
    after each row; NO_INDEX for the row at which an empty match begins. `registers`: the register after each row.
    """

    matches: Words
    rows: pa.Table
    states: Words
    registers: Results


class MatchCandidates:
    """Rows in the order of their sequence numbers, with the partition of each. Not thread safe."""

    def __init__(
        self,
        compiled: CompiledAutomaton,
        initial_register: tuple[Words, npt.NDArray[np.float64]],
        schema: pa.Schema,
        to_kernel_rows: Callable[[pa.RecordBatch, Words], Rows],
    ) -> None:
        """Store no rows yet. The last column of `schema` is the sequence number.

        `to_kernel_rows` converts rows, and the numbers of their partitions, to the arrays that kernels read.
        """
        self._runs = PartialMatches(compiled, initial_register, is_preferred=True)
        self._initial_register = initial_register
        self._to_kernel_rows = to_kernel_rows
        self._rows = schema.empty_table()
        self._sequence_numbers = np.empty(0, np.int64)
        self._partitions = np.empty(0, np.int64)
        self._is_matched = np.empty(0, np.bool_)
        self._cleanup_rows = MIN_ROOM
        """Number of stored rows from which `forget` removes rows. WITH UNMATCHED ROWS removes them at once."""

    @property
    def num_rows(self) -> int:
        """Number of stored rows."""
        return self._rows.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return self._rows.nbytes + self._sequence_numbers.nbytes + self._partitions.nbytes + self._is_matched.nbytes

    def add(self, batch: pa.RecordBatch, partitions: Words, sequence_numbers: Words) -> None:
        """Store rows with the next sequence numbers."""
        self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([batch])])
        self._partitions = np.append(self._partitions, partitions)
        self._sequence_numbers = np.append(self._sequence_numbers, sequence_numbers)
        self._is_matched = np.append(self._is_matched, np.zeros(len(sequence_numbers), np.bool_))

    def rows_of_matches(self, results: Results, *, is_end: bool) -> MatchRows:
        """Return the rows of matches. `is_end`: True for the last matches of the input."""
        partitions = results.words[:, PARTITION]
        firsts, lasts = (
            np.searchsorted(self._sequence_numbers, results.words[:, word]) for word in (RESULT_FIRST, RESULT_LAST)
        )
        is_empty = results.words[:, RESULT_LAST] < results.words[:, RESULT_FIRST]
        lasts[is_empty] = firsts[is_empty]
        is_used = np.zeros(int(self._partitions.max()) + 1, np.bool_)
        is_used[partitions] = True
        candidates = np.flatnonzero(is_used[self._partitions])
        # Sort by partition, then by index in the store. The sort key is partition * num_rows + index.
        sort_keys = np.sort(self._partitions[candidates] * self.num_rows + candidates)
        begins = np.searchsorted(sort_keys, partitions * self.num_rows + firsts)
        ends = np.searchsorted(sort_keys, partitions * self.num_rows + lasts) + 1
        counts = ends - begins
        bounds = np.append(0, np.cumsum(counts))
        row_bounds = np.stack([bounds[:-1], np.where(is_empty, bounds[:-1], bounds[1:])], axis=1).reshape(-1)
        matches = np.repeat(np.arange(len(counts)), counts)
        key_indexes = np.arange(bounds[-1]) - bounds[:-1][matches] + begins[matches]
        row_indexes = sort_keys[key_indexes] % self.num_rows
        self._is_matched[row_indexes] = True
        rows = self._rows.take(array_of(row_indexes)).combine_chunks()
        is_last = np.append(sort_keys[1:] // self.num_rows, -1)[ends - 1] != partitions
        finalities = np.where(is_last & is_end, AT_END, ALWAYS)
        (batch,) = rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
        states, registers = self._runs.trace(self._to_kernel_rows(batch, partitions[matches]), row_bounds, finalities)
        is_of_empty_match = is_empty[matches]
        states[is_of_empty_match] = NO_INDEX
        registers.words[is_of_empty_match] = self._initial_register[0]
        registers.floats[is_of_empty_match] = self._initial_register[1]
        return MatchRows(matches, rows, states, registers)

    def forget(self, min_sequence_numbers: Words, *, returns_unmatched: bool) -> pa.Table:
        """Remove the rows that no later match can contain.

        `returns_unmatched`: return the removed rows that were in no match. Otherwise return no rows.
        `min_sequence_numbers`: the sequence number of the first row of the earliest run of each partition.
        """
        unmatched = self._rows.slice(0, 0)
        if not self.num_rows or (not returns_unmatched and self.num_rows < self._cleanup_rows):
            return unmatched
        is_kept = self._sequence_numbers >= min_sequence_numbers[self._partitions]
        if returns_unmatched:
            unmatched = self._rows.filter(array_of(~is_kept & ~self._is_matched))
        if not is_kept.all():
            self._keep(is_kept)
        self._cleanup_rows = 2 * self.num_rows + MIN_ROOM
        return unmatched

    def _keep(self, is_kept: Mask) -> None:
        self._rows = self._rows.filter(array_of(is_kept)).combine_chunks()
        self._sequence_numbers, self._partitions = self._sequence_numbers[is_kept], self._partitions[is_kept]
        self._is_matched = self._is_matched[is_kept]

    def renumber(self, kept_partitions: Words) -> None:
        """Give `kept_partitions` (ascending) the numbers 0, 1, 2, …. Remove the rows of other partitions."""
        is_kept = np.isin(self._partitions, kept_partitions)
        self._keep(is_kept)
        self._partitions = np.searchsorted(kept_partitions, self._partitions)

    def snapshot(self) -> pa.Table:
        """Return the rows, with their partitions."""
        numbers, matched = array_of(self._partitions), array_of(self._is_matched)
        return self._rows.append_column(PARTITION_COLUMN, numbers).append_column(IS_MATCHED, matched)

    def restore(self, table: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._rows = table.select(self._rows.schema.names).cast(self._rows.schema).combine_chunks()
        self._partitions = table[PARTITION_COLUMN].to_numpy().copy()
        self._is_matched = table[IS_MATCHED].to_numpy(zero_copy_only=False).copy()
        self._sequence_numbers = self._rows.column(self._rows.num_columns - 1).to_numpy().copy()
