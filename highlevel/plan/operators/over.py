"""Over: window functions of SQL, which compute a value for each row from other rows of the answer.

The rows of a partition are sorted by the keys of ORDER BY. Rows with equal keys are peers. Peers are sorted by their
other columns, so that `row_number` and `lag` do not depend on the order of arrival. An aggregate uses the rows of its
frame. Without ORDER BY all rows of the partition are peers.

The values of a row are final when the watermark passes the row, if all functions allow it
(`RowFunction.is_final_by`). The operator stores the final rows that a later row may use, its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.answer_nodes import Over, RowFunction, RowFunctionKind, SortKey
from highlevel.plan.nodes import macs_of
from highlevel.plan.operators.apply import compute_column
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.sort import OUTPUT_ROWS, sorted_positions
from highlevel.plan.operators.stored_rows import ROWS, WATERMARK, StoredRows
from lowlevel.expressions.columns import Vector
from lowlevel.expressions.evaluate import sum_halves
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END, Punctuation

STATE = "state"
"""The table of a snapshot with the watermark."""

Positions = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
"""Numbers: int64 or float64."""


HISTORY = "history"
"""The table of a snapshot with the final rows that later rows may use."""


class OverOperator:
    """Stores rows until the watermark of `Over.final_time_column` passes them, or until the end of the input."""

    def __init__(self, node: Over) -> None:
        """Prepare an empty store of rows for `node`."""
        self.node = node
        self._stored = StoredRows(node.input, node.final_time_column)
        self._history: pa.Table = self._stored.rows
        names = [column.name for column in node.columns]
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self._bounds = names[: len(names) - len(node.outputs)]
        self._macs = macs_of(node.input) | {function.name for function in node.functions if function.type is Type.MAC}
        self.received = 0
        self.results = 0
        self.overflowed_sums = 0
        """Sums in results that are NULL, because they exceed 64 bits."""

    @property
    def late(self) -> int:
        """Rows below the watermark, which are dropped."""
        return self._stored.late

    @property
    def rows_held(self) -> int:
        """Number of stored rows, including the history."""
        return self._stored.num_rows + self._history.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows, including the history."""
        return self._stored.nbytes + self._history.nbytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows."""
        self.received += batch.num_rows
        self._stored.add(batch)
        return iter(())

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the results of final rows, sorted by time and for the first function, and then the watermark."""
        final, has_grown = self._stored.take_final(punctuation)
        if final.num_rows:
            yield from self._results(final)
        if self._stored.watermark == END:
            self._history = self._stored.schema.empty_table()
        if has_grown:
            yield Punctuation(punctuation.link, self._stored.watermark)

    def _results(self, final: pa.Table) -> Iterator[pa.RecordBatch]:
        node, known = self.node, self._history.num_rows
        source = rows = pa.concat_tables([self._history, final])
        is_used = np.zeros(source.num_rows, np.bool_)
        for function in node.functions:
            partitions = sorted_partitions(function, source)
            if node.final_time_column is not None and node.final_time_column not in function.partition:
                is_used[partitions.positions] |= find_used_later(function, partitions, source, self._stored.watermark)
            values = evaluate(function, partitions, source)
            self.overflowed_sums += int(
                np.count_nonzero(_mask_overflowed(function, partitions, source, values)[partitions.positions >= known])
            )
            at_row = np.empty(len(partitions.positions), np.int64)
            at_row[partitions.positions] = np.arange(len(partitions.positions))
            rows = rows.append_column(function.name, values.take(pa.array(at_row)))
            if function is node.functions[0]:
                first_positions = partitions.positions
        self._history = source.filter(pa.array(is_used)).combine_chunks()
        positions = first_positions[first_positions >= known]
        if node.final_time_column is not None and node.final_time_column not in node.functions[0].partition:
            times = times_of(source.column(node.final_time_column).combine_chunks())
            positions = positions[np.argsort(times[positions], kind="stable")]
        rows = rows.take(pa.array(positions)).combine_chunks()
        self.results += rows.num_rows
        for batch in rows.to_batches(rows.num_rows if node.window_columns else OUTPUT_ROWS):
            vectors = BatchColumns(batch, self._macs)
            outputs = [compute_column(out, batch, vectors) for out in node.outputs]
            yield pa.RecordBatch.from_arrays([*map(batch.column, self._bounds), *outputs], schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows, the history and the watermark."""
        state = pa.table({WATERMARK: [self._stored.watermark]})
        return {ROWS: self._stored.rows, HISTORY: self._history, STATE: state}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._stored.restore(tables[ROWS], tables[STATE][WATERMARK][0].as_py())
        self._history = tables[HISTORY].cast(self._stored.schema)


@dataclass(frozen=True)
class Partitions:
    """Sorted rows by partition and peers. All arrays have one position for each row.

    `positions`: the index of the row in the unsorted rows. `first`, `end`: the rows of the partition are
    `[first, end)`. `peer_first`, `peer_end`: the peers of the row.
    """

    positions: Positions
    first: Positions
    end: Positions
    peer_first: Positions
    peer_end: Positions

    @property
    def number(self) -> Positions:
        """The indexes of the sorted rows, 0 to their number - 1."""
        return np.arange(len(self.first))


def sorted_partitions(function: RowFunction, rows: pa.Table) -> Partitions:
    """Sort the rows by the partition and the order of a function."""
    partition = dict.fromkeys(function.partition)
    order = [key for key in function.order if key.column not in partition]
    named = {*partition, *(key.column for key in order)}
    rest = [SortKey(name) for name in rows.schema.names if name not in named]
    positions = sorted_positions(rows, [*map(SortKey, partition), *order, *rest])
    is_first = _find_changes(rows, positions, partition)
    is_peer_first = is_first | _find_changes(rows, positions, [key.column for key in order])
    return Partitions(positions, *_intervals(is_first), *_intervals(is_peer_first))


def find_used_later(
    function: RowFunction, partitions: Partitions, rows: pa.Table, watermark: int
) -> npt.NDArray[np.bool_]:
    """Return a mask of the sorted rows that a row at `watermark` or later may use.

    The time of the rows is the first key of ORDER BY.
    """
    if function.kind is RowFunctionKind.LAG:
        return partitions.end - partitions.number <= function.distance
    frame = function.frame
    assert frame.first is not None
    if not frame.by_values:
        return partitions.end - partitions.number <= -frame.first
    times = times_of(rows.column(function.order[0].column).combine_chunks())[partitions.positions]
    return times >= watermark + int(frame.first)


def evaluate(function: RowFunction, partitions: Partitions, rows: pa.Table) -> pa.Array:
    """Return the values of a function for the sorted rows."""
    argument = None
    if function.argument is not None:
        argument = rows.column(function.argument).combine_chunks().take(pa.array(partitions.positions))
    first, end, peer_first, peer_end = partitions.first, partitions.end, partitions.peer_first, partitions.peer_end
    number = partitions.number
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
            return _values_at(argument, number - function.distance, first, end)
        case RowFunctionKind.LEAD:
            return _values_at(argument, number + function.distance, first, end)
    frame_first, frame_end = _find_frames(function, partitions, rows)
    match function.kind:
        case RowFunctionKind.FIRST_VALUE:
            return _values_at(argument, frame_first, frame_first, frame_end)
        case RowFunctionKind.LAST_VALUE:
            return _values_at(argument, frame_end - 1, frame_first, frame_end)
        case RowFunctionKind.COUNT if argument is None:
            return pa.array(frame_end - frame_first)
        case _:
            return _aggregate(function, frame_first, frame_end, argument)


def _mask_overflowed(
    function: RowFunction, partitions: Partitions, rows: pa.Table, values: pa.Array
) -> npt.NDArray[np.bool_]:
    """Return a mask of the sorted rows whose sum of integers is NULL, because it exceeds 64 bits."""
    if function.kind is not RowFunctionKind.SUM or function.type is not Type.INT or not values.null_count:
        return np.zeros(len(partitions.positions), np.bool_)
    counts = evaluate(replace(function, kind=RowFunctionKind.COUNT), partitions, rows).to_numpy()
    return np.asarray(values.is_null()) & (counts > 0)


def _find_frames(function: RowFunction, partitions: Partitions, rows: pa.Table) -> tuple[Positions, Positions]:
    """Return the frame `[first, end)` of each sorted row; `first` is not after `end`."""
    frame = function.frame
    if not frame.by_values:
        first = partitions.first if frame.first is None else _rows_at_distance(partitions, int(frame.first))
        end = partitions.end if frame.last is None else _rows_at_distance(partitions, int(frame.last) + 1)
    else:
        first = partitions.first if frame.first is None else partitions.peer_first
        end = partitions.end if frame.last is None else partitions.peer_end
        if frame.first or frame.last:
            values = ValueOrder(function.order[0], partitions, rows)
            first = values.find_bound(frame.first, "left") if frame.first else first
            end = values.find_bound(frame.last, "right") if frame.last else end
    return np.minimum(first, end), end


def _rows_at_distance(partitions: Partitions, distance: int) -> Positions:
    """Return for each row the index of the row at `distance`, limited to the bounds of the partition."""
    return np.clip(partitions.number + distance, partitions.first, partitions.end)


class ValueOrder:
    """Sorted rows as ascending numbers: by partition, then by the value of the key of ORDER BY.

    A row with NULL is within a distance of its peers only.
    """

    def __init__(self, key: SortKey, partitions: Partitions, rows: pa.Table) -> None:
        """Number the values of the key."""
        column = rows.column(key.column).combine_chunks().take(pa.array(partitions.positions))
        self._partitions = partitions
        self._is_null = np.asarray(column.is_null())
        self._values = column.fill_null(0).cast(ARROW_TYPES[_number_type(column)]).to_numpy(zero_copy_only=False)
        self._is_descending = key.descending
        self._known = np.unique(self._values[~self._is_null])
        # A partition has the numbers [0, len(known) + 2): NULLs first, the values, NULLs last.
        self._offset = partitions.first * (len(self._known) + 2)
        null_rank = 0 if key.nulls_first else len(self._known) + 1
        positions = np.where(self._is_null, null_rank, self._rank(np.searchsorted(self._known, self._values)))
        self._sorted = self._offset + positions

    def _rank(self, number: Positions) -> Positions:
        """Return the rank of the known values with these numbers, in the direction of the key."""
        return len(self._known) - number if self._is_descending else number + 1

    def find_bound(self, distance: int | float, side: Literal["left", "right"]) -> Positions:
        """Return for each row the index of the first row within `distance` (`left`), or their end (`right`)."""
        shifted = _add_saturating(self._values, -distance if self._is_descending else distance)
        if (side == "left") != self._is_descending:
            number = np.searchsorted(self._known, shifted, "left")  # the first value that is not smaller
        else:
            number = np.searchsorted(self._known, shifted, "right") - 1  # the last value that is not larger
        wanted = self._offset + self._rank(number)
        bounds = np.searchsorted(self._sorted, wanted, side)
        peers = self._partitions.peer_first if side == "left" else self._partitions.peer_end
        return np.where(self._is_null, peers, bounds)


def _number_type(column: pa.Array) -> Type:
    return Type.FLOAT if pa.types.is_floating(column.type) else Type.INT


def _add_saturating(values: Values, distance: int | float) -> Values:
    """Return `values + distance`, limited to the range of 64-bit integers."""
    sums: Values = values + values.dtype.type(distance)
    if values.dtype == np.int64:
        limit = np.iinfo(np.int64).max if distance > 0 else np.iinfo(np.int64).min
        has_overflowed = (sums < values) if distance > 0 else (sums > values)
        sums = np.where(has_overflowed, limit, sums)
    return sums


def _find_changes(rows: pa.Table, positions: Positions, names: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return a mask of the sorted rows that differ from the row before in a named column.

    It is true for the first row.
    """
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
    """Return for each row the first row and the end of the interval that contains it."""
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(is_first)))
    return np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)


