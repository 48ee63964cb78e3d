"""Sample: the sampling operator of Gigascope (Johnson, Muthukrishnan, Rozenbaum: SIGMOD 2005).

Rows are processed in the order of arrival. Superaggregates are over all rows of a supergroup in a window, including
rows of deleted groups. So the operator computes the superaggregates of a batch first, and evaluates `when` once for the
whole batch. Only the updates of groups, and the deletions, are row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import Sample, SampleAggregate, SampleKind, bound_count, macs_of
from highlevel.plan.operators.apply import computed
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation

GROUPS, SUPERGROUPS, STATE, WATERMARK = "groups", "supergroups", "state", "watermark"
"""Names in snapshots."""

BYTES_OF_VALUE = 64
"""Approximate size of a key or an aggregate, as an object in a dictionary."""

Key = tuple[Any, ...]


class SampleOperator:
    """Keeps the groups of open windows, and the superaggregates of their supergroups."""

    def __init__(self, node: Sample) -> None:
        """Start without groups."""
        self.node = node
        self._time = node.input.time_columns[0] if node.input.time_columns else None
        part = [*node.input.time_columns, *(name for name in node.supergroup if name != self._time)]
        self._part_at = [node.keys.index(name) for name in part]
        self._own = [each for each in node.aggregates if not each.of_supergroup]
        self._super = [each for each in node.aggregates if each.of_supergroup]
        by_name = {column.name: pa.field(column.name, ARROW_TYPES[column.type]) for column in node.group_columns}
        self._keys = pa.schema([by_name[name] for name in node.keys])
        self._part_keys = pa.schema([by_name[name] for name in part])
        self._own_values = pa.schema([by_name[each.name] for each in self._own])
        self._super_values = pa.schema([by_name[each.name] for each in self._super])
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self._input_macs = macs_of(node.input)
        self._macs = frozenset(column.name for column in node.group_columns if column.type is Type.MAC)
        self._groups: dict[Key, dict[Key, list[Any]]] = {}
        self._supers: dict[Key, list[Any]] = {}
        self.watermark = BEGINNING
        self.late = 0
        self.received = 0
        self.results = 0

    @property
    def rows_held(self) -> int:
        """Number of groups."""
        return sum(map(len, self._groups.values()))

    @property
    def bytes(self) -> int:
        """Approximate bytes of the groups and superaggregates."""
        widths = len(self.node.keys) + len(self._own), len(self._part_at) + len(self._super)
        return BYTES_OF_VALUE * (self.rows_held * widths[0] + len(self._supers) * widths[1])

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Update groups and superaggregates, and delete groups."""
        self.received += batch.num_rows
        if self._time is not None and self.watermark != BEGINNING:
            on_time = times_of(batch.column(self._time)) >= self.watermark
            self.late += batch.num_rows - int(on_time.sum())
            batch = batch.filter(pa.array(on_time))
        if batch.num_rows:
            self._add(batch)
        return iter(())

    def _add(self, batch: pa.RecordBatch) -> None:
        keys = list(zip(*(batch.column(name).to_pylist() for name in self.node.keys), strict=True))
        parts = [tuple(key[at] for at in self._part_at) for key in keys]
        columns = BatchColumns(batch, self._input_macs)
        super_rows = self._super_rows(parts, self._arguments(self._super, columns, batch.num_rows))
        supers = BatchColumns(_batch(self._super_values, super_rows), self._macs)
        cleans = [False] * batch.num_rows
        if self.node.when is not None:
            cleans = Condition(self.node.when).true_rows(supers, batch.num_rows).tolist()
        of_row = [each for each in self._own if each.kind is not SampleKind.FIRST]
        first = [each for each in self._own if each.kind is SampleKind.FIRST]
        values = dict(zip(of_row, self._arguments(of_row, columns, batch.num_rows), strict=True))
        values |= dict(zip(first, self._arguments(first, supers, batch.num_rows), strict=True))
        updates = list(zip(*(values[each] for each in self._own), strict=True)) or [()] * batch.num_rows
        for key, part, super_row, update, clean in zip(keys, parts, super_rows, updates, cleans, strict=True):
            groups = self._groups.setdefault(part, {})
            groups[key] = _updated(self._own, groups.get(key), update)
            if clean:
                self._groups[part] = self._cleaned(groups, super_row)

    def _arguments(self, aggregates: Sequence[SampleAggregate], columns: BatchColumns, count: int) -> list[list[Any]]:
        """Return the values of the arguments for each aggregate. count(*) has the argument 1."""
        return [[1] * count if each.argument is None else _values(each.argument, columns, count) for each in aggregates]

    def _super_rows(self, parts: Sequence[Key], arguments: list[list[Any]]) -> list[list[Any]]:
        """Return the superaggregates after each row."""
        rows = []
        for part, *update in zip(parts, *arguments, strict=True):
            self._supers[part] = _updated(self._super, self._supers.get(part), update)
            rows.append(self._supers[part])
        return rows

    def _cleaned(self, groups: dict[Key, list[Any]], super_row: list[Any]) -> dict[Key, list[Any]]:
        """Return the groups for which CLEANING BY is true."""
        assert self.node.by is not None
        rows = self._group_rows(groups, super_row)
        kept = Condition(self.node.by).true_rows(BatchColumns(rows, self._macs), rows.num_rows)
        return {key: values for (key, values), keep in zip(groups.items(), kept.tolist(), strict=True) if keep}

    def _group_rows(self, groups: dict[Key, list[Any]], super_row: list[Any]) -> pa.RecordBatch:
        """Return the groups of a supergroup with its superaggregates as columns."""
        schema = pa.schema([*self._keys, *self._own_values, *self._super_values])
        return _batch(schema, [(*key, *values, *super_row) for key, values in groups.items()])

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the groups of the windows that a watermark covers, and then the watermark."""
        bound = bounds_of(punctuation, bound_count(self.node.input))[0]
        if bound <= self.watermark:
            return
        self.watermark = bound
        for part in [part for part in self._groups if bound == END or (self._time is not None and part[0] < bound)]:
            rows = self._group_rows(self._groups.pop(part), self._supers.pop(part))
            yield from self._results(rows)
        if bound == END or self.node.time_columns:
            yield Punctuation(punctuation.link, bound)

    def _results(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.node.having is not None:
            kept = Condition(self.node.having).true_rows(BatchColumns(rows, self._macs), rows.num_rows)
            rows = rows.filter(pa.array(kept))
        if rows.num_rows:
            self.results += rows.num_rows
            columns = BatchColumns(rows, self._macs)
            outputs = [computed(out, rows, columns) for out in self.node.outputs]
            yield pa.RecordBatch.from_arrays(outputs, schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the groups, the superaggregates and the watermark."""
        groups = [(*key, *values) for part in self._groups.values() for key, values in part.items()]
        supers = [(*part, *values) for part, values in self._supers.items()]
        return {
            GROUPS: pa.Table.from_batches([_batch(pa.schema([*self._keys, *self._own_values]), groups)]),
            SUPERGROUPS: pa.Table.from_batches([_batch(pa.schema([*self._part_keys, *self._super_values]), supers)]),
            STATE: pa.table({WATERMARK: [self.watermark], SUPERGROUPS: [len(supers)]}),
        }

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.watermark = tables[STATE][WATERMARK][0].as_py()
        for row in _rows(tables[SUPERGROUPS], tables[STATE][SUPERGROUPS][0].as_py()):
            part = row[: len(self._part_at)]
            self._groups[part], self._supers[part] = {}, list(row[len(self._part_at) :])
        for row in _rows(tables[GROUPS], tables[GROUPS].num_rows):
            key = row[: len(self.node.keys)]
            self._groups[tuple(key[at] for at in self._part_at)][key] = list(row[len(key) :])


