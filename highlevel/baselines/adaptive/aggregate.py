"""AdaptWID: a window aggregate that stores the tuples of a group, or its partials, depending on memory.

A group of few tuples in many overlapping windows is cheaper as tuples (**lazy**). A group of many tuples is cheaper as
a partial per open window (**eager**, as in WID; Li 2008, §6.3). A group is lazy at first. When it grows, its tuples are
moved into partials. When it shrinks, new tuples are stored again, and old partials stay until their windows close.

                    more than `eager_above` unexpired tuples
             lazy --------------------------------> eager
               ^  <--------------------------------
               |    fewer than `lazy_below`, when a window closes
            first tuple

Every unexpired tuple is either in the buffer or in the partials of all its open windows. So a window is always the
merge of its partials and of the buffered tuples in its range. A partial also counts the tuples whose last window is its
window. When this window closes, the volume of the group (its unexpired tuples) decreases by this count. So a group
without tuples has the volume 0.

Kernels over arrays of words do the work (`highlevel.baselines.adaptive.kernels`), in one call per batch. A punctuation
closes windows in steps, and each step reads the state once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.baselines.adaptive.extents import Extents
from highlevel.baselines.adaptive.layout import ACCUMULATORS, END, FIRST, GROUP, TO_EAGER, UPDATES, WID
from highlevel.baselines.adaptive.state import restore_store, snapshot_store
from highlevel.baselines.adaptive.store import Store
from highlevel.baselines.adaptive.thresholds import MemoryModel, ThresholdPolicy
from highlevel.groups.key_words import Words
from highlevel.operators.meld import Meld
from highlevel.sliding.aggregate import END_WID, FIRST_WID
from lowlevel.expressions.types import Type
from lowlevel.integer_ranges import Ranges, unite
from lowlevel.punctuation import Item, Punctuation
from lowlevel.subaggregates import INT_MAX, MERGE, SubAggregate, count_of_rows
from lowlevel.table.entries import MAX, MAX_FLOAT, MIN, MIN_FLOAT, SUM, SUM_FLOAT

CLOSE_ROWS = 65_536
"""Maximum number of memberships (pairs of a buffered tuple and a window) per step. One window may have more."""


def split_steps(closed: int, low: int, first: Words, end: Words) -> Iterator[int]:
    """Split the windows `[closed, low)` into steps of at most CLOSE_ROWS memberships. Yield the end of each step.

    When windows close, a buffered tuple becomes a partial for each of them. A tuple may be in many windows, and a
    watermark may close any number of windows. The steps limit the memory for these partials.

    `[first, end)` are the windows of the tuples. Windows without tuples need no step.
    """
    if len(first) == 0:
        yield low
        return
    order = np.argsort(first, kind="stable")
    starts, stops = first[order], np.sort(end)
    heads = np.flatnonzero(np.append(True, starts[1:] != starts[:-1]))
    reached = np.minimum(np.maximum.reduceat(end[order], heads), low)
    memberships = 0
    for start, stop in unite(zip(starts[heads].tolist(), reached.tolist(), strict=True)):
        wids = np.arange(max(start, closed), stop)
        counts = np.searchsorted(starts, wids, "right") - np.searchsorted(stops, wids, "right")
        for wid, count in zip(wids.tolist(), counts.tolist(), strict=True):
            if memberships and memberships + count > CLOSE_ROWS:
                yield wid
                memberships = 0
            memberships += count
    yield low


OPERATIONS = {
    ("sum", Type.INT): SUM,
    ("min", Type.INT): MIN,
    ("max", Type.INT): MAX,
    ("sum", Type.FLOAT): SUM_FLOAT,
    ("min", Type.FLOAT): MIN_FLOAT,
    ("max", Type.FLOAT): MAX_FLOAT,
}
"""The operation that adds a value to an accumulator, by merge rule and type."""


class AdaptiveAggregate:
    """Aggregates rows by window and group, stored as tuples or as partials.

    Rows of the result: `wid`, the groups, the merged sub-aggregates.

    Batches have the columns of `Aggregate`, and a column with the time of a row. Each port is a source. The watermark
    of the operator is the minimum of the sources. A row is not added to windows that are final; it is counted in
    `late`.
    """

    def __init__(
        self,
        groups: Sequence[str],
        subaggregates: Sequence[SubAggregate],
        window_range: int,
        slide: int,
        sources: int = 1,
        policy: ThresholdPolicy | None = None,
        time: str = "ts",
    ) -> None:
        """Group by the columns `groups`. `policy` (default: MemoryModel) decides when a group becomes lazy or eager.

        `window_range` and `slide` have the unit of the column `time`.
        """
        self.groups = list(groups)
        self.subaggregates = list(subaggregates)
        known = {sub.name: OPERATIONS.get((MERGE.get(sub.kind, ""), sub.type)) for sub in subaggregates}
        unsupported = [name for name, operation in known.items() if operation is None]
        if unsupported:
            raise ValueError(f"AdaptWID supports sums, MIN and MAX of numbers, got {', '.join(unsupported)}")
        self.operations = np.array(list(known.values()), np.int64)
        self.range, self.slide, self.time = window_range, slide, time
        self.policy = MemoryModel() if policy is None else policy
        self.extents = Extents(sources, window_range)
        self.meld = Meld(sources)
        self.group_types: list[pa.DataType] | None = None  # types of the group columns, from the first batch
        self.store = Store([], self.operations)
        self.closed = 0  # every window with a smaller id is final
        self.received = self.late = self.late_rows = self.windows_closed = 0
        self.to_lazy = 0
        self.peak_bytes = 0
        self.count_of_rows = count_of_rows(subaggregates)
        self._update_thresholds()

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Store rows, or add them to their open windows. Emit no results."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        first = batch.column(FIRST_WID).to_numpy()
        end = batch.column(END_WID).to_numpy()
        late = np.clip(np.minimum(end, self.closed) - first, 0, None)
        if late.any():
            self.late += int(late.sum())
            if self.count_of_rows is not None:
                self.late_rows += int(batch.column(self.count_of_rows).to_numpy()[late > 0].sum())
            batch = batch.filter(pa.array(end > self.closed))
            if batch.num_rows == 0:
                return iter(())
            first, end = batch.column(FIRST_WID).to_numpy(), batch.column(END_WID).to_numpy()
            first = np.maximum(first, self.closed)
        self._add_rows(port, batch, np.ascontiguousarray(first), np.ascontiguousarray(end))
        return iter(())

    def _add_rows(self, port: int, batch: pa.RecordBatch, first: Words, end: Words) -> None:
        columns = [batch.column(name) for name in self.groups]
        if self.group_types is None:
            self._create_store([column.type for column in columns])
        self.extents.record(port, batch.column(self.time).to_numpy(), first, end)
        values = np.empty((batch.num_rows, len(self.subaggregates)), np.int64)
        for number, sub in enumerate(self.subaggregates):
            values[:, number] = batch.column(sub.name).to_numpy().view(np.int64)
        group_ids = self.store.find_group_ids(columns, batch.num_rows)
        self.store.add_rows(group_ids, first, end, values, self.closed, self.eager_above)
        self._measure()

    def _create_store(self, kinds: list[pa.DataType]) -> None:
        """Create the store for groups by columns of these types."""
        self.group_types = kinds
        self.store = Store(kinds, self.operations)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the windows below the smallest watermark of the sources, in the order of IDs, then this watermark."""
        for least in self.meld.punctuate(port, punctuation):
            assert isinstance(least, Punctuation)
            if least.watermark > self.closed:
                yield from self._close(least.watermark)
                yield least

    def _close(self, low: int) -> Iterator[Item]:
        tuples = self.store.copy_tuples()
        for high in split_steps(self.closed, low, tuples[:, FIRST], tuples[:, END]):
            self.store.add_due(self.closed, high)
            self._measure()
            due = self.store.remove_due(high)
            self.closed = high
            if len(due):
                yield self._result(due)
        self.closed = low
        self.store.remove_gaps()
        self.extents.close(low)
        self._update_thresholds()
        self.to_lazy += self.store.make_lazy(self.lazy_below)

    def _result(self, due: Words) -> pa.RecordBatch:
        """Return `due`, partials of final windows, as a batch in the order of their windows."""
        due = due[np.argsort(due[:, WID], kind="stable")]
        self.windows_closed += 1 + int(np.count_nonzero(np.diff(due[:, WID])))
        names = ["wid", *self.groups, *(sub.name for sub in self.subaggregates)]
        columns = [pa.array(due[:, WID]), *self.store.keys.columns(due[:, GROUP])]
        return pa.RecordBatch.from_arrays([*columns, *self._values(due[:, ACCUMULATORS:])], names)

    def _values(self, words: Words) -> list[pa.Array]:
        """Return the words of sub-aggregates as columns."""
        columns = [np.ascontiguousarray(column) for column in words.T]
        floats = [sub.type is Type.FLOAT for sub in self.subaggregates]
        return [pa.array(each.view(np.float64) if real else each) for each, real in zip(columns, floats, strict=True)]

    def _update_thresholds(self) -> None:
        """Compute new thresholds from the current number of open windows, which is at least one."""
        open_windows = max(1.0, self.extents.distance / self.slide)
        chosen = self.policy.for_group(open_windows, self.store.partials.bytes_of_one, self.store.tuple_bytes)
        self.eager_above = INT_MAX if math.isinf(chosen.eager_above) else math.floor(chosen.eager_above)
        self.lazy_below = math.ceil(chosen.lazy_below)

    @property
    def tuples(self) -> int:
        """Tuples in the buffer."""
        return self.store.tuple_count

    @property
    def partials(self) -> int:
        """Number of stored partials, of all groups and windows."""
        return self.store.partials.count

    @property
    def groups_eager(self) -> int:
        """Number of groups whose tuples are added to partials."""
        return int(np.count_nonzero(self.store.is_eager))

    @property
    def to_eager(self) -> int:
        """Number of switches to eager; `to_lazy` counts the opposite switches."""
        return int(self.store.state[TO_EAGER])

    @property
    def updates(self) -> int:
        """Number of values added to partials."""
        return int(self.store.state[UPDATES])

    @property
    def bytes(self) -> int:
        """Bytes of all groups, tuples and partials."""
        return self.store.bytes

    def _measure(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self.bytes)

    def open_windows(self) -> Ranges:
        """Return the IDs of the windows that contain rows and are not final."""
        rows = self.store.copy_tuples()
        tuples = np.unique(np.stack([np.maximum(rows[:, FIRST], self.closed), rows[:, END]], 1), axis=0)
        wids = np.unique(self.store.partials.used_rows[:, WID]).tolist()
        return unite([*((int(first), int(end)) for first, end in tuples), *((wid, wid + 1) for wid in wids)])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the progress of sources and windows, groups, the buffer, and a table for each window with partials."""
        tables = {"progress": pa.table({"closed": [self.closed]})}
        tables |= self.meld.snapshot() | self.extents.snapshot()
        return tables if self.group_types is None else tables | snapshot_store(self.store, self.groups)

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.closed = tables["progress"]["closed"][0].as_py()
        self.meld.restore(tables)
        self.extents.restore(tables)
        self._update_thresholds()
        if "groups" in tables:
            self._create_store(tables["groups"].schema.types[: len(self.groups)])
            restore_store(tables, self.store)
