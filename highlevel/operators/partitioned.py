"""Windows of a number of rows, separately for each partition, which numbers its rows from 0 (Li 2008, §5.1.4).

    [RANGE 3 rows, SLIDE 2 rows, PA srcIP]     rows in order       a b a a b a b a
                                               their numbers       0 0 1 2 1 3 2 4
    windows of a: [-1, 2) has 0 1, [1, 4) has 1 2 3, [3, 6) has 3 4;  of b: [-1, 2) has 0 1, [1, 4) has 1 2

A window is final after its last row. With IDLE, a partition starts again at row 0 if a row is more than IDLE later than
the newest row of the partition. Then the open windows of the partition are final, with fewer rows. A partition is
removed when the watermark shows that no row can continue it. The removal only changes the time at which a result is
emitted, not the result.

Without partition columns all rows are one partition. Then the watermarks of the results are numbers of rows: no later
window ends at or before the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import list_merge_rules
from highlevel.operators.meld import UNION
from highlevel.operators.window_operator import WINDOW_END, WINDOW_INSTANCE, WINDOW_START
from highlevel.partitions.open_panes import LIFE, PANE, WID, OpenPanes
from highlevel.partitions.row_counters import Lives
from highlevel.windows.kind import TupleWindow
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate

PARTITIONS, OPEN = "partitions", "open"
"""Tables of a snapshot."""


class PartitionedAggregate:
    """A `WindowOperator` over partials of single rows in arrival order.

    Window bounds are numbers of rows. A partition may begin at any time, so with partition columns there is no
    watermark before the end of the input.
    """

    late = 0
    late_rows = 0

    def __init__(
        self,
        window: TupleWindow,
        partition: Sequence[str],
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
    ) -> None:
        """Number rows separately for each value of the columns `partition`, a subset of `groups`."""
        self.window = window
        self.row_number_window = window.over_row_numbers
        self.partition = list(partition)
        self.groups_in_partition = [name for name in groups if name not in self.partition]
        self.values = [sub.name for sub in subaggregates]
        self.names = [*groups, *self.values]
        self.panes = OpenPanes(self.row_number_window, self.groups_in_partition, list_merge_rules(subaggregates))
        self.lives: Lives | None = None
        self.watermark = BEGINNING
        self.received = 0
        self.outside = 0

    @property
    def bytes(self) -> int:
        """Bytes of the stored partials and of the row counters."""
        return self.panes.bytes + (0 if self.lives is None else self.lives.bytes)

    def open_windows(self) -> int:
        """Return the number of windows that contain rows and are not final. Each partition has separate windows."""
        if self.lives is None:
            return 0
        ends = (self.lives.counts - 1 + self.window.range) // self.window.slide_rows
        return int((ends - self.lives.reported)[self.lives.is_current].sum())

    def take_closed_windows(self) -> int:
        """Return and reset the number of windows with rows that became final."""
        closed, self.panes.closed = self.panes.closed, 0
        return closed

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Number rows in their partitions, and emit the windows that have become final."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        columns = [batch.column(name) for name in self.partition]
        if self.lives is None:
            self.lives = Lives([column.type for column in columns], self.window.idle)
        lives, ranks = self.lives.rank(columns, batch.column("pane").to_numpy())
        partials = batch.select([*self.groups_in_partition, *self.values])
        partials = partials.append_column(LIFE, pa.array(lives)).append_column(
            PANE, pa.array(ranks // self.row_number_window.pane)
        )
        first_wid, end_wid = self.window.wids(ranks)
        is_in_window = first_wid < end_wid
        if not is_in_window.all():  # SLIDE is greater than RANGE
            partials = partials.filter(pa.array(is_in_window))
            self.outside += batch.num_rows - partials.num_rows
        if partials.num_rows:
            self.panes.add(partials, self.lives.reported)
        before = int(self.lives.reported[0])
        yield from self._close(self.lives)
        if not self.partition and (wid := int(self.lives.reported[0])) > before:
            yield Punctuation(UNION, wid * self.window.slide_rows)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Remove idle partitions, at the end of the input all partitions. Emit their incomplete windows."""
        if punctuation.watermark <= self.watermark:
            return
        self.watermark = punctuation.watermark
        if self.lives is not None and (punctuation.watermark == END or self.window.idle is not None):
            if punctuation.watermark == END:
                self.lives.end_all()
            else:
                self.lives.end_idle_lives(punctuation.watermark)
            yield from self._close(self.lives)
        if punctuation.watermark == END:
            self.lives = None
            yield punctuation

    def _close(self, lives: Lives) -> Iterator[pa.RecordBatch]:
        """Emit the windows that became final.

        A partition has several lives if IDLE divides it. Ended lives are removed if there are many.
        """
        final = np.maximum(lives.first_open_windows(self.row_number_window), lives.reported)
        for windows in self.panes.close(lives.reported, final):
            yield self._add_bounds(windows, lives)
        lives.report(final)
        new_numbers = lives.remove_ended()
        if new_numbers is not None:
            self.panes.renumber(new_numbers)

    def _add_bounds(self, windows: pa.RecordBatch, lives: Lives) -> pa.RecordBatch:
        """Add the bounds of windows and the columns of their partitions.

        With IDLE, a partition may start again at row 0 several times in one batch. Windows of different lives then have
        equal bounds, so WINDOW_INSTANCE contains the number of the life.
        """
        wids, window_lives = windows.column(WID).to_numpy(), windows.column(LIFE).to_numpy()
        ends = (wids + 1) * self.window.slide_rows
        partition_columns = dict(zip(self.partition, lives.partitions(window_lives), strict=True))
        columns = [
            partition_columns[name] if name in partition_columns else windows.column(name) for name in self.names
        ]
        bounds = [pa.array(ends - self.window.range), pa.array(ends)]
        rows = pa.RecordBatch.from_arrays([*bounds, *columns], [WINDOW_START, WINDOW_END, *self.names])
        return rows if self.window.idle is None else rows.append_column(WINDOW_INSTANCE, windows.column(LIFE))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the partitions with their counters, and the partials of open windows."""
        if self.lives is None:
            return {}
        new_numbers = self.lives.remove_ended(0)
        if new_numbers is not None:
            self.panes.renumber(new_numbers)
        tables = {PARTITIONS: self.lives.snapshot(self.partition)}
        panes = self.panes.snapshot(self.lives.reported)
        return tables if panes is None else tables | {OPEN: pa.Table.from_batches([panes])}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        if PARTITIONS not in tables:
            return
        kinds = [tables[PARTITIONS].schema.field(name).type for name in self.partition]
        self.lives = Lives(kinds, self.window.idle)
        self.lives.restore(tables[PARTITIONS], self.row_number_window)
        for batch in tables[OPEN].to_batches() if OPEN in tables else ():
            if batch.num_rows:
                self.panes.add(batch, self.lives.reported)
