"""ChangingResults of windows whose aggregates can be undone: counts, sums and averages of integers.

    changes ──► partials: +1 for a new row, -1 for a withdrawn one ──► pending, per window
                                                                          │ when the window is published
    sums of the changed groups, before and after  ◄── sums, per window ◄──┘

A withdrawn row is added as the negative of its partial. A sum that may exceed 64 bits is stored as two sums, of the
upper and the lower halves of the integers (`lowlevel.subaggregates`). These sums do not overflow, so the order of the
rows has no effect. The cost of a change depends only on its rows and groups, not on the size of the window. A group
with 0 rows is in no result. Results follow from sums of integers, so a withdrawn result is exactly a returned result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.key_words import Words
from highlevel.groups.merging import MergeFunction, list_merge_rules
from highlevel.groups.table import GroupTable, batch_of, join_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.change_nodes import ChangingResults
from highlevel.plan.nodes import Node, Windowed
from highlevel.plan.operators.changing_results import ChangingResultsOperator, MakeBody
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.stages import make_stages, run_stages
from highlevel.speculation.changes import Weights
from highlevel.windows.kind import SlidingWindow
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import MERGE, count_of_rows

SUMS, PENDING = "sums", "pending"
"""Prefixes of tables of a snapshot, before the ID of a window: the merged partials, and the unpublished partials."""

MIN_EMPTY_GROUPS = 64
"""Minimum number of groups without rows that are removed together."""


def is_sum_of_integers(body: Node) -> bool:
    """Return True if all aggregates of a body are counts and sums of integers, in time windows."""
    if not isinstance(body, Windowed) or not body.aggregation.windowed:
        return False
    aggregation = body.aggregation
    others = (aggregation.details, aggregation.selections, aggregation.user_columns, aggregation.foldings)
    subaggregates = aggregation.low.subaggregates
    are_sums = all(MERGE[sub.kind] == MergeFunction.SUM and sub.type is Type.INT for sub in subaggregates)
    return isinstance(aggregation.window, SlidingWindow) and not any(others) and are_sums


class ChangingSumsOperator(ChangingResultsOperator):
    """Stores the sums of each window, until the window is final."""

    def __init__(self, node: ChangingResults, make: MakeBody) -> None:
        """Compute the results of a node for whose body `is_sum_of_integers` is true.

        `make` makes operators of the body.
        """
        super().__init__(node, make)
        body = node.body
        assert isinstance(body, Windowed)
        aggregation = body.aggregation.with_row_counts()
        window, low = aggregation.window, aggregation.low
        assert isinstance(window, SlidingWindow)
        self._window = window
        self._partials = RowPartials(body.input, low, body.time)
        self._groups = list(aggregation.group_by)
        self._values = [sub.name for sub in low.subaggregates]
        self._rules = list_merge_rules(low.subaggregates)
        count = count_of_rows(low.subaggregates)
        assert count is not None, "the rows are counted"
        self._count = count
        self._partial_schema = pa.schema([low.schema.field(name) for name in (*self._groups, *self._values)])
        self._steps, self._finish = make_stages(aggregation)
        self._sums: dict[int, GroupTable] = {}
        self._counts: dict[int, int] = {}
        """Number of groups with rows in each window."""
        self._stored_sums: dict[int, pa.Table] = {}
        """Sums that have not changed since the last snapshot, so that the engine does not write them again."""
        self._pending: dict[int, list[pa.RecordBatch]] = {}

    @property
    def overflowed_sums(self) -> int:
        """Sums in results, also in withdrawn ones, that are NULL, because they exceed 64 bits."""
        return self._finish.overflowed_sums

    @property
    def rows_held(self) -> int:
        """Number of stored groups and pending partials."""
        pending = sum(batch.num_rows for batches in self._pending.values() for batch in batches)
        return pending + sum(table.count for table in self._sums.values())

    @property
    def bytes(self) -> int:
        """Bytes of the stored sums and partials."""
        pending = sum(batch.nbytes for batches in self._pending.values() for batch in batches)
        return pending + sum(table.bytes for table in self._sums.values())

    def _store(self, pane: int, windows: Sequence[int], rows: pa.Table, weights: Weights) -> None:
        """Add the partials of changes to the windows."""
        partials = [batch for sign in (-1, 1) for batch in self._multiply_partials(rows, weights * sign, sign)]
        for window in windows if partials else ():
            self._pending.setdefault(window, []).extend(partials)

    def _multiply_partials(self, rows: pa.Table, weights: Weights, sign: int) -> list[pa.RecordBatch]:
        """Return the partials of the rows with positive weights, multiplied by `sign`."""
        chosen = np.repeat(np.arange(len(weights)), np.maximum(weights, 0))
        if not len(chosen):
            return []
        signed = []
        for batch in pc.take(rows, array_of(chosen)).combine_chunks().to_batches():
            for partials in self._partials.compute(batch):
                keys = [partials.column(name) for name in self._groups]
                values = [array_of(partials.column(name).to_numpy() * sign) for name in self._values]
                signed.append(pa.RecordBatch.from_arrays([*keys, *values], schema=self._partial_schema))
        return signed

    def _revise(self, windows: Sequence[int]) -> tuple[pa.Table, pa.Table]:
        """Merge the pending partials of windows. Return the results of the changed groups before and now."""
        old: list[pa.RecordBatch] = []
        new: list[pa.RecordBatch] = []
        for window in sorted(windows):
            batches = self._pending.pop(window, [])
            if not batches:
                continue
            self._stored_sums.pop(window, None)
            batch = join_batches(batches)
            table = self._sums.setdefault(window, self._table())
            known = np.unique(table.keys.find([batch.column(name) for name in self._groups], batch.num_rows))
            before = self._rows_of(table, known[known != NO_GROUP])
            after = self._rows_of(table, np.unique(table.merge(batch)))
            old.append(self._add_bounds(window, before))
            new.append(self._add_bounds(window, after))
            groups = self._counts.get(window, 0) + after.num_rows - before.num_rows
            self._counts[window] = groups
            if table.count > 2 * groups + MIN_EMPTY_GROUPS:
                self._sums[window] = self._table()
                self._sums[window].merge(self._rows_of(table, np.arange(table.count)))
        return self._results_of(old), self._results_of(new)

    def _table(self) -> GroupTable:
        return GroupTable(self._partial_schema, self._groups, self._rules)

    def _rows_of(self, table: GroupTable, numbers: Words) -> pa.RecordBatch:
        """Return the sums of groups that have rows."""
        columns = [*table.keys.columns(numbers), *table.layer.columns(numbers, table.count)]
        batch = batch_of(table.schema, columns)
        return pc.filter(batch, array_of(batch.column(self._count).to_numpy() > 0))

    def _add_bounds(self, window: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return sums with the bounds of their window."""
        end = np.full(rows.num_rows, self._window.end(window), np.int64)
        columns = [array_of(end - self._window.range), array_of(end), *rows.columns]
        return pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *rows.schema.names])

    def _results_of(self, sums: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the results of groups: after HAVING, with the columns of the select list."""
        results = [result for batch in sums for result in run_stages(self._steps, batch)]
        return pa.Table.from_batches(results, self._schema)

    def _remove_final(self) -> None:
        """Remove final windows."""
        for stored in (self._sums, self._counts, self._stored_sums, self._pending):
            for window in [each for each in stored if self._is_final(each)]:
                del stored[window]

    def _stored_tables(self) -> dict[str, pa.Table]:
        for window, table in self._sums.items():
            if window not in self._stored_sums:
                rows = self._rows_of(table, np.arange(table.count))
                self._stored_sums[window] = pa.Table.from_batches([rows])
        for window, batches in self._pending.items():
            self._pending[window] = [join_batches(batches)]
        pending = {window: pa.Table.from_batches(batches) for window, batches in self._pending.items()}
        named = [(SUMS, self._stored_sums), (PENDING, pending)]
        return {f"{name} {window}": table for name, tables in named for window, table in tables.items()}

    def _load(self, tables: dict[str, pa.Table]) -> None:
        for name, stored in tables.items():
            kind, _, window = name.partition(" ")
            if kind == SUMS:
                self._sums[int(window)] = self._table()
                self._counts[int(window)] = stored.num_rows
                for batch in stored.to_batches():
                    self._sums[int(window)].merge(batch)
            elif kind == PENDING:
                self._pending[int(window)] = stored.combine_chunks().to_batches()