def _values_at(argument: pa.Array, row: Positions, first: Positions, end: Positions) -> pa.Array:
    """Return for each row the value of the row `row`; NULL if `row` is not in `[first, end)`."""
    is_outside = (row < first) | (row >= end)
    return argument.take(pa.array(np.where(is_outside, 0, row), mask=is_outside))


def _aggregate(function: RowFunction, first: Positions, end: Positions, argument: pa.Array) -> pa.Array:
    """Return count, sum, avg, min or max of the values in the frame that are not NULL; NULL without such a value.

    The sum of integers is NULL too if it exceeds 64 bits.
    """
    is_valid = np.asarray(argument.is_valid())
    counts = fold_frames(np.add, is_valid.astype(np.int64), first, end, 0) if argument.null_count else end - first
    if function.kind is RowFunctionKind.COUNT:
        return pa.array(counts)
    values = argument.fill_null(0).to_numpy(zero_copy_only=False)
    fits = np.ones(len(first), np.bool_)
    match function.kind:
        case RowFunctionKind.MIN:
            largest = np.nan if values.dtype == np.float64 else np.iinfo(np.int64).max
            results = fold_frames(np.fmin, np.where(is_valid, values, largest), first, end, largest)
        case RowFunctionKind.MAX:
            smallest = -np.inf if values.dtype == np.float64 else np.iinfo(np.int64).min
            results = fold_frames(np.maximum, np.where(is_valid, values, smallest), first, end, smallest)
        case _ if values.dtype == np.float64:
            results = fold_frames(np.add, values, first, end, 0)
        case _:
            sums = _sum_integers(values, first, end, function.type)
            results, fits = sums.data, fits if sums.valid is None else sums.valid
    if function.kind is RowFunctionKind.AVG:
        results = results / np.maximum(counts, 1)
    return pa.array(results, ARROW_TYPES[function.type], mask=(counts == 0) | ~fits)


def _sum_integers(values: Values, first: Positions, end: Positions, result_type: Type) -> Vector:
    """Return the sum of each frame as INT or FLOAT (`result_type`); an INT beyond 64 bits is NULL."""
    high, low = (fold_frames(np.add, half, first, end, 0) for half in (values >> 32, values & 0xFFFFFFFF))
    return sum_halves(high, low, result_type)


def fold_frames(fold: np.ufunc, values: Values, first: Positions, end: Positions, empty_result: int | float) -> Values:
    """Return `fold` over the values of each frame `[first, end)`, or `empty_result`.

    A frame is the union of blocks whose lengths are different powers of 2. No value is subtracted, so an infinite or
    large value affects only the frames that contain it.
    """
    results: Values = np.full(len(first), empty_result, values.dtype)
    lengths, position, size = end - first, first.copy(), 1
    longest = int(lengths.max(initial=0))
    while size <= longest:
        frames = np.flatnonzero(lengths & size)
        results[frames] = fold(results[frames], values[position[frames]])
        position[frames] += size
        # The value at i becomes the fold over the block [i, i + 2·size).
        values = fold(values[:-size], values[size:]) if 2 * size <= longest else values
        size *= 2
    return results
