"""LifetimeRows: the rows of an input with their lifetimes, in the order of their starts.

    row       start and end ──► valid, and not late ──► waiting ──► inserts and retractions in the order of starts
    change    the same, with its weight               └── until their start is due

A withdrawn row has a negative weight, and retracts the whole lifetime. If a row is withdrawn while it waits, there is
no change. A row and its withdrawal have the same start, so both are due together.

After a watermark t of the input, no row begins before t - `late_by`. The operators use this time, not t.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.plan.lifetime_nodes import Lifetime
from highlevel.plan.nodes import Node, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, bounds_of, times_of
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.model import VE, VS, Words, from_weighted
from highlevel.speculation.waiting_rows import WaitingRows
from lowlevel.punctuation import BEGINNING, END

MIN_ROOM = 4_096

WAITING, SUMS, TIMES = "waiting", "sums", "times"
"""Tables of a snapshot: the waiting rows, the sums of weights, and the newest start with the watermark of starts."""


class LifetimeRows:
    """Stores rows until they are due. `payload` is the schema of the values that become changes of lifetimes."""

    def __init__(self, source: Node, lifetime: Lifetime, payload: pa.Schema, *, are_changes: bool) -> None:
        """Read rows of `source`. `are_changes`: their last columns are `weight` and `final`."""
        self._lifetime = lifetime
        self._width = bound_count(source)
        self._late_by = None if lifetime.waits_for_end(source) else lifetime.late_by
        fields = [pa.field(VS, pa.int64()), pa.field(VE, pa.int64()), *payload]
        self._waiting = WaitingRows(pa.schema([*fields, pa.field(WEIGHT, pa.int64())]), VS)
        self._sums = WeightSums(pa.schema(fields)) if are_changes else None
        self.newest_start = BEGINNING
        """The newest start of a row."""
        self.start_watermark = BEGINNING
        """No later row begins before this time."""
        self.late = 0
        self.outside = 0
        """Number of rows without a start, or with an end that is not after the start."""

    @property
    def num_rows(self) -> int:
        """Number of waiting rows."""
        return self._waiting.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes of the waiting rows."""
        return self._waiting.nbytes + (0 if self._sums is None else self._sums.nbytes)

    def add(self, batch: pa.RecordBatch, values: pa.RecordBatch) -> None:
        """Store the rows of a batch that have a lifetime and are not late, with `values` in place of their columns."""
        start, end = lifetimes_of(batch, self._lifetime)
        is_valid = (start < END) & (start < end)
        is_late = is_valid & (start < self.start_watermark)
        self.outside += int(np.count_nonzero(~is_valid))
        self.late += int(np.count_nonzero(is_late))
        kept = is_valid & ~is_late
        if not kept.any():
            return
        self.newest_start = max(self.newest_start, int(start[kept].max()))
        weights = batch.column(WEIGHT) if self._sums is not None else array_of(np.ones(len(start), np.int64))
        columns = [array_of(start), array_of(end), *values.columns, weights]
        rows = pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=self._waiting.schema)])
        self._waiting.add(rows if kept.all() else pc.filter(rows, array_of(kept)).combine_chunks())

    def advance(self, punctuation: AnyPunctuation) -> bool:
        """Process a watermark of the input. Return True if `start_watermark` has grown."""
        bounds = bounds_of(punctuation, self._width)
        if set(bounds) == {END}:
            start_watermark = END
        elif self._late_by is None or bounds[0] == BEGINNING:
            return False
        else:
            start_watermark = bounds[0] - self._late_by
        grown = start_watermark > self.start_watermark
        self.start_watermark = max(start_watermark, self.start_watermark)
        if grown and self._sums is not None:
            self._sums.forget_before(self.start_watermark)
        return grown

    def take_before(self, time: int) -> pa.RecordBatch | None:
        """Remove the waiting rows that begin before `time`. Return their changes, or None if there are none."""
        if time == BEGINNING:
            return None
        rows = self._waiting.take_before(time)
        if self._sums is not None and rows.num_rows:
            rows, weights = self._sums.add(rows.drop_columns([WEIGHT]), rows.column(WEIGHT).to_numpy())
            rows = rows.append_column(WEIGHT, array_of(weights))
        if not rows.num_rows:
            return None
        (batch,) = rows.combine_chunks().to_batches()
        return from_weighted(batch)

    def snapshot(self, prefix: str = "") -> dict[str, pa.Table]:
        """Return the waiting rows, the sums, the newest start and the start watermark.

        Names of tables begin with `prefix`.
        """
        sums = {} if self._sums is None else {prefix + SUMS: self._sums.snapshot()}
        times = pa.table({TIMES: pa.array([self.newest_start, self.start_watermark], pa.int64())})
        return {prefix + WAITING: self._waiting.snapshot(), prefix + TIMES: times, **sums}

    def restore(self, tables: dict[str, pa.Table], prefix: str = "") -> None:
        """Load the state of a snapshot."""
        self._waiting.restore(tables[prefix + WAITING])
        self.newest_start, self.start_watermark = tables[prefix + TIMES][TIMES].to_pylist()
        if self._sums is not None:
            self._sums.restore(tables[prefix + SUMS])


