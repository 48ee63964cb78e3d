"""Sessions: intervals of partials merged per group where they are nearer than GAP, in any order of arrival.

A partial of a pane of GAP holds rows of one session: any two are nearer than GAP. So it is an interval, from its
smallest time to its largest, and a session is what intervals make that touch: each less than GAP from the next. A
partial between two sessions joins them. What a session costs does not depend on how long it lasts.

    a partial is late where all its rows are below the promise, it does not begin within an open session, and
        it would have been of a session that was answered: it is less than GAP after the newest of its group; or
        it would be a session of its own, which the promise says is over

A row below the promise whose session is open is not late. A partial with a row that is not below the promise is never
late: it begins a session, or joins one that is open, even where another row of it is near a session that was answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.merging import accumulated
from highlevel.open_sessions import OpenSessions, SessionColumns
from highlevel.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.session import SessionWindow
from lowlevel.expressions import Column
from lowlevel.punctuation import BEGINNING, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate, count_of_rows
from lowlevel.types import Type

TS = Column("ts", Type.TIME)
"""What the sub-aggregates MIN and MAX that bound a partial are of."""

LOW, OPEN, ANSWERED = "low", "open", "answered"
"""Names of tables in a snapshot."""


class SessionAggregate:
    """A `WindowOperator` for sessions. Late partials are left out and counted; the session they miss is not emitted."""

    def __init__(self, window: SessionWindow, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`; among the sub-aggregates are MIN and MAX of ts."""
        self.window = window
        first, last = (_of_time(subaggregates, kind) for kind in (Kind.MIN, Kind.MAX))
        others = (each for each in accumulated(subaggregates) if each.columns not in ((first,), (last,)))
        self.columns = SessionColumns(tuple(groups), first, last, tuple(others))
        self.names = [*groups, *(sub.name for sub in subaggregates)]
        self.sessions: OpenSessions | None = None
        self.low = BEGINNING
        self.received = 0
        self.outside = 0
        self.late = 0
        self.late_rows = 0
        self._closed = 0
        self._count_of_rows = count_of_rows(subaggregates)

    @property
    def bytes(self) -> int:
        """Bytes of the sessions held."""
        return 0 if self.sessions is None else self.sessions.bytes

    def open_windows(self) -> int:
        """How many sessions are open; no two partitions have the same."""
        return 0 if self.sessions is None else self.sessions.count

    def take_closed(self) -> int:
        """How many sessions became final since this was last asked."""
        closed, self._closed = self._closed, 0
        return closed

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Merge partials with the sessions that they touch."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        late = self._sessions(batch.schema).add(batch)
        missed = int(np.count_nonzero(late))
        if missed:
            self.late += missed
            if self._count_of_rows is not None:
                self.late_rows += int(batch.column(self._count_of_rows).to_numpy()[late].sum())
        return iter(())

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Emit the sessions that end by the mark, in order of their ends, then pass it on if it has grown."""
        if mark.low <= self.low:
            return
        self.low = mark.low
        rows = None
        if self.sessions is not None:
            rows = self.sessions.close(mark.low)
            if self.sessions.sparse:
                self._hold(self.sessions.all(), self.sessions.answered())
        if rows is not None:
            self._closed += rows.num_rows
            ends = rows.column(self.columns.last).to_numpy() + self.window.gap
            bounds = [rows.column(self.columns.first), pa.array(ends)]
            columns = [*bounds, *(rows.column(name) for name in self.names)]
            yield pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *self.names])
        yield mark

    def snapshot(self) -> dict[str, pa.Table]:
        """The promise; the open sessions, as partials; what was answered last, as far as late rows ask for it."""
        tables = {LOW: pa.table({LOW: [self.low]})}
        if self.sessions is not None:
            tables[OPEN] = pa.Table.from_batches([self.sessions.all()])
            tables[ANSWERED] = pa.Table.from_batches([self.sessions.answered()])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        self.low = tables[LOW][LOW][0].as_py()
        if OPEN in tables:
            self._hold(_batch(tables[OPEN]), _batch(tables[ANSWERED]))

    def _hold(self, sessions: pa.RecordBatch, answered: pa.RecordBatch) -> None:
        self.sessions = OpenSessions.of(self.window.gap, self.columns, sessions, answered, self.low)

    def _sessions(self, schema: pa.Schema) -> OpenSessions:
        if self.sessions is None:
            self.sessions = OpenSessions(self.window.gap, self.columns, schema)
            self.sessions.low = self.low
        return self.sessions


def _of_time(subaggregates: Sequence[SubAggregate], kind: Kind) -> str:
    """Return the name of MIN or MAX of ts."""
    return next(sub.name for sub in subaggregates if sub.kind is kind and sub.argument == TS)


def _batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([pa.array([], column.type), *column.chunks]) for column in table.columns], table.column_names
    )
