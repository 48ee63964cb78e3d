"""Partials that are late for a window, as rows of that window: what is added to it after it was reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.aggregate import WID
from highlevel.bucket import END_WID, FIRST_WID
from highlevel.groups.merging import accumulated
from highlevel.groups.table import merged
from lowlevel.subaggregates import SubAggregate

MERGE_ROWS = 65_536
"""Rows that are merged at a time: a flood of late rows, each of thousands of windows, is not laid out at once."""


def supplements(
    tagged: pa.RecordBatch, closed: int, groups: Sequence[str], subaggregates: Sequence[SubAggregate]
) -> Iterator[pa.RecordBatch]:
    """Merge the partials of one batch for each window below `closed` that they are in: `wid`, groups, sub-aggregates.

    Bucket has given the partials their windows. Where they are many, what is added to a window comes in several parts.
    """
    first = tagged.column(FIRST_WID).to_numpy()
    count = np.clip(np.minimum(tagged.column(END_WID).to_numpy(), closed) - first, 0, None)
    late = np.flatnonzero(count)
    if len(late) == 0:
        return
    partials = tagged.select([*groups, *(sub.name for sub in subaggregates)])
    what = accumulated(subaggregates)
    for some in np.split(late, np.flatnonzero(np.diff((np.cumsum(count[late]) - count[late]) // MERGE_ROWS)) + 1):
        counts = count[some]
        before = np.cumsum(counts) - counts
        wids = np.arange(int(counts.sum())) + np.repeat(first[some] - before, counts)
        rows = partials.take(pa.array(np.repeat(some, counts))).append_column(WID, pa.array(wids))
        yield merged([rows], [WID, *groups], what)
