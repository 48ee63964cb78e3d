"""The windows of a finite input, written directly from their definition.

    window w holds every t with  origin + (w+1)*slide - range <= t < origin + (w+1)*slide,  w >= 0

Panes divide RANGE and SLIDE, so a pane lies whole inside or outside a window and its start speaks for all of it. With
everything there at once no progress is needed: partials are laid out by pane, and a window is one run of them. This
shares no code with Bucket and Aggregate, which is what makes the batch engine a witness for the other two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregate import WID
from highlevel.finish import Finish
from highlevel.plan import QueryPlan
from highlevel.window import Window
from lowlevel.subaggregates import MERGE


def windows_of(window: Window, times: npt.NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Yield (wid, first, end) for each window that holds one of the sorted `times`, which are `times[first:end]`."""
    wids = {wid for time in np.unique(times).tolist() for wid in _holding(window, time)}
    for wid in sorted(wids):
        end = window.origin + (wid + 1) * window.slide
        first, after = np.searchsorted(times, [end - window.range, end]).tolist()
        yield wid, first, after


def _holding(window: Window, time: int) -> Iterator[int]:
    """The ids of the windows that hold `time`: from the first that ends after it, as long as they begin before it."""
    wid = max(0, (time - window.origin) // window.slide)
    while window.origin + (wid + 1) * window.slide - window.range <= time:
        if time < window.origin + (wid + 1) * window.slide:
            yield wid
        wid += 1


def finished_windows(plan: QueryPlan, partials: pa.Table) -> Iterator[pa.RecordBatch]:
    """Merge all partials of some groups and yield the query's rows, window by window."""
    if partials.num_rows == 0:
        return
    panes = partials.column("pane").to_numpy()
    order = np.argsort(panes, kind="stable")
    times = plan.low.origin + panes[order] * plan.low.pane
    laid_out = partials.take(pa.array(order)) if (order[1:] < order[:-1]).any() else partials
    laid_out = laid_out.combine_chunks()
    groups = list(plan.group_by)
    merges = [(sub.name, MERGE[sub.kind]) for sub in plan.low.subaggregates]
    names = [*(sub.name for sub in plan.low.subaggregates)]
    finish = Finish(plan)
    for wid, first, end in windows_of(plan.window, times):
        merged = laid_out.slice(first, end - first).group_by(groups, use_threads=False).aggregate(merges)
        merged = merged.select(groups + [f"{name}_{merge}" for name, merge in merges]).rename_columns(groups + names)
        typed = merged.cast(pa.schema([laid_out.schema.field(name) for name in groups + names])).combine_chunks()
        for batch in typed.to_batches():
            row = batch.append_column(WID, pa.array(np.full(batch.num_rows, wid, np.int64)))
            for item in finish.rows(0, row):
                if isinstance(item, pa.RecordBatch):
                    yield item
