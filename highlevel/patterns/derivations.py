"""Derivations: find the rows that led to each result of an automaton, from all rows and the times of the results.

    results: partition, first and last time ──► rows of this time range ──► runs, followed backwards ──► rows

The runs are computed again (`kernels.derivations`), so a run needs no memory of its rows while it is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.arc_places import TARGET
from highlevel.patterns.automaton import Automaton
from highlevel.patterns.compilation import compile_automaton
from highlevel.patterns.compiled_automaton import CompiledAutomaton, Words
from highlevel.patterns.kernels.derivations import RESULT, ROW, STATE_AFTER
from highlevel.patterns.kernels.ignored_rows import BEGINS, CONTINUES, NO_ROLE
from highlevel.patterns.kernels.layout import (
    ADDED,
    NO_NUMBER,
    PARTITION,
    RESULT_END,
    RESULT_WORDS,
    Rows,
)
from highlevel.patterns.operator import COPY_BITS
from highlevel.patterns.row_words import RegisterColumns, RowWords, ValueNumbers
from highlevel.patterns.store import Mask, PartialMatches, SelectedResults
from lowlevel.expressions.hashing import hash_values
from lowlevel.punctuation import END


class StoredRows(NamedTuple):
    """Rows in the order of their arrival: values, the numbers of their partitions, and their lifetimes."""

    values: pa.RecordBatch
    partitions: Words
    starts: Words
    stops: Words


class Requests(NamedTuple):
    """Partition and times of results; no two requests are equal.

    `lasts`: the time of the last row or, with `by_deadline`, the deadline.
    """

    partitions: Words
    firsts: Words
    lasts: Words
    by_deadline: bool


class RowsOfResults(NamedTuple):
    """Rows of results, ordered by result and row.

    `requests`: for each row the request of its result. `stops`: the end of the lifetime of its result. `rows`: the
    number of the stored row. `states`: the state after it. `registers`: the fields of the result.
    """

    requests: Words
    stops: Words
    rows: Words
    states: pa.Array
    registers: list[pa.Array]


class SelectedRegisters(NamedTuple):
    """Results of requests, ordered by the numbers of their requests.

    `stops`: the ends of their lifetimes. `registers` has a column for each field.
    """

    requests: Words
    stops: Words
    registers: pa.RecordBatch


class OrderedRows(NamedTuple):
    """Rows in the order of runs. `chosen`: the number of the stored row for each.

    `requests`: a row for each request, with the words of `kernels.derivations`. `runs` has no rows yet.
    """

    chosen: Words
    rows: Rows
    requests: Words
    register: RegisterColumns
    runs: PartialMatches


def roles_of_states(compiled: CompiledAutomaton) -> Words | None:
    """Return the role of each state (`kernels.ignored_rows`). None if no row can be left out.

    A state without arcs for rows or deadlines has no role, because the next row ends its runs without a result.
    """
    begins = [0]
    for state in begins:  # the list grows in the loop
        silent = compiled.arcs[compiled.first_silent[state] : compiled.first_silent[state + 1], TARGET].tolist()
        begins += dict.fromkeys(target for target in silent if target not in begins)
    used = [np.arange(*bounds) for bounds in zip(compiled.first_arcs, compiled.end_arcs, strict=False)]
    arcs = np.concatenate([*used, np.arange(compiled.first_silent[0], compiled.first_silent[-1])])
    has_arcs = (compiled.end_arcs > compiled.first_arcs[:-1]) | (np.diff(compiled.first_deadlines) > 0)
    roles = np.full(len(compiled.states), NO_ROLE)
    targets = np.unique(compiled.arcs[arcs, TARGET])
    roles[targets[has_arcs[targets]]] = CONTINUES
    can_ignore = compiled.can_ignore[roles == CONTINUES].all()
    if not can_ignore or (roles[begins] == CONTINUES).any():
        return None
    roles[begins] = BEGINS
    return roles


class Derivations:
    """Finds the rows of results of an automaton. Keeps nothing between two calls. Not thread safe."""

    def __init__(self, automaton: Automaton, *, number: str | None = None, macs: Sequence[str] = ()) -> None:
        """Use an automaton. `number` and `macs` are those of `highlevel.patterns.operator.PatternOperator`."""
        self._compiled = compile_automaton(automaton)
        self._roles = roles_of_states(self._compiled)
        self._window = automaton.window
        self._number = number
        self._macs = macs

    def trace(self, stored: StoredRows, order: Sequence[str], requests: Requests) -> Iterator[RowsOfResults]:
        """Yield the rows of all results with the times of requests, in parts. A part has all rows of its results.

        `order`: the columns whose hash orders rows with equal times. `stored` must contain all rows of the partitions
        in the range of times. Requests ascend.
        """
        ordered = self._ordered(stored, order, requests)
        for results, place in ordered.runs.trace_runs(ordered.rows, ordered.requests):
            place = place[np.lexsort((place[:, STATE_AFTER], place[:, ROW], place[:, RESULT]))]
            of_rows = place[:, RESULT]
            result_words = results.words[of_rows]
            yield RowsOfResults(
                result_words[:, PARTITION],
                result_words[:, RESULT_END],
                ordered.chosen[place[:, ROW]],
                pa.array(np.array(self._compiled.states)[place[:, STATE_AFTER]].tolist(), pa.string()),
                ordered.register.columns(result_words[:, RESULT_WORDS:], results.floats[of_rows]),
            )

    def list_rows(
        self,
        stored: StoredRows,
        order: Sequence[str],
        requests: Requests,
        selected: SelectedRegisters | None,
        is_listed: Mask,
    ) -> Words:
        """Return the rows of selected results that are not listed, as ascending numbers of stored rows.

        Mark them as listed.

        `stored`, `order` and `requests` are those of `trace`. `selected`: the results of requests; None for all results
        with the times of requests. `is_listed`: for each stored row whether it is listed; it is updated.
        """
        ordered = self._ordered(stored, order, requests)
        firsts, fields = np.zeros(len(requests.firsts) + 1, np.int64), len(self._compiled.integers)
        words, floats = np.zeros((0, 1 + fields), np.int64), np.zeros((0, len(self._compiled.floats)))
        if selected is not None:
            integers, floats = ordered.register.words(selected.registers, len(selected.stops))
            words = np.column_stack([selected.stops, integers])
            firsts = np.searchsorted(selected.requests, np.arange(len(requests.firsts) + 1))
        before = is_listed[ordered.chosen]
        after = before.copy()
        results = SelectedResults(selected is None, firsts, words, floats)
        ordered.runs.list_rows(ordered.rows, ordered.requests, results, after)
        is_listed[ordered.chosen] = after
        return np.sort(ordered.chosen[after & ~before])

    def _ordered(self, stored: StoredRows, order: Sequence[str], requests: Requests) -> OrderedRows:
        """Return the rows of the partitions of requests in the order of runs, and the requests over them.

        Rows that all runs ignore, whatever their states are, are left out: each start would read them again.
        """
        used = np.flatnonzero(np.isin(stored.partitions, requests.partitions))
        chosen = used[self._order(stored, used, order)]
        numbers = ValueNumbers()
        rows = self._rows(stored, chosen, numbers)
        register = RegisterColumns(self._compiled, numbers)
        runs = PartialMatches(
            self._compiled, register.initial(), is_numbered=self._number is not None, shares_runs=False
        )
        if self._number is None and self._roles is not None:
            chosen = chosen[~runs.ignored_rows(rows, stored.partitions[chosen], self._roles)]
            rows = self._rows(stored, chosen, numbers)
        partitions, starts = stored.partitions[chosen], stored.starts[chosen]
        times = np.unique(starts)
        # Rows are sorted by partition and time, so this key ascends.
        keys, base = partitions * (len(times) + 1) + np.searchsorted(times, starts), len(times) + 1
        side: Literal["left", "right"] = "left" if requests.by_deadline else "right"
        begins = np.searchsorted(keys, requests.partitions * base + np.searchsorted(times, requests.firsts))
        ends = np.searchsorted(keys, requests.partitions * base + np.searchsorted(times, requests.lasts, side))
        is_deadline = np.full(len(begins), int(requests.by_deadline))
        words = np.stack([begins, ends, requests.firsts, requests.lasts, is_deadline], axis=1)
        return OrderedRows(chosen, rows, words, register, runs)

    def _order(self, stored: StoredRows, used: Words, order: Sequence[str]) -> Words:
        """Return the order of rows: by partition, time, and their numbers or hashes, as in the operator of the runs."""
        partitions, starts = stored.partitions[used], stored.starts[used]
        values = stored.values.take(pa.array(used))
        if self._number is not None:
            ties = [values.column(self._number).fill_null(NO_NUMBER).to_numpy(zero_copy_only=False).astype(np.int64)]
        else:
            columns = BatchColumns(values, self._macs)
            # Rows that are equal in the columns of `order` are ordered by all columns.
            ties = [
                np.asarray(hash_values([columns[name] for name in names]).data) & ~COPY_BITS
                for names in (values.schema.names, order)
            ]
        return np.lexsort((*ties, starts, partitions))

    def _rows(self, stored: StoredRows, chosen: Words, numbers: ValueNumbers) -> Rows:
        """Return rows for kernels, all in partition 0. Without numbers they are numbered in their order."""
        values = stored.values.take(pa.array(chosen))
        words, floats = RowWords(self._compiled, numbers, self._macs).words(values)
        starts, stops = stored.starts[chosen], stored.stops[chosen]
        if self._window is not None:
            stops = np.minimum(stops, np.where(starts > END - self._window, END, starts + self._window))
        sequence = np.arange(len(chosen))
        if self._number is not None:
            sequence = values.column(self._number).fill_null(NO_NUMBER).to_numpy(zero_copy_only=False).astype(np.int64)
        zeros = np.zeros(len(chosen), np.int64)
        return Rows(
            zeros + ADDED,
            zeros,
            starts,
            stops,
            sequence,
            zeros,
            np.append(words.reshape(-1), 0),
            np.append(floats.reshape(-1), 0.0),
        )
