"""OverlapJoin and ChangingOverlapJoin: pairs of rows, true while both rows are true, and parts of rows.

    rows of a side ─► lifetimes ─► waiting ─► join of lifetimes ─► residual ─► pairs, or their changes
                                      │                               └──► parts of rows, or their changes
                                      └── with EMIT CHANGES, until WAIT has passed their start

Without changes a pair is returned as soon as both rows have arrived, because no later row can withdraw it. A pair
begins when the later row of both begins. So after watermarks of both sides no later pair begins before the smaller
watermark (`highlevel.speculation.lifetimes.equi_join`). The end of a pair is later than its start, so this is also a
watermark of `window_end`.

A part of a row is the time in which it has no pair, or for SEMI has one. The part is certain when no row of the other
side can begin before its end. A part may begin before the watermark. So a watermark of `window_start` is also at most
the start of each part that is not certain.

With EMIT CHANGES rows of both sides wait until the newest row begins at least WAIT later. If a row is withdrawn while
it waits, none of its pairs is returned. If a row is withdrawn later, its pairs are withdrawn. A part is returned when a
row begins WAIT after the end of the part, and withdrawn if a later pair changes the part.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.joins.spec import JoinKind, Port
from highlevel.operators.batch_columns import BatchColumns
from highlevel.operators.meld import UNION
from highlevel.operators.window_operator import WINDOW_START
from highlevel.plan.change_nodes import is_changing
from highlevel.plan.lifetime_nodes import ChangingOverlapJoin, OverlapJoin
from highlevel.plan.nodes import Node, macs_of
from highlevel.plan.operators.lifetime_rows import LifetimeRows, lifetimes_of
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.partitioning import comparable
from highlevel.speculation.changes import add_up, make_changes
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.match_parts import MatchParts
from highlevel.speculation.lifetimes.model import VE, VS, change_schema, make_ctis, weighted
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Column, Expression
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

WATERMARK = "watermark"
"""Table of a snapshot with the watermark."""

PARTS = "parts "
"""Prefix of the tables of the parts of rows, after the number of their side."""

JOIN = "join "
"""Prefix of the tables of the join of lifetimes. The names of a side's tables begin with the number of the side."""


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
        """Names of the values in changes of lifetimes; they differ from the names of the lifetimes' own columns."""
        has_parts = node.kind.keeps(Port(port)) or (node.kind is JoinKind.SEMI and port == Port.LEFT)
        self.lifetime_columns = [f"{port} start", f"{port} end"] if has_parts else []
        """Columns with the lifetimes of rows, if parts of rows are results."""
        self.key_columns = [f"key {number}" for number in range(max(1, len(self._keys)))]
        key_types = [ARROW_TYPES[key.type] for key in self._keys] or [pa.int64()]
        self.payload = pa.schema(
            [
                *(pa.field(value, kinds[name]) for value, name in zip(self.values, self._names, strict=True)),
                *(pa.field(name, kind) for name, kind in zip(self.key_columns, key_types, strict=True)),
                *(pa.field(name, pa.int64()) for name in self.lifetime_columns),
            ]
        )
        self._lifetime = side.lifetime
        self.rows = LifetimeRows(source, side.lifetime, self.payload, are_changes=is_changing(source))
        identity = pa.schema([self.payload.field(name) for name in (*self.values, *self.lifetime_columns)])
        self.parts = MatchParts(identity, has_match=node.kind is JoinKind.SEMI) if has_parts else None

    def add(self, batch: pa.RecordBatch) -> None:
        """Store the rows of a batch."""
        columns = BatchColumns(batch, self._macs)
        keys = [arrow_column(evaluate(key, columns), batch.num_rows, key.type) for key in self._keys]
        keys = keys or [array_of(np.zeros(batch.num_rows, np.int64))]
        values = [batch.column(name) for name in self._names]
        times = map(array_of, lifetimes_of(batch, self._lifetime)) if self.lifetime_columns else ()
        self.rows.add(batch, pa.RecordBatch.from_arrays([*values, *keys, *times], schema=self.payload))


