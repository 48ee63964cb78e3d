"""Plans of benches: trees of operators, with links as leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from highlevel.sliding.aggregate import END_WID, FIRST_WID
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation


class ByWindow:
    """Adds the windows of rows, by their column `time`, and converts times in punctuations to window IDs.

    A row without a column `packets` counts as one packet, and its other columns are dropped.
    """

    def __init__(self, window: SlidingWindow, time: str = "ts") -> None:
        self.window, self.time = window, time

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Add the window range to rows."""
        first, end = self.window.wids(batch.column(self.time).to_numpy())
        if "packets" in batch.schema.names:
            tagged = batch.drop_columns([self.time])
        else:
            tagged = pa.RecordBatch.from_pydict({"packets": pa.array(np.ones(batch.num_rows, np.int64))})
        yield tagged.append_column(FIRST_WID, pa.array(first)).append_column(END_WID, pa.array(end))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Convert the watermark to a window ID, rounded down."""
        yield (
            punctuation
            if punctuation.watermark == END
            else Punctuation(punctuation.link, self.window.first_open_window(punctuation.watermark))
        )


class WindowOfWindow:
    """Converts the result rows of windows to partials of the same windows."""

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Write the window as a range with one ID."""
        wids = batch.column("wid").to_numpy()
        tagged = batch.drop_columns(["wid"]).append_column(FIRST_WID, pa.array(wids))
        yield tagged.append_column(END_WID, pa.array(wids + 1))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Pass the watermark on."""
        yield punctuation


class Step:
    """An operator, and the input of each of its ports: the number of a link, or another step."""

    def __init__(self, operator: Any, *below: Step | int) -> None:
        self.operator, self.below = operator, below

    def process(self, link: int, item: Item) -> Iterator[Item]:
        """Process the items of a link, and yield the results."""
        for port, each in enumerate(self.below):
            arrived: Iterable[Item] = each.process(link, item) if isinstance(each, Step) else [item] * (each == link)
            for one in arrived:
                mark = isinstance(one, Punctuation)
                yield from self.operator.punctuate(port, one) if mark else self.operator.process_rows(port, one)

    def steps(self) -> Iterator[Step]:
        """Yield this step and all steps below it."""
        yield self
        for each in self.below:
            if isinstance(each, Step):
                yield from each.steps()
