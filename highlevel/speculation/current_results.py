"""The current results of a query with changes: the sum of all changes so far, by the times of the rows.

    changes ──► sum of the weights of equal rows ──► rows that are not final
                                                 └─► rows that became final, once

A sink that cannot store changes reads this sum. It finds the rows that a correction replaces by the time column
of the results: the end of the window, or the time of a row without a window. The sum contains only rows that are not
final, so REMEMBER bounds its size. All changes of a correction are in one batch, so a reader never finds only a part of
a correction.

Each distinct row has a number (`highlevel.groups.keys`), so the cost of a change depends only on its own rows. When
more than half of all numbers belong to withdrawn rows, these numbers are removed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.errors import InputError
from highlevel.groups.keys import Keys
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.operators.operator import times_of
from highlevel.speculation.consistency import FINAL, WEIGHT
from lowlevel.punctuation import END

Mask = npt.NDArray[np.bool_]

MIN_REMOVED_ROWS = 64
"""Minimum number of withdrawn rows whose numbers are removed together."""


class CurrentResults:
    """The rows of one query that are not final. Not thread safe."""

    def __init__(self, query: str, schema: pa.Schema, time: str = WINDOW_END) -> None:
        """Begin without rows. `schema`: the columns of the result, without `weight` and `final`.

        `time`: the time column.

        All columns have the Arrow types of results (`lowlevel.plan.ARROW_TYPES`); times are in ns.
        """
        self.schema = schema
        self._query, self._time = query, time
        self._keys = Keys([field.type for field in schema])
        self._weights = np.zeros(0, np.int64)
        self._times = np.zeros(0, np.int64)
        self._open_times: set[int] = set()

    @property
    def times(self) -> list[int]:
        """The times of rows that are not final, in order. A time stays in the list if all its rows were withdrawn."""
        return sorted(self._open_times)

    @property
    def oldest_time(self) -> int | None:
        """The earliest time of a row that is not final, ns; None if there is no such row."""
        return int(self._times[self._weights > 0].min()) if (self._weights > 0).any() else None

    @property
    def num_rows(self) -> int:
        """Number of distinct rows."""
        return int(np.count_nonzero(self._weights))

    @property
    def bytes(self) -> int:
        """Bytes of the rows, including memory that is reserved for more rows."""
        return self._keys.bytes + self._weights.nbytes + self._times.nbytes

    def rows(self, time: int) -> pa.Table:
        """Return the rows of a time (ns)."""
        return self._table(np.flatnonzero((self._times == time) & (self._weights > 0)))

    def all_rows(self) -> pa.Table:
        """Return all rows in the order of their times."""
        return self._ordered(self._weights > 0)

    def add(self, changes: pa.Table) -> list[int]:
        """Add changes. Return the times whose rows have changed, in order.

        Raises InputError for a row that is withdrawn more often than it was returned.
        """
        if not changes.num_rows:
            return []
        rows = changes.select(self.schema.names).cast(self.schema).combine_chunks()
        columns = [column.chunk(0) for column in rows.columns]
        numbers, positions = np.unique(self._keys.find_or_insert(columns, rows.num_rows), return_inverse=True)
        self._grow()
        self._times[numbers[positions]] = times_of(rows.column(self._time).chunk(0))
        sums = np.zeros(len(numbers), np.int64)
        np.add.at(sums, positions, changes[WEIGHT].to_numpy())
        self._weights[numbers] += sums
        negative = numbers[self._weights[numbers] < 0]
        if len(negative):
            (row,) = self._rows(negative[:1]).to_pylist()
            raise InputError(
                f"changes of the query {self._query}: got {row}, which withdraws a row that no earlier change "
                "returned; expected all changes since the first one"
            )
        changed = np.unique(self._times[numbers[sums != 0]]).tolist()
        self._open_times.update(changed)
        self._remove_unused_numbers()
        return changed

    def close(self, watermark: int) -> pa.Table:
        """Remove and return the rows with a time of at most `watermark` (ns), in the order of their times."""
        is_closed = np.ones(len(self._times), np.bool_) if watermark == END else self._times <= watermark
        self._open_times = {time for time in self._open_times if watermark != END and time > watermark}
        closed = self._ordered(is_closed & (self._weights > 0))
        self._weights[is_closed] = 0
        self._remove_unused_numbers()
        return closed

    def _grow(self) -> None:
        """Extend the arrays for the numbers of new rows."""
        missing = self._keys.capacity - len(self._weights)
        if missing > 0:
            self._weights, self._times = (np.append(each, np.zeros(missing, np.int64)) for each in
                                          (self._weights, self._times))  # fmt: skip

    def _remove_unused_numbers(self) -> None:
        """Remove the numbers of rows that were withdrawn or closed, if there are many."""
        kept = np.flatnonzero(self._weights)
        if self._keys.count - len(kept) <= max(len(kept), MIN_REMOVED_ROWS):
            return
        weights, times = self._weights[kept], self._times[kept]
        self._keys = self._keys.copy_of(kept)
        self._weights = self._times = np.zeros(0, np.int64)
        self._grow()
        self._weights[: len(kept)], self._times[: len(kept)] = weights, times

    def _ordered(self, chosen: Mask) -> pa.Table:
        numbers = np.flatnonzero(chosen)
        return self._table(numbers[np.argsort(self._times[numbers], kind="stable")])

    def _table(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Return the rows with these numbers, each as often as its weight."""
        weights = self._weights[numbers]
        rows = self._rows(numbers)
        return rows if (weights == 1).all() else pc.take(rows, array_of(np.repeat(np.arange(len(weights)), weights)))

    def _rows(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        if not len(numbers):
            return self.schema.empty_table()
        return pa.Table.from_arrays(self._keys.columns(numbers), schema=self.schema)


def final_time(changes: pa.Table, time: str = WINDOW_END) -> int | None:
    """Return the newest time (ns) of a final change; None if no change is final.

    All rows with an earlier time are final too. `time`: the time column of the results.
    """
    newest: int | None = pc.max(changes.filter(changes[FINAL])[time]).as_py()
    return newest
