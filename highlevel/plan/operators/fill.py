"""Fill: rows for windows and groups without rows.

Windows are processed in the order of their ends, when the watermark has passed them:

    window     1      2      3      4      5
    rows       a b    a                    b c
    filled            b     [a b]  [a b]   a        [ ] a gap: windows without any row

The rows of a gap are returned when the next window with rows is final, so they do not depend on the watermarks in
between. With `Fill.fills_lulls` each window of a gap is returned when the watermark has passed it.

Both the groups and the rows of a gap are limited, because otherwise a clock that jumps by a year would fill millions of
windows. Rows that are not added are counted. Both limits are applied to windows in order, so results do not depend on
the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.answer_nodes import Fill, SortKey
from highlevel.plan.nodes import macs_of
from highlevel.plan.operators.apply import compute_column
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.sort import OUTPUT_ROWS, sorted_positions
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from lowlevel.punctuation import END, Punctuation

MAX_GROUPS = 10_000
"""Maximum number of known groups. The groups with the oldest rows are removed."""

MAX_GAP_ROWS = 100_000
"""Maximum number of rows that fill a gap, from its first window on. At least one window is filled."""

LATEST, STATE = "latest", "state"
"""Tables of a snapshot: the last row of each known group; the watermark and the ends of windows."""

END_WITH_ROWS, LAST_END = "end_with_rows", "last_end"
"""Columns of STATE: the end of the last window with rows, and of the last window whose rows were returned."""

Positions = npt.NDArray[np.int64]

WindowRows = tuple[Positions, Positions, npt.NDArray[np.bool_]]
"""Rows of complete windows: indexes of the known rows, ends of their windows, and a mask of the new rows."""


class FillOperator:
    """Stores rows until their window is final, and the last row of each known group."""

    def __init__(self, node: Fill) -> None:
        """Prepare an empty store of rows for `node`."""
        self.node = node
        self._stored = StoredRows(node.input, node.end)
        self._last_rows: pa.Table = self._stored.schema.empty_table()  # in the order of `_order`
        names = [node.end, *node.keys]
        rest = [column.name for column in node.input.columns if column.name not in names]
        self._order = [SortKey(name) for name in (*names, *rest)]
        self._columns = {column.name: column for column in node.input.columns}
        self._macs = macs_of(node.input)
        self._visible = [column.name for column in node.columns]
        self._end_with_rows: int | None = None
        self._last_end = 0  # has no meaning before the first row
        self.received = 0
        self.results = 0
        self.left_out = 0
        """Rows of gaps that exceed MAX_GAP_ROWS."""
        self.forgotten = 0
        """Number of groups that were removed because more than MAX_GROUPS were known."""

    @property
    def late(self) -> int:
        """Rows below the watermark, which are dropped."""
        return self._stored.late

    @property
    def rows_held(self) -> int:
        """Number of stored rows, with the last rows of groups."""
        return self._stored.num_rows + self._last_rows.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows, with the last rows of groups."""
        return self._stored.nbytes + self._last_rows.nbytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows."""
        self.received += batch.num_rows
        self._stored.add(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the rows of final windows, and then the watermark, which is not beyond the next window of a gap."""
        before = self._watermark
        final, _ = self._stored.take_final(punctuation)
        if final.num_rows:
            final = final.take(pa.array(sorted_positions(final, self._order)))
            source = pa.concat_tables([self._last_rows, final]).combine_chunks()
            yield from self._make_batches(source, self._windows(source, self._last_rows.num_rows))
        low = self._stored.watermark
        if low == END:
            self._last_rows = self._stored.schema.empty_table()
        if self.node.fills_lulls and self._end_with_rows is not None and low != END:
            source, members = self._last_rows, np.arange(self._last_rows.num_rows)
            passed = (low - 1 - self._end_with_rows) // self.node.window.slide
            yield from self._make_batches(source, self._fill_gap(members, passed))
        if self._watermark > before:
            yield Punctuation(punctuation.link, self._watermark)

    @property
    def _watermark(self) -> int:
        """The watermark of the results."""
        low = self._stored.watermark
        if low == END or self._end_with_rows is None or self.node.fills_lulls:
            return low
        return min(low, self._last_end + self.node.window.slide)

    def _windows(self, source: pa.Table, known: int) -> Iterator[WindowRows]:
        """Yield the windows of `source`, and the gaps between them.

        The first `known` rows are last rows of groups; the other rows are sorted by window.
        """
        ends = times_of(source.column(self.node.end).combine_chunks())
        groups = number_groups(source, self.node.keys)
        in_window = np.zeros(groups.max() + 1, np.bool_)
        firsts = known + np.flatnonzero(np.append(True, np.diff(ends[known:]) != 0))
        members = np.arange(known)
        for first, after in zip(firsts, [*firsts[1:], len(ends)], strict=True):
            end = int(ends[first])
            if self._end_with_rows is not None:
                yield from self._fill_gap(members, (end - self._end_with_rows) // self.node.window.slide - 1)
            rows = np.arange(first, after)
            in_window[groups[rows]] = True
            missing = members[~in_window[groups[members]]]
            in_window[groups[rows]] = False
            # The last of several rows of a group is its last row.
            is_last = np.append(np.diff(groups[rows]) != 0, True)
            members = np.append(missing, rows[is_last])
            self.forgotten += max(0, len(members) - MAX_GROUPS)
            members = members[-MAX_GROUPS:]
            missing = members[members < first]
            positions = np.append(rows, missing)
            self._end_with_rows = self._last_end = end
            yield positions, np.full(len(positions), end), positions < first
        self._last_rows = source.take(pa.array(members)).combine_chunks()

    def _fill_gap(self, members: Positions, last: int) -> Iterator[WindowRows]:
        """Yield windows without rows: those up to number `last` after the last window with rows."""
        assert self._end_with_rows is not None
        slide, count = self.node.window.slide, len(members)
        returned = (self._last_end - self._end_with_rows) // slide
        if last <= returned or not count:  # no group is known in a computation of some groups
            return
        self._last_end = self._end_with_rows + last * slide
        filled = max(returned, min(last, max(1, MAX_GAP_ROWS // count)))
        self.left_out += (last - filled) * count
        size = max(1, OUTPUT_ROWS // count)
        for first in range(returned + 1, filled + 1, size):
            numbers = np.arange(first, min(first + size, filled + 1))
            ends = np.repeat(self._end_with_rows + numbers * slide, count)
            yield np.tile(members, len(numbers)), ends, np.ones(len(ends), np.bool_)

    def _make_batches(self, source: pa.Table, windows: Iterator[WindowRows]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `windows`. A window is never divided between batches."""
        waiting: list[WindowRows] = []
        size = 0
        for part in windows:
            if waiting and size + len(part[0]) > OUTPUT_ROWS:
                yield self._make_batch(source, waiting)
                waiting, size = [], 0
            waiting.append(part)
            size += len(part[0])
        if waiting:
            yield self._make_batch(source, waiting)

    def _make_batch(self, source: pa.Table, windows: list[WindowRows]) -> pa.RecordBatch:
        positions, ends, is_new = (np.concatenate(arrays) for arrays in zip(*windows, strict=True))
        node, rows = self.node, source.take(pa.array(positions)).combine_chunks()
        columns: dict[str, Any] = dict(
            zip(rows.schema.names, (column.combine_chunks() for column in rows), strict=True)
        )
        self.results += len(positions)
        if is_new.any():
            new = pa.array(is_new)
            columns[node.end] = pa.array(ends).cast(columns[node.end].type)
            if node.start is not None:
                columns[node.start] = pa.array(ends - node.window.range).cast(columns[node.start].type)
            if not node.repeats:
                for name in node.filled_columns:
                    value = pa.scalar(node.value_of(self._columns[name]), columns[name].type)
                    columns[name] = pc.if_else(new, value, columns[name])
            batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=self._stored.schema)
            vectors = BatchColumns(batch, self._macs)
            for out in node.computed:
                columns[out.name] = pc.if_else(new, compute_column(out, batch, vectors), columns[out.name])
        return pa.RecordBatch.from_arrays([columns[name] for name in self._visible], self._visible)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows, the last rows of groups, the watermark and the ends of windows."""
        ends = {END_WITH_ROWS: pa.array([self._end_with_rows], pa.int64()), LAST_END: [self._last_end]}
        state = pa.table({WATERMARK: [self._stored.watermark], **ends})
        return {ROWS: self._stored.rows, LATEST: self._last_rows, STATE: state}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._stored.restore(tables[ROWS], state[WATERMARK])
        self._last_rows = tables[LATEST].cast(self._stored.schema)
        self._end_with_rows, self._last_end = state[END_WITH_ROWS], state[LAST_END]
