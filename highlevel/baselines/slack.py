"""Slack: the in-order way with disorder. A window closes when time is `slack` beyond its end; later rows are lost.

The clock is the largest time seen. A row is late for a window that has closed, and a *consistent* operator then keeps
it out of all its windows, so that they show one history; a *generous* one keeps it out of the closed ones only. Nobody
can know the right slack: too little loses rows, too much delays every result (Li 2008, §3.2, §6.2.5).

Behind that is the operator of the product: rows are cut to the windows that are open at their own place in the stream,
whatever batch they came in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from highlevel.sliding.aggregate import Aggregate
from highlevel.sliding.wid_ranges import END_WID, FIRST_WID
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate


class Lateness(StrEnum):
    """What a late row is kept out of."""

    CONSISTENT = "consistent"
    GENEROUS = "generous"


class SlackAggregate:
    """Takes rows with the time column `time`; closes windows by the largest of them, and all at END.

    Other promises than END it does not know. `received` are rows; `late` of them missed a window, and `lost` counts
    rows for each window that they are missing in.
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
        """Wait `slack` units of the column `time` behind the end of each window."""
        if slack < 0:
            raise ValueError(f"slack is how long to wait, got {slack}")
        self.window, self.slack, self.lateness, self.time = window, slack, lateness, time
        self.aggregate = Aggregate(groups, subaggregates)
        self.high = BEGINNING
        self.received = self.late = self.lost = 0

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Take rows in the order of their arrival; windows may close."""
        if batch.num_rows == 0:
            return
        window = self.window
        times = batch.column(self.time).to_numpy()
        first = np.maximum((times - window.origin) // window.slide, 0)
        end = np.maximum((times - window.origin + window.range) // window.slide, 0)
        highs = np.maximum.accumulate(np.maximum(times, self.high))
        closed = np.maximum((highs - self.slack - window.origin) // window.slide, 0)
        late = (first < closed) & (first < end)
        kept = np.maximum(first, closed)
        if self.lateness is Lateness.CONSISTENT:
            kept = np.where(late, end, kept)
        self.received += batch.num_rows
        self.late += int(np.count_nonzero(late))
        self.lost += int((np.minimum(kept, end) - first)[late].sum())
        inside = kept < end
        tagged = batch.append_column(FIRST_WID, pa.array(kept)).append_column(END_WID, pa.array(end))
        yield from self.aggregate.rows(0, tagged if inside.all() else tagged.filter(pa.array(inside)))
        self.high = int(highs[-1])
        yield from self.aggregate.punctuate(0, Punctuation("*", int(closed[-1])))

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Close all windows where the stream ends."""
        if mark.low == END:
            yield from self.aggregate.punctuate(0, mark)

    def snapshot(self) -> dict[str, pa.Table]:
        """The clock, and the open windows."""
        return self.aggregate.snapshot() | {"clock": pa.table({"high": [self.high]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        self.high = tables["clock"]["high"][0].as_py()
        self.aggregate.restore({name: table for name, table in tables.items() if name != "clock"})
