"""Mark windows that contain estimates, because a node sampled packets while its ring or its spool was almost full.

The estimated times are the panes of sampled partials, and the times of skipped packets, which a segment of the spool
contains. They are stored in the totals of each micro-batch for each query, as disjoint half-open ranges `[start, end)`
in ns, so a restart continues with them. A window contains estimates if it overlaps an estimated time. This rule is
valid for windows of every kind, because each result contains the bounds of its window. All groups of the window are
marked, because packets of a group without a sampled partial may have been skipped too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lowlevel.integer_ranges import Ranges, unite

ESTIMATED = "estimated"
"""The column of results that states whether the window contains estimates."""

MAX_RANGES = 1000
"""Maximum number of ranges of a query. More ranges are merged, the oldest first. Then windows between merged ranges are
marked too.
"""


def merge_pane_times(panes: npt.NDArray[np.int64], origin: int, pane: int) -> Ranges:
    """Return the times of panes of `pane` ns, counted from `origin`, as disjoint ranges.

    >>> merge_pane_times(np.array([3, 5, 3, 4, 9]), 100, 10)
    [(130, 160), (190, 200)]
    """
    pane_numbers = np.unique(panes)
    gaps = np.flatnonzero(np.diff(pane_numbers) > 1)
    first, last = pane_numbers[[0, *gaps + 1]], pane_numbers[[*gaps, -1]]
    return [
        (origin + start * pane, origin + (end + 1) * pane)
        for start, end in zip(first.tolist(), last.tolist(), strict=True)
    ]


def merge_ranges(known: Ranges, new: Ranges) -> Ranges:
    """Return the union of ranges, at most MAX_RANGES."""
    united = unite([*known, *new])
    excess = len(united) - MAX_RANGES
    return united if excess <= 0 else [(united[0][0], united[excess][1]), *united[excess + 1 :]]


def mark_estimates(results: pa.Table, ranges: Ranges) -> pa.Table:
    """Add the column ESTIMATED to results with the columns `window_start` and `window_end`, int64 ns.

    Results without these columns, or with a column of that name, are returned unchanged.
    """
    names = results.column_names
    if "window_start" not in names or "window_end" not in names or ESTIMATED in names:
        return results
    start, end = (results[name].to_numpy() for name in ("window_start", "window_end"))
    return results.append_column(ESTIMATED, pa.array(overlap_mask(start, end, ranges)))


def overlap_mask(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], ranges: Ranges) -> npt.NDArray[np.bool_]:
    """Return a mask of the intervals `[start, end)` that overlap one of the disjoint sorted `ranges`."""
    if not ranges:
        return np.zeros(len(start), np.bool_)
    range_starts, range_ends = np.array(ranges, np.int64).T
    candidates = np.searchsorted(range_ends, start, side="right")  # the first range that ends after the start
    return np.asarray(
        (candidates < len(range_starts)) & (range_starts[np.minimum(candidates, len(range_starts) - 1)] < end)
    )
