"""The operators of RowsOfRuns and DistinctRowsOfRuns: rows are kept until no open run can contain them.

final rows ──┬──► runs ──► times of results ──┐
             └──► kept rows ──────────────────┴──► derivations ──► the rows of each result, or each row once
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.operators.batch_columns import BatchColumns
from highlevel.patterns.derivations import Derivations, Requests, SelectedRegisters, StoredRows
from highlevel.patterns.memory import MIN_ROOM
from highlevel.patterns.store import Mask
from highlevel.plan.automaton_nodes import RUN_STATE, DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.nodes import macs_of
from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator, RowsAndRuns, results_of
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, times_of
from highlevel.plan.pattern_nodes import MATCH_START
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT
from highlevel.speculation.lifetimes.model import (
    CONTROL,
    TYPE,
    VE,
    VS,
    Words,
    make_changes,
    make_ctis,
    payload_schema,
    storable,
)
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.types import Type
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import END

KEPT = "kept rows"
"""Table of a snapshot: the rows that an open run may contain."""

RETURNED = "returned rows"
"""Table of a snapshot: for each row of KEPT whether it was returned."""


class RowsAndTracedRuns(RowsAndRuns):
    """The rows that wait, the runs over the rows before them, and the rows of these runs."""

    def __init__(self, node: RowsOfRuns, payload: pa.Schema) -> None:
        """Begin without rows."""
        super().__init__(node, payload)
        self._node = node
        macs = tuple(macs_of(node.input))
        self._derivations = Derivations(node.automaton, number=node.number, macs=macs)
        self._payload = payload
        self._partitions = Keys([storable(payload.field(key)) for key in node.keys])
        self._kept = pa.schema([(VS, pa.int64()), (VE, pa.int64()), *payload]).empty_table()
        self._numbers = np.zeros(0, np.int64)
        """The numbers of the partitions of the kept rows."""
        self._cleanup_rows = MIN_ROOM
        keys = [payload.field(key) for key in node.keys]
        fields = payload_schema(self.runs.schema)
        register = [fields.field(field.name) for field in node.automaton.register]
        shown = [payload.field(name) for name in node.shown]
        self._result = pa.schema([*keys, (MATCH_START, pa.int64()), *register, (RUN_STATE, pa.string()), *shown])

    @property
    def num_rows(self) -> int:
        """Number of rows, and of runs."""
        return super().num_rows + self._kept.num_rows

    @property
    def bytes(self) -> int:
        """Bytes of the rows and the runs."""
        return super().bytes + self._kept.nbytes + self._numbers.nbytes + self._partitions.bytes

    def match_before(self, time: int) -> Iterator[pa.RecordBatch]:
        """Match the waiting rows that begin before `time`. Yield the rows of results."""
        changes = self.rows.take_before(time)
        if changes is not None:
            self._keep(changes.select([VS, VE, *self._payload.names]))
            matched = changes.select(self._schema.names)
            yield from self._rows_of(self.runs.process(matched), by_deadline=False)

    def match_final(self) -> Iterator[pa.RecordBatch]:
        """Match the rows below the watermark, and advance the runs to it. Yield the rows of results."""
        low = self.rows.start_watermark
        yield from self.match_before(low)
        passed = self.runs.process(make_ctis([low], payload_schema(self._schema)))
        yield from self._rows_of(passed, by_deadline=True)
        self._forget()

    def _keep(self, rows: pa.RecordBatch) -> None:
        self._kept = pa.concat_tables([self._kept, pa.Table.from_batches([rows]).cast(self._kept.schema)])
        self._numbers = np.append(self._numbers, self._partitions_of(rows))

    def _partitions_of(self, rows: pa.RecordBatch | pa.Table) -> Words:
        """Return the numbers of the partitions of rows."""
        if not self._node.keys:
            return np.zeros(rows.num_rows, np.int64)
        columns = [rows.column(key) for key in self._node.keys]
        arrays = [
            (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).cast(kind)
            for column, kind in zip(columns, self._partitions.kinds, strict=True)
        ]
        return self._partitions.find_or_insert(arrays, rows.num_rows).astype(np.int64)

    def _rows_of(self, results: pa.RecordBatch, *, by_deadline: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of results as changes. A row begins to be true with its result."""
        found = results.filter(_is_result(results))
        if not found.num_rows:
            return
        requests, _ = self._requests_of(found)
        stored, wanted = self._stored(), Requests(requests[:, 0], requests[:, 1], requests[:, 2], by_deadline)
        for traced in self._derivations.trace(stored, self._matched, wanted):
            partitions, firsts, lasts = requests[traced.requests].T
            keys = self._partitions.columns(partitions) if self._node.keys else []
            shown = stored.values.select(self._node.shown).take(array_of(traced.rows))
            begun = array_of(np.ascontiguousarray(firsts))
            columns: list[pa.Array] = [*keys, begun, *traced.registers, traced.states, *shown.columns]
            arrays = [column.cast(field.type) for column, field in zip(columns, self._result, strict=True)]
            payload = pa.RecordBatch.from_arrays(arrays, schema=self._result)
            begins = np.ascontiguousarray(lasts)
            yield make_changes(np.full(len(begins), INSERT), begins, traced.stops, begins, payload)

    def _requests_of(self, found: pa.RecordBatch) -> tuple[Words, Words]:
        """Return the different partitions and times of results, `[requests, 3]`, and for each result its request."""
        times = [self._partitions_of(found), *(times_of(found.column(name)) for name in (MATCH_START, VS))]
        requests, numbers = np.unique(np.stack(times, axis=1), axis=0, return_inverse=True)
        return requests, numbers.reshape(-1)

    def _stored(self) -> StoredRows:
        """Return the kept rows."""
        self._kept = self._kept.combine_chunks()
        (batch,) = self._kept.select(self._payload.names).to_batches()
        starts, stops = (times_of(self._kept[name].combine_chunks()) for name in (VS, VE))
        return StoredRows(batch, self._numbers, starts, stops)

    @property
    def _matched(self) -> list[str]:
        return [name for name in self._schema.names if name not in CONTROL]

    def _forget(self) -> None:
        """Remove the rows that no open run contains, if they are many."""
        if self._kept.num_rows < self._cleanup_rows:
            return
        runs = self.runs.partial_matches()
        partitions = self._partitions_of(runs)
        firsts = np.full(max(1, self._partitions.count), END)
        np.minimum.at(firsts, partitions, times_of(runs[MATCH_START].combine_chunks()))
        self._select(times_of(self._kept[VS].combine_chunks()) >= firsts[self._numbers])
        if self._node.keys:
            used = np.unique(self._numbers)
            self._partitions = self._partitions.copy_of(used)
            self._numbers = np.searchsorted(used, self._numbers)
        self._cleanup_rows = 2 * self._kept.num_rows + MIN_ROOM

    def _select(self, is_kept: Mask) -> None:
        """Keep only the rows of a mask."""
        self._kept = self._kept.filter(array_of(is_kept)).combine_chunks()
        self._numbers = self._numbers[is_kept]

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the state of the runs, and the rows of these runs."""
        return super().snapshot() | {KEPT: self._kept}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        super().restore(tables)
        self._kept = tables[KEPT].cast(self._kept.schema)
        self._numbers = self._partitions_of(self._kept)


class RowsAndDistinctRows(RowsAndTracedRuns):
    """The rows that wait, the runs over the rows before them, and the rows of these runs. A row is returned once."""

    def __init__(self, node: DistinctRowsOfRuns, payload: pa.Schema) -> None:
        """Begin without rows."""
        super().__init__(node, payload)
        self._is_returned = np.zeros(0, np.bool_)
        """For each kept row whether it was returned."""
        self._condition = None if node.where is None else Condition(node.where)
        self._macs = [column.name for column in node.result_columns if column.type is Type.MAC]
        self._of_result = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in node.result_columns])
        self._register = [field.name for field in node.automaton.register]
        self._distinct = pa.schema([(column.name, ARROW_TYPES[column.type]) for column in node.columns])

    def _keep(self, rows: pa.RecordBatch) -> None:
        super()._keep(rows)
        self._is_returned = np.append(self._is_returned, np.zeros(rows.num_rows, np.bool_))

    def _rows_of(self, results: pa.RecordBatch, *, by_deadline: bool) -> Iterator[pa.RecordBatch]:
        """Yield the rows of results that were not returned."""
        found = results.filter(_is_result(results))
        if self._condition is not None:
            columns = BatchColumns(results_of(found, self._node, self._of_result), self._macs)
            found = found.filter(array_of(self._condition.true_rows(columns, found.num_rows)))
        if not found.num_rows:
            return
        requests, numbers = self._requests_of(found)
        selected = None
        if self._condition is not None:
            order = np.argsort(numbers, kind="stable")
            results = found.take(array_of(order))
            selected = SelectedRegisters(numbers[order], times_of(results.column(VE)), results.select(self._register))
        stored, wanted = self._stored(), Requests(requests[:, 0], requests[:, 1], requests[:, 2], by_deadline)
        rows = self._derivations.list_rows(stored, self._matched, wanted, selected, self._is_returned)
        if len(rows):
            returned = stored.values.select(self._distinct.names).take(array_of(rows))
            arrays = [column.cast(field.type) for column, field in zip(returned.columns, self._distinct, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._distinct)

    def _select(self, is_kept: Mask) -> None:
        super()._select(is_kept)
        self._is_returned = self._is_returned[is_kept]

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the state of the runs, the rows of these runs, and which were returned."""
        return super().snapshot() | {RETURNED: pa.table({"is returned": self._is_returned})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        super().restore(tables)
        self._is_returned = tables[RETURNED]["is returned"].to_numpy().copy()


def _is_result(changes: pa.RecordBatch) -> pa.Array:
    """Return for each change of runs whether it is a new result."""
    return pc.equal(changes.column(TYPE), pa.scalar(INSERT, pa.uint8()))


class RowsOfRunsOperator(AcceptedRunsOperator):
    """Stores rows that wait, the runs of the partitions, and the rows of these runs."""

    def __init__(self, node: RowsOfRuns) -> None:
        """Match the rows of `node`."""
        self._traced = node
        super().__init__(node)

    def _make_part(self) -> RowsAndRuns:
        return RowsAndTracedRuns(self._traced, self._payload)


class DistinctRowsOfRunsOperator(AcceptedRunsOperator):
    """Stores rows that wait, the runs of the partitions, and the rows of these runs. Returns each row once."""

    def __init__(self, node: DistinctRowsOfRuns) -> None:
        """Match the rows of `node`."""
        self._traced = node
        super().__init__(node)

    def _make_part(self) -> RowsAndRuns:
        return RowsAndDistinctRows(self._traced, self._payload)

    def _items(self, changes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Return rows: they are no changes."""
        self.results += changes.num_rows
        yield changes

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Match the rows below a watermark. Return the rows of results, and only the last watermark."""
        for item in super().punctuate(port, punctuation):
            if isinstance(item, pa.RecordBatch) or bounds_of(item, 1) == (END,):
                yield item
