"""AdaptWID over panes: windows consist of panes, as in Paned-WID, and only the panes adapt (Li 2008, §6.2, §6.3.5).

    rows ──► panes (tumbling) ──► windows of pane results (sliding)
             AdaptWID             WID

A group of a pane is a list of tuples or one partial, so a switch costs little. A window has at most RANGE/g partials
per group (g: length of a pane), so its aggregate need not adapt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.adaptive.aggregate import AdaptiveAggregate
from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER, ThresholdPolicy
from highlevel.groups.key_words import Words
from highlevel.sliding.aggregate import END_WID, FIRST_WID
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate

PANES, WINDOWS = "panes/", "windows/"


class PanedAdaptiveAggregate:
    """Process rows and watermarks of the time column `time`. Emit windows, and watermarks of window IDs.

    Panes are numbered from the start of window 0. `rows_without_window` counts rows that do not belong to any window.
    """

    def __init__(
        self,
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        window: SlidingWindow,
        sources: int = 1,
        policy: ThresholdPolicy | None = None,
        time: str = "ts",
    ) -> None:
        """Group by the columns `groups`.

        `policy` (default: MemoryModel) decides when a group of a pane becomes lazy or eager.
        """
        self.window, self.pane, self.time = window, window.pane, time
        self.start = min(window.start(0), window.origin)
        self.panes = AdaptiveAggregate(groups, subaggregates, self.pane, self.pane, sources, policy, time)
        self.windows = AdaptiveAggregate(groups, subaggregates, window.range, window.slide, 1, ALWAYS_EAGER, time)
        self.rows_without_window = 0

    @property
    def updates(self) -> int:
        """Values added to partials of panes and of windows."""
        return self.panes.updates + self.windows.updates

    @property
    def bytes(self) -> int:
        """Bytes of panes and windows."""
        return self.panes.bytes + self.windows.bytes

    def _find_windows(self, times: Words) -> tuple[Words, Words]:
        """Return the windows `[first, end)` of each time."""
        since = times - self.window.origin
        first = np.maximum(since // self.window.slide, 0)
        return first, np.maximum((since + self.window.range) // self.window.slide, 0)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Add rows to their panes. No results are emitted."""
        times = batch.column(self.time).to_numpy()
        first, end = self._find_windows(times)
        inside = first < end
        if not inside.all():
            self.rows_without_window += int(np.count_nonzero(~inside))
            batch, times = batch.filter(pa.array(inside)), times[inside]
        pane = (times - self.start) // self.pane
        return self.panes.process_rows(port, _add_window_ids(batch, pane, pane + 1))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Close panes, add them to their windows, and close these windows."""
        low = (
            punctuation.watermark
            if punctuation.watermark == END
            else max(0, (punctuation.watermark - self.start) // self.pane)
        )
        for item in self.panes.punctuate(port, Punctuation(punctuation.link, low)):
            if isinstance(item, Punctuation):
                below = (
                    END
                    if item.watermark == END
                    else self.window.first_open_window(self.start + item.watermark * self.pane)
                )
                yield from self.windows.punctuate(0, Punctuation(item.link, below))
                continue
            times = self.start + item.column("wid").to_numpy() * self.pane
            tagged = _add_window_ids(item.drop_columns(["wid"]), *self._find_windows(times))
            yield from self.windows.process_rows(0, tagged.append_column(self.time, pa.array(times)))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of panes and windows."""
        panes = {PANES + name: table for name, table in self.panes.snapshot().items()}
        return panes | {WINDOWS + name: table for name, table in self.windows.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for prefix, level in ((PANES, self.panes), (WINDOWS, self.windows)):
            level.restore({name.removeprefix(prefix): each for name, each in tables.items() if name.startswith(prefix)})


def _add_window_ids(batch: pa.RecordBatch, first: Words, end: Words) -> pa.RecordBatch:
    """Add the columns of a range of window IDs."""
    return batch.append_column(FIRST_WID, pa.array(first)).append_column(END_WID, pa.array(end))
