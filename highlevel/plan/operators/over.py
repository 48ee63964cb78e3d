"""Over: window functions of SQL, which compute a value for each row from other rows of the answer.

The rows of a partition are sorted by the keys of ORDER BY. Rows with equal keys are peers. Peers are sorted by their
other columns, so that `row_number` and `lag` do not depend on the order of arrival. An aggregate with ORDER BY uses the
rows from the first row of the partition to the last peer of the current row (the default frame of SQL). Without ORDER
BY all rows of the partition are peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import Over, RowFunction, RowFunctionKind, SortKey, macs_of
from highlevel.plan.operators.apply import computed
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem
from highlevel.plan.operators.sort import OUTPUT_ROWS, sorted_positions
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import Punctuation

STATE = "state"
"""The table of a snapshot with the watermark."""

Positions = npt.NDArray[np.int64]
Values = npt.NDArray[np.int64] | npt.NDArray[np.float64]


class OverOperator:
    """Stores rows until their window is final, or until the end of the input without windows."""

    def __init__(self, node: Over) -> None:
        """Prepare an empty store of rows for `node`."""
        self.node = node
        self._stored = StoredRows(node.input, node.time_columns[0] if node.time_columns else None)
        names = [column.name for column in node.columns]
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self._bounds = names[: len(names) - len(node.outputs)]
        self._macs = macs_of(node.input) | {each.name for each in node.functions if each.type is Type.MAC}
        self.received = 0
        self.results = 0

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

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows."""
        self.received += batch.num_rows
        self._stored.add(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the results of final rows, sorted for the first function, and then the watermark."""
        final, has_grown = self._stored.take_final(punctuation)
        if final.num_rows:
            yield from self._results(final)
        if has_grown:
            yield Punctuation(punctuation.link, self._stored.watermark)

    def _results(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        columns = rows.schema.names
        for function in self.node.functions:
            values, positions = evaluate(function, rows.select(columns), self.node.window_columns)
            at_row = np.empty(len(positions), np.int64)
            at_row[positions] = np.arange(len(positions))
            rows = rows.append_column(function.name, values.take(pa.array(at_row)))
            if function is self.node.functions[0]:
                first_positions = positions
        rows = rows.take(pa.array(first_positions)).combine_chunks()
        self.results += rows.num_rows
        for batch in rows.to_batches(rows.num_rows if self.node.window_columns else OUTPUT_ROWS):
            vectors = BatchColumns(batch, self._macs)
            outputs = [computed(out, batch, vectors) for out in self.node.outputs]
            yield pa.RecordBatch.from_arrays([*map(batch.column, self._bounds), *outputs], schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows and the watermark."""
        return {ROWS: self._stored.rows, STATE: pa.table({WATERMARK: [self._stored.watermark]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._stored.restore(tables[ROWS], tables[STATE][WATERMARK][0].as_py())


@dataclass(frozen=True)
class Partitions:
    """Sorted rows by partition and peers. All arrays have one position for each row.

    `first`, `end`: the rows of the partition are `[first, end)`. `peer_first`, `peer_end`: the peers of the row.
    """

    first: Positions
    end: Positions
    peer_first: Positions
    peer_end: Positions

    @property
    def starts(self) -> Positions:
        """The first row of each partition."""
        return np.unique(self.first)


def evaluate(function: RowFunction, rows: pa.Table, window_columns: tuple[str, ...]) -> tuple[pa.Array, Positions]:
    """Return the values of a function for the sorted rows, and the positions of the sorted rows in `rows`."""
    partition = dict.fromkeys((*window_columns, *function.partition))
    order = [key for key in function.order if key.column not in partition]
    named = {*partition, *(key.column for key in order)}
    rest = [SortKey(name) for name in rows.schema.names if name not in named]
    positions = sorted_positions(rows, [*map(SortKey, partition), *order, *rest])
    is_first = _changes(rows, positions, partition)
    is_peer_first = is_first | _changes(rows, positions, [key.column for key in order])
    partitions = Partitions(*_intervals(is_first), *_intervals(is_peer_first))
    argument = None if function.argument is None else rows.column(function.argument).combine_chunks()
    return _values(function, partitions, None if argument is None else argument.take(pa.array(positions))), positions


def _changes(rows: pa.Table, positions: Positions, names: dict[str, None] | list[str]) -> npt.NDArray[np.bool_]:
    """Return which sorted rows differ from the row before in one of the named columns. The first row does."""
    changes = np.zeros(len(positions), np.bool_)
    changes[:1] = True
    for name in names:
        column = rows.column(name).combine_chunks()
        if pa.types.is_floating(column.type):
            # -0.0 is equal to 0.0, and all NaN are equal.
            column = pc.if_else(pc.is_nan(column), np.nan, pc.add(column, 0.0))
        codes = column.dictionary_encode(null_encoding="encode").indices.to_numpy()
        changes[1:] |= np.diff(codes[positions]) != 0
    return changes


def _intervals(is_first: npt.NDArray[np.bool_]) -> tuple[Positions, Positions]:
    """Return the first row and the end of the interval that each row is in."""
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(is_first)))
    return np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)


def _values(function: RowFunction, partitions: Partitions, argument: pa.Array | None) -> pa.Array:
    first, end, peer_first, peer_end = partitions.first, partitions.end, partitions.peer_first, partitions.peer_end
    number = np.arange(len(first))
    match function.kind:
        case RowFunctionKind.ROW_NUMBER:
            return pa.array(number - first + 1)
        case RowFunctionKind.RANK:
            return pa.array(peer_first - first + 1)
        case RowFunctionKind.DENSE_RANK:
            peers = np.cumsum(peer_first == number)
            return pa.array(peers - peers[first] + 1)
        case RowFunctionKind.PERCENT_RANK:
            return pa.array((peer_first - first) / np.maximum(end - first - 1, 1))
        case RowFunctionKind.CUME_DIST:
            return pa.array((peer_end - first) / (end - first))
        case RowFunctionKind.LAG:
            return _row_at(argument, number - function.distance, first, end)
        case RowFunctionKind.LEAD:
            return _row_at(argument, number + function.distance, first, end)
        case RowFunctionKind.FIRST_VALUE:
            return _row_at(argument, first, first, end)
        case RowFunctionKind.LAST_VALUE:
            return _row_at(argument, peer_end - 1, first, end)
        case RowFunctionKind.COUNT if argument is None:
            return pa.array(peer_end - first)
        case _:
            return _aggregate(function, partitions, argument)


def _row_at(argument: pa.Array, row: Positions, first: Positions, end: Positions) -> pa.Array:
    """Return the value of another row, NULL if it is outside of the partition."""
    outside = (row < first) | (row >= end)
    return argument.take(pa.array(np.where(outside, 0, row), mask=outside))


def _aggregate(function: RowFunction, partitions: Partitions, argument: pa.Array) -> pa.Array:
    """Return count, sum, avg, min or max of the values in the frame that are not NULL; NULL without such a value."""
    valid = np.asarray(argument.is_valid())
    counts = _running(np.add, valid.astype(np.int64), partitions)
    if function.kind is RowFunctionKind.COUNT:
        return pa.array(counts)
    values = argument.fill_null(0).to_numpy(zero_copy_only=False)
    match function.kind:
        case RowFunctionKind.MIN:
            largest = np.nan if values.dtype == np.float64 else np.iinfo(np.int64).max
            results = _running(np.fmin, np.where(valid, values, largest), partitions)
        case RowFunctionKind.MAX:
            smallest = -np.inf if values.dtype == np.float64 else np.iinfo(np.int64).min
            results = _running(np.maximum, np.where(valid, values, smallest), partitions)
        case _:
            results = _running(np.add, values, partitions)
    if function.kind is RowFunctionKind.AVG:
        results = results / np.maximum(counts, 1)
    return pa.array(results, ARROW_TYPES[function.type], mask=counts == 0)


def _running(fold: np.ufunc, values: Values, partitions: Partitions) -> Values:
    """Return `fold` over the values from the first row of the partition to the last peer of each row."""
    running = np.empty_like(values)
    bounds = [*partitions.starts.tolist(), len(values)]
    for start, end in pairwise(bounds):
        fold.accumulate(values[start:end], out=running[start:end])
    return running[partitions.peer_end - 1]
