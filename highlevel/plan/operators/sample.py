"""Sample: the sampling operator of Gigascope (Johnson, Muthukrishnan, Rozenbaum: SIGMOD 2005).

Rows are processed in the order of arrival. Superaggregates are computed over all rows of a supergroup in a window,
including rows of deleted groups. So the operator computes the superaggregates of a batch first, and evaluates `when`
once for the whole batch. Only the updates and deletions of groups are done row by row.

Functions with a state, and the number of groups, depend on earlier cleanings. If a query uses them, each supergroup is
processed separately. The operator evaluates the state and `when` for the rows up to the next cleaning at once, cleans,
and evaluates both again for the remaining rows. A new supergroup starts from the state of the same supergroup in the
window before. So a batch is split before the first row of such a supergroup. The result does not depend on the sizes of
batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from highlevel.operators.batch_columns import BatchColumns
from highlevel.plan.nodes import DUE, KEPT, bound_count, macs_of
from highlevel.plan.operators.apply import compute_column
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.plan.sample_node import STATE_VALUE, TICKET, Sample, SampleAggregate, SampleKind
from highlevel.sampling.families import FAMILIES
from highlevel.sampling.state import Numbers, SampleState, seed_of
from lowlevel.expressions.arrow import arrow_column
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.subaggregates import INT_MAX, INT_MIN

GROUPS, SUPERGROUPS, STATES, STATE, WATERMARK = "groups", "supergroups", "states", "state", "watermark"
"""Names of tables and columns of snapshots."""

BYTES_OF_VALUE = 64
"""Approximate bytes of a key or an aggregate as an object in a dictionary."""

MIN_SPAN = 256
"""Number of rows that are evaluated at once after a cleaning. It doubles until the next cleaning."""

Key = tuple[Any, ...]


class SampleOperator:
    """Stores the groups of open windows, and the superaggregates of their supergroups."""

    def __init__(self, node: Sample) -> None:
        """Start without groups."""
        self.node = node
        self._time = node.input.time_columns[0] if node.input.time_columns else None
        supergroup = [*node.input.time_columns, *(name for name in node.supergroup if name != self._time)]
        self._supergroup_positions = [node.keys.index(name) for name in supergroup]
        self._aggregates = [aggregate for aggregate in node.aggregates if not aggregate.of_supergroup]
        self._superaggregates = [aggregate for aggregate in node.aggregates if aggregate.of_supergroup]
        by_name = {column.name: pa.field(column.name, ARROW_TYPES[column.type]) for column in node.group_columns}
        self._key_schema = pa.schema([by_name[name] for name in node.keys])
        self._supergroup_schema = pa.schema([by_name[name] for name in supergroup])
        self._value_schema = pa.schema([by_name[aggregate.name] for aggregate in self._aggregates])
        self._super_schema = pa.schema([by_name[aggregate.name] for aggregate in self._superaggregates])
        self._schema = pa.schema([pa.field(column.name, ARROW_TYPES[column.type]) for column in node.columns])
        self._input_macs = macs_of(node.input)
        self._macs = frozenset(column.name for column in node.group_columns if column.type is Type.MAC)
        self._groups: dict[Key, dict[Key, list[Any]]] = {}
        self._super_values: dict[Key, list[Any]] = {}
        self._states: dict[Key, SampleState] = {}
        """States of open windows, and of the last closed windows, from which the next windows start."""
        self._counts_groups = any(aggregate.kind is SampleKind.GROUPS for aggregate in self._superaggregates)
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
        group_values = self.rows_held * (len(self.node.keys) + len(self._aggregates))
        super_values = len(self._super_values) * (len(self._supergroup_positions) + len(self._superaggregates))
        return BYTES_OF_VALUE * (group_values + super_values)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Update groups and superaggregates, and delete groups."""
        self.received += batch.num_rows
        if self._time is not None and self.watermark != BEGINNING:
            on_time = times_of(batch.column(self._time)) >= self.watermark
            self.late += batch.num_rows - int(on_time.sum())
            batch = batch.filter(pa.array(on_time))
        if batch.num_rows and (self.node.functions is not None or self._counts_groups):
            self._add_by_supergroup(batch)
        elif batch.num_rows:
            self._add(batch)
        return iter(())

    def _add(self, batch: pa.RecordBatch) -> None:
        keys = list(zip(*(batch.column(name).to_pylist() for name in self.node.keys), strict=True))
        supergroups = [tuple(key[index] for index in self._supergroup_positions) for key in keys]
        columns = BatchColumns(batch, self._input_macs)
        super_rows = self._superaggregates_by_row(
            supergroups, self._arguments(self._superaggregates, columns, batch.num_rows)
        )
        super_columns = BatchColumns(_batch(self._super_schema, super_rows), self._macs)
        cleans = [False] * batch.num_rows
        if self.node.when is not None:
            cleans = Condition(self.node.when).true_rows(super_columns, batch.num_rows).tolist()
        by_row = [aggregate for aggregate in self._aggregates if aggregate.kind is not SampleKind.FIRST]
        first = [aggregate for aggregate in self._aggregates if aggregate.kind is SampleKind.FIRST]
        values = dict(zip(by_row, self._arguments(by_row, columns, batch.num_rows), strict=True))
        values |= dict(zip(first, self._arguments(first, super_columns, batch.num_rows), strict=True))
        updates = list(zip(*(values[each] for each in self._aggregates), strict=True)) or [()] * batch.num_rows
        rows = zip(keys, supergroups, super_rows, updates, cleans, strict=True)
        for key, supergroup, super_row, update, clean in rows:
            groups = self._groups.setdefault(supergroup, {})
            groups[key] = _update_values(self._aggregates, groups.get(key), update)
            if clean:
                self._groups[supergroup] = self._clean_groups(groups, super_row, None)

    def _add_by_supergroup(self, batch: pa.RecordBatch) -> None:
        """Update the supergroups of a batch one after the other."""
        keys = list(zip(*(batch.column(name).to_pylist() for name in self.node.keys), strict=True))
        supergroups = [tuple(key[index] for index in self._supergroup_positions) for key in keys]
        for start, stop in self._slices(supergroups):
            positions: dict[Key, list[int]] = {}
            for position in range(start, stop):
                positions.setdefault(supergroups[position], []).append(position)
            for supergroup, members in positions.items():
                rows = batch.take(pa.array(members, pa.int64()))
                self._add_to(supergroup, [keys[position] for position in members], rows)

    def _slices(self, supergroups: list[Key]) -> Iterator[tuple[int, int]]:
        """Yield slices of a batch. A slice begins at each supergroup whose first state is from the same batch."""
        start = 0
        if self.node.functions is not None and self._time is not None:
            known_supergroups = set(self._states)
            for position, supergroup in enumerate(supergroups):
                if supergroup not in known_supergroups:
                    known_supergroups.add(supergroup)
                    if self._previous_supergroup(supergroup) in known_supergroups and position > start:
                        yield start, position
                        start = position
        yield start, len(supergroups)

    def _previous_supergroup(self, supergroup: Key) -> Key | None:
        """Return the same supergroup of the window before, or None without windows."""
        return None if self._time is None or supergroup[0] is None else (supergroup[0] - 1, *supergroup[1:])

    def _state_of(self, supergroup: Key) -> SampleState | None:
        functions = self.node.functions
        if functions is None:
            return None
        if supergroup not in self._states:
            before = self._previous_supergroup(supergroup)
            previous = None if before is None else self._states.get(before)
            seed = seed_of(functions.seed, supergroup)
            self._states[supergroup] = FAMILIES[functions.family].state.start_window(functions.size, seed, previous)
        return self._states[supergroup]

    def _add_to(self, supergroup: Key, keys: list[Key], batch: pa.RecordBatch) -> None:
        """Add rows of one supergroup."""
        columns, count = BatchColumns(batch, self._input_macs), batch.num_rows
        state, functions = self._state_of(supergroup), self.node.functions
        weights = None
        if functions is not None and functions.weight is not None:
            weights = _floats(batch.column(functions.weight).to_pylist())
        by_row = [each for each in self._aggregates if each.kind is not SampleKind.FIRST and each.argument != TICKET]
        values = dict(zip(by_row, self._arguments(by_row, columns, count), strict=True))
        super_arguments = self._arguments(self._superaggregates, columns, count)
        start, span = 0, MIN_SPAN
        while start < count:
            stop = min(count, start + span)
            positions, tickets = list(range(start, stop)), [0] * (stop - start)
            if state is not None:
                admitted, drawn = state.admit(None if weights is None else weights[start:stop], stop - start)
                positions, tickets = (np.flatnonzero(admitted) + start).tolist(), drawn[admitted].tolist()
            if positions:
                super_rows = self._superaggregates_after(supergroup, keys, positions, super_arguments)
                clean = self._first_cleaning(super_rows, state)
                row_count = len(positions) if clean is None else clean + 1
                super_columns = BatchColumns(_batch(self._super_schema, super_rows[:row_count]), self._macs)
                arguments: list[list[Any]] = []
                for aggregate in self._aggregates:
                    if aggregate.kind is SampleKind.FIRST:
                        arguments += self._arguments([aggregate], super_columns, row_count)
                    elif aggregate.argument == TICKET:
                        arguments.append(tickets[:row_count])
                    else:
                        arguments.append([values[aggregate][position] for position in positions[:row_count]])
                updates = list(zip(*arguments, strict=True)) or [()] * row_count
                groups = self._groups.setdefault(supergroup, {})
                for position, update in zip(positions[:row_count], updates, strict=True):
                    groups[keys[position]] = _update_values(self._aggregates, groups.get(keys[position]), update)
                self._super_values[supergroup] = super_rows[row_count - 1]
                if clean is not None:
                    stop = positions[clean] + 1
            else:
                clean = None
            if state is not None:
                state.advance(stop - start)
            if clean is not None:
                self._groups[supergroup] = self._clean_groups(groups, super_rows[clean], state)
            start, span = stop, MIN_SPAN if clean is not None else 2 * span

    def _superaggregates_after(
        self, supergroup: Key, keys: list[Key], positions: list[int], arguments: list[list[Any]]
    ) -> list[list[Any]]:
        """Return the superaggregates after each row in `positions`, if no cleaning happens between these rows."""
        groups, new_groups, values = self._groups.get(supergroup, {}), set(), self._super_values.get(supergroup)
        rows = []
        for position in positions:
            if keys[position] not in groups:
                new_groups.add(keys[position])
            update = [
                len(groups) + len(new_groups) if aggregate.kind is SampleKind.GROUPS else argument[position]
                for aggregate, argument in zip(self._superaggregates, arguments, strict=True)
            ]
            values = _update_values(self._superaggregates, values, update)
            rows.append(values)
        return rows

    def _first_cleaning(self, super_rows: list[list[Any]], state: SampleState | None) -> int | None:
        """Return the index of the first row after which the supergroup is cleaned, or None."""
        if self.node.when is None:
            return None
        super_columns, functions = _batch(self._super_schema, super_rows), self.node.functions
        if functions is not None and functions.due is not None:
            assert state is not None
            groups = _floats(_values(functions.due, BatchColumns(super_columns, self._macs), len(super_rows)))
            super_columns = _with_column(super_columns, DUE.name, pa.array(state.is_due(groups)))
        due = Condition(self.node.when).true_rows(BatchColumns(super_columns, self._macs), len(super_rows))
        return int(np.argmax(due)) if due.any() else None

    def _arguments(self, aggregates: Sequence[SampleAggregate], columns: BatchColumns, count: int) -> list[list[Any]]:
        """Return the values of the arguments for each aggregate. count(*) has the argument 1."""
        return [
            [1] * count if aggregate.argument is None else _values(aggregate.argument, columns, count)
            for aggregate in aggregates
        ]

    def _superaggregates_by_row(self, supergroups: Sequence[Key], arguments: list[list[Any]]) -> list[list[Any]]:
        """Return the superaggregates after each row."""
        rows = []
        for supergroup, *update in zip(supergroups, *arguments, strict=True):
            self._super_values[supergroup] = _update_values(
                self._superaggregates, self._super_values.get(supergroup), update
            )
            rows.append(self._super_values[supergroup])
        return rows

    def _clean_groups(
        self, groups: dict[Key, list[Any]], super_row: list[Any], state: SampleState | None
    ) -> dict[Key, list[Any]]:
        """Return the groups for which CLEANING BY is true."""
        assert self.node.by is not None
        rows = self._group_rows(groups, super_row)
        functions = self.node.functions
        if functions is not None and functions.clean is not None:
            assert state is not None
            rows = _with_column(rows, KEPT.name, pa.array(state.clean(self._numbers(functions.clean, rows))))
        kept = Condition(self.node.by).true_rows(BatchColumns(rows, self._macs), rows.num_rows)
        return {key: values for (key, values), keep in zip(groups.items(), kept.tolist(), strict=True) if keep}

    def _group_rows(self, groups: dict[Key, list[Any]], super_row: list[Any]) -> pa.RecordBatch:
        """Return the groups of a supergroup with its superaggregates as columns."""
        schema = pa.schema([*self._key_schema, *self._value_schema, *self._super_schema])
        return _batch(schema, [(*key, *values, *super_row) for key, values in groups.items()])

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the groups of the windows that a watermark covers, and then the watermark."""
        bound = bounds_of(punctuation, bound_count(self.node.input))[0]
        if bound <= self.watermark:
            return
        self.watermark = bound
        closed = [key for key in self._groups if bound == END or (self._time is not None and key[0] < bound)]
        if closed:  # conditions and outputs are evaluated once for all supergroups
            yield from self._results(pa.concat_batches([self._close_supergroup(supergroup) for supergroup in closed]))
        if self._states:
            self._states = {
                supergroup: state
                for supergroup, state in self._states.items()
                if bound != END and (self._time is None or supergroup[0] + 1 >= bound)
            }
        if bound == END or self.node.time_columns:
            yield Punctuation(punctuation.link, bound)

    def _close_supergroup(self, supergroup: Key) -> pa.RecordBatch:
        """Remove and return the groups of a supergroup whose window is closed, with the results of its functions."""
        groups, super_row = self._groups.pop(supergroup), self._super_values.pop(supergroup)
        if self._counts_groups:
            kinds = [aggregate.kind for aggregate in self._superaggregates]
            super_row = [
                len(groups) if kind is SampleKind.GROUPS else value
                for kind, value in zip(kinds, super_row, strict=True)
            ]
        rows, state = self._group_rows(groups, super_row), self._states.get(supergroup)
        return rows if state is None else self._finish_groups(rows, state)

    def _numbers(self, expression: Expression, rows: pa.RecordBatch) -> Numbers:
        """Return the weights or tickets of groups."""
        values = _values(expression, BatchColumns(rows, self._macs), rows.num_rows)
        assert self.node.functions is not None
        return _floats(values) if FAMILIES[self.node.functions.family].weighted else np.array(values, np.int64)

    def _finish_groups(self, rows: pa.RecordBatch, state: SampleState) -> pa.RecordBatch:
        """Add the results of the functions in HAVING and SELECT. The next window starts from the state before them."""
        functions, final_state = self.node.functions, replace(state)
        if functions is not None and functions.finish is not None:
            rows = _with_column(rows, KEPT.name, pa.array(final_state.finish(self._numbers(functions.finish, rows))))
        return _with_column(rows, STATE_VALUE.name, pa.array([final_state.value] * rows.num_rows, pa.float64()))

    def _results(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.node.having is not None:
            kept = Condition(self.node.having).true_rows(BatchColumns(rows, self._macs), rows.num_rows)
            rows = rows.filter(pa.array(kept))
        if rows.num_rows:
            self.results += rows.num_rows
            columns = BatchColumns(rows, self._macs)
            outputs = [compute_column(out, rows, columns) for out in self.node.outputs]
            yield pa.RecordBatch.from_arrays(outputs, schema=self._schema)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the groups, the superaggregates and the watermark."""
        groups = [(*key, *values) for members in self._groups.values() for key, values in members.items()]
        super_rows = [(*supergroup, *values) for supergroup, values in self._super_values.items()]
        tables = {
            GROUPS: pa.Table.from_batches([_batch(pa.schema([*self._key_schema, *self._value_schema]), groups)]),
            SUPERGROUPS: pa.Table.from_batches(
                [_batch(pa.schema([*self._supergroup_schema, *self._super_schema]), super_rows)]
            ),
            STATE: pa.table({WATERMARK: [self.watermark], SUPERGROUPS: [len(super_rows)]}),
        }
        if self.node.functions is not None:
            states = [(*supergroup, *_fields(state).values()) for supergroup, state in self._states.items()]
            tables[STATES] = pa.Table.from_batches([_batch(self._state_schema, states)])
        return tables

    @property
    def _state_schema(self) -> pa.Schema:
        assert self.node.functions is not None
        family = FAMILIES[self.node.functions.family]
        kinds = {name: type(value) for name, value in _fields(family.state.start_window(1, 0, None)).items()}
        types = {int: pa.int64(), float: pa.float64()}
        return pa.schema(
            [*self._supergroup_schema, *(pa.field("." + name, types[kind]) for name, kind in kinds.items())]
        )

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.watermark = tables[STATE][WATERMARK][0].as_py()
        for row in _rows(tables[SUPERGROUPS], tables[STATE][SUPERGROUPS][0].as_py()):
            supergroup = row[: len(self._supergroup_positions)]
            self._groups[supergroup], self._super_values[supergroup] = {}, list(row[len(self._supergroup_positions) :])
        for row in _rows(tables[GROUPS], tables[GROUPS].num_rows):
            key = row[: len(self.node.keys)]
            self._groups[tuple(key[index] for index in self._supergroup_positions)][key] = list(row[len(key) :])
        if self.node.functions is not None:
            family = FAMILIES[self.node.functions.family]
            for row in _rows(tables[STATES], tables[STATES].num_rows):
                self._states[row[: len(self._supergroup_positions)]] = family.state(
                    *row[len(self._supergroup_positions) :]
                )


