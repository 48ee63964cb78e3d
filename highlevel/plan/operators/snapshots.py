"""Snapshots and ChangingSnapshots: aggregates over the rows that are true at each instant.

    rows ──► lifetimes ──► waiting ──► snapshot operator ──► HAVING, the select list ──► results, or their changes
                              └── until the watermark, or WAIT, has passed their start

If the query has no EMIT CHANGES, rows wait until the watermark has passed their start, and enter the snapshot operator
(`highlevel.speculation.lifetimes.snapshot`, variant PERFECT) in the order of their starts. So each result is returned
once. With EMIT CHANGES a row waits only until another row begins at least WAIT later. A row that arrives later than
that corrects results.

After a watermark t no row begins before t, so every result that ends before t is final. A result that ends at t or
later may still be returned, or withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.aggregation import Aggregation, Detail, DetailFunction
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import ChangingSnapshots, Snapshots
from highlevel.plan.nodes import Node
from highlevel.plan.operators.lifetime_rows import LifetimeRows
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.row_partials import RowPartials
from highlevel.results.stages import make_stages, run_stages
from highlevel.speculation.changes import make_changes, net_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.aggregates import Aggregate
from highlevel.speculation.lifetimes.model import (
    VE,
    VS,
    change_schema,
    concat,
    make_ctis,
    weighted,
)
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator, Variant
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

OPERATOR_PREFIX = "operator "
"""Prefix of the tables of the snapshot operator."""


class SnapshotsOperator:
    """Stores rows until their start is below the watermark. Then each result is returned once."""

    def __init__(self, node: Snapshots) -> None:
        """Prepare empty groups for `node`."""
        aggregation = node.aggregation
        self._partials = _row_partials(node.input, node)
        names = [*aggregation.group_by, *_value_columns(aggregation)]
        kinds = {field.name: field.type for field in aggregation.low.schema}
        self._payload_schema = pa.schema([pa.field(name, kinds[name]) for name in names])
        self._negated = [sub.name for sub in aggregation.low.subaggregates if _is_float_maximum(sub)]
        are_changes = is_changing(node.input)
        self._rows = LifetimeRows(node.input, node.lifetime, self._payload_schema, are_changes=are_changes)
        open_ended = isinstance(node, ChangingSnapshots) and node.open_ended
        variant = Variant.ORDERED if open_ended else Variant.PERFECT
        self._operator = SnapshotOperator(
            *(change_schema(self._payload_schema), _aggregates(aggregation), aggregation.group_by, variant),
            without_full_retractions=not are_changes,
        )
        self._steps, self.last_stage = make_stages(replace(aggregation, details=()))
        self.received = 0

    @property
    def late(self) -> int:
        """Rows that begin too early."""
        return self._rows.late

    @property
    def outside(self) -> int:
        """Rows without a start, or with an end before it."""
        return self._rows.outside

    @property
    def rows_held(self) -> int:
        """Number of rows that wait, and of snapshots that can still change."""
        return self._operator.entries + self._rows.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait, and of the snapshot operator."""
        return self._operator.bytes + self._rows.nbytes

    @property
    def results(self) -> int:
        """Rows returned, after HAVING."""
        return self.last_stage.results

    @property
    def overflowed_sums(self) -> int:
        """Sums in results, also in withdrawn ones, that are NULL, because they exceed 64 bits."""
        return self.last_stage.overflowed_sums

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Store rows, and process the rows that have waited long enough."""
        self.received += batch.num_rows
        for partials in self._partials.compute(batch):
            self._store(batch, partials)
        yield from self._use_rows(self._due_before, [])

    @property
    def _due_before(self) -> int:
        """Rows that begin before this time, in ns, are processed at once."""
        return BEGINNING

    def _store(self, batch: pa.RecordBatch, partials: pa.RecordBatch) -> None:
        """Store the partials of rows."""
        rows = partials.select(self._payload_schema.names)
        for name in self._negated:
            rows = rows.set_column(rows.schema.get_field_index(name), name, pc.negate(rows.column(name)))
        self._rows.add(batch, rows)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of the input's time column. Return the results that become final, and the watermark."""
        if not self._rows.advance(punctuation):
            return
        start_watermark = self._rows.start_watermark
        yield from self._use_rows(start_watermark, [make_ctis([start_watermark], self._payload_schema)])
        yield Punctuation(punctuation.link, start_watermark)

    def _use_rows(self, end_time: int, following: list[pa.RecordBatch]) -> Iterator[GraphItem]:
        """Process the waiting rows that begin before `end_time` (ns) by their starts, and then `following`."""
        changes = self._rows.take_before(end_time)
        batches = following if changes is None else [changes, *following]
        if batches:
            yield from self._results(self._snapshots(concat(batches, change_schema(self._payload_schema))))

    def _snapshots(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the changes of snapshots that follow from changes of rows."""
        return self._operator.process(changes)

    def _results(self, changes: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return changes of snapshots as results. All are inserts, because no row corrects another."""
        yield from run_stages(self._steps, self._with_window_bounds(weighted(changes)))

    def _with_window_bounds(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Replace the start and end of lifetimes by `window_start` and `window_end`, and remove the weights."""
        ends = rows.column(VE).to_numpy()
        columns = {name: rows.column(name) for name in rows.schema.names if name not in (VS, VE, WEIGHT)}
        for name in self._negated:
            columns[name] = pc.negate(columns[name])
        bounds = [rows.column(VS), pa.array(ends, mask=ends == END)]
        return pa.RecordBatch.from_arrays([*bounds, *columns.values()], [WINDOW_START, WINDOW_END, *columns])

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the waiting rows, the times, and the state of the snapshot operator."""
        return self._rows.snapshot() | {
            OPERATOR_PREFIX + name: table for name, table in self._operator.snapshot().items()
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._rows.restore(tables)
        operator_tables = {
            name.removeprefix(OPERATOR_PREFIX): table
            for name, table in tables.items()
            if name.startswith(OPERATOR_PREFIX)
        }
        self._operator.restore(operator_tables)


class ChangingSnapshotsOperator(SnapshotsOperator):
    """Processes rows when they have waited, and corrects the results that a later row changes."""

    def __init__(self, node: ChangingSnapshots) -> None:
        """Prepare empty groups for `node`."""
        super().__init__(node)
        self._wait = node.consistency.wait
        self._open_ended = node.open_ended
        self._schema = node.aggregation.schema
        self.changes = 0

    @property
    def results(self) -> int:
        """Changes returned."""
        return self.changes

    @property
    def _due_before(self) -> int:
        """The time, in ns, WAIT before the start of the newest row: earlier rows need not wait."""
        clock = self._rows.newest_start
        waits = self._wait is None or clock == BEGINNING
        return BEGINNING if waits else clock - (self._wait or 0) + 1

    def _snapshots(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        snapshots = super()._snapshots(changes)
        if not self._open_ended:
            return snapshots
        # Other groups may have ended before the newest row, and rank lower from then on.
        newest = int(changes.column(VS).to_numpy().max())
        return concat([snapshots, self._operator.publish_ends(newest)], self._operator.schema)

    def _results(self, changes: pa.RecordBatch) -> Iterator[GraphItem]:
        rows = weighted(changes)
        weights = rows.column(WEIGHT).to_numpy()
        timed = self._with_window_bounds(rows)
        old, new = (self._result_rows(pc.filter(timed, array_of(chosen))) for chosen in (weights < 0, weights > 0))
        changed, net = net_changes(old, new)
        self.changes += changed.num_rows
        ends, start_watermark = times_of(changed.column(WINDOW_END).combine_chunks()), self._rows.start_watermark
        yield from make_changes(changed, net, ends < start_watermark if start_watermark != END else True)

    def _result_rows(self, rows: pa.RecordBatch) -> pa.Table:
        return pa.Table.from_batches(run_stages(self._steps, rows), self._schema)


def _row_partials(source: Node, node: Snapshots) -> RowPartials:
    return RowPartials(source, node.aggregation.low, next(iter(source.time_columns), node.time), has_panes=False)


def _is_float_maximum(sub: SubAggregate) -> bool:
    """Return True for a maximum of floats. It is stored as the minimum of the negated values.

    A minimum ignores NaN, which counts as the greatest value.
    """
    return sub.kind is Kind.MAX and sub.type is Type.FLOAT


def _value_columns(aggregation: Aggregation) -> list[str]:
    """Return the columns of partials that aggregates read."""
    subaggregates = [sub.name for sub in aggregation.low.subaggregates]
    details = [detail.key for detail in aggregation.details if detail.key not in aggregation.group_by]
    return [*subaggregates, *dict.fromkeys(details)]


def _aggregates(aggregation: Aggregation) -> list[Aggregate]:
    """Return the aggregates of snapshots: one for each sub-aggregate and for each holistic aggregate (`details`)."""
    of_subaggregates = [
        Aggregate(sub.name, "min" if _is_float_maximum(sub) else SNAPSHOT_FUNCTIONS[sub.kind], sub.name)
        for sub in aggregation.low.subaggregates
    ]
    return [*of_subaggregates, *(_aggregate_of_detail(detail) for detail in aggregation.details)]


def _aggregate_of_detail(detail: Detail) -> Aggregate:
    if detail.function is DetailFunction.COUNT_DISTINCT:
        return Aggregate(detail.name, "count_distinct", detail.key)
    return Aggregate(detail.name, "quantile", detail.key, detail.parameter)


SNAPSHOT_FUNCTIONS = {
    **dict.fromkeys((Kind.COUNT, Kind.SUM, Kind.UPPER_SUM, Kind.LOWER_SUM), "sum"),
    Kind.MIN: "min",
    Kind.MAX: "max",
}
"""The sub-aggregates that snapshots support. The function combines the values of single rows."""