def _updated(aggregates: Sequence[SampleAggregate], values: list[Any] | None, update: Sequence[Any]) -> list[Any]:
    """Return the values of aggregates after a row. A NULL argument changes no value."""
    if values is None:
        counts = [each.kind is SampleKind.COUNT for each in aggregates]
        return [int(new is not None) if is_count else new for is_count, new in zip(counts, update, strict=True)]
    return [
        old if new is None else _folded(each, old, new)
        for each, old, new in zip(aggregates, values, update, strict=True)
    ]


def _folded(aggregate: SampleAggregate, old: Any, new: Any) -> Any:
    match aggregate.kind:
        case SampleKind.COUNT:
            return old + 1
        case SampleKind.FIRST:
            return old
        case _ if old is None:
            return new
        case SampleKind.SUM:
            total = old + new
            return (total + 2**63) % 2**64 - 2**63 if aggregate.type is Type.INT else total
        case SampleKind.MIN:
            return min(old, new)
        case SampleKind.MAX:
            return max(old, new)


def _values(expression: Expression, columns: BatchColumns, count: int) -> list[Any]:
    values: list[Any] = arrow_column(evaluate(expression, columns), count, expression.type).to_pylist()
    return values


def _batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as a batch. A batch without columns has no rows."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _rows(table: pa.Table, count: int) -> list[tuple[Any, ...]]:
    """Return the rows of a table as tuples. `count` is their number, which a table without columns does not know."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * count