def _update_values(aggregates: Sequence[SampleAggregate], values: list[Any] | None, update: Sequence[Any]) -> list[Any]:
    """Return the values of aggregates after a row. A NULL argument changes no value."""
    if values is None:
        counts = [aggregate.kind is SampleKind.COUNT for aggregate in aggregates]
        return [int(new is not None) if is_count else new for is_count, new in zip(counts, update, strict=True)]
    return [
        old if new is None else _fold_value(aggregate, old, new)
        for aggregate, old, new in zip(aggregates, values, update, strict=True)
    ]


def _fold_value(aggregate: SampleAggregate, old: Any, new: Any) -> Any:
    match aggregate.kind:
        case SampleKind.COUNT:
            return old + 1
        case SampleKind.FIRST:
            return old
        case SampleKind.GROUPS:
            return new
        case _ if old is None:
            return new
        case SampleKind.SUM:
            total = old + new
            return min(max(total, INT_MIN), INT_MAX) if aggregate.type is Type.INT else total
        case SampleKind.MIN:
            return min(old, new)
        case SampleKind.MAX:
            return max(old, new)


def _values(expression: Expression, columns: BatchColumns, count: int) -> list[Any]:
    values: list[Any] = arrow_column(evaluate(expression, columns), count, expression.type).to_pylist()
    return values


def _floats(values: list[Any]) -> Numbers:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _fields(state: SampleState) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state)}


def _with_column(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, values], names=[*batch.schema.names, name])


def _batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return rows as a batch. A batch without columns is empty."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _rows(table: pa.Table, count: int) -> list[tuple[Any, ...]]:
    """Return the `count` rows of a table as tuples. A table without columns does not contain the number of its rows."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else [()] * count
