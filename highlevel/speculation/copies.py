"""The rule of FirstCopies: a row is a copy if a row with the same key is at most `within` ns earlier.

    within 10       times of a key    0   4   12   30      12 is a copy of 4, which is a copy itself
                    copies                *    *

A row is a copy if its distance to the previous row of its key is at most `within`. So a late row affects only the row
that follows it. A later arrival is not below the watermark. So of the rows below the watermark, only the newest row of
each key can precede a later arrival, and is stored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.plan.revision_nodes import FirstCopies
from highlevel.speculation.keyed_rows import KeyedRows, Mask, Numbers, Settlement
from lowlevel.punctuation import END


class CopyRule:
    """Selects the rows that are not copies."""

    def __init__(self, node: FirstCopies) -> None:
        """Use the time of `node`."""
        self.within = node.within

    def prepare(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the rows unchanged."""
        return pa.Table.from_batches([batch])

    def results(self, keyed: KeyedRows) -> pa.Table:
        """Return the rows that are not copies."""
        return keyed.rows.filter(array_of(self._is_first(keyed)))

    def settle(self, keyed: KeyedRows, decided: int, low: int, deadline: int) -> Settlement:
        """Return the rows between the two watermarks that are not copies.

        A row is stored as long as a later row can be its copy.
        """
        is_first = self._is_first(keyed)
        is_new = (keyed.times >= decided) & (keyed.times < low)
        results = np.flatnonzero(is_first & is_new)
        is_followed = np.append((keyed.times[1:] < low) & ~keyed.begins_key[1:], False)[: len(keyed.times)]
        remaining = keyed.take(np.flatnonzero((keyed.times >= deadline) & ~is_followed))
        absorbed = int(np.count_nonzero(is_new & ~is_first))
        is_forgotten = (keyed.times < deadline) & (keyed.times >= low - self.within) & ~is_followed & (low != END)
        forgotten = int(np.count_nonzero(is_forgotten))
        return Settlement(keyed.rows.take(array_of(results)), remaining, absorbed, forgotten)

    def bound(self, times: Numbers, low: int) -> int:
        """Return the watermark of the results.

        It is the watermark of the input, because a row does not affect earlier rows.
        """
        return low

    def _is_first(self, keyed: KeyedRows) -> Mask:
        distances = np.diff(keyed.times, prepend=0)
        return keyed.begins_key | (distances > self.within)
