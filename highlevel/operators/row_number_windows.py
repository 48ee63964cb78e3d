"""Long windows of a number of rows: sliding windows over the row numbers in arrival order.

    row          0 1 2 3 4 5 6 7 8 9 …      RANGE 6 rows, SLIDE 4 rows: panes of 2 rows
    window 0     x x x x                    [-2, 4)   begins before the first row
    window 1         x x x x x x            [2, 8)    final with row 7

The number of received rows is the watermark: a window is final after its last row. Watermarks in time are ignored. At
the end of the input, incomplete windows become final.

Each window needs some calls, and the merge of the partials of one slide. For short windows,
`highlevel.operators.partitioned` is faster: it needs no call per window, but merges all partials of RANGE for each
window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import list_merge_rules
from highlevel.groups.table import merge_batches
from highlevel.operators.meld import UNION
from highlevel.sliding.aggregate import SlidingAggregate
from highlevel.windows.kind import TupleWindow
from lowlevel.integer_ranges import Ranges
from lowlevel.punctuation import END, Item, Punctuation
from lowlevel.subaggregates import SubAggregate

MIN_LONG_RANGE = 8192
"""Minimum RANGE (rows) for this operator. From this RANGE on, its calls per window cost less than 0.2 us per row
(measured).
"""

NUMBERS = "numbers"
"""Name of the snapshot table with the number of the next row."""


class TupleAggregate:
    """A `WindowOperator` over partials of single rows in arrival order. Its watermarks are row numbers."""

    late = 0
    late_rows = 0

    def __init__(self, window: TupleWindow, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups` within each window."""
        self.window = window
        self.columns = [*groups, *(sub.name for sub in subaggregates)]
        self.merge_columns = ["pane", *groups]
        self.merge_rules = list_merge_rules(subaggregates)
        self.windows = SlidingAggregate(window.over_row_numbers, window.over_row_numbers.pane, groups, subaggregates)
        self.received = 0
        self.outside = 0
        self.next_row_number = 0

    @property
    def bytes(self) -> int:
        """Bytes of the stored partials."""
        return self.windows.bytes

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain rows and are not final."""
        return self.windows.open_windows()

    def take_closed_windows(self) -> Ranges:
        """Return and remove the IDs of the windows that became final."""
        return self.windows.take_closed_windows()

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Number the rows, and emit the windows whose last row is among them."""
        numbers = self.next_row_number + np.arange(batch.num_rows)
        self.next_row_number += batch.num_rows
        self.received += batch.num_rows
        panes = pa.array(numbers // self.window.over_row_numbers.pane)
        batch = batch.select(self.columns).append_column("pane", panes)
        first_wid, end_wid = self.window.wids(numbers)
        inside = first_wid < end_wid
        if not inside.all():  # SLIDE is greater than RANGE
            batch = batch.filter(pa.array(inside))
            self.outside += len(numbers) - batch.num_rows
        if batch.num_rows:
            yield from self.windows.process_rows(port, merge_batches([batch], self.merge_columns, self.merge_rules))
        yield from self.windows.punctuate(port, Punctuation(UNION, self.next_row_number))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the open windows at the end of the input. Ignore other punctuations, because they contain times."""
        if punctuation.watermark == END:
            yield from self.windows.punctuate(port, punctuation)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the windows, and the number of the next row."""
        return self.windows.snapshot() | {NUMBERS: pa.table({"next": [self.next_row_number]})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.next_row_number = tables[NUMBERS]["next"][0].as_py()
        self.windows.restore({name: table for name, table in tables.items() if name != NUMBERS})
