"""Holistic aggregates, vectorised over all groups of a batch.

    count_distinct   number of different values
    min, max         smallest and largest value, also of addresses and texts
    first, last      value with the smallest or greatest ts; if several have this ts, the smallest or greatest of them
    quantile(p)      value at position p * (n - 1) of the n sorted values, counted from 0; interpolated
    mode             the most frequent value; if there are several, the smallest of them
    entropy          -Σ p log2 p over the shares p of the values, in bits
    top(k)           the k most frequent values as text, `value=count value=count`; equal counts: smaller value first;
                     times are ISO 8601 texts in UTC

Without values count_distinct is 0 and the other results are NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.aggregation import DetailFunction
from lowlevel.expressions.arrow import to_text
from lowlevel.expressions.types import Type
from lowlevel.times import time_texts

# Counts of each value in each group. All aggregates use the same sorted values.
#
# group    0  0  0  1  1           values rise within a group; NULL is no value
# value    a  b  d  a  c           totals 6 and 8
# count    1  3  2  4  4


Numbers = npt.NDArray[np.int64]


class ValueCounts:
    """Values of some groups with their counts.

    Entry i: group `groups[i]` contains the value at position `positions[i]` of `column`, `counts[i]` times. Numbers are
    in rising order, IPv4 before IPv6, texts by code points. All NaN are one value, the greatest.
    """

    def __init__(self, ids: Numbers, groups: int, column: pa.Array, counts: Numbers) -> None:
        """Sort the values of `column`.

        Row i belongs to group `ids[i]` (below `groups`) and counts `counts[i]` times.
        """
        rows = np.flatnonzero((counts > 0) & np.asarray(pc.is_valid(column)))
        ranks = _rank_values(column)[rows]
        ids = ids[rows]
        order = _sorted_entries(ids, ranks, groups)
        rows, ranks, ids = rows[order], ranks[order], ids[order]
        starts = np.flatnonzero(np.append(True, (np.diff(ids) != 0) | (np.diff(ranks) != 0))[: len(ids)])
        self.group_count = groups
        self.column = column
        self.groups = ids[starts]
        self.positions = rows[starts]
        self.counts = np.add.reduceat(counts[rows], starts) if len(starts) else counts[:0]

    @property
    def totals(self) -> Numbers:
        """Number of rows with a value, per group."""
        sums = np.append(0, np.cumsum(self.counts))
        return sums[self.ends] - sums[self.begins]

    @property
    def begins(self) -> Numbers:
        """The first entry of each group."""
        return np.searchsorted(self.groups, np.arange(self.group_count))

    @property
    def ends(self) -> Numbers:
        """Index after the last entry of each group."""
        return np.searchsorted(self.groups, np.arange(self.group_count), side="right")

    def by_frequency(self) -> Numbers:
        """Return the entries group by group, the most frequent first, equal counts by value."""
        return np.lexsort((-self.counts, self.groups))  # a stable sort: equal counts stay in the order of values

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return the values of the entries as floats."""
        values = pc.take(self.column, array_of(self.positions))
        return pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _sorted_entries(ids: Numbers, ranks: Numbers, groups: int) -> Numbers:
    """Return the positions sorted by group, then by value. Equal entries may be in any order."""
    if len(ids) == 0:
        return ids
    least = int(ranks.min())
    values = int(ranks.max()) - least + 1
    if groups * values < 2**63:  # group and rank fit into one word, and one sort is cheaper than two
        return np.argsort(ids * values + (ranks - least))
    return np.lexsort((ranks, ids))


