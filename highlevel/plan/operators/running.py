"""Running: groups that continue over several windows, and sums over these windows (CLOSING WHEN of Gigascope).

Windows are processed in the order of their ends, when the watermark has passed them. A group returns a row for each
window from its first row on, until `closing` is true:

    window              1    2    3    4    5    6
    rows of a           2    -    1    -    -    4
    moving_sum(x, 2)    2    2    1    1    0    4
    CLOSING WHEN it is 0                    ▲    a new group

A gap consists of windows without any row. Its results are returned when the next window with rows is final, so they do
not depend on the watermarks in between. With `Running.fills_lulls` each window is returned when the watermark has
passed it.

If a clock jumps, a gap may have millions of windows. So after MAX_GAP_WINDOWS windows or MAX_GAP_ROWS rows of a gap all
groups end, and are counted in `cut`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from highlevel.aggregation import Output
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.answer_nodes import Running, RunningFunction, SortKey
from highlevel.plan.nodes import macs_of
from highlevel.plan.operators.apply import compute_column
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.sort import OUTPUT_ROWS, sorted_positions
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, Punctuation
from lowlevel.subaggregates import INT_MAX, INT_MIN

MAX_GAP_WINDOWS = 10_000
"""Maximum number of windows of a gap; then all groups end."""

MAX_GAP_ROWS = 100_000
"""Maximum number of rows of a gap; then all groups end. One window of a gap is always returned."""

GROUPS, STATE = "groups", "state"
"""Tables of a snapshot: the open groups with the sums of their windows; the watermark and the end of a window."""

LAST_END = "last_end"
"""Column of STATE: the end of the last window that was processed."""

History = npt.NDArray[Any]  # int64 or float64
"""The sums of the last windows: a row for each group, a column for each window, the oldest first."""


class RunningOperator:
    """Stores rows until their window is final, and for each open group the sums of its last windows."""

    def __init__(self, node: Running) -> None:
        """Begin without groups."""
        self.node = node
        self._stored = StoredRows(node.input, node.end)
        self._groups: pa.Table = self._stored.schema.empty_table().select(list(node.keys))
        self._group_count = 0
        self._histories = [_no_history(function, 0) for function in node.functions]
        self._last_end: int | None = None
        names = [node.end, *node.keys]
        rest = [column.name for column in node.input.columns if column.name not in names]
        self._order = [SortKey(name) for name in (*names, *rest)]
        self._macs = macs_of(node.input)
        self._closing = Output("closing", node.closing)
        self._having = None if node.having is None else Output("having", node.having)
        self._bounds = [name for name in self._stored.schema.names if name in (node.end, node.start)]
        self.received = 0
        self.results = 0
        self.cut = 0
        """Groups that ended because a gap had too many rows."""

    @property
    def late(self) -> int:
        """Rows below the watermark, which are dropped."""
        return self._stored.late

    @property
    def rows_held(self) -> int:
        """Number of stored rows and of open groups."""
        return self._stored.num_rows + self._group_count

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and of the open groups."""
        return self._stored.nbytes + self._groups.nbytes + sum(history.nbytes for history in self._histories)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows."""
        self.received += batch.num_rows
        self._stored.add(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the rows of final windows, and then the watermark: not after the next window of a gap."""
        old_watermark = self._watermark
        final, _ = self._stored.take_final(punctuation)
        yield from _merge_batches(self._process_windows(final))
        low = self._stored.watermark
        if self.node.fills_lulls and low != END:
            yield from _merge_batches(self._process_gap(low))
        if low == END:
            self._end_groups()
        if self._watermark > old_watermark:
            yield Punctuation(punctuation.link, self._watermark)

    @property
    def _watermark(self) -> int:
        """The watermark of the results, in ns."""
        low = self._stored.watermark
        if low == END or self._last_end is None or self._group_count == 0 or self.node.fills_lulls:
            return low
        return min(low, self._last_end + self.node.window.slide)

    def _process_windows(self, final: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the windows of final rows, and of the gaps between them."""
        if final.num_rows == 0:
            return
        rows = final.take(pa.array(sorted_positions(final, self._order))).combine_chunks()
        ends = times_of(rows.column(self.node.end).combine_chunks())
        firsts = np.flatnonzero(np.append(True, np.diff(ends) != 0))
        for first, after in zip(firsts, [*firsts[1:], len(ends)], strict=True):
            yield from self._process_gap(int(ends[first]))
            yield self._process_window(int(ends[first]), rows.slice(first, after - first))

    def _process_gap(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the windows without rows whose ends are below `end`."""
        window_count = row_count = 0
        while self._last_end is not None and self._group_count and self._last_end + self.node.window.slide < end:
            has_many_rows = window_count > 0 and row_count + self._group_count > MAX_GAP_ROWS
            if has_many_rows or window_count == MAX_GAP_WINDOWS:
                self.cut += self._group_count
                self._end_groups()
                return
            window_count, row_count = window_count + 1, row_count + self._group_count
            yield self._process_window(self._last_end + self.node.window.slide, self._stored.schema.empty_table())

    def _process_window(self, end: int, rows: pa.Table) -> pa.RecordBatch:
        """Add the rows of a window, end groups, and return a row for each group that was open before."""
        self._last_end = end
        positions = self._add_groups(rows)
        # The last of several rows of a group is the one that is shown.
        shown = np.full(self._group_count, -1)
        shown[positions] = np.arange(len(positions))
        batch = self._window_batch(end, rows, shown)
        for index, function in enumerate(self.node.functions):
            values = _fill_nulls(rows.column(function.argument))
            added = np.zeros(self._group_count, values.dtype)
            np.add.at(added, positions, values)
            self._histories[index] = _add_window(function, self._histories[index], added)
            sums = pa.array(_sum_windows(function, self._histories[index]), ARROW_TYPES[function.type])
            batch = batch.append_column(function.name, sums)
        columns = BatchColumns(batch, self._macs)
        outputs = [compute_column(out, batch, columns) for out in self.node.outputs]
        bounds = [batch.column(name) for name in self._bounds]
        names = [*self._bounds, *(out.name for out in self.node.outputs)]
        result = pa.RecordBatch.from_arrays([*bounds, *outputs], names)
        if self._having is not None:
            result = result.filter(pc.fill_null(compute_column(self._having, batch, columns), False))
        self._keep_groups(pc.invert(pc.fill_null(compute_column(self._closing, batch, columns), False)))
        self.results += result.num_rows
        return result

    def _add_groups(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return for each row the index of its group among the open groups. New groups are appended."""
        if rows.num_rows == 0:
            return np.empty(0, np.int64)
        both = pa.concat_tables([self._groups, rows.select(list(self.node.keys))]).combine_chunks()
        if not self.node.keys:  # a table without columns has no rows
            numbers = np.zeros(self._group_count + rows.num_rows, np.int64)
        else:
            numbers = number_groups(both, self.node.keys)
        _, firsts, positions = np.unique(numbers, return_index=True, return_inverse=True)
        # Groups keep their order: open groups first, then new groups by their first row.
        order = np.argsort(firsts)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        self._groups = both.take(pa.array(firsts[order])).combine_chunks() if self.node.keys else both
        new = len(firsts) - self._group_count
        self._group_count = len(firsts)
        self._histories = [
            np.concatenate([history, _no_history(function, new)])
            for function, history in zip(self.node.functions, self._histories, strict=True)
        ]
        return np.asarray(rank[positions[len(numbers) - rows.num_rows :]])

    def _window_batch(self, end: int, rows: pa.Table, shown: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the input columns of each open group. `shown` has the index of the group's row, or -1."""
        node, schema = self.node, self._stored.schema
        indexes = pa.array(shown, mask=shown < 0)
        arrays = []
        for field in schema:
            if field.name in node.keys:
                array = self._groups.column(field.name).combine_chunks()
            elif field.name == node.end:
                array = pa.array(np.full(len(shown), end)).cast(field.type)
            elif field.name == node.start:
                array = pa.array(np.full(len(shown), end - node.window.range)).cast(field.type)
            else:
                array = rows.column(field.name).combine_chunks().take(indexes)
                if field.name in node.counts:
                    array = array.fill_null(0)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _keep_groups(self, is_kept: pa.BooleanArray) -> None:
        mask = np.asarray(is_kept)
        if not mask.all():
            self._groups = self._groups.filter(is_kept).combine_chunks() if self.node.keys else self._groups
            self._histories = [history[mask] for history in self._histories]
            self._group_count = int(np.count_nonzero(mask))

    def _end_groups(self) -> None:
        self._keep_groups(pa.array(np.zeros(self._group_count, np.bool_)))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows, the open groups with their sums, the watermark and the end of the last window."""
        groups = self._groups if self.node.keys else pa.table({"count": np.zeros(self._group_count)})
        for function, history in zip(self.node.functions, self._histories, strict=True):
            kind = pa.list_(ARROW_TYPES[function.type])
            groups = groups.append_column(function.name, pa.array(history.tolist(), kind))
        state = pa.table({WATERMARK: [self._stored.watermark], LAST_END: pa.array([self._last_end], pa.int64())})
        return {ROWS: self._stored.rows, GROUPS: groups, STATE: state}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._stored.restore(tables[ROWS], state[WATERMARK])
        self._last_end = state[LAST_END]
        groups = tables[GROUPS]
        self._group_count = groups.num_rows
        self._groups = groups.select(list(self.node.keys)).cast(self._groups.schema)
        self._histories = [
            np.array(groups.column(function.name).to_pylist(), empty.dtype).reshape(-1, empty.shape[1])
            for function in self.node.functions
            for empty in (_no_history(function, 0),)
        ]


def _no_history(function: RunningFunction, group_count: int) -> History:
    """Return the sums of groups before their first window."""
    dtype = np.float64 if function.type is Type.FLOAT else np.int64
    return np.zeros((group_count, function.length or 1), dtype)


def _add_window(function: RunningFunction, history: History, added: npt.NDArray[np.float64]) -> History:
    """Return the sums of groups after a window with the sums `added`."""
    if function.length is None:
        return _sum_terms(np.stack([history, added[:, None].astype(history.dtype)], axis=2), axis=2)
    return np.concatenate([history[:, 1:], added[:, None].astype(history.dtype)], axis=1)


def _sum_windows(function: RunningFunction, history: History) -> History:
    """Return the value of a function for each group."""
    if function.decay == 1 or function.length is None:
        return _sum_terms(history, axis=1)
    return np.asarray((history * function.decay ** np.arange(function.length - 1, -1, -1)).sum(axis=1))


def _fill_nulls(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """Return the values of a column with 0 in place of NULL."""
    values = column.combine_chunks()
    return np.asarray(values.fill_null(pa.scalar(0).cast(values.type)))


def _merge_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of about OUTPUT_ROWS rows. A window is never divided between batches."""
    waiting: list[pa.RecordBatch] = []
    row_count = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if waiting and row_count + batch.num_rows > OUTPUT_ROWS:
            yield pa.concat_batches(waiting)
            waiting, row_count = [], 0
        waiting.append(batch)
        row_count += batch.num_rows
    if waiting:
        yield pa.concat_batches(waiting)


def _sum_terms(terms: History, axis: int) -> History:
    """Return the sums along an axis. Sums of integers are limited to the range of 64 bits."""
    sums = np.asarray(terms.sum(axis=axis))
    if sums.dtype == np.float64:
        return sums
    approximate = terms.astype(np.float64).sum(axis=axis)
    has_wrapped = np.abs(approximate - sums) > 2.0**62  # otherwise they differ by rounding errors
    return np.where(has_wrapped, np.where(approximate > 0, INT_MAX, INT_MIN), sums)
