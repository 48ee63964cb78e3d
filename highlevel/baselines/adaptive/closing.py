"""Limit the number of windows that close in one step, by the memberships of the buffered tuples.

A tuple becomes a partial for each window that is about to close. A long range gives many windows per tuple, and a
watermark may close any number of windows. So the work is divided into steps of limited memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from highlevel.groups.key_words import Words
from lowlevel.integer_ranges import unite

CLOSE_ROWS = 65_536
"""Window memberships of buffered tuples per step. One window may have more."""


def steps(closed: int, low: int, first: Words, end: Words) -> Iterator[int]:
    """Split the windows `[closed, low)` into steps of at most CLOSE_ROWS memberships. Yield the ends.

    `[first, end)` are the windows of the tuples. Windows without tuples cost no step.
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