def lifetimes_of(batch: pa.RecordBatch, lifetime: Lifetime) -> tuple[Words, Words]:
    """Return the starts and ends of rows, END for a missing one. A lifetime has at least 1 ns."""
    start = times_of(batch.column(lifetime.start))
    if lifetime.end is None:
        if lifetime.length is None:
            return start, np.full(len(start), END)
        return start, np.where(start == END, END, start + lifetime.length)
    end = times_of(batch.column(lifetime.end))
    return start, np.where(end == start, np.minimum(start, END - 1) + 1, end)


class WeightSums:
    """The sums of the weights of rows that can still be withdrawn.

    If its sum is positive, a row is true as often as the sum states, otherwise it is not true. A sum may be negative,
    because rows of several partitions arrive in any order, so a withdrawal may arrive before its row.
    """

    def __init__(self, schema: pa.Schema) -> None:
        """Store no sums yet. `schema`: the columns of the rows. The first column is the start."""
        self._schema = schema
        self._keys = Keys(schema.types)
        self._sums = np.zeros(0, np.int64)
        self._cleanup_rows = MIN_ROOM  # number of rows from which `forget_before` removes rows

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and sums."""
        return self._keys.bytes + self._sums.nbytes

    def add(self, rows: pa.Table, weights: Words) -> tuple[pa.Table, Words]:
        """Add weights.

        Return each row that becomes true or is withdrawn, in the order of `rows`, and its net weight.
        """
        columns = [column.combine_chunks() for column in rows.columns]
        numbers = self._keys.find_or_insert(columns, rows.num_rows).astype(np.int64)
        self._sums = np.append(self._sums, np.zeros(self._keys.count - len(self._sums), np.int64))
        distinct, firsts = np.unique(numbers, return_index=True)
        before = np.maximum(self._sums[distinct], 0)
        np.add.at(self._sums, numbers, weights)
        changes = np.maximum(self._sums[distinct], 0) - before
        order = np.argsort(firsts)
        order = order[changes[order] != 0]
        return pc.take(rows, array_of(firsts[order])), changes[order]

    def forget_before(self, start: int) -> None:
        """Remove rows that begin before `start`, because they cannot change any more.

        Do so only if they may be most of the rows.
        """
        if self._keys.count < self._cleanup_rows:
            return
        starts = self._keys.columns()[0].to_numpy()
        kept = np.flatnonzero((starts >= start) & (self._sums[: self._keys.count] != 0))
        self._keys, self._sums = self._keys.copy_of(kept), self._sums[kept]
        self._cleanup_rows = max(MIN_ROOM, 2 * len(kept))

    def snapshot(self) -> pa.Table:
        """Return the rows with their sums."""
        rows = pa.table(self._keys.columns(), schema=self._schema)
        return rows.append_column(WEIGHT, array_of(self._sums[: self._keys.count]))

    def restore(self, rows: pa.Table) -> None:
        """Load the rows of a snapshot."""
        self._sums = rows.column(WEIGHT).to_numpy().copy()
        for batch in rows.drop_columns([WEIGHT]).combine_chunks().to_batches():
            self._keys.find_or_insert(batch.columns, batch.num_rows)
