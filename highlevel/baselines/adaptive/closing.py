"""How many windows are closed at a time: as many as the buffer's tuples have a bounded number of memberships in.

A tuple becomes a partial for each window that is about to close. Of long windows that is many for each tuple, and a
promise may close any number of windows: what is made of them at once is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from highlevel.groups.key_words import Words
from highlevel.sliding.wid_ranges import unite

CLOSE_ROWS = 65_536
"""Window memberships of buffered tuples that are resolved at a time, those of one window at least."""


def steps(closed: int, low: int, first: Words, end: Words) -> Iterator[int]:
    """Cut the windows `[closed, low)` so that tuples have up to CLOSE_ROWS memberships in each part; yield the ends.

    `[first, end)` are the windows of the tuples. Windows that no tuple is in cost nothing, however many they are.
    """
    if len(first) == 0:
        yield low
        return
    order = np.argsort(first, kind="stable")
    starts, stops = first[order], np.sort(end)
    heads = np.flatnonzero(np.append(True, starts[1:] != starts[:-1]))
    reached = np.minimum(np.maximum.reduceat(end[order], heads), low)
    memberships = 0
    for start, stop in unite(zip(starts[heads].tolist(), reached.tolist(), strict=True)):
        wids = np.arange(max(start, closed), stop)
        counts = np.searchsorted(starts, wids, "right") - np.searchsorted(stops, wids, "right")
        for wid, count in zip(wids.tolist(), counts.tolist(), strict=True):
            if memberships and memberships + count > CLOSE_ROWS:
                yield wid
                memberships = 0
            memberships += count
    yield low
