"""Bucket: tag each partial with its windows (Li 2008, §6.1.1, with the floors of its errata).

A window consists of whole panes. So the windows of a partial are one half-open range of IDs, `[first_wid, end_wid)`.
The tags have the same size for any number of windows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.operator import StatelessOperator
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation

FIRST_WID = "first_wid"
END_WID = "end_wid"


class Bucket(StatelessOperator):
    """Replaces `pane` by `first_wid, end_wid`, and times in punctuations by window IDs.

    It has no state except a counter.
    """

    def __init__(self, window: SlidingWindow, pane: int) -> None:
        """Tag partials of panes of `pane` ns with the ids of `window`."""
        self.window = window
        self.pane = pane
        self.outside = 0

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Tag a batch. Drop and count partials before the origin or between windows (SLIDE greater than RANGE)."""
        first, end = self.window.wids(self.window.origin + batch.column("pane").to_numpy() * self.pane)
        tagged = batch.drop_columns(["pane"])
        tagged = tagged.append_column(FIRST_WID, array_of(first)).append_column(END_WID, array_of(end))
        inside = first < end
        if not inside.all():
            self.outside += int(len(inside) - np.count_nonzero(inside))
            tagged = pc.filter(tagged, array_of(inside))
        if tagged.num_rows:
            yield tagged

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Convert a watermark to a window ID: all windows with smaller IDs are final."""
        yield (
            punctuation
            if punctuation.watermark == END
            else Punctuation(punctuation.link, self.window.first_open_window(punctuation.watermark))
        )