def _rank_values(column: pa.Array) -> Numbers:
    """Return a number for each value, in the order of the values. Equal values have equal numbers. NULL: any number."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        encoded = pc.dictionary_encode(column)
        values = encoded.dictionary
        keys = {"value": values} if pa.types.is_string(kind) else {"size": pc.binary_length(values), "value": values}
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
        ranks = np.empty(len(values) + 1, np.int64)
        ranks[order.to_numpy()] = np.arange(len(values))
        ranks[-1] = len(values)
        return ranks[pc.fill_null(encoded.indices, len(values)).to_numpy(zero_copy_only=False)]
    zero = pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)
    numbers = pc.fill_null(column, zero).to_numpy(zero_copy_only=False)
    # For floats np.unique makes both zeros, and all NaN, equal.
    ranks = np.unique(numbers, return_inverse=True)[1] if numbers.dtype == np.float64 else numbers
    return ranks.astype(np.int64, copy=False)


def compute_aggregate(
    function: DetailFunction, parameter: float, value_counts: ValueCounts, value_type: Type = Type.INT
) -> pa.Array:
    """Return the result of `function` for each group, over values of the type `value_type`."""
    match function:
        case DetailFunction.COUNT_DISTINCT:
            return array_of(value_counts.ends - value_counts.begins)
        case DetailFunction.MIN:
            return pc.take(
                value_counts.column, _find_first_entries(value_counts, np.arange(len(value_counts.positions)))
            )
        case DetailFunction.MAX:
            return pc.take(value_counts.column, _find_last_entries(value_counts))
        case DetailFunction.QUANTILE:
            return quantiles(value_counts, parameter)
        case DetailFunction.MODE:
            return modes(value_counts)
        case DetailFunction.ENTROPY:
            return entropies(value_counts)
        case DetailFunction.TOP:
            return tops(value_counts, int(parameter), value_type)


def values_by_time(
    ids: Numbers, groups: int, column: pa.Array, counts: Numbers, times: Numbers, is_last: bool
) -> pa.Array:
    """Return for each group the value with the smallest time, or if `is_last` with the greatest time. NULL: no values.

    Row i belongs to group `ids[i]` (below `groups`) and counts `counts[i]` times. If several values have this time, the
    smallest is returned, or if `is_last` the greatest.
    """
    rows = np.flatnonzero((counts > 0) & np.asarray(pc.is_valid(column)))
    order = np.lexsort((_rank_values(column)[rows], times[rows], ids[rows]))
    groups_in_order, positions = ids[rows][order], np.append(rows[order], 0)
    begins, ends = (np.searchsorted(groups_in_order, np.arange(groups), side=side) for side in ("left", "right"))
    chosen = np.maximum(ends, 1) - 1 if is_last else begins
    return pc.take(column, array_of(positions[chosen], begins == ends))


def quantiles(value_counts: ValueCounts, share: float) -> pa.Array:
    """Return the quantile of each group at `share` (0 to 1), equal to Spark's `percentile`."""
    totals = value_counts.totals
    is_empty = totals == 0
    quantiles = np.zeros(len(totals))
    position = share * (totals - 1)
    low, high = np.floor(position), np.ceil(position)
    counts_before = np.cumsum(value_counts.counts)
    before = np.cumsum(totals) - totals
    numbers = value_counts.numbers()
    if len(numbers):
        last = len(numbers) - 1
        smaller, greater = (
            numbers[np.minimum(np.searchsorted(counts_before, before + rank.astype(np.int64), side="right"), last)]
            for rank in (low, high)
        )
        with np.errstate(invalid="ignore"):  # inf - inf
            between = smaller + (greater - smaller) * (position - low)
        same = (smaller == greater) | (low == high) | np.isinf(smaller)
        quantiles = np.where(same, smaller, between)
    return array_of(quantiles, is_empty)


def modes(value_counts: ValueCounts) -> pa.Array:
    """Return the most frequent value of each group."""
    return pc.take(value_counts.column, _find_first_entries(value_counts, value_counts.by_frequency()))


def _find_first_entries(value_counts: ValueCounts, order: npt.NDArray[np.int64]) -> pa.Array:
    """Return the position of the first entry of each group in `order`, NULL for a group without entries."""
    begins, ends = value_counts.begins, value_counts.ends
    positions = np.append(value_counts.positions[order], 0)
    return array_of(positions[np.minimum(begins, len(order))], begins == ends)


def _find_last_entries(value_counts: ValueCounts) -> pa.Array:
    """Return the position of the last entry of each group, NULL for a group without entries."""
    begins, ends = value_counts.begins, value_counts.ends
    positions = np.append(value_counts.positions, 0)
    return array_of(positions[np.maximum(ends, 1) - 1], begins == ends)


def number_combinations(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row. Rows with equal values in all columns have equal numbers.

    A row with NULL in a column has NULL.
    """
    numbers, is_valid = np.zeros(len(columns[0]), np.int64), np.ones(len(columns[0]), np.bool_)
    for column in columns:
        _, ranks = np.unique(_rank_values(column), return_inverse=True)
        numbers = numbers * (int(ranks.max(initial=0)) + 1) + ranks
        numbers = np.unique(numbers, return_inverse=True)[1]  # the product of two numbers of ranks fits into 64 bits
        is_valid &= np.asarray(pc.is_valid(column))
    return array_of(numbers, ~is_valid)


def entropies(value_counts: ValueCounts) -> pa.Array:
    """Return the entropy of each group, in bits."""
    totals = value_counts.totals
    shares = value_counts.counts / totals[value_counts.groups]
    bits = np.bincount(value_counts.groups, -shares * np.log2(shares), value_counts.group_count)
    return array_of(bits + 0.0, totals == 0)  # the sum of one -0.0 is 0


def tops(value_counts: ValueCounts, max_values: int, value_type: Type) -> pa.Array:
    """Return the `max_values` most frequent values of each group."""
    order = value_counts.by_frequency()
    begins = value_counts.begins
    order = order[np.arange(len(order)) - begins[value_counts.groups] < max_values]
    texts = write_texts(pc.take(value_counts.column, array_of(value_counts.positions[order])), value_type)
    named = pc.binary_join_element_wise(texts, pc.cast(array_of(value_counts.counts[order]), pa.string()), "=")
    sizes = np.minimum(value_counts.ends - begins, max_values)
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(array_of(offsets), named), " ")
    return pc.if_else(array_of(sizes > 0), joined, pa.scalar(None, pa.string()))


def write_texts(column: pa.Array, value_type: Type) -> pa.Array:
    """Return values of the type `value_type` as texts."""
    if value_type is Type.TIME:
        return time_texts(column)
    return to_text(column) if pa.types.is_binary(column.type) else column.cast(pa.string())
