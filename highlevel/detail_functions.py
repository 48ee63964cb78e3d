"""What is told of the values of groups: vectorised over all groups of a batch.

    count_distinct   number of different values
    quantile(p)      position p * (n - 1) among the n values in their order, from 0; between two of them interpolated
    mode             the most frequent value; of equals the smallest
    entropy          -Σ p log2 p over the shares p of the values, in bits
    top(k)           the k most frequent values as text, `value=count value=count`; of equals the smaller first

Over no value count_distinct is 0 and the others are NULL.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from highlevel.detail import DetailFunction
from highlevel.value_counts import ValueCounts
from lowlevel.addresses import to_text


def told(function: DetailFunction, parameter: float, values: ValueCounts) -> pa.Array:
    """Return what `function` says of each group."""
    match function:
        case DetailFunction.COUNT_DISTINCT:
            return pa.array(values.ends - values.begins)
        case DetailFunction.QUANTILE:
            return quantiles(values, parameter)
        case DetailFunction.MODE:
            return modes(values)
        case DetailFunction.ENTROPY:
            return entropies(values)
        case DetailFunction.TOP:
            return tops(values, int(parameter))


def quantiles(values: ValueCounts, share: float) -> pa.Array:
    """Return the quantile of each group, as Spark's `percentile` has it."""
    totals = values.totals
    empty = totals == 0
    found = np.zeros(len(totals))
    position = share * (totals - 1)
    low, high = np.floor(position), np.ceil(position)
    upto = np.cumsum(values.counts)
    before = np.cumsum(totals) - totals
    numbers = values.numbers()
    if len(numbers):
        last = len(numbers) - 1
        smaller, greater = (
            numbers[np.minimum(np.searchsorted(upto, before + rank.astype(np.int64), side="right"), last)]
            for rank in (low, high)
        )
        with np.errstate(invalid="ignore"):  # infinities on both sides of a position
            between = smaller + (greater - smaller) * (position - low)
        same = (smaller == greater) | (low == high) | np.isinf(smaller)
        found = np.where(same, smaller, between)
    return pa.array(found, mask=empty)


def modes(values: ValueCounts) -> pa.Array:
    """Return the most frequent value of each group."""
    return values.column.take(_firsts(values, values.by_frequency()))


def _firsts(values: ValueCounts, order: npt.NDArray[np.int64]) -> pa.Array:
    """Return the place of the first entry of each group in an order of the entries; NULL where it has none."""
    begins, ends = values.begins, values.ends
    places = np.append(values.places[order], 0)
    return pa.array(places[np.minimum(begins, len(order))], mask=begins == ends)


def entropies(values: ValueCounts) -> pa.Array:
    """Return the entropy of each group."""
    totals = values.totals
    shares = values.counts / totals[values.groups]
    bits = np.bincount(values.groups, -shares * np.log2(shares), values.group_count)
    return pa.array(bits + 0.0, mask=totals == 0)  # the sum of one -0.0 is 0


def tops(values: ValueCounts, most: int) -> pa.Array:
    """Return the `most` most frequent values of each group."""
    order = values.by_frequency()
    begins = values.begins
    order = order[np.arange(len(order)) - begins[values.groups] < most]
    texts = spelled(values.column.take(pa.array(values.places[order])))
    named = pc.binary_join_element_wise(texts, pa.array(values.counts[order]).cast(pa.string()), "=")
    sizes = np.minimum(values.ends - begins, most)
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), named), " ")
    return pc.if_else(pa.array(sizes > 0), joined, pa.scalar(None, pa.string()))


def spelled(column: pa.Array) -> pa.Array:
    """Return values as texts."""
    return to_text(column) if pa.types.is_binary(column.type) else column.cast(pa.string())
