"""How often each value stands in each group, sorted once for all that is told of it.

group    0  0  0  1  1           values rise within a group; NULL is no value
value    a  b  d  a  c           totals 6 and 8
count    1  3  2  4  4
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]


class ValueCounts:
    """Values of some groups with their counts.

    Entry i says that in group `groups[i]` the value at place `places[i]` of `column` stands `counts[i]` times. Numbers
    rise, IPv4 comes before IPv6, texts rise by their code points; NaN is one value, and the greatest.
    """

    def __init__(self, ids: Numbers, groups: int, column: pa.Array, counts: Numbers) -> None:
        """Sort the values of `column`, row i being of group `ids[i]` (below `groups`) and standing for `counts[i]`."""
        rows = np.flatnonzero((counts > 0) & np.asarray(column.is_valid()))
        ranks = _ranks(column)[rows]
        ids = ids[rows]
        order = _order(ids, ranks, groups)
        rows, ranks, ids = rows[order], ranks[order], ids[order]
        starts = np.flatnonzero(np.append(True, (np.diff(ids) != 0) | (np.diff(ranks) != 0))[: len(ids)])
        self.group_count = groups
        self.column = column
        self.groups = ids[starts]
        self.places = rows[starts]
        self.counts = np.add.reduceat(counts[rows], starts) if len(starts) else counts[:0]

    @property
    def totals(self) -> Numbers:
        """How many rows of each group have a value."""
        sums = np.append(0, np.cumsum(self.counts))
        return sums[self.ends] - sums[self.begins]

    @property
    def begins(self) -> Numbers:
        """The first entry of each group."""
        return np.searchsorted(self.groups, np.arange(self.group_count))

    @property
    def ends(self) -> Numbers:
        """The first entry behind each group."""
        return np.searchsorted(self.groups, np.arange(self.group_count), side="right")

    def by_frequency(self) -> Numbers:
        """Return the entries group by group, the most frequent first; of equals the smaller value."""
        return np.lexsort((-self.counts, self.groups))  # which leaves equals in the order they are in

    def numbers(self) -> npt.NDArray[np.float64]:
        """Return the values of the entries as floats."""
        return self.column.take(pa.array(self.places)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _order(ids: Numbers, ranks: Numbers, groups: int) -> Numbers:
    """Return the order by group, then by value; of equals any."""
    if len(ids) == 0:
        return ids
    least = int(ranks.min())
    values = int(ranks.max()) - least + 1
    if groups * values < 2**63:  # one word tells both, and one sort is a fraction of two
        return np.argsort(ids * values + (ranks - least))
    return np.lexsort((ranks, ids))


def _ranks(column: pa.Array) -> Numbers:
    """Return numbers in the order of the values: equal for equal ones; any number for a NULL."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        values = encoded.dictionary
        keys = {"value": values} if pa.types.is_string(kind) else {"size": pc.binary_length(values), "value": values}
        order = pc.sort_indices(pa.table(keys), sort_keys=[(name, "ascending") for name in keys])
        ranks = np.empty(len(values) + 1, np.int64)
        ranks[order.to_numpy()] = np.arange(len(values))
        ranks[-1] = len(values)
        return ranks[encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)]
    zero = pa.scalar(False if pa.types.is_boolean(kind) else 0, kind)
    numbers = column.fill_null(zero).to_numpy(zero_copy_only=False)
    # Floats have two zeros, and NaN that no comparison finds equal.
    ranks = np.unique(numbers, return_inverse=True)[1] if numbers.dtype == np.float64 else numbers
    return ranks.astype(np.int64, copy=False)
