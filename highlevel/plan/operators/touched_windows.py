"""TouchedWindows: each row once for each window of a fixed length that its lifetime touches.

    row         lifetime   length of windows        rows of the result, by their window
    flow 7      [2, 11)    5                  ──►   flow 7 at 0, flow 7 at 5, flow 7 at 10

So the node above counts a row in each of its windows. A row that begins below the watermark is not dropped here: its
first windows may be final, but not the later ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.operators.operator import StatelessOperator
from highlevel.plan.lifetime_nodes import TouchedWindows
from highlevel.plan.nodes import bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

MAX_WINDOWS = 10_000
"""Maximum number of windows of a row, as for sliding windows."""


class TouchedWindowsOperator(StatelessOperator):
    """Returns each row once for each of its windows. It has no state."""

    late = rows_held = 0

    def __init__(self, node: TouchedWindows) -> None:
        """Repeat the rows of the input of `node`."""
        self._node = node
        self._bound_count = bound_count(node.input)
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self.received = 0
        self.results = 0
        self.outside = 0
        """Number of rows without a lifetime, or in more than MAX_WINDOWS windows."""

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows with their windows."""
        if not batch.num_rows:
            return
        self.received += batch.num_rows
        node = self._node
        start = times_of(batch.column(node.start))
        end = start + node.length if node.length is not None else times_of(batch.column(str(node.end)))
        is_valid = (start < END) & (end >= start) & (end < END)
        first = start // node.window_length
        count = np.where(is_valid, (np.maximum(end, start + 1) - 1) // node.window_length - first + 1, 0)
        count[count > MAX_WINDOWS] = 0
        self.outside += int(np.count_nonzero(count == 0))
        source = np.repeat(np.arange(batch.num_rows), count)
        if not len(source):
            return
        before = np.cumsum(count) - count
        numbers = first[source] + np.arange(len(source)) - before[source]
        self.results += len(source)
        rows = pc.take(batch, array_of(source))
        yield pa.RecordBatch.from_arrays([*rows.columns, array_of(numbers * node.window_length)], schema=self._schema)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the start of the window that contains the earliest start of later rows."""
        bounds = bounds_of(punctuation, self._bound_count)
        if set(bounds) == {END}:
            yield Punctuation(punctuation.link, END)
        elif not self._node.waits_for_end and bounds[0] != BEGINNING:
            unit = self._node.window_length
            yield Punctuation(punctuation.link, (bounds[0] - (self._node.late_by or 0)) // unit * unit)
