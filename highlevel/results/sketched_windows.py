"""Fold: partials of single values become partials with sketches, one for each pane and group.

    pane  srcIP  destIP  count            pane  srcIP  sketch      count
    1     A      X       5                1     A      of X, Y     7
    1     A      Y       2         ──►    1     B      of X        1
    1     B      X       1

A pane's sketches are emitted when the watermark reaches the end of the pane. Until then each group has one sketch, so
further values need no memory. A late partial is emitted at once, with a separate sketch. The next operator groups by
all columns, so it would merge two equal sketches into one row. A unique number at the beginning of each sketch prevents
that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.aggregation import Aggregation, Folding
from highlevel.groups.merging import MergeRule, list_merge_rules
from highlevel.groups.table import GroupTable
from highlevel.results.sketches import SKETCH_TYPES, Sketch, sketch_input
from highlevel.sliding.aggregate import SlidingAggregate
from lowlevel.integer_ranges import Ranges, unite
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation

NUMBER_BYTES = 8
"""Bytes of the number before a sketch."""


class FoldedPane:
    """The groups of one pane: merged sub-aggregates, and a sketch for each item of `foldings`."""

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule], foldings: Sequence[Folding]
    ) -> None:
        """Create an empty pane. `schema` is the schema of the partials."""
        self.table = GroupTable(schema, groups, merge_rules)
        self.foldings = foldings
        self.sketches: list[list[Sketch]] = [[] for _ in foldings]

    def add(self, batch: pa.RecordBatch) -> None:
        """Add partials of single values."""
        ids = self._merge_subaggregates(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            counts = batch.column(folding.count).to_numpy()
            values = batch.column(folding.source)
            rows = np.flatnonzero((counts > 0) & np.asarray(values.is_valid()))
            rows = rows[np.argsort(ids[rows], kind="stable")]
            given, counts = sketch_input(folding, values.take(pa.array(rows))), counts[rows]
            for group, first, end in _equal_id_runs(ids[rows]):
                sketches[group].add(given[first:end], counts[first:end])

    def merge(self, batch: pa.RecordBatch) -> None:
        """Merge partials with sketches."""
        ids = self._merge_subaggregates(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            for group, data in zip(ids.tolist(), batch.column(folding.column).to_pylist(), strict=True):
                sketches[group].merge(data[NUMBER_BYTES:])

    def _merge_subaggregates(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Merge sub-aggregates, create sketches for new groups, and return the group ID of each row."""
        ids = self.table.merge(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            sketches += [SKETCH_TYPES[folding.function]() for _ in range(self.table.count - len(sketches))]
        return ids

    def to_arrow(self, first_sketch_number: int) -> pa.RecordBatch:
        """Return a row per group. The sketches are numbered from `first_sketch_number` on."""
        batch = self.table.to_arrow()
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            numbers = range(first_sketch_number, first_sketch_number + len(sketches))
            heads = [number.to_bytes(NUMBER_BYTES, "little") for number in numbers]
            data = [head + sketch.to_bytes() for head, sketch in zip(heads, sketches, strict=True)]
            batch = batch.append_column(folding.column, pa.array(data, pa.binary()))
        return batch


def _equal_id_runs(ids: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return (id, first, end) for each run of equal IDs."""
    begins = np.flatnonzero(np.append(True, np.diff(ids) != 0)[: len(ids)])
    ends = np.append(begins[1:], len(ids))[: len(begins)]
    return list(zip(ids[begins].tolist(), begins.tolist(), ends.tolist(), strict=True))


def merge_sketches(
    folding: Folding, parameter: float, ids: npt.NDArray[np.int64], group_count: int, column: pa.Array
) -> list[object]:
    """Merge the sketches of each group and return their results. Row i belongs to group `ids[i]`."""
    sketches = [SKETCH_TYPES[folding.function]() for _ in range(group_count)]
    for group, data in zip(ids.tolist(), column.to_pylist(), strict=True):
        sketches[group].merge(data[NUMBER_BYTES:])
    return [sketch.result(parameter) for sketch in sketches]


WATERMARK, PANE, INNER = "promised", "pane ", "windows "
"""Table names, and prefixes of table names, in a snapshot."""


class FoldingWindows:
    """A `WindowOperator` over time: stores a sketch per pane and group, and emits complete panes.

    The counters of late partials count partials with sketches.
    """

    def __init__(self, aggregation: Aggregation, windows: SlidingAggregate) -> None:
        """Make sketches for `aggregation`. `windows` computes the windows from complete panes."""
        self.windows = windows
        self.foldings = aggregation.foldings
        self.pane = aggregation.low.pane
        self.origin = aggregation.low.origin
        made = {folding.column for folding in aggregation.foldings}
        self.groups = [name for name in aggregation.merge_columns if name not in made]
        self.merge_rules = list_merge_rules(aggregation.low.subaggregates)
        self.panes: dict[int, FoldedPane] = {}
        self.watermark = BEGINNING
        self.next_sketch_number = 0
        self.received = 0

    @property
    def outside(self) -> int:
        """Number of sketched partials before the origin, or between windows."""
        return self.windows.outside

    @property
    def late(self) -> int:
        """Number of times that a sketched partial missed a window because the window was final."""
        return self.windows.late

    @property
    def late_rows(self) -> int:
        """Rows of the partials in `late`."""
        return self.windows.late_rows

    @property
    def bytes(self) -> int:
        """Bytes of the state. Sketches count with their serialised size."""
        sketches = (sketch for pane in self.panes.values() for some in pane.sketches for sketch in some)
        tables = sum(pane.table.bytes for pane in self.panes.values())
        return self.windows.bytes + tables + sum(len(sketch.to_bytes()) for sketch in sketches)

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain partials and are not final."""
        first, end = self.windows.window.wids(self.origin + np.array(sorted(self.panes), np.int64) * self.pane)
        closed = self.windows.aggregate.closed
        ranges = zip(np.maximum(first, closed).tolist(), end.tolist(), strict=True)
        return unite([*self.windows.open_windows(), *((low, high) for low, high in ranges if low < high)])

    def take_closed_windows(self) -> Ranges:
        """Return the ids of the windows that became final since the last call."""
        return self.windows.take_closed_windows()

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Add partials to their panes."""
        self.received += batch.num_rows
        numbers = batch.column("pane").to_numpy()
        for number in np.unique(numbers).tolist():
            is_of_pane = numbers == number
            part = batch if is_of_pane.all() else batch.filter(pa.array(is_of_pane))
            if self._is_pane_complete(number):
                late = self._new_pane(part.schema)
                late.add(part)
                yield from self._emit(number, late)
                continue
            if number not in self.panes:
                self.panes[number] = self._new_pane(part.schema)
            self.panes[number].add(part)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the panes that end at or before the watermark, then the watermark."""
        self.watermark = max(self.watermark, punctuation.watermark)
        for number in sorted(number for number in self.panes if self._is_pane_complete(number)):
            yield from self._emit(number, self.panes.pop(number))
        yield from self.windows.punctuate(port, punctuation)

    def _is_pane_complete(self, number: int) -> bool:
        return self.watermark == END or self.origin + (number + 1) * self.pane <= self.watermark

    def _new_pane(self, schema: pa.Schema) -> FoldedPane:
        return FoldedPane(schema, self.groups, self.merge_rules, self.foldings)

    def _emit(self, number: int, pane: FoldedPane) -> Iterator[Item]:
        rows = pane.to_arrow(self.next_sketch_number)
        self.next_sketch_number += rows.num_rows
        rows = rows.append_column("pane", pa.array(np.full(rows.num_rows, number, np.int64)))
        yield from self.windows.process_rows(0, rows)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermark, a table for each pane, and the state of the windows."""
        tables = {WATERMARK: pa.table({"low": [self.watermark], "number": [self.next_sketch_number]})}
        for number, pane in self.panes.items():
            tables[f"{PANE}{number}"] = pa.Table.from_batches([pane.to_arrow(0)])
        return tables | {INNER + name: table for name, table in self.windows.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        inner = {}
        for name, table in tables.items():
            if name == WATERMARK:
                self.watermark, self.next_sketch_number = table["low"][0].as_py(), table["number"][0].as_py()
            elif name.startswith(PANE):
                pane = self._new_pane(table.schema)
                for batch in table.to_batches():
                    pane.merge(batch)
                self.panes[int(name.removeprefix(PANE))] = pane
            else:
                inner[name.removeprefix(INNER)] = table
        self.windows.restore(inner)
