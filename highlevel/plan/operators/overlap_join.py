"""OverlapJoin and ChangingOverlapJoin: pairs of rows, true while both rows are true.

    rows of a side ──► lifetimes ──► waiting ──► join of lifetimes ──► pairs, or their changes
                                       └── with EMIT CHANGES, until WAIT has passed their start

Without changes a pair is returned as soon as both rows have arrived, because no later row can withdraw it. A pair
begins when the later row of both begins. So after watermarks of both sides no later pair begins before the smaller one
(`highlevel.speculation.lifetimes.equi_join`). The end of a pair is later than its start, so this is also a watermark of
`window_end`.

With EMIT CHANGES rows of both sides wait until the newest row of a side begins WAIT later. If a row is withdrawn while
it waits, no pair of it is returned. A row that is withdrawn later withdraws its pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.meld import UNION
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import ChangingOverlapJoin, OverlapJoin
from highlevel.plan.nodes import Node, macs_of
from highlevel.plan.operators.lifetime_rows import LifetimeRows
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.partitioning import comparable
from highlevel.speculation.changes import add_up, make_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.model import VE, VS, change_schema, make_ctis, weighted
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.tree import Column, Expression
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

WATERMARK = "watermark"
"""Table of a snapshot with the watermark."""

JOIN = "join "
"""Prefix of the tables of the join of lifetimes. Those of a side begin with its number."""


class OverlapSide:
    """One input: the values and keys of its rows, and the rows that wait."""

    def __init__(self, node: OverlapJoin, port: int) -> None:
        """Store no rows yet."""
        source, side = node.inputs[port], node.sides[port]
        self.prefix = f"{port} "
        self._macs = macs_of(source)
        self._names = [name for name, _ in side.columns]
        self._keys: list[Expression] = [comparable(pair[port], pair[1 - port]) for pair in node.keys]
        kinds = {column.name: ARROW_TYPES[column.type] for column in source.columns}
        self.values = [f"{port}.{number}" for number in range(len(self._names))]
        """Names of the values in changes of lifetimes, whose own columns have names too."""
        self.on = [f"key {number}" for number in range(max(1, len(self._keys)))]
        key_types = [ARROW_TYPES[key.type] for key in self._keys] or [pa.int64()]
        self.payload = pa.schema(
            [
                *(pa.field(value, kinds[name]) for value, name in zip(self.values, self._names, strict=True)),
                *(pa.field(name, kind) for name, kind in zip(self.on, key_types, strict=True)),
            ]
        )
        self.rows = LifetimeRows(source, side.lifetime, self.payload, are_changes=is_changing(source))

    def add(self, batch: pa.RecordBatch) -> None:
        """Store the rows of a batch."""
        columns = BatchColumns(batch, self._macs)
        keys = [arrow_column(evaluate(key, columns), batch.num_rows, key.type) for key in self._keys]
        keys = keys or [array_of(np.zeros(batch.num_rows, np.int64))]
        values = [batch.column(name) for name in self._names]
        self.rows.add(batch, pa.RecordBatch.from_arrays([*values, *keys], schema=self.payload))


class OverlapJoinOperator:
    """Joins the rows of both sides. It has the counters of a join."""

    def __init__(self, node: OverlapJoin) -> None:
        """Store no rows yet."""
        self._sides = [OverlapSide(node, port) for port in range(2)]
        left, right = self._sides
        on = list(zip(left.on, right.on, strict=True))
        self._join = LifetimeJoin(change_schema(left.payload), change_schema(right.payload), on)
        self._values = [*left.values, *right.values]
        self._time = node.time
        self._schema = _schema_of(node)
        self._watermark = BEGINNING
        self.received = 0
        self.stored = 0
        self.pairs = 0
        self.results = 0

    @property
    def late(self) -> int:
        """Rows that begin too early."""
        return sum(side.rows.late for side in self._sides)

    @property
    def outside(self) -> int:
        """Rows without a lifetime."""
        return sum(side.rows.outside for side in self._sides)

    @property
    def rows_held(self) -> int:
        """Rows that wait, and rows that a later row can meet."""
        return self._join.stored + sum(side.rows.num_rows for side in self._sides)

    @property
    def bytes(self) -> int:
        """Bytes of these rows."""
        return self._join.bytes + sum(side.rows.nbytes for side in self._sides)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add rows of a side. Return the pairs of rows that need not wait."""
        self.received += batch.num_rows
        if batch.num_rows:
            self._sides[port].add(batch)
        yield from self._use_rows()

    @property
    def _due_before(self) -> int:
        """Rows that begin before this time need not wait."""
        return END

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a side. Return the pairs of rows that have waited, and the watermark."""
        if not self._sides[port].rows.advance(punctuation):
            return
        watermark = min(each.rows.start_watermark for each in self._sides)
        grown, self._watermark = watermark > self._watermark, watermark
        yield from self._use_rows()
        for of_side, side in enumerate(self._sides):
            if self._certain_before(side) > BEGINNING:
                self._join.process(of_side, make_ctis([self._certain_before(side)], side.payload))
        if grown:
            yield Punctuation(UNION, watermark)

    def _certain_before(self, side: OverlapSide) -> int:
        """Return a time: all rows of a side that begin before it have been used, or are used now."""
        return side.rows.start_watermark

    def _use_rows(self) -> Iterator[GraphItem]:
        """Join the rows of both sides that need not wait."""
        parts = []
        due_before = self._due_before
        for port, side in enumerate(self._sides):
            changes = side.rows.take_before(max(due_before, self._certain_before(side)))
            if changes is not None:
                self.stored += changes.num_rows
                parts.append(weighted(self._join.process(port, changes)))
        rows = pa.Table.from_batches(parts).combine_chunks() if parts else None
        if rows is not None and rows.num_rows:
            (batch,) = rows.to_batches()
            self.pairs += batch.num_rows
            yield from self._results(batch)

    def _results(self, pairs: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return pairs. No row is withdrawn, so all pairs are inserts."""
        self.results += pairs.num_rows
        yield self._timed(pairs)

    def _timed(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """Return pairs with the bounds of windows in place of lifetimes."""
        ends = times_of(pairs.column(VE))
        columns = [pairs.column(VS), pa.array(ends, mask=ends == END), *(pairs.column(name) for name in self._values)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the times, and the state of the join."""
        tables = {name: table for side in self._sides for name, table in side.rows.snapshot(side.prefix).items()}
        watermark = pa.table({WATERMARK: pa.array([self._watermark], pa.int64())})
        return {**tables, WATERMARK: watermark} | {JOIN + name: each for name, each in self._join.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        (self._watermark,) = tables[WATERMARK][WATERMARK].to_pylist()
        for side in self._sides:
            side.rows.restore(tables, side.prefix)
        inner = {name.removeprefix(JOIN): table for name, table in tables.items() if name.startswith(JOIN)}
        self._join.restore(inner)


class ChangingOverlapJoinOperator(OverlapJoinOperator):
    """Uses rows when they have waited, and withdraws the pairs of withdrawn rows."""

    def __init__(self, node: ChangingOverlapJoin) -> None:
        """Store no rows yet."""
        super().__init__(node)
        self._wait = node.consistency.wait

    @property
    def _due_before(self) -> int:
        """A row need not wait if the newest row begins at least WAIT later."""
        clock = max(side.rows.clock for side in self._sides)
        waits = self._wait is None or clock == BEGINNING
        return BEGINNING if waits else clock - (self._wait or 0) + 1

    def _certain_before(self, side: OverlapSide) -> int:
        return self._watermark if self._wait is None else side.rows.start_watermark

    def _results(self, pairs: pa.RecordBatch) -> Iterator[GraphItem]:
        rows = self._timed(pairs)
        table = pa.Table.from_batches([rows])
        weights = pairs.column(WEIGHT).to_numpy()
        for batch in make_changes(table, weights, times_of(rows.column(self._time)) < self._watermark):
            for changes in add_up(batch):
                self.results += changes.num_rows
                yield changes


def _schema_of(node: Node) -> pa.Schema:
    """Return the schema of the pairs, without the columns of changes."""
    columns: tuple[Column, ...] = node.columns[:-2] if is_changing(node) else node.columns
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in columns])
