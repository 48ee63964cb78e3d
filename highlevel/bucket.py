"""Bucket: tags each partial with the windows it belongs to (Li 2008, §6.1.1, with floors as its errata call for).

A partial's pane lies whole inside or outside every window, since panes divide RANGE and SLIDE. So one half-open range
of window ids `[first_wid, end_wid)` says it all, and volume does not grow with the number of open windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.windows.sliding import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation

FIRST_WID = "first_wid"
END_WID = "end_wid"


class Bucket:
    """Replaces `pane` by `first_wid, end_wid`, and times in punctuation by window ids. Stateless but for a counter."""

    def __init__(self, window: SlidingWindow, pane: int) -> None:
        """Tag partials of panes of `pane` ns with the ids of `window`."""
        self.window = window
        self.pane = pane
        self.outside = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Tag a batch; partials before the origin, or between windows (SLIDE greater than RANGE), are counted away."""
        first, end = self.window.wids(self.window.origin + batch.column("pane").to_numpy() * self.pane)
        tagged = batch.drop_columns(["pane"])
        tagged = tagged.append_column(FIRST_WID, pa.array(first)).append_column(END_WID, pa.array(end))
        inside = first < end
        if not inside.all():
            self.outside += int(len(inside) - np.count_nonzero(inside))
            tagged = tagged.filter(pa.array(inside))
        if tagged.num_rows:
            yield tagged

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Round a time down to window ids: windows below are final."""
        yield mark if mark.low == END else Punctuation(mark.link, self.window.closed_before(mark.low))

    def snapshot(self) -> dict[str, pa.Table]:
        """Nothing to keep."""
        return {}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Nothing to take over."""
