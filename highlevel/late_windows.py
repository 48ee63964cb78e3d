"""Partials that are late for a window, as rows of that window: what is added to it after it was reported."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from highlevel.aggregate import WID
from highlevel.bucket import END_WID, FIRST_WID
from highlevel.groups.merging import accumulated
from highlevel.groups.table import merged
from lowlevel.subaggregates import SubAggregate


def supplements(
    tagged: pa.RecordBatch, closed: int, groups: Sequence[str], subaggregates: Sequence[SubAggregate]
) -> pa.RecordBatch | None:
    """Merge the partials of one batch for each window below `closed` that they are in: `wid`, groups, sub-aggregates.

    None where none is late. Bucket has given the partials their windows.
    """
    first = tagged.column(FIRST_WID).to_numpy()
    count = np.clip(np.minimum(tagged.column(END_WID).to_numpy(), closed) - first, 0, None)
    total = int(count.sum())
    if total == 0:
        return None
    places = np.repeat(np.arange(len(count)), count)
    wids = first[places] + np.arange(total) - (np.cumsum(count) - count)[places]
    names = [*groups, *(sub.name for sub in subaggregates)]
    late = tagged.select(names).take(pa.array(places)).append_column(WID, pa.array(wids))
    return merged([late], [WID, *groups], accumulated(subaggregates))
