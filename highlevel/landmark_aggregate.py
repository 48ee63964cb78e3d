"""Landmark windows: running totals per group since the origin, told at the end of each slide that had rows.

Partials wait by slide until punctuation closes it; then the slides are taken into the totals one after another, the
oldest first. So a gap of years costs nothing, and of the groups beyond the cap those are left out that come first in
later slides, whatever the order of arrival.

A late row is of a slide that is closed. It is left out of that window, and of others that were told before it came, and
counted; but it is in all later ones as well, so it is taken into the totals with the next slides that close, ahead of
them. A slide that was closed is never told, or told again, for a late row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import Accumulated, Rule, accumulated
from highlevel.groups.table import merged
from highlevel.landmark_totals import LandmarkTotals
from highlevel.wid_ranges import Ranges, append, unite
from highlevel.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.landmark import LandmarkWindow
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import INT_MAX, SubAggregate, count_of_rows

PARTIALS = "partials"
"""Counts the partials behind a merged row; no column of that name is read."""

CLOSED, TOTALS = "closed", "totals"
"""Names of tables in a snapshot beside the slides."""

MERGE_ROWS = 16_384
"""Partials of a slide that may wait to be merged, beyond as many as it has groups."""


class Slide:
    """The partials of a slide that wait; merged when they have doubled."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.merged_rows = 0


class LandmarkAggregate:
    """A `WindowOperator` for `RANGE ALL`. Partials of groups beyond the cap are counted and left out."""

    def __init__(self, window: LandmarkWindow, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`; merge each sub-aggregate by its rule in MERGE."""
        self.window = window
        self.groups = list(groups)
        self.names = [*groups, *(sub.name for sub in subaggregates)]
        self.what = accumulated(subaggregates)
        self.slides: dict[int, Slide] = {}
        self.totals: LandmarkTotals | None = None
        self._restored: pa.Table | None = None  # the totals of a snapshot, as long as they are the same
        self.closed = 0  # slides with a smaller number are
        self.received = 0
        self.outside = 0
        self.late = 0
        self.late_rows = 0
        self.beyond_cap = 0
        self.beyond_cap_rows = 0
        self._told: Ranges = []
        self._count_of_rows = count_of_rows(subaggregates)

    @property
    def bytes(self) -> int:
        """Bytes of the totals, and of the partials that wait."""
        waiting = sum(int(batch.nbytes) for slide in self.slides.values() for batch in slide.batches)
        return waiting + (0 if self.totals is None else self.totals.bytes)

    def open_windows(self) -> Ranges:
        """The ids of the windows whose last slide holds rows and is not closed."""
        return unite((number, number + 1) for number in self.slides if number >= self.closed)

    def take_closed(self) -> Ranges:
        """The ids of the windows that were told since this was last asked."""
        told, self._told = self._told, []
        return told

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials by slide."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        numbers = batch.column("pane").to_numpy()
        outside = int(np.count_nonzero(numbers < 0))
        self.outside += outside
        late = (numbers >= 0) & (numbers < self.closed)
        self.late += int(np.count_nonzero(late))
        if self._count_of_rows is not None:
            self.late_rows += int(batch.column(self._count_of_rows).to_numpy()[late].sum())
        if self.closed == INT_MAX:  # after the end there is no window that a row could be in
            return iter(())
        batch = batch.select(self.names).append_column(PARTIALS, pa.array(np.ones(len(numbers), np.int64)))
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for places in np.split(order[outside:], [cut - outside for cut in cuts.tolist() if cut > outside]):
            if len(places):
                # A copy: a slice would keep all of the batch in memory for as long as its last slide is open.
                part = batch if len(places) == len(numbers) else batch.take(pa.array(places))
                self._store(int(numbers[places[0]]), part)
        return iter(())

    def _store(self, number: int, batch: pa.RecordBatch) -> None:
        slide = self.slides.setdefault(number, Slide())
        slide.batches.append(batch)
        slide.rows += batch.num_rows
        if slide.rows > 2 * slide.merged_rows + MERGE_ROWS:
            self._merge(slide)

    def _merge(self, slide: Slide) -> pa.RecordBatch:
        """Merge what waits, so that each group is there once."""
        if slide.merged_rows < slide.rows or len(slide.batches) > 1:
            what = [*self.what, Accumulated((PARTIALS,), Rule.SUM)]
            slide.batches = [merged(slide.batches, self.groups, what)]
            slide.rows = slide.merged_rows = slide.batches[0].num_rows
        return slide.batches[0]

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Emit the totals after each slide that ends by the mark and has rows, and promise the end of the last."""
        closed = INT_MAX if mark.low == END else (mark.low - self.window.origin) // self.window.slide
        if closed <= self.closed:
            return
        for number in sorted(number for number in self.slides if number < closed):
            totals = self._add(self._merge(self.slides.pop(number)))
            if number >= self.closed:
                append(self._told, number, number + 1)
                yield self._bounded(number, totals.rows())
        self.closed = closed
        if mark.low == END:
            self.totals = self._restored = None
        yield mark if mark.low == END else Punctuation(mark.link, self.window.bounds(closed - 1)[1])

    def _add(self, batch: pa.RecordBatch) -> LandmarkTotals:
        """Take the merged partials of a slide into the totals."""
        if self.totals is None:
            self.totals = LandmarkTotals(batch.schema, self.groups, self.what, self.window.cap)
        self._restored = None
        beyond = self.totals.add(batch)
        self.beyond_cap += int(batch.column(PARTIALS).to_numpy()[beyond].sum())
        if self._count_of_rows is not None:
            self.beyond_cap_rows += int(batch.column(self._count_of_rows).to_numpy()[beyond].sum())
        return self.totals

    def _bounded(self, number: int, totals: pa.RecordBatch) -> pa.RecordBatch:
        bounds = [pa.array(np.full(totals.num_rows, bound)) for bound in self.window.bounds(number)]
        columns = [*bounds, *(totals.column(name) for name in self.names)]
        return pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *self.names])

    def snapshot(self) -> dict[str, pa.Table]:
        """How many slides are closed; the totals; a merged table for each slide that waits, named by its number.

        Totals that nothing was added to are the very table that they were restored from.
        """
        tables = {CLOSED: pa.table({CLOSED: [self.closed]})}
        if self._restored is not None:
            tables[TOTALS] = self._restored
        elif self.totals is not None:
            tables[TOTALS] = pa.Table.from_batches([self.totals.rows()])
        for number, slide in self.slides.items():
            tables[str(number)] = pa.Table.from_batches([self._merge(slide)])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        for name, table in tables.items():
            if name == CLOSED:
                self.closed = table[CLOSED][0].as_py()
            elif name == TOTALS:
                self.totals = LandmarkTotals(table.schema, self.groups, self.what, self.window.cap)
                for batch in table.to_batches():
                    self.totals.add(batch)
                self._restored = table
            else:
                for batch in table.to_batches():
                    self._store(int(name), batch)
