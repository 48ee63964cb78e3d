"""Sort: rows in the order of keys, per window or over the whole input, or only the first rows of this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.meld import UNION
from highlevel.plan.answer_nodes import Sort, SortKey
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from lowlevel.punctuation import END, Punctuation

STATE = "state"
"""Name of the snapshot table with the watermark and the number of rows that were returned or skipped."""

OUTPUT_ROWS = 65_536
"""Maximum number of rows in a batch of results without windows. A window is never divided between batches."""

MIN_PRUNED_ROWS = 8_192
"""Minimum number of stored rows at which rows that LIMIT excludes are removed, before their window ends."""


class SortOperator:
    """Stores rows until no later row can precede them.

    If the first key is the time column, the rows below the watermark are returned, sorted. With other keys all rows are
    returned at the end. If the query has a LIMIT, rows that it excludes are removed when MIN_PRUNED_ROWS rows are
    stored, and then each time when the number of stored rows has doubled.

    Without keys the first rows that arrive are returned at once. Without windows, the watermark END follows the last
    row within the limit, and later rows are dropped.
    """

    def __init__(self, node: Sort) -> None:
        """Prepare an empty store of rows for `node`."""
        self.node = node
        self._visible = [column.name for column in node.columns]
        self._order = node.order
        self._end_rank = None if node.limit is None else node.limit + node.offset
        self._stored = StoredRows(node.input, node.time_columns[0] if node.time_columns else None)
        self.received = 0
        self.results = 0
        # Number of rows that precede the stored rows. Not used if each window is sorted.
        self._returned_or_skipped = 0
        self._prune_at_rows = MIN_PRUNED_ROWS

    @property
    def late(self) -> int:
        """Rows below the watermark, which are dropped."""
        return self._stored.late

    @property
    def rows_held(self) -> int:
        """Number of stored rows."""
        return self._stored.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return self._stored.nbytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows. Without keys return the first rows at once."""
        self.received += batch.num_rows
        if self.node.ends_early and self._stored.watermark == END:
            return
        if self.node.passes_through:
            yield from self._first_rows(batch)
            return
        stored = self._stored
        stored.add(batch)
        if self._end_rank is not None and stored.num_rows >= self._prune_at_rows:
            order, ranks = self._rank_rows(stored.rows)
            stored.rows = pc.take(stored.rows, array_of(order[ranks < self._end_rank])).combine_chunks()
            self._prune_at_rows = max(MIN_PRUNED_ROWS, 2 * stored.num_rows)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the rows that no later row can precede, and then the watermark."""
        final, has_grown = self._stored.take_final(punctuation)
        yield from self._sort_rows(final)
        if (
            has_grown
            and self.node.ends_early
            and self._end_rank is not None
            and self._returned_or_skipped >= self._end_rank
        ):
            self._end()
            yield Punctuation(UNION, END)
            return
        self._prune_at_rows = max(MIN_PRUNED_ROWS, 2 * self._stored.num_rows)
        if has_grown:
            yield Punctuation(punctuation.link, self._stored.watermark)

    def _first_rows(self, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Yield the rows of a batch that are within the limit.

        After the last row within the limit yield the watermark END.
        """
        first = max(0, self.node.offset - self._returned_or_skipped)
        end = batch.num_rows if self._end_rank is None else max(0, self._end_rank - self._returned_or_skipped)
        within = batch.slice(first, max(0, end - first))
        self._returned_or_skipped += batch.num_rows
        if within.num_rows:
            self.results += within.num_rows
            yield within.select(self._visible)
        if self._end_rank is not None and self._returned_or_skipped >= self._end_rank:
            self._end()
            yield Punctuation(UNION, END)

    def _end(self) -> None:
        """Remove the stored rows: all rows within the limit have been returned."""
        self._stored.rows = self._stored.schema.empty_table()
        self._stored.watermark = END

    def _sort_rows(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Return final rows in their order, without the rows that OFFSET and LIMIT exclude."""
        if rows.num_rows == 0:
            return
        order, ranks = self._rank_rows(rows)
        kept = ranks >= self.node.offset
        if self._end_rank is not None:
            kept &= ranks < self._end_rank
        order = order[kept]
        if not self.node.window_columns:
            self._returned_or_skipped += rows.num_rows
        self.results += len(order)
        visible = rows.select(self._visible)
        size = len(order) if self.node.window_columns else OUTPUT_ROWS
        for first in range(0, len(order), max(size, 1)):
            part = pc.take(visible, array_of(order[first : first + size])).combine_chunks()
            yield from part.to_batches()

    def _rank_rows(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the sorted rows, and the rank of each row (in its window or among all rows)."""
        order = sorted_positions(rows, self._order)
        ranks = np.arange(len(order))
        if not self.node.window_columns:
            return order, ranks + self._returned_or_skipped
        is_first = np.zeros(len(order), np.bool_)
        is_first[:1] = True
        for name in self.node.window_columns:
            values = rows.column(name).to_numpy()[order]
            is_first[1:] |= values[1:] != values[:-1]
        return order, ranks - np.maximum.accumulate(np.where(is_first, ranks, 0))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows, the watermark, and the number of rows that were returned or skipped."""
        state = pa.table({WATERMARK: [self._stored.watermark], "passed": [self._returned_or_skipped]})
        return {ROWS: self._stored.rows, STATE: state}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        ((watermark, self._returned_or_skipped),) = zip(*tables[STATE].to_pydict().values(), strict=True)
        self._stored.restore(tables[ROWS], watermark)


def sorted_positions(rows: pa.Table, keys: Sequence[SortKey]) -> np.ndarray:
    """Return the positions of the rows in the order of `keys`.

    NaN is greater than every number. IPv4 addresses precede IPv6 addresses.
    """
    columns: list[pa.ChunkedArray] = []
    directions: list[str] = []
    for key in keys:
        column = rows.column(key.column)
        direction = "descending" if key.descending else "ascending"
        if column.null_count:
            columns.append(pc.cast(pc.is_null(column), pa.uint8()))
            directions.append("descending" if key.nulls_first else "ascending")
        if pa.types.is_floating(column.type):
            columns.append(pc.cast(pc.is_nan(column), pa.uint8()))
            directions.append(direction)
        if pa.types.is_binary(column.type):
            columns.append(pc.binary_length(column))
            directions.append(direction)
        columns.append(pc.cast(column, pa.uint8()) if pa.types.is_boolean(column.type) else column)
        directions.append(direction)
    names = [f"k{number}" for number in range(len(columns))]
    table = pa.Table.from_arrays(columns, names=names)
    order = pc.sort_indices(table, sort_keys=list(zip(names, directions, strict=True)))
    positions: np.ndarray = order.to_numpy()
    return positions
