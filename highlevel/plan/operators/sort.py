"""Sort: rows in the order of keys, per window or over the whole input, or only the first rows of this order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from highlevel.operators.meld import UNION
from highlevel.plan.nodes import Sort, SortKey, width_of
from highlevel.plan.operators.operator import GraphItem, Mark, Times, lows_of, times_of
from highlevel.plan.partitioning import PartitionKey
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

ROWS, STATE = "rows", "state"
"""Tables of a snapshot: the stored rows, and the watermark with the number of rows that have passed."""

OUTPUT_ROWS = 65_536
"""Largest number of rows in a batch of results."""

CUT_ROWS = 8_192
"""Number of stored rows from which on rows beyond the limit are dropped early."""


class SortOperator:
    """Stores rows until no later row can precede them.

    If the first key is the time column, rows below the watermark are returned in their order. A later row below the
    watermark is late and is dropped. For other keys all rows are returned at the end. With a limit only the first rows
    of each value of `per` are stored: at most twice as many as the limit, and CUT_ROWS.

    Without keys any rows are the first: they are passed on at once, and the end follows the last of them.
    """

    def __init__(self, node: Sort) -> None:
        """Sort by the keys of `node`."""
        self.node = node
        self.schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.input.columns])
        self._visible = [column.name for column in node.columns]
        self._order = node.order
        self._time = node.progress[0] if node.progress else None
        self._width = width_of(node.input)
        self._most = None if node.limit is None else node.limit + node.offset
        self.low = BEGINNING
        self.received = 0
        self.results = 0
        self.late = 0
        self._passed = 0  # rows before the stored ones in the whole order, if it is not per window
        self._held: pa.Table = self.schema.empty_table()
        self._cut_at = CUT_ROWS

    @property
    def rows_held(self) -> int:
        """Number of stored rows."""
        return int(self._held.num_rows)

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return int(self._held.nbytes)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows. Without keys return the first ones."""
        self.received += batch.num_rows
        if self.node.passes_through:
            yield from self._first_rows(batch)
            return
        if self._time is not None and self.low != BEGINNING:
            late = times_of(batch.column(self._time)) < self.low
            if late.any():
                self.late += int(np.count_nonzero(late))
                batch = batch.filter(pa.array(~late))
        self._held = pa.concat_tables([self._held, pa.Table.from_batches([batch], self.schema)])
        if self._most is not None and self._held.num_rows >= self._cut_at:
            order, ranks = self._ranked(self._held)
            self._held = self._held.take(pa.array(order[ranks < self._most])).combine_chunks()
            self._cut_at = max(CUT_ROWS, 2 * self._held.num_rows)

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Return the rows that no later row can precede, and then the watermark."""
        lows = lows_of(mark, self._width)
        if set(lows) == {END}:
            yield from self._sorted(self._held)
            self._held = self.schema.empty_table()
            if not self.node.passes_through or self.low != END:
                self.low = END
                yield Punctuation(mark.link, END)
        elif self._time is not None and lows[0] > self.low:
            self.low = lows[0]
            times = self._times()
            if (times < self.low).any():
                final = pa.array(times < self.low)
                yield from self._sorted(self._held.filter(final))
                self._held = self._held.filter(pc.invert(final)).combine_chunks()
                self._cut_at = max(CUT_ROWS, 2 * self._held.num_rows)
            yield Punctuation(mark.link, self.low)

    def _times(self) -> Times:
        return times_of(self._held.column(self._time).combine_chunks())

    def _first_rows(self, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows of a batch that are within the limit. Return the end after the last one."""
        if self.low == END:
            return
        first = max(0, self.node.offset - self._passed)
        most = batch.num_rows if self._most is None else max(0, self._most - self._passed)
        shown = batch.slice(first, max(0, most - first))
        self._passed += batch.num_rows
        if shown.num_rows:
            self.results += shown.num_rows
            yield shown.select(self._visible)
        if self._most is not None and self._passed >= self._most:
            self.low = END
            yield Punctuation(UNION, END)

    def _sorted(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Return final rows in their order, without those outside offset and limit."""
        if rows.num_rows == 0:
            return
        order, ranks = self._ranked(rows)
        kept = ranks >= self.node.offset
        if self._most is not None:
            kept &= ranks < self._most
        order = order[kept]
        if not self.node.per:
            self._passed += rows.num_rows
        self.results += len(order)
        visible = rows.select(self._visible)
        for first in range(0, len(order), OUTPUT_ROWS):
            part = visible.take(pa.array(order[first : first + OUTPUT_ROWS])).combine_chunks()
            yield from part.to_batches()

    def _ranked(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the rows in their order, and the rank of each of them within its value of `per`."""
        order = sorted_positions(rows, self._order)
        places = np.arange(len(order))
        if not self.node.per:
            return order, places + self._passed
        begins = np.zeros(len(order), np.bool_)
        begins[:1] = True
        for name in self.node.per:
            values = rows.column(name).to_numpy()[order]
            begins[1:] |= values[1:] != values[:-1]
        return order, places - np.maximum.accumulate(np.where(begins, places, 0))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows, the watermark, and the number of rows that have passed."""
        return {ROWS: self._held, STATE: pa.table({"low": [self.low], "passed": [self._passed]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._held = tables[ROWS].cast(self.schema)
        ((self.low, self._passed),) = zip(*tables[STATE].to_pydict().values(), strict=True)


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
            columns.append(column.is_null().cast(pa.uint8()))
            directions.append("descending" if key.nulls_first else "ascending")
        if pa.types.is_floating(column.type):
            columns.append(pc.is_nan(column).cast(pa.uint8()))
            directions.append(direction)
        if pa.types.is_binary(column.type):
            columns.append(pc.binary_length(column))
            directions.append(direction)
        columns.append(column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column)
        directions.append(direction)
    names = [f"k{number}" for number in range(len(columns))]
    table = pa.Table.from_arrays(columns, names=names)
    order = pc.sort_indices(table, sort_keys=list(zip(names, directions, strict=True)))
    positions: np.ndarray = order.to_numpy()
    return positions


@dataclass(frozen=True)
class InOnePartition:
    """All rows must be in one partition, because they are compared with each other."""

    exact: bool = False

    def required(self, node: Sort, wanted: PartitionKey | None) -> Sequence[PartitionKey | None]:
        """The empty key."""
        return [()]

    def provided(
        self, node: Sort, inputs: Sequence[Sequence[PartitionKey]], wanted: PartitionKey | None
    ) -> Sequence[PartitionKey]:
        """The empty key."""
        return [()]
