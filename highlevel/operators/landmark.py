"""Running windows (LANDMARK): totals per group since the origin, emitted at the end of each slide that contains rows.

The partials of a slide wait until a punctuation closes it. Then the closed slides are added to the totals, the oldest
first. So slides without rows cost no time. The number of groups is limited (`cap`). The groups of the earliest slides
are kept, in any arrival order.

A late row belongs to a closed slide, and is counted. Windows that were emitted before do not contain the row. All later
windows contain it, because it is added to the totals before the next slide. A closed slide is never emitted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.accumulator import Accumulator, words_of
from highlevel.groups.ids import NO_GROUP
from highlevel.groups.keys import Keys
from highlevel.groups.merge_buffer import MergeBuffer
from highlevel.groups.merging import MergeFunction, MergeRule, list_merge_rules
from highlevel.groups.table import join_batches
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import LandmarkWindow
from lowlevel.integer_ranges import Ranges, append, unite
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import INT_MAX, SubAggregate, count_of_rows


class LandmarkTotals:
    """The totals of at most `cap` groups.

    If a batch has more new groups than may be added, the groups with the smallest values are added. Values are compared
    column by column, IPv4 before IPv6, NULL last. So the order of the rows within a batch has no effect.
    """

    def __init__(self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule], cap: int) -> None:
        """Create empty totals. `schema` is the schema of the batches."""
        self.groups = list(groups)
        self.cap = cap
        self.keys = Keys([schema.field(name).type for name in groups])
        self.accumulators = [
            Accumulator(column_group, [schema.field(name).type == pa.float64() for name in column_group.columns])
            for column_group in merge_rules
        ]
        self._key_columns: list[pa.Array] = []

    @property
    def count(self) -> int:
        """Number of stored groups."""
        return self.keys.count

    @property
    def bytes(self) -> int:
        """Bytes of groups and totals."""
        words = sum(int(item.words.nbytes) for item in self.accumulators)
        return self.keys.bytes + words + sum(int(item.nbytes) for item in self._key_columns)

    def add(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Add rows, at most one per group. Return a mask of the rows whose groups exceed the cap."""
        columns = [batch.column(name) for name in self.groups]
        beyond_cap = np.zeros(batch.num_rows, np.bool_)
        room = self.cap - self.count
        if batch.num_rows > room:
            new_rows = np.flatnonzero(self.keys.find(columns, batch.num_rows) == NO_GROUP)
            if len(new_rows) > room:
                beyond_cap[self._sort_by_group(batch, new_rows)[room:] if room else new_rows] = True
                batch = batch.filter(pa.array(~beyond_cap))
                columns = [batch.column(name) for name in self.groups]
        ids = self.keys.find_or_insert(columns, batch.num_rows)
        for accumulator in self.accumulators:
            accumulator.reserve(_grown_capacity(self.count, accumulator.words.shape[1]))
            accumulator.merge(ids, [words_of(batch.column(name).to_numpy()) for name in accumulator.merge_rule.columns])
        return beyond_cap

    def rows(self) -> pa.RecordBatch:
        """Return a row per group: the group columns, then a copy of the totals.

        The groups are in arrival order.
        """
        if not self._key_columns or len(self._key_columns[0]) < self.count:
            self._key_columns = self.keys.columns()
        arrays = dict(zip(self.groups, self._key_columns, strict=True))
        for accumulator in self.accumulators:
            for name, words, is_float in zip(
                accumulator.merge_rule.columns, accumulator.words, accumulator.is_float_by_column, strict=True
            ):
                values = words[: self.count].copy()
                arrays[name] = pa.array(values.view(np.float64) if is_float else values)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _sort_by_group(self, batch: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the row indexes `rows`, sorted by the groups of their rows."""
        groups = batch.select(self.groups).take(pa.array(rows))
        columns: list[pa.Array] = []
        for column in groups.columns:
            # Addresses are ordered by version, then value: an IPv4 address is the shorter byte string.
            columns += [pc.binary_length(column), column] if pa.types.is_binary(column.type) else [column]
        table = pa.table(columns, [str(number) for number in range(len(columns))])
        return rows[pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()]


def _grown_capacity(count: int, capacity: int) -> int:
    """Return `capacity` if it is sufficient for `count` groups, otherwise at least twice `capacity`."""
    return capacity if count <= capacity else max(count, 2 * capacity)


PARTIALS = "partials"
"""Column with the number of partials that were merged into a row. No input column has this name."""

CLOSED, TOTALS = "closed", "totals"
"""Names of snapshot tables that are not slides."""


class LandmarkAggregate:
    """A `WindowOperator` for `RANGE ALL`. Partials of groups beyond the cap are counted and dropped."""

    def __init__(self, window: LandmarkWindow, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`. Merge each sub-aggregate by its rule in MERGE."""
        self.window = window
        self.groups = list(groups)
        self.names = [*groups, *(sub.name for sub in subaggregates)]
        self.merge_rules = list_merge_rules(subaggregates)
        self.open_slides: dict[int, MergeBuffer] = {}
        self._slide_rules = [*self.merge_rules, MergeRule((PARTIALS,), MergeFunction.SUM)]
        self.totals: LandmarkTotals | None = None
        self._stored_totals: MergeBuffer | None = None  # the totals in pieces, if a snapshot is made
        self.closed = 0  # slides with a smaller number are closed
        self.received = 0
        self.outside = 0
        self.late = 0
        self.late_rows = 0
        self.beyond_cap = 0
        self.beyond_cap_rows = 0
        self._emitted: Ranges = []
        self._count_of_rows = count_of_rows(subaggregates)

    @property
    def bytes(self) -> int:
        """Bytes of the totals and of the waiting partials."""
        waiting = sum(slide.bytes for slide in self.open_slides.values())
        return waiting + (0 if self.totals is None else self.totals.bytes)

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows whose last slide contains rows and is not closed."""
        return unite((number, number + 1) for number in self.open_slides if number >= self.closed)

    def take_closed_windows(self) -> Ranges:
        """Return and remove the IDs of the windows that were emitted."""
        emitted, self._emitted = self._emitted, []
        return emitted

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store partials by slide."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        slide_numbers = batch.column("pane").to_numpy()
        outside = int(np.count_nonzero(slide_numbers < 0))
        self.outside += outside
        late = (slide_numbers >= 0) & (slide_numbers < self.closed)
        self.late += int(np.count_nonzero(late))
        if self._count_of_rows is not None:
            self.late_rows += int(batch.column(self._count_of_rows).to_numpy()[late].sum())
        if self.closed == INT_MAX:  # the input has ended: every window is final
            return iter(())
        batch = batch.select(self.names).append_column(PARTIALS, pa.array(np.ones(len(slide_numbers), np.int64)))
        order = np.argsort(slide_numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(slide_numbers[order])) + 1
        for rows in np.split(order[outside:], [cut - outside for cut in cuts.tolist() if cut > outside]):
            if len(rows):
                # Copy the rows: a slice would keep the whole batch in memory until its last slide is closed.
                slide_batch = batch if len(rows) == len(slide_numbers) else batch.take(pa.array(rows))
                self._store(int(slide_numbers[rows[0]]), slide_batch)
        return iter(())

    def _store(self, slide_number: int, batch: pa.RecordBatch) -> None:
        if slide_number not in self.open_slides:
            self.open_slides[slide_number] = MergeBuffer(self.groups, self._slide_rules)
        self.open_slides[slide_number].add(batch)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the totals after each slide that has rows and ends at or before the watermark, then the watermark."""
        first_open = (
            INT_MAX
            if punctuation.watermark == END
            else (punctuation.watermark - self.window.origin) // self.window.slide
        )
        if first_open <= self.closed:
            return
        for slide_number in sorted(slide_number for slide_number in self.open_slides if slide_number < first_open):
            totals = self._add(join_batches(self.open_slides.pop(slide_number).merged_batches()))
            if slide_number >= self.closed:
                append(self._emitted, slide_number, slide_number + 1)
                yield self._add_bounds(slide_number, totals.rows())
        self.closed = first_open
        if punctuation.watermark == END:
            self.totals = self._stored_totals = None
        yield (
            punctuation
            if punctuation.watermark == END
            else Punctuation(punctuation.link, self.window.bounds(first_open - 1)[1])
        )

    def _add(self, batch: pa.RecordBatch) -> LandmarkTotals:
        """Add the merged partials of a slide to the totals."""
        if self.totals is None:
            self.totals = LandmarkTotals(batch.schema, self.groups, self.merge_rules, self.window.cap)
        beyond = self.totals.add(batch)
        if self._stored_totals is not None:
            self._stored_totals.add(pc.filter(batch.select(self.names), array_of(~beyond)))
        self.beyond_cap += int(batch.column(PARTIALS).to_numpy()[beyond].sum())
        if self._count_of_rows is not None:
            self.beyond_cap_rows += int(batch.column(self._count_of_rows).to_numpy()[beyond].sum())
        return self.totals

    def _add_bounds(self, slide_number: int, totals: pa.RecordBatch) -> pa.RecordBatch:
        bounds = [pa.array(np.full(totals.num_rows, bound)) for bound in self.window.bounds(slide_number)]
        columns = [*bounds, *(totals.column(name) for name in self.names)]
        return pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *self.names])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the number of closed slides, the totals, and a table per waiting slide, named by its number.

        The tables have one chunk for each piece (`highlevel.groups.merge_buffer`). So after a slide is closed, only the
        groups of this slide are written, not all totals.
        """
        tables = {CLOSED: pa.table({CLOSED: [self.closed]})}
        if self.totals is not None:
            if self._stored_totals is None:
                self._stored_totals = MergeBuffer(self.groups, self.merge_rules, [self.totals.rows()])
            tables[TOTALS] = pa.Table.from_batches(self._stored_totals.merged_pieces())
        for number, slide in self.open_slides.items():
            tables[str(number)] = pa.Table.from_batches(slide.merged_pieces())
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        for name, table in tables.items():
            if name == CLOSED:
                self.closed = table[CLOSED][0].as_py()
            elif name == TOTALS:
                self.totals = LandmarkTotals(table.schema, self.groups, self.merge_rules, self.window.cap)
                self._stored_totals = MergeBuffer(self.groups, self.merge_rules, table.to_batches())
                for batch in self._stored_totals.pieces:
                    self.totals.add(batch)
            else:
                self.open_slides[int(name)] = MergeBuffer(self.groups, self._slide_rules, table.to_batches())
