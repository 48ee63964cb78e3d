"""KeyedRows: rows in the order of key and time, and the rule of a node that computes results from them.

A rule states which results follow from the rows of some keys, and what remains of rows when a watermark has passed
them. It has no state: `highlevel.plan.operators.revision` stores the rows.
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
    """Rows with the numbers of their keys and their times (ns), in the order of keys, times and then all columns."""

    rows: pa.Table
    keys: Numbers
    times: Numbers

    @property
    def begins_key(self) -> Mask:
        """Which rows are the first of their key."""
        return np.append(True, self.keys[1:] != self.keys[:-1])[: len(self.keys)]

    def take(self, positions: Numbers) -> KeyedRows:
        """Return the rows at some positions, which rise."""
        return KeyedRows(self.rows.take(array_of(positions)), self.keys[positions], self.times[positions])


@dataclass(frozen=True, slots=True)
class Settlement:
    """The effects of a watermark: results that cannot change, the rows that remain, and numbers for counters.

    `absorbed`: rows that are no separate rows of the result, such as copies. `forgotten`: rows or flows before the
    deadline, although a later row could change them or be their copy. `overflowed_sums`: sums in `results` that are
    NULL, because they exceed 64 bits.
    """

    results: pa.Table
    remaining: KeyedRows
    absorbed: int
    forgotten: int = 0
    overflowed_sums: int = 0


class Rule(Protocol):
    """The results of rows with keys."""

    @property
    def within(self) -> int:
        """A row can change the result of another row only if it is at most this much later, ns."""
        ...

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Return rows of the input as rows that are stored."""
        ...

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the results of all rows of some keys."""
        ...

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Process the watermark `low` after the watermark `decided`, for all rows of some keys.

        `deadline`: rows before it are forgotten, and their results are complete. It is at least `low - within`, since
        no later row can follow an older row. It is later if too many rows are stored.
        """
        ...

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the results, given the times of all remaining rows."""
        ...


def sort_rows(rows: pa.Table, keys: Numbers, times: Numbers) -> KeyedRows:
    """Return rows in the order of keys, times and then all columns, so that the order of arrival has no effect."""
    order = np.lexsort((times, keys))
    sorted_keys, sorted_times = keys[order], times[order]
    equal = (sorted_keys[1:] == sorted_keys[:-1]) & (sorted_times[1:] == sorted_times[:-1])
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        names = [str(number) for number in range(rows.num_columns)]  # a name with a dot would be a path
        compared = rows.take(array_of(order[tied])).rename_columns(names)
        by_value = pc.sort_indices(compared, [(name, "ascending") for name in names])
        ranks = np.empty(len(tied), np.int64)
        ranks[by_value.to_numpy()] = np.arange(len(tied))
        all_ranks = np.zeros(len(order), np.int64)
        all_ranks[tied] = ranks
        order = order[np.lexsort((all_ranks, sorted_times, sorted_keys))]
    return KeyedRows(rows.take(array_of(order)), keys[order], times[order])
