"""The rule of FlowMerge: the records that an exporter sends while a flow lasts become one row.

    records of a key   │──1──│──2──│──3 ended│      │──4──│        4 follows the end of the flow, so it begins another
    rows               │─────── 1, 2, 3 ─────│      │──4──│

The records of a key in the order of time decide where a flow ends. So a late record affects only its own flow and the
next one. No later record can be between two records below the watermark. So such records are merged, and a flow that
stays open for days is one stored row.

A stored row has two columns for each sum: one for the upper halves of the values (x >> 32) and one for the lower
halves. So no addition overflows. A sum of more than 64 bits is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import macs_of
from highlevel.plan.revision_nodes import OPEN, RECORDS, FlowMerge, Role
from highlevel.speculation.keyed_rows import KeyedRows, Mask, Numbers, Settlement
from lowlevel.expressions.evaluate import sum_halves
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.types import Type
from lowlevel.punctuation import END
from lowlevel.subaggregates import INT_MAX, INT_MIN

ENDED, COUNT = ".ended", ".records"
"""Columns of stored rows: true if the last record ends the flow, and the number of merged records."""

UPPER = ".upper "
"""Prefix of the name of the column with the upper halves of a sum. The column of the sum has the lower halves."""

MERGE_FUNCTIONS = {
    Role.SUM: (np.add, 0),
    Role.LEAST: (np.minimum, INT_MAX),
    Role.GREATEST: (np.maximum, INT_MIN),
    Role.BITS: (np.bitwise_or, 0),
}
"""For each role of a column: the function that merges values, and the value that replaces NULL."""


class FlowRule:
    """Merges records to flows."""

    def __init__(self, node: FlowMerge) -> None:
        """Merge the records of `node`."""
        self.within = node.within
        self._idle = node.idle
        self._start, self._ended = node.start, Condition(node.ended)
        self._macs = macs_of(node.input)
        self._names = [column.name for column in node.input.columns if column.name in dict(node.roles)]
        self._roles = dict(node.roles)

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Return each record as a flow of one record.

        Among records with equal times, the record that ends the flow is last.
        """
        ended = self._ended.true_rows(BatchColumns(batch, self._macs), batch.num_rows)
        columns = [array_of(ended), array_of(np.ones(batch.num_rows, np.int64))]
        names = [ENDED, COUNT]
        for name in self._names if self._start in self._names else [*self._names, self._start]:
            column = batch.column(name)
            if self._roles.get(name) is Role.SUM:
                values, is_null = column.fill_null(0).to_numpy(), ~column.is_valid().to_numpy(zero_copy_only=False)
                columns.append(array_of(values >> 32, is_null))
                names.append(UPPER + name)
                column = array_of(values & 0xFFFFFFFF, is_null)
            columns.append(column)
            names.append(name)
        return pa.Table.from_arrays(columns, names)

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the flows."""
        return self._to_results(self._merge_runs(keyed, self._begins_flow(keyed)).rows)

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Return the complete flows. Of the other flows, the records below the watermark are merged.

        A flow is complete in three cases: its last record is below the watermark and ends the flow; its last record is
        before the deadline; or the next flow of the key begins below the watermark.
        """
        begins = self._begins_flow(keyed)
        firsts = np.flatnonzero(begins)
        if not len(firsts):
            return Settlement(self._to_results(keyed.rows), keyed, 0)
        lasts = np.append(firsts[1:], len(begins)) - 1
        ended = keyed.rows.column(ENDED).to_numpy()[lasts]
        following = np.append(firsts[1:], 0)
        is_followed = (keyed.keys[following] == keyed.keys[firsts]) & (keyed.times[following] < low)
        is_followed[-1] = False
        last_times = keyed.times[lasts]
        is_ended = (last_times < low) & (ended | (last_times < low - self.within) | is_followed | (low == END))
        complete = is_ended | (last_times < min(low, deadline))
        flow_of_row = np.cumsum(begins) - 1
        is_complete = complete[flow_of_row]
        results = self._merge_runs(keyed.take(np.flatnonzero(is_complete)), begins[is_complete])
        remaining = keyed.take(np.flatnonzero(~is_complete))
        separate = begins[~is_complete] | (remaining.times >= low)
        absorbed = int(results.rows.column(COUNT).to_numpy().sum()) - results.rows.num_rows
        forgotten = int(np.count_nonzero(complete & ~is_ended))
        remaining = self._merge_runs(remaining, separate)
        shown = self._to_results(results.rows)
        sums = [name for name in self._names if self._roles[name] is Role.SUM]
        overflows = sum(shown.column(name).null_count - results.rows.column(name).null_count for name in sums)
        return Settlement(shown, remaining, absorbed, forgotten, overflows)

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the results.

        It is at most the time of each open flow, whose row can be withdrawn.
        """
        return min(low, int(times.min(initial=END)))

    def _begins_flow(self, keyed: KeyedRows) -> Mask:
        before_ended = np.append(True, keyed.rows.column(ENDED).to_numpy()[:-1])[: len(keyed.times)]
        before = np.append(keyed.times[:1], keyed.times[:-1])
        begins = keyed.begins_key | before_ended | (keyed.times - before > self.within)
        if self._idle is not None:
            begins |= keyed.rows.column(self._start).to_numpy() - before > self._idle
        return begins

    def _merge_runs(self, keyed: KeyedRows, begins: Mask) -> KeyedRows:
        """Merge each run of neighbouring rows into one row. `begins`: a mask of the first rows of runs."""
        firsts = np.flatnonzero(begins)
        if len(firsts) == len(keyed.times):
            return keyed
        lasts = np.append(firsts[1:], len(keyed.times)) - 1
        columns = [self._merge_column(keyed.rows, name, firsts, lasts) for name in keyed.rows.schema.names]
        rows = pa.Table.from_arrays(columns, schema=keyed.rows.schema)
        return KeyedRows(rows, keyed.keys[firsts], keyed.times[lasts])

    def _merge_column(self, rows: pa.Table, name: str, firsts: Numbers, lasts: Numbers) -> pa.Array:
        roles = {ENDED: Role.LAST, COUNT: Role.SUM, self._start: Role.LEAST, **self._roles}
        role = roles[name.removeprefix(UPPER)]
        column = rows.column(name).combine_chunks()
        if role is Role.LAST:
            return column.take(array_of(lasts))
        function, neutral = MERGE_FUNCTIONS[role]
        values = function.reduceat(column.fill_null(neutral).to_numpy(), firsts)
        if not column.null_count:
            return array_of(values)
        known = np.logical_or.reduceat(column.is_valid().to_numpy(zero_copy_only=False), firsts)
        return array_of(values, ~known)

    def _to_results(self, rows: pa.Table) -> pa.Table:
        """Convert stored rows to results."""
        return pa.Table.from_arrays(list(self._result_columns(rows)), [*self._names, RECORDS, OPEN])

    def _result_columns(self, rows: pa.Table) -> Iterator[pa.Array | pa.ChunkedArray]:
        for name in self._names:
            yield self._sum_column(rows, name) if self._roles[name] is Role.SUM else rows.column(name)
        yield rows.column(COUNT)
        yield array_of(~rows.column(ENDED).to_numpy())

    def _sum_column(self, rows: pa.Table, name: str) -> pa.Array:
        """Return a column of sums. A sum is NULL if it needs more than 64 bits, or if all its values are NULL."""
        lower, upper = (rows.column(column).combine_chunks() for column in (name, UPPER + name))
        sums = sum_halves(upper.fill_null(0).to_numpy(), lower.fill_null(0).to_numpy(), Type.INT)
        return array_of(sums.data, ~(np.asarray(sums.valid) & lower.is_valid().to_numpy(zero_copy_only=False)))
