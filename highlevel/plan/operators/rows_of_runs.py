"""The operator of RowsOfRuns: rows are kept until no open run can contain them, and those of each result are returned.

final rows ──┬──► runs ──► times of results ──┐
             └──► kept rows ──────────────────┴──► derivations ──► the rows of each result
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.patterns.derivations import Derivations, Requests, StoredRows
from highlevel.patterns.memory import MIN_ROOM
from highlevel.plan.automaton_nodes import RUN_STATE, RowsOfRuns
from highlevel.plan.nodes import macs_of
from highlevel.plan.operators.accepted_runs import AcceptedRunsOperator, RowsAndRuns
from highlevel.plan.operators.operator import times_of
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
from lowlevel.punctuation import END

KEPT = "kept rows"
"""Table of a snapshot: the rows that an open run may contain."""


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
        is_result = pc.equal(results.column(TYPE), pa.scalar(INSERT, pa.uint8()))
        found = results.filter(is_result)
        if not found.num_rows:
            return
        times = [self._partitions_of(found), *(times_of(found.column(name)) for name in (MATCH_START, VS))]
        requests = np.unique(np.stack(times, axis=1), axis=0)
        wanted = Requests(requests[:, 0], requests[:, 1], requests[:, 2], by_deadline)
        self._kept = self._kept.combine_chunks()
        (batch,) = self._kept.select(self._payload.names).to_batches()
        starts, stops = (times_of(self._kept[name].combine_chunks()) for name in (VS, VE))
        stored = StoredRows(batch, self._numbers, starts, stops)
        for traced in self._derivations.trace(stored, self._matched, wanted):
            partitions, firsts, lasts = requests[traced.requests].T
            keys = self._partitions.columns(partitions) if self._node.keys else []
            shown = batch.select(self._node.shown).take(array_of(traced.rows))
            begun = array_of(np.ascontiguousarray(firsts))
            columns: list[pa.Array] = [*keys, begun, *traced.registers, traced.states, *shown.columns]
            arrays = [column.cast(field.type) for column, field in zip(columns, self._result, strict=True)]
            payload = pa.RecordBatch.from_arrays(arrays, schema=self._result)
            begins = np.ascontiguousarray(lasts)
            yield make_changes(np.full(len(begins), INSERT), begins, traced.stops, begins, payload)

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
        is_kept = times_of(self._kept[VS].combine_chunks()) >= firsts[self._numbers]
        self._kept = self._kept.filter(array_of(is_kept)).combine_chunks()
        self._numbers = self._numbers[is_kept]
        if self._node.keys:
            used = np.unique(self._numbers)
            self._partitions = self._partitions.copy_of(used)
            self._numbers = np.searchsorted(used, self._numbers)
        self._cleanup_rows = 2 * self._kept.num_rows + MIN_ROOM

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the rows that wait, the state of the runs, and the rows of these runs."""
        return super().snapshot() | {KEPT: self._kept}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        super().restore(tables)
        self._kept = tables[KEPT].cast(self._kept.schema)
        self._numbers = self._partitions_of(self._kept)


class RowsOfRunsOperator(AcceptedRunsOperator):
    """Stores rows that wait, the runs of the partitions, and the rows of these runs."""

    def __init__(self, node: RowsOfRuns) -> None:
        """Match the rows of `node`."""
        self._traced = node
        super().__init__(node)

    def _make_part(self) -> RowsAndRuns:
        return RowsAndTracedRuns(self._traced, self._payload)
