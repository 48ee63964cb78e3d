"""ChangingResults: a node over changes, computed again for each window whose rows have changed.

    changes ──► content, per pane ──► the body over the content of changed windows ──┬──► new results
                                      results so far of the same windows ────────────┴──► old results ──► changes

The operator only calls the operator of the body. So every node whose results depend on one window only can read
changes. The returned results are stored, so a withdrawn row is exactly a returned row, even if it contains sums of
FLOAT. Windows that have not ended are not computed, unless the node has `at_once`. For counts and sums of integers, a
separate operator computes only the changed groups (`changing_sums`).

The clock is the newest time of a change. So results wait as long as the windows in the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.operators.meld import UNION
from highlevel.plan.change_nodes import ChangingResults, implies_watermark
from highlevel.plan.nodes import Node, Windowed
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, NodeOperator, Times, bounds_of, times_of
from highlevel.plan.result_windows import result_windows
from highlevel.speculation.changes import Weights, make_changes, net_changes, split_changes
from highlevel.speculation.weighted_rows import WeightedRows
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

MakeBody = Callable[[], NodeOperator]
"""Make an operator of the body."""

ROWS, RESULTS, CHANGED, STATE = "rows", "results", "changed", "state"
"""Tables of a snapshot: the content of the input, the returned results, the windows that wait, and the times."""


class ChangingResultsOperator:
    """Stores the content of the input and the results, until their windows are final."""

    def __init__(self, node: ChangingResults, make: MakeBody) -> None:
        """Compute the results with operators that `make` returns."""
        windows = result_windows(node.body)
        assert windows is not None
        self._windows = windows
        self._make = make
        self._progress = make()
        """An operator without rows, which converts watermarks of the input to watermarks of the results."""
        (changes,) = node.inputs
        self._time, self._result_time = changes.time_columns[0], node.time_columns[0]
        self._step = node.step
        self._implies_watermark = implies_watermark(changes)
        self._at_once = node.at_once or not isinstance(node.body, Windowed)
        self._rows_schema = _schema(node.body.inputs[0])
        self._schema = _schema(node.body)
        self._newest_time = self._input_watermark = self._watermark = BEGINNING
        self._panes: dict[int, WeightedRows] = {}
        self._results: dict[int, pa.Table] = {}
        self._changed: set[int] = set()
        self.received = 0
        self.results = 0
        """Changes returned."""
        self.late = 0
        self._overflowed_sums = 0

    @property
    def overflowed_sums(self) -> int:
        """Number of sums in results that are NULL because they exceed 64 bits.

        Each computation of a window counts again.
        """
        return self._overflowed_sums

    @property
    def rows_held(self) -> int:
        """Number of stored rows of the input."""
        return sum(rows.num_rows for rows in self._panes.values())

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and results."""
        results = sum(table.nbytes for table in self._results.values())
        return results + sum(rows.bytes for rows in self._panes.values())

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add changes. Return the changes of the results of windows that have ended."""
        self.received += batch.num_rows
        rows, weights, final = split_changes(batch)
        times = times_of(batch.column(self._time))
        in_time = (times >= self._input_watermark) & (times < END)
        self.late += int(np.count_nonzero(~in_time))
        for pane, positions in _group_positions(self._windows.panes(times), np.flatnonzero(in_time)):
            self._add(pane, rows.take(array_of(positions)), weights[positions])
        self._newest_time = max(self._newest_time, int(times[in_time].max(initial=BEGINNING)))
        final_times = times[in_time & final]
        if len(final_times) and self._implies_watermark:
            yield from self._advance(UNION, int(final_times.max()) + self._step)
        elif final.all():
            return  # the watermark follows
        due = [window for window in self._changed if self._is_due(window)]
        yield from self._publish(due, final=False)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the changes of windows that become final, and then the watermark."""
        (low,) = bounds_of(punctuation, 1)
        yield from self._advance(punctuation.link, low)

    def _add(self, pane: int, rows: pa.Table, weights: Weights) -> None:
        windows = [each for each in self._windows.windows(pane) if self._windows.result_time(each) >= self._watermark]
        if windows:
            self._changed.update(windows)
            self._store(pane, windows, rows, weights)

    def _store(self, pane: int, windows: Sequence[int], rows: pa.Table, weights: Weights) -> None:
        """Store changes of a pane, which is in these windows."""
        self._panes.setdefault(pane, WeightedRows(self._rows_schema)).add(rows, weights)

    def _is_due(self, window: int) -> bool:
        return self._at_once or self._newest_time + self._step >= self._windows.result_time(window)

    def _advance(self, link: str, low: int) -> Iterator[GraphItem]:
        """Process a watermark of the input."""
        if low <= self._input_watermark:
            return
        self._input_watermark = low
        progress = list(self._progress.punctuate(0, Punctuation(link, low)))
        for item in progress:
            assert isinstance(item, Punctuation)
            self._watermark = item.watermark
        yield from self._publish([each for each in self._changed if self._is_final(each)], final=True)
        self._remove_final()
        yield from progress

    def _remove_final(self) -> None:
        """Remove the rows and results that only final windows need."""
        self._results = {window: rows for window, rows in self._results.items() if not self._is_final(window)}
        self._panes = {
            pane: rows for pane, rows in self._panes.items() if not self._is_final(self._windows.windows(pane)[-1])
        }

    def _is_final(self, window: int) -> bool:
        return self._windows.result_time(window) < self._watermark

    def _publish(self, windows: Sequence[int], *, final: bool) -> Iterator[pa.RecordBatch]:
        """Return the changes of the results of windows."""
        if not windows:
            return
        self._changed.difference_update(windows)
        rows, weights = net_changes(*self._revise(windows))
        self.results += rows.num_rows
        yield from make_changes(rows, weights, final)

    def _revise(self, windows: Sequence[int]) -> tuple[pa.Table, pa.Table]:
        """Compute the results of windows again. Return the results before and now."""
        changed = set(windows)
        panes = [rows for pane, rows in self._panes.items() if not changed.isdisjoint(self._windows.windows(pane))]
        operator = self._make()
        computed = compute(operator, (rows.repeated() for rows in panes), self._schema)
        self._overflowed_sums += getattr(operator, "overflowed_sums", 0)
        of_rows = self._windows.windows_of_results(times_of(computed.column(self._result_time).combine_chunks()))
        kept = np.flatnonzero(np.isin(of_rows, windows))
        old = [table for window in sorted(windows) if (table := self._results.pop(window, None)) is not None]
        for window, positions in _group_positions(of_rows, kept):
            self._results[window] = computed.take(array_of(positions)).combine_chunks()
        return pa.concat_tables([self._schema.empty_table(), *old]), computed.take(array_of(kept))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the content of the input, the results, the windows that wait, and the times."""
        return {
            STATE: pa.table({"clock": [self._newest_time], "low": [self._input_watermark]}),
            CHANGED: pa.table({"window": pa.array(sorted(self._changed), pa.int64())}),
            **self._stored_tables(),
        }

    def _stored_tables(self) -> dict[str, pa.Table]:
        contents = [rows.snapshot() for rows in self._panes.values()]
        results = {RESULTS: pa.concat_tables([self._schema.empty_table(), *self._results.values()])}
        return results | ({ROWS: pa.concat_tables(contents)} if contents else {})

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (state,) = tables[STATE].to_pylist()
        self._newest_time, self._input_watermark = state["clock"], state["low"]
        if self._input_watermark != BEGINNING:
            for item in self._progress.punctuate(0, Punctuation(UNION, self._input_watermark)):
                assert isinstance(item, Punctuation)
                self._watermark = item.watermark
        self._changed = set(tables[CHANGED]["window"].to_pylist())
        self._load(tables)

    def _load(self, tables: dict[str, pa.Table]) -> None:
        results = tables[RESULTS].cast(self._schema)
        of_rows = self._windows.windows_of_results(times_of(results.column(self._result_time).combine_chunks()))
        for window, positions in _group_positions(of_rows, np.arange(len(of_rows))):
            self._results[window] = results.take(array_of(positions)).combine_chunks()
        if ROWS in tables:
            rows = tables[ROWS]
            panes = self._windows.panes(times_of(rows.column(self._time).combine_chunks()))
            for pane, positions in _group_positions(panes, np.arange(len(panes))):
                self._panes[pane] = WeightedRows(self._rows_schema)
                self._panes[pane].restore(rows.take(array_of(positions)))


def compute(operator: NodeOperator, inputs: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return the results of an operator with one input for all rows of `inputs`."""
    items = [item for table in inputs for batch in table.to_batches() for item in operator.process_rows(0, batch)]
    items += operator.punctuate(0, Punctuation(UNION, END))
    return result_table(items, schema)


def result_table(items: Iterable[GraphItem], schema: pa.Schema) -> pa.Table:
    """Return the rows among items as one table."""
    batches = [
        pa.RecordBatch.from_arrays(item.columns, schema=schema) for item in items if isinstance(item, pa.RecordBatch)
    ]
    return pa.Table.from_batches(batches, schema).combine_chunks()


def _schema(node: Node) -> pa.Schema:
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])


def _group_positions(numbers: Times, positions: Times) -> Iterator[tuple[int, Times]]:
    """Yield each distinct number at `positions` with its positions, both in ascending order."""
    if not len(positions):
        return
    ordered = positions[np.argsort(numbers[positions], kind="stable")]
    values = numbers[ordered]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield int(values[start]), ordered[start:end]
