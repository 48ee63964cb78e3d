"""ChangingWindows: the changes of the results of sliding windows (`highlevel.speculation`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from highlevel.operators.state import restore_to, snapshot_of
from highlevel.plan.nodes import ChangingWindows, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, single_bound
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.plan.operators.windowed import WindowCounters
from highlevel.results.stages import make_stages, run_stages
from highlevel.speculation.changes import make_changes, net_changes
from highlevel.speculation.provisional_windows import ProvisionalWindows, Revision
from highlevel.windows.kind import SlidingWindow
from lowlevel.punctuation import BEGINNING, END, Punctuation


class ChangingWindowsOperator(WindowCounters):
    """Converts rows to partials, adds them to provisional windows, and compares the results before and after."""

    beyond_cap = (0, 0)

    def __init__(self, node: ChangingWindows) -> None:
        """Make the windows of `node`."""
        aggregation, window = node.aggregation, node.aggregation.window
        assert isinstance(window, SlidingWindow)
        low = aggregation.low
        self._partials = None if node.merges_partials else RowPartials(node.input, low, node.time, has_panes=True)
        self._bound_count = bound_count(node.input)
        self._time = node.input.time_columns.index(node.time)
        self.windows: ProvisionalWindows = ProvisionalWindows(
            *(window, low.pane, aggregation.group_by, aggregation.merge_columns, low.subaggregates, node.consistency),
            compares_groups=bool(aggregation.selections),
        )
        self._steps, self._finish = make_stages(aggregation)
        self._schema = aggregation.schema
        self.results = 0
        """Changes returned."""

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Process rows, or partials of a leaf.

        Return the changes of windows whose results are returned before they are final.
        """
        for partials in (batch,) if self._partials is None else self._partials.compute(batch):
            for revision in self.windows.process_rows(partials):
                yield from self._changes(revision)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of the windows' time. Return the changes of windows that become final."""
        bounds = bounds_of(punctuation, self._bound_count)
        low = END if set(bounds) == {END} else single_bound(bounds, self._time)
        if low == BEGINNING:
            return
        for item in self.windows.punctuate(Punctuation(punctuation.link, low)):
            if isinstance(item, Revision):
                yield from self._changes(item)
            else:
                yield item if item.watermark == END else Punctuation(item.link, item.watermark + 1)

    @property
    def overflowed_sums(self) -> int:
        """Number of sums in results that are NULL because they exceed 64 bits. Withdrawn results are included."""
        return self._finish.overflowed_sums

    def _changes(self, revision: Revision) -> Iterator[pa.RecordBatch]:
        rows, weights = net_changes(self._result(revision.old), self._result(revision.new))
        self.results += rows.num_rows
        yield from make_changes(rows, weights, revision.is_final)

    def _result(self, groups: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the result of merged groups: after HAVING, with the columns of the select list."""
        results = [result for batch in groups for result in run_stages(self._steps, batch)]
        return pa.Table.from_batches(results, self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the windows."""
        return snapshot_of([self.windows])

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of the windows."""
        restore_to([self.windows], tables)
