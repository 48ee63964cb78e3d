"""Session windows: partials of one group are merged if they are less than GAP apart, in any arrival order.

A partial contains rows of one pane of length GAP. Any two of its rows are less than GAP apart, so they belong to the
same session. A partial is an interval from its smallest time to its largest. A session consists of intervals that are
less than GAP apart. A partial between two sessions joins them. The memory of a session does not depend on its length.

    a partial is late if all its rows are below the watermark, it does not begin within an open session, and either
        it begins less than GAP after the newest emitted session of its group, or
        it would be a separate session that is already final

A row below the watermark is not late if its session is open. A partial with a row at or above the watermark is never
late. It begins or extends an open session, even if its older rows are less than GAP after an emitted session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.groups.accumulator import Accumulator, words_of
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.merging import MergeRule, list_merge_rules
from highlevel.operators.session_kernels import (
    FREE,
    NEVER_EMITTED,
    NO_SLOT,
    Partials,
    SessionSlots,
    place_partials,
    take_final,
)
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.windows.kind import SessionWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import BEGINNING, Item, Punctuation
from lowlevel.subaggregates import Kind, SubAggregate, count_of_rows

MIN_ROWS = 1024
"""Initial number of slots. Up to this number, groups without an open session are never removed."""

EMITTED_GAPS = 3
"""An emitted session is stored for this number of GAPs after its last row, because a row close to it is late."""


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """Columns of partials: the groups, the smallest and the largest time in ns, and the other merged columns."""

    groups: tuple[str, ...]
    first: str
    last: str
    others: tuple[MergeRule, ...]


class OpenSessions:
    """The open sessions, in arrays with one slot per session.

    The kernels of `highlevel.operators.session_kernels` link them.
    """

    def __init__(self, gap: int, columns: SessionColumns, schema: pa.Schema) -> None:
        """Create an empty table. `schema` is the schema of the partials."""
        self.gap = gap
        self.columns = columns
        self.watermark = BEGINNING
        self.keys = Keys([schema.field(name).type for name in columns.groups])
        self.accumulators = [
            Accumulator(merged_columns, [schema.field(name).type == pa.float64() for name in merged_columns.columns])
            for merged_columns in columns.others
        ]
        self.slots = np.full((5, 0), NO_SLOT)  # first, last, newer, older, group
        self.groups = np.full(
            (2, 0), NO_SLOT
        )  # slot of a session of the group, last time of its newest emitted session
        self._free = np.empty(0, np.int64)
        self._free_count = np.zeros(1, np.int64)
        self._earliest_last = FREE  # lower bound of the last times of open sessions
        self._max_groups = MIN_ROWS  # a table with more groups may be sparse

    @classmethod
    def restore_from(
        cls, gap: int, columns: SessionColumns, sessions: pa.RecordBatch, emitted: pa.RecordBatch, watermark: int
    ) -> OpenSessions:
        """Create the table from the results of `open_sessions` and `emitted_sessions`, with the given watermark."""
        table = cls(gap, columns, sessions.schema)
        if sessions.num_rows:
            table.add(sessions)
        if emitted.num_rows:
            ids = table.keys.find_or_insert([emitted.column(name) for name in columns.groups], emitted.num_rows)
            table._reserve(0)
            table.groups[1, ids] = emitted.column(columns.last).to_numpy()
        table.watermark = watermark
        table._max_groups += 2 * table.keys.count
        return table

    @property
    def count(self) -> int:
        """Number of open sessions."""
        return int(self.slots.shape[1] - self._free_count[0])

    @property
    def _table(self) -> SessionSlots:
        """The sessions for kernels. They are valid until `_reserve` replaces the arrays."""
        first, last, newer, older, group_of = self.slots
        slot_of_group, emitted = self.groups
        return SessionSlots(first, last, newer, older, group_of, slot_of_group, emitted, self._free, self._free_count)

    @property
    def bytes(self) -> int:
        """Bytes of the state."""
        arrays = (self.slots, self.groups, self._free, *(accumulator.words for accumulator in self.accumulators))
        return self.keys.bytes + sum(int(array.nbytes) for array in arrays)

    def add(self, batch: pa.RecordBatch) -> np.ndarray:
        """Add at least one partial. Return a mask of the late partials, which are not added."""
        rows = batch.num_rows
        ids = self.keys.find_or_insert([batch.column(name) for name in self.columns.groups], rows)
        begins, ends = (words_of(batch.column(name).to_numpy()) for name in (self.columns.first, self.columns.last))
        self._reserve(rows)
        open_before = self.count
        slots = np.empty(rows, np.int64)
        removed, into = np.empty((2, open_before + rows), np.int64)
        partials = Partials(ids, begins, ends, rows)
        joined = place_partials(self._table, partials, self.gap, self.watermark, slots, removed, into)
        late = slots == NO_SLOT
        on_time = None if not late.any() else np.flatnonzero(~late)
        for each in self.accumulators:
            values = [words_of(batch.column(name).to_numpy()) for name in each.merge_rule.columns]
            if on_time is None:
                each.merge(slots, values)
            elif len(on_time):
                each.merge(slots[on_time], [words[on_time] for words in values])
        if joined:
            for each in self.accumulators:
                each.merge(into[:joined], [words[removed[:joined]] for words in each.words])
            self._release_slots(removed[:joined])
        self._earliest_last = min(
            self._earliest_last, int(ends.min() if on_time is None else ends[on_time].min(initial=FREE))
        )
        return late

    def close(self, watermark: int) -> pa.RecordBatch | None:
        """Raise the watermark. Return the sessions that end at or before it, in the order of their ends.

        Columns: groups, first and last time, the other merged columns. Return None if no session ends.
        """
        self.watermark = watermark
        if self._earliest_last == FREE or self._earliest_last + self.gap > watermark:
            return None
        final, least = np.empty(self.count, np.int64), np.empty(1, np.int64)
        last = self.slots[1]
        final_count = take_final(self._table, len(last), self.gap, watermark, final, least)
        self._earliest_last = int(least[0])
        if not final_count:
            return None
        final = final[:final_count]
        final = final[np.argsort(last[final], kind="stable")]
        rows = self._rows_at(final)
        self._release_slots(final)
        return rows

    def open_sessions(self) -> pa.RecordBatch:
        """Return the open sessions. They can be added to an empty table to restore it."""
        return self._rows_at(np.flatnonzero(self.slots[1] != FREE))

    def emitted_sessions(self) -> pa.RecordBatch:
        """Return the groups and last times of the newest emitted sessions that can still make a row late."""
        last = self.groups[1, : self.keys.count]
        oldest = max(self.watermark - EMITTED_GAPS * self.gap, NEVER_EMITTED)
        ids = np.flatnonzero(
            (last > oldest) | ((last != NEVER_EMITTED) & (self.groups[0, : self.keys.count] != NO_SLOT))
        )
        columns = [*self.keys.columns(ids), pa.array(self.groups[1, ids])]
        return pa.RecordBatch.from_arrays(columns, [*self.columns.groups, self.columns.last])

    @property
    def is_sparse(self) -> bool:
        """True if most of the memory belongs to closed sessions or to groups without sessions."""
        return self.keys.count > self._max_groups or self.slots.shape[1] > 4 * (self.count + MIN_ROWS)

    def _rows_at(self, slots: Words) -> pa.RecordBatch:
        first, last, _, _, group_of = self.slots
        arrays = dict(zip(self.columns.groups, self.keys.columns(group_of[slots]), strict=True))
        arrays |= {self.columns.first: pa.array(first[slots]), self.columns.last: pa.array(last[slots])}
        for accumulator in self.accumulators:
            for name, words, is_float in zip(
                accumulator.merge_rule.columns, accumulator.words, accumulator.is_float_by_column, strict=True
            ):
                values = words[slots]
                arrays[name] = pa.array(values.view(np.float64) if is_float else values)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _reserve(self, rows: int) -> None:
        """Allocate memory for all known groups and for `rows` more sessions."""
        capacity, group_count = self.groups.shape[1], self.keys.count
        if group_count > capacity:
            added = max(group_count - capacity, capacity // 2, MIN_ROWS)
            self.groups = np.append(self.groups, np.full((2, added), NO_SLOT), axis=1)
            self.groups[1, capacity:] = NEVER_EMITTED
        free, slots = int(self._free_count[0]), self.slots.shape[1]
        if rows > free:
            added = max(rows - free, slots // 2, MIN_ROWS)
            self.slots = np.append(self.slots, np.full((5, added), NO_SLOT), axis=1)
            self.slots[1, slots:] = FREE
            # Room for all sessions and rows, because any session may be removed.
            free_slots = np.empty(slots + added, np.int64)
            free_slots[:free] = self._free[:free]
            free_slots[free : free + added] = np.arange(slots + added - 1, slots - 1, -1)
            self._free, self._free_count[0] = free_slots, free + added
            for accumulator in self.accumulators:
                accumulator.reserve(slots + added)

    def _release_slots(self, slots: Words) -> None:
        """Release slots for other sessions."""
        self.slots[1, slots] = FREE
        for accumulator in self.accumulators:
            accumulator.words[:, slots] = np.array(accumulator.initial_values)[:, None]
        free = int(self._free_count[0])
        self._free[free : free + len(slots)] = slots
        self._free_count[0] = free + len(slots)


TS = Column("ts", Type.TIME)
"""The argument of two sub-aggregates of each partial: MIN is its first time, MAX its last time."""

LOW, OPEN, EMITTED = "low", "open", "answered"
"""Names of tables in a snapshot."""


class SessionAggregate:
    """A `WindowOperator` for sessions.

    Late partials are dropped and counted. An emitted session is never emitted again.
    """

    def __init__(self, window: SessionWindow, groups: Sequence[str], subaggregates: Sequence[SubAggregate]) -> None:
        """Group by the columns `groups`. The sub-aggregates must contain MIN and MAX of ts."""
        self.window = window
        first, last = (_name_of_time(subaggregates, kind) for kind in (Kind.MIN, Kind.MAX))
        others = (each for each in list_merge_rules(subaggregates) if each.columns not in ((first,), (last,)))
        self.columns = SessionColumns(tuple(groups), first, last, tuple(others))
        self.names = [*groups, *(sub.name for sub in subaggregates)]
        self.sessions: OpenSessions | None = None
        self.watermark = BEGINNING
        self.received = 0
        self.outside = 0
        self.late = 0
        self.late_rows = 0
        self._closed = 0
        self._count_of_rows = count_of_rows(subaggregates)

    @property
    def bytes(self) -> int:
        """Bytes of the stored sessions."""
        return 0 if self.sessions is None else self.sessions.bytes

    def open_windows(self) -> int:
        """Return the number of open sessions. Each partition has separate sessions."""
        return 0 if self.sessions is None else self.sessions.count

    def take_closed_windows(self) -> int:
        """Return and reset the number of sessions that became final."""
        closed, self._closed = self._closed, 0
        return closed

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Merge partials with the sessions to which they belong."""
        if batch.num_rows == 0:
            return iter(())
        self.received += batch.num_rows
        late = self._sessions(batch.schema).add(batch)
        late_count = int(np.count_nonzero(late))
        if late_count:
            self.late += late_count
            if self._count_of_rows is not None:
                self.late_rows += int(batch.column(self._count_of_rows).to_numpy()[late].sum())
        return iter(())

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the sessions that end by the watermark, in the order of their ends, and then a greater watermark."""
        if punctuation.watermark <= self.watermark:
            return
        self.watermark = punctuation.watermark
        rows = None
        if self.sessions is not None:
            rows = self.sessions.close(punctuation.watermark)
            if self.sessions.is_sparse:
                self._replace_sessions(self.sessions.open_sessions(), self.sessions.emitted_sessions())
        if rows is not None:
            self._closed += rows.num_rows
            ends = rows.column(self.columns.last).to_numpy() + self.window.gap
            bounds = [rows.column(self.columns.first), pa.array(ends)]
            columns = [*bounds, *(rows.column(name) for name in self.names)]
            yield pa.RecordBatch.from_arrays(columns, [WINDOW_START, WINDOW_END, *self.names])
        yield punctuation

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the watermark, the open sessions as partials, and emitted sessions that can make rows late."""
        tables = {LOW: pa.table({LOW: [self.watermark]})}
        if self.sessions is not None:
            tables[OPEN] = pa.Table.from_batches([self.sessions.open_sessions()])
            tables[EMITTED] = pa.Table.from_batches([self.sessions.emitted_sessions()])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        self.watermark = tables[LOW][LOW][0].as_py()
        if OPEN in tables:
            self._replace_sessions(_to_batch(tables[OPEN]), _to_batch(tables[EMITTED]))

    def _replace_sessions(self, sessions: pa.RecordBatch, emitted: pa.RecordBatch) -> None:
        self.sessions = OpenSessions.restore_from(self.window.gap, self.columns, sessions, emitted, self.watermark)

    def _sessions(self, schema: pa.Schema) -> OpenSessions:
        if self.sessions is None:
            self.sessions = OpenSessions(self.window.gap, self.columns, schema)
            self.sessions.watermark = self.watermark
        return self.sessions


def _name_of_time(subaggregates: Sequence[SubAggregate], aggregate_kind: Kind) -> str:
    """Return the name of the sub-aggregate MIN or MAX of ts."""
    return next(sub.name for sub in subaggregates if sub.kind is aggregate_kind and sub.argument == TS)


def _to_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch."""
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays([pa.array([], column.type), *column.chunks]) for column in table.columns], table.column_names
    )
