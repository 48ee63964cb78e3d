"""Slack, the way in which in-order systems handle disorder. A window closes `slack` after its end; later rows are lost.

The clock is the largest time so far. A row is late if one of its windows is closed. A *consistent* operator removes a
late row from all its windows, so that all windows contain the same rows. A *generous* operator removes it only from the
closed windows. The best slack is unknown: if it is small, rows are lost; if it is large, all results are delayed (Li
2008, §3.2, §6.2.5).

`highlevel.sliding` computes the windows. This module assigns to each row the windows that are open when the row
arrives. The sizes of batches have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate


class Lateness(StrEnum):
    """The windows that do not receive a late row: all its windows (CONSISTENT), or only closed ones (GENEROUS)."""

    CONSISTENT = "consistent"
    GENEROUS = "generous"


class SlackAggregate:
    """Process rows with the time column `time`. The largest time closes windows, and END closes all.

    Other punctuations are ignored. `received` counts rows, `late` the rows that missed a window, and `lost` the pairs
    of a row and a missed window.
    """

    def __init__(
        self,
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        window: SlidingWindow,
        slack: int,
        lateness: Lateness,
        time: str = "ts",
    ) -> None:
        """Close each window `slack` units of the column `time` after its end."""
        if slack < 0:
            raise ValueError(f"slack must not be negative, got {slack}")
        self.window, self.slack, self.lateness, self.time = window, slack, lateness, time
        self.aggregate = Aggregate(groups, subaggregates)
        self.newest = BEGINNING
        self.received = self.late = self.lost = 0

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Process rows in arrival order. Windows may close."""
        if batch.num_rows == 0:
            return
        window = self.window
        times = batch.column(self.time).to_numpy()
        first = np.maximum((times - window.origin) // window.slide, 0)
        end = np.maximum((times - window.origin + window.range) // window.slide, 0)
        newest_so_far = np.maximum.accumulate(np.maximum(times, self.newest))
        closed = np.maximum((newest_so_far - self.slack - window.origin) // window.slide, 0)
        late = (first < closed) & (first < end)
        kept = np.maximum(first, closed)
        if self.lateness is Lateness.CONSISTENT:
            kept = np.where(late, end, kept)
        self.received += batch.num_rows
        self.late += int(np.count_nonzero(late))
        self.lost += int((np.minimum(kept, end) - first)[late].sum())
        inside = kept < end
        tagged = batch.append_column(FIRST_WID, pa.array(kept)).append_column(END_WID, pa.array(end))
        yield from self.aggregate.process_rows(0, tagged if inside.all() else tagged.filter(pa.array(inside)))
        self.newest = int(newest_so_far[-1])
        yield from self.aggregate.punctuate(0, Punctuation("*", int(closed[-1])))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Close all windows at the end of the stream."""
        if punctuation.watermark == END:
            yield from self.aggregate.punctuate(0, punctuation)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the clock and the open windows."""
        return self.aggregate.snapshot() | {"clock": pa.table({"newest": [self.newest]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.newest = tables["clock"]["newest"][0].as_py()
        self.aggregate.restore({name: table for name, table in tables.items() if name != "clock"})
