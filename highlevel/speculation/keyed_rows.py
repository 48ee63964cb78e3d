"""KeyedRows: rows in the order of key and time. Rule: how a plan node computes results from them.

A rule computes results from the rows of some keys, and the rows that must be stored after a watermark.
It has no state: `highlevel.plan.operators.revision` stores the rows.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.lazy_dataclasses import dataclass

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows, the number of the key of each row, and its time (ns), in the order of keys, times and then all columns."""

    rows: pa.Table
    keys: Numbers
    times: Numbers

    @property
    def begins_key(self) -> Mask:
        """A mask of the first row of each key."""
        return np.append(True, self.keys[1:] != self.keys[:-1])[: len(self.keys)]

    def take(self, positions: Numbers) -> KeyedRows:
        """Return the rows at `positions`, which must be in ascending order."""
        return KeyedRows(self.rows.take(array_of(positions)), self.keys[positions], self.times[positions])


@dataclass(frozen=True, slots=True)
class Settlement:
    """The effects of a watermark: results that cannot change any more, the rows to store, and numbers for counters.

    `absorbed`: number of rows that are not separate rows of the result, such as copies. `forgotten`: number of rows or
    flows that were removed at the deadline, although a later row could change them or be their copy. `overflowed_sums`:
    number of sums in `results` that are NULL because they need more than 64 bits.
    """

    results: pa.Table
    remaining: KeyedRows
    absorbed: int
    forgotten: int = 0
    overflowed_sums: int = 0


class Rule(Protocol):
    """Computes results from rows with keys."""

    @property
    def within(self) -> int:
        """The maximum distance, in ns, at which a row can change the result of an earlier row."""
        ...

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Convert rows of the input to the rows that are stored."""
        ...

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the results of all rows of some keys."""
        ...

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Process the watermark `low` after the earlier watermark `decided`, for all rows of some keys.

        `deadline`: rows before it are removed, and their results are complete. The deadline is at least `low - within`,
        because no row that arrives later can change older rows. If too many rows are stored, the deadline is later.
        """
        ...

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the results, given the times of all remaining rows."""
        ...


def sort_rows(rows: pa.Table, keys: Numbers, times: Numbers) -> KeyedRows:
    """Sort rows by key, time and then all columns, so that the order of arrival has no effect."""
    order = np.lexsort((times, keys))
    sorted_keys, sorted_times = keys[order], times[order]
    is_equal = (sorted_keys[1:] == sorted_keys[:-1]) & (sorted_times[1:] == sorted_times[:-1])
    if is_equal.any():
        tied = np.flatnonzero(np.append(is_equal, False) | np.append(False, is_equal))
        names = [str(number) for number in range(rows.num_columns)]  # pyarrow would read a name with a dot as a path
        compared = rows.take(array_of(order[tied])).rename_columns(names)
        by_value = pc.sort_indices(compared, [(name, "ascending") for name in names])
        ranks = np.empty(len(tied), np.int64)
        ranks[by_value.to_numpy()] = np.arange(len(tied))
        all_ranks = np.zeros(len(order), np.int64)
        all_ranks[tied] = ranks
        order = order[np.lexsort((all_ranks, sorted_times, sorted_keys))]
    return KeyedRows(rows.take(array_of(order)), keys[order], times[order])