class OverlapJoinOperator:
    """Joins the rows of both sides. It has the counters of a join."""

    def __init__(self, node: OverlapJoin) -> None:
        """Store no rows yet."""
        self._sides = [OverlapSide(node, port) for port in range(2)]
        left, right = self._sides
        key_columns = list(zip(left.key_columns, right.key_columns, strict=True))
        self._join = LifetimeJoin(change_schema(left.payload), change_schema(right.payload), key_columns)
        self._parts = [side.parts for side in self._sides if side.parts is not None]
        self._pair_values = [*left.values, *right.values]
        self._values = left.values if node.kind.is_left_only else self._pair_values
        self._time = node.time
        self._has_pairs = not node.kind.is_left_only
        self._schema = _schema_of(node)
        pairs = OverlapJoin(node.left, node.right, node.sides, node.keys)
        self._residual = None if node.residual is None else Condition(node.residual)
        self._pair_names, self._macs = [column.name for column in pairs.columns], macs_of(pairs)
        self._start_watermark = BEGINNING
        """No later row of a side begins before this time, in ns."""
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
        """Number of rows that wait, and of rows that a later row can match."""
        waiting = sum(side.rows.num_rows for side in self._sides)
        return self._join.stored + waiting + sum(parts.num_rows for parts in self._parts)

    @property
    def bytes(self) -> int:
        """Bytes of the rows in `rows_held`."""
        waiting = sum(side.rows.nbytes for side in self._sides)
        return self._join.bytes + waiting + sum(parts.bytes for parts in self._parts)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Add rows of a side. Return the pairs of rows that need not wait."""
        self.received += batch.num_rows
        if batch.num_rows:
            self._sides[port].add(batch)
        yield from self._use_rows()

    @property
    def _due_before(self) -> int:
        """Rows that begin before this time, in ns, need not wait."""
        return END

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark of a side. Return the pairs of rows that have waited, and the watermark."""
        if not self._sides[port].rows.advance(punctuation):
            return
        self._start_watermark = min(each.rows.start_watermark for each in self._sides)
        old_watermark = self._watermark
        yield from self._use_rows()
        for of_side, side in enumerate(self._sides):
            if self._used_before(side) > BEGINNING:
                self._join.process(of_side, make_ctis([self._used_before(side)], side.payload))
        if self._watermark > old_watermark:
            yield Punctuation(UNION, self._watermark)

    @property
    def _result_watermark(self) -> int:
        """The watermark of the results, in ns."""
        if self._time != WINDOW_START or self._start_watermark == END:
            return self._start_watermark
        return min([self._start_watermark, *(parts.least_start for parts in self._parts)])

    def _used_before(self, side: OverlapSide) -> int:
        """Return the time, in ns, before which all rows of a side have been used, or are used now."""
        return side.rows.start_watermark

    def _use_rows(self) -> Iterator[GraphItem]:
        """Join the rows of both sides that need not wait."""
        pairs_of_sides = []
        due_before = self._due_before
        for port, side in enumerate(self._sides):
            changes = side.rows.take_before(max(due_before, self._used_before(side)))
            if changes is not None:
                self.stored += changes.num_rows
                if side.parts is not None:
                    rows = weighted(changes)
                    side.parts.add_rows(rows, rows.column(WEIGHT).to_numpy())
                pairs_of_sides.append(self._filter_pairs(weighted(self._join.process(port, changes))))
        results, weights = [], []
        for pairs in pairs_of_sides:
            self.pairs += pairs.num_rows
            of_pairs = pairs.column(WEIGHT).to_numpy()
            for parts in self._parts:
                parts.add_pairs(pairs, of_pairs)
            if self._has_pairs:
                results.append(self._with_window_bounds(pairs))
                weights.append(of_pairs)
        for parts in self._parts:
            rows, of_rows = parts.update(self._parts_due_before)
            results.append(self._with_window_bounds(rows))
            weights.append(of_rows)
            parts.advance(self._start_watermark)
        self._watermark = max(self._watermark, self._result_watermark)
        table = pa.Table.from_batches(results, self._schema)
        if table.num_rows:
            yield from self._results(table.combine_chunks(), np.concatenate(weights))

    def _filter_pairs(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """Return the pairs that satisfy the residual condition."""
        if self._residual is None or not pairs.num_rows:
            return pairs
        columns = [pairs.column(VS), _ends(pairs), *(pairs.column(name) for name in self._pair_values)]
        named = pa.RecordBatch.from_arrays(columns, self._pair_names)
        return pc.filter(pairs, array_of(self._residual.true_rows(BatchColumns(named, self._macs), pairs.num_rows)))

    @property
    def _parts_due_before(self) -> int:
        """Parts without a pair are returned if they end before this time, in ns."""
        return self._start_watermark

    def _results(self, rows: pa.Table, weights: np.ndarray) -> Iterator[GraphItem]:
        """Return results. No row is withdrawn, so all results are inserts."""
        copies = rows if (weights == 1).all() else pc.take(rows, array_of(np.repeat(np.arange(len(weights)), weights)))
        self.results += copies.num_rows
        yield from copies.combine_chunks().to_batches()

    def _with_window_bounds(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return pairs, or rows of one side, with the bounds of windows in place of lifetimes."""
        values = [
            rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
            for name, field in zip(self._values, list(self._schema)[2:], strict=True)
        ]
        return pa.RecordBatch.from_arrays([rows.column(VS), _ends(rows), *values], schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the times, and the state of the join."""
        tables = {name: table for side in self._sides for name, table in side.rows.snapshot(side.prefix).items()}
        watermark = pa.table({WATERMARK: pa.array([self._start_watermark, self._watermark], pa.int64())})
        for side in self._sides:
            stored = {} if side.parts is None else side.parts.snapshot()
            tables |= {side.prefix + PARTS + name: each for name, each in stored.items()}
        return {**tables, WATERMARK: watermark} | {JOIN + name: each for name, each in self._join.snapshot().items()}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self._start_watermark, self._watermark = tables[WATERMARK][WATERMARK].to_pylist()
        for side in self._sides:
            side.rows.restore(tables, side.prefix)
            if side.parts is not None:
                prefix = side.prefix + PARTS
                side.parts.restore(
                    {name.removeprefix(prefix): each for name, each in tables.items() if name.startswith(prefix)}
                )
        join_tables = {name.removeprefix(JOIN): table for name, table in tables.items() if name.startswith(JOIN)}
        self._join.restore(join_tables)


class ChangingOverlapJoinOperator(OverlapJoinOperator):
    """Uses rows when they have waited, and withdraws the pairs of withdrawn rows."""

    def __init__(self, node: ChangingOverlapJoin) -> None:
        """Store no rows yet."""
        super().__init__(node)
        self._wait = node.consistency.wait

    @property
    def _due_before(self) -> int:
        """The time, in ns, WAIT before the start of the newest row: earlier rows need not wait."""
        clock = max(side.rows.newest_start for side in self._sides)
        waits = self._wait is None or clock == BEGINNING
        return BEGINNING if waits else clock - (self._wait or 0) + 1

    @property
    def _parts_due_before(self) -> int:
        return max(self._start_watermark, self._due_before)

    def _used_before(self, side: OverlapSide) -> int:
        return self._start_watermark if self._wait is None else side.rows.start_watermark

    def _results(self, rows: pa.Table, weights: np.ndarray) -> Iterator[GraphItem]:
        is_final = times_of(rows.column(self._time).combine_chunks()) < self._watermark
        for batch in make_changes(rows, weights, is_final):
            for changes in add_up(batch):
                self.results += changes.num_rows
                yield changes


def _ends(rows: pa.RecordBatch) -> pa.Array:
    """Return the ends of lifetimes, NULL for END."""
    ends = times_of(rows.column(VE))
    return pa.array(ends, mask=ends == END)


def _schema_of(node: Node) -> pa.Schema:
    """Return the schema of the pairs, without the columns of changes."""
    columns: tuple[Column, ...] = node.columns[:-2] if is_changing(node) else node.columns
    return pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in columns])
