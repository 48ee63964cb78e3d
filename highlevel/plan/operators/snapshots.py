"""Snapshots and ChangingSnapshots: aggregates over the rows that are true at each instant.

    rows ──► lifetimes ──► waiting ──► snapshot operator ──► HAVING, the select list ──► results, or their changes
                              └── until the watermark, or WAIT, has passed their start

Rows wait without EMIT CHANGES, and enter the snapshot operator in the order of their starts. So it returns each result
once (`highlevel.speculation.lifetimes.snapshot`, variant PERFECT). With EMIT CHANGES a row waits for a row that begins
WAIT later, and a row that is later than this corrects results.

After a watermark t no row begins before t, so every result that ends before t is final. A result that ends at t or
later may still be returned, or withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.aggregation import Aggregation, Detail, DetailFunction
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.lifetime_nodes import ChangingSnapshots, Snapshots
from highlevel.plan.nodes import Node, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.stages import make_stages, through
from highlevel.speculation.changes import make_changes, net_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.aggregates import Aggregate
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT
from highlevel.speculation.lifetimes.model import (
    VE,
    VS,
    Words,
    change_schema,
    concat,
    make_ctis,
    weighted,
)
from highlevel.speculation.lifetimes.model import make_changes as make_inserts
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from highlevel.windows.kind import LifetimeWindow
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

WAITING, TIMES = "waiting", "times"
"""Tables of a snapshot: the rows that wait, and the clock and the watermark."""

OPERATOR = "operator "
"""Prefix of the tables of the snapshot operator."""


class SnapshotsOperator:
    """Holds rows until their start is below the watermark. Then each result is returned once."""

    def __init__(self, node: Snapshots) -> None:
        """Prepare empty groups for `node`."""
        aggregation, window = node.aggregation, node.aggregation.window
        assert isinstance(window, LifetimeWindow)
        self._start, self._end = node.time, node.end
        self._late_by = None if node.waits_for_end else node.late_by
        self._length = window.length
        self._width = bound_count(node.input)
        self._partials = _row_partials(node.input, node)
        names = [*aggregation.group_by, *_value_columns(aggregation)]
        kinds = {field.name: field.type for field in aggregation.low.schema}
        self._payload = pa.schema([pa.field(name, kinds[name]) for name in names])
        self._negated = [sub.name for sub in aggregation.low.subaggregates if _is_float_maximum(sub)]
        self._operator = SnapshotOperator(
            *(change_schema(self._payload), _aggregates(aggregation), aggregation.group_by, Variant.PERFECT),
            without_full_retractions=True,
        )
        self._steps, self.finish = make_stages(replace(aggregation, details=()))
        self._waiting: list[pa.RecordBatch] = []
        self._clock = BEGINNING  # the newest start of a row
        self._promised = BEGINNING  # no later row begins before this time
        self.received = 0
        self.late = 0
        self.outside = 0
        """Rows without a start, or with an end before it."""

    @property
    def rows_held(self) -> int:
        """Rows that wait, and snapshots that can still change."""
        return self._operator.entries + sum(batch.num_rows for batch in self._waiting)

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait, and of the snapshot operator."""
        return self._operator.bytes + sum(batch.nbytes for batch in self._waiting)

    @property
    def results(self) -> int:
        """Rows returned, after HAVING."""
        return self.finish.results

    @property
    def overflowed_sums(self) -> int:
        """Sums in results, also in withdrawn ones, that are NULL, because they exceed 64 bits."""
        return self.finish.overflowed_sums

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows, and use those that have waited long enough."""
        self.received += batch.num_rows
        for partials in self._partials.compute(batch):
            self._store(batch, partials)
        yield from self._use_rows(self._due_before, [])

    @property
    def _due_before(self) -> int:
        """Rows that begin before this time need not wait."""
        return BEGINNING

    def _store(self, batch: pa.RecordBatch, partials: pa.RecordBatch) -> None:
        """Store the inserts of rows with a valid lifetime that are not late."""
        start, end = self._lifetimes(batch)
        is_valid = (start < END) & (start < end)
        is_late = is_valid & (start < self._promised)
        self.outside += int(np.count_nonzero(~is_valid))
        self.late += int(np.count_nonzero(is_late))
        kept = is_valid & ~is_late
        if not kept.any():
            return
        self._clock = max(self._clock, int(start[kept].max()))
        rows = partials.select(self._payload.names)
        for name in self._negated:
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.negate(rows.column(name)))
        inserts = make_inserts(np.full(len(start), INSERT), start, end, end, rows)
        self._waiting.append(inserts if kept.all() else pc.filter(inserts, array_of(kept)))

    def _lifetimes(self, batch: pa.RecordBatch) -> tuple[Words, Words]:
        """Return the starts and ends of rows; END if there is none. A lifetime has at least 1 ns."""
        start = _times(batch.column(self._start))
        if self._end is None:
            return start, np.where(start == END, END, start + (self._length or 0))
        end = _times(batch.column(self._end))
        return start, np.where(end == start, np.minimum(start, END - 1) + 1, end)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of the time of the input. Return the results that become final, and the watermark."""
        bounds = bounds_of(punctuation, self._width)
        if set(bounds) == {END}:
            promised = END
        elif self._late_by is None or bounds[0] == BEGINNING:
            return
        else:
            promised = bounds[0] - self._late_by
        if promised <= self._promised:
            return
        self._promised = promised
        yield from self._use_rows(promised, [make_ctis([promised], self._payload)])
        yield Punctuation(punctuation.link, promised)

    def _use_rows(self, before: int, following: list[pa.RecordBatch]) -> Iterator[GraphItem]:
        """Process the waiting rows that begin before a time, in the order of their starts, and then `following`."""
        parts = following
        if self._waiting and before != BEGINNING:
            waiting = concat(self._waiting, change_schema(self._payload))
            start = waiting.column(VS).to_numpy()
            due = np.flatnonzero(start < before)
            if len(due):
                parts = [pc.take(waiting, array_of(due[np.argsort(start[due], kind="stable")])), *following]
                waiting = pc.filter(waiting, array_of(start >= before))
            self._waiting = [waiting] if waiting.num_rows else []
        if parts:
            yield from self._results(self._operator.process(concat(parts, change_schema(self._payload))))

    def _results(self, changes: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return changes of snapshots as results. No row corrects another, so all are inserts."""
        yield from through(self._steps, self._timed(weighted(changes)))

    def _timed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return weighted rows with the bounds of windows in place of lifetimes."""
        ends = rows.column(VE).to_numpy()
        columns = {name: rows.column(name) for name in rows.schema.names if name not in (VS, VE, WEIGHT)}
        for name in self._negated:
            columns[name] = pc.negate(columns[name])
        bounds = [rows.column(VS), pa.array(ends, mask=ends == END)]
        return pa.RecordBatch.from_arrays([*bounds, *columns.values()], [WINDOW_START, WINDOW_END, *columns])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the waiting rows, the times, and the state of the snapshot operator."""
        waiting = pa.Table.from_batches(self._waiting, change_schema(self._payload))
        tables = {WAITING: waiting, TIMES: pa.table({TIMES: [self._clock, self._promised]})}
        return tables | {OPERATOR + name: table for name, table in self._operator.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._clock, self._promised = tables[TIMES][TIMES].to_pylist()
        self._waiting = tables[WAITING].to_batches()
        inner = {name.removeprefix(OPERATOR): table for name, table in tables.items() if name.startswith(OPERATOR)}
        self._operator.restore(inner)


class ChangingSnapshotsOperator(SnapshotsOperator):
    """Uses rows when they have waited, and corrects the results that a later row changes."""

    def __init__(self, node: ChangingSnapshots) -> None:
        """Prepare empty groups for `node`."""
        super().__init__(node)
        self._wait = node.consistency.wait
        self._schema = node.aggregation.schema
        self.changes = 0

    @property
    def results(self) -> int:
        """Changes returned."""
        return self.changes

    @property
    def _due_before(self) -> int:
        """A row need not wait if the newest row begins at least WAIT later."""
        waits = self._wait is None or self._clock == BEGINNING
        return BEGINNING if waits else self._clock - (self._wait or 0) + 1

    def _results(self, changes: pa.RecordBatch) -> Iterator[GraphItem]:
        rows = weighted(changes)
        weights = rows.column(WEIGHT).to_numpy()
        timed = self._timed(rows)
        old, new = (self._finished(pc.filter(timed, array_of(chosen))) for chosen in (weights < 0, weights > 0))
        changed, net = net_changes(old, new)
        self.changes += changed.num_rows
        ends = _times(changed.column(WINDOW_END).combine_chunks())
        yield from make_changes(changed, net, ends < self._promised if self._promised != END else True)

    def _finished(self, rows: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches(through(self._steps, rows), self._schema)


def _times(column: pa.Array) -> Words:
    """Return times in ns; NULL is END."""
    return (pc.fill_null(column, END) if column.null_count else column).to_numpy(zero_copy_only=False)


def _row_partials(source: Node, node: Snapshots) -> RowPartials:
    return RowPartials(source, node.aggregation.low, next(iter(source.time_columns), node.time), paned=False)


def _is_float_maximum(sub: SubAggregate) -> bool:
    """Return whether a maximum is stored as the minimum of negated values: NaN, the greatest value, is ignored."""
    return sub.kind is Kind.MAX and sub.type is Type.FLOAT


def _value_columns(aggregation: Aggregation) -> list[str]:
    """Return the columns of partials that aggregates read."""
    subaggregates = [sub.name for sub in aggregation.low.subaggregates]
    details = [detail.key for detail in aggregation.details if detail.key not in aggregation.group_by]
    return [*subaggregates, *dict.fromkeys(details)]


def _aggregates(aggregation: Aggregation) -> list[Aggregate]:
    """Return the aggregates of snapshots that correspond to the sub-aggregates and details."""
    of_subaggregates = [
        Aggregate(sub.name, "min" if _is_float_maximum(sub) else SNAPSHOT_FUNCTIONS[sub.kind], sub.name)
        for sub in aggregation.low.subaggregates
    ]
    return [*of_subaggregates, *(_of_detail(detail) for detail in aggregation.details)]


def _of_detail(detail: Detail) -> Aggregate:
    if detail.function is DetailFunction.COUNT_DISTINCT:
        return Aggregate(detail.name, "count_distinct", detail.key)
    return Aggregate(detail.name, "quantile", detail.key, detail.parameter)


SNAPSHOT_FUNCTIONS = {
    **dict.fromkeys((Kind.COUNT, Kind.SUM, Kind.UPPER_SUM, Kind.LOWER_SUM), "sum"),
    Kind.MIN: "min",
    Kind.MAX: "max",
}
"""Sub-aggregates of which snapshots can be computed, and the function over the values of single rows."""
