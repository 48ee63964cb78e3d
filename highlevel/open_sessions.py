"""The sessions that are open, of all groups: partials in, sessions that are final out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from highlevel.groups.accumulator import Accumulator, words_of
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.merging import Accumulated
from highlevel.session_kernels import FREE, NEVER, NOBODY, place_partials, take_final
from lowlevel.punctuation import BEGINNING

SMALLEST = 1024
"""Sessions there is room for at first, and groups without one that may stay beyond as many as there are others."""

REMEMBERED = 3
"""Lengths of the gap after its last row for which an answered session can be one that a row would have been of."""


@dataclass(frozen=True, slots=True)
class SessionColumns:
    """Columns of partials: the groups, the smallest and the largest time, ns, and what else is merged."""

    groups: tuple[str, ...]
    first: str
    last: str
    others: tuple[Accumulated, ...]


class OpenSessions:
    """One slot per session, in arrays; the kernels (`highlevel.session_kernels`) say how slots hang together."""

    def __init__(self, gap: int, columns: SessionColumns, schema: pa.Schema) -> None:
        """Hold none; `schema` is that of the partials."""
        self.gap = gap
        self.columns = columns
        self.low = BEGINNING
        self.keys = Keys([schema.field(name).type for name in columns.groups])
        self.accumulators = [
            Accumulator(each, [schema.field(name).type == pa.float64() for name in each.columns])
            for each in columns.others
        ]
        self.slots = np.full((5, 0), NOBODY)  # first, last, newer, older, group
        self.groups = np.full((2, 0), NOBODY)  # a slot of the group, the last time that was answered
        self._free = np.empty(0, np.int64)
        self._free_count = np.zeros(1, np.int64)
        self._least = FREE  # no session that is open has a smaller last time
        self._many_groups = SMALLEST

    @classmethod
    def of(
        cls, gap: int, columns: SessionColumns, sessions: pa.RecordBatch, answered: pa.RecordBatch, low: int
    ) -> OpenSessions:
        """Hold what `all` and `answered` returned, at the promise `low`."""
        made = cls(gap, columns, sessions.schema)
        if sessions.num_rows:
            made.add(sessions)
        if answered.num_rows:
            ids = made.keys.of([answered.column(name) for name in columns.groups], answered.num_rows)
            made._reserve(0)
            made.groups[1, ids] = answered.column(columns.last).to_numpy()
        made.low = low
        made._many_groups += 2 * made.keys.count
        return made

    @property
    def count(self) -> int:
        """Sessions that are open."""
        return int(self.slots.shape[1] - self._free_count[0])

    @property
    def bytes(self) -> int:
        """Memory of the state."""
        arrays = (self.slots, self.groups, self._free, *(each.words for each in self.accumulators))
        return self.keys.bytes + sum(int(each.nbytes) for each in arrays)

    def add(self, batch: pa.RecordBatch) -> np.ndarray:
        """Take in partials, at least one; return which of them are late, which are left out."""
        rows = batch.num_rows
        ids = self.keys.of([batch.column(name) for name in self.columns.groups], rows)
        begins, ends = (words_of(batch.column(name).to_numpy()) for name in (self.columns.first, self.columns.last))
        self._reserve(rows)
        open_before = self.count
        slots = np.empty(rows, np.int64)
        gone, into = np.empty((2, open_before + rows), np.int64)
        joined = place_partials(
            ids, begins, ends, rows, self.gap, self.low, *self.groups, *self.slots, self._free, self._free_count,
            slots, gone, into,
        )  # fmt: skip
        late = slots == NOBODY
        kept = None if not late.any() else np.flatnonzero(~late)
        for each in self.accumulators:
            values = [words_of(batch.column(name).to_numpy()) for name in each.what.columns]
            if kept is None:
                each.merge(slots, values)
            elif len(kept):
                each.merge(slots[kept], [words[kept] for words in values])
        if joined:
            for each in self.accumulators:
                each.merge(into[:joined], [words[gone[:joined]] for words in each.words])
            self._give_up(gone[:joined])
        self._least = min(self._least, int(ends.min() if kept is None else ends[kept].min(initial=FREE)))
        return late

    def close(self, low: int) -> pa.RecordBatch | None:
        """Take the promise that no later row is below `low`; return the sessions that end by it, in that order.

        Columns: groups, first and last time, the others. None where there is no such session.
        """
        self.low = low
        if self._least == FREE or self._least + self.gap > low:
            return None
        final, least = np.empty(self.count, np.int64), np.empty(1, np.int64)
        _, last, newer, older, group_of = self.slots
        found = take_final(last, len(last), self.gap, low, newer, older, group_of, *self.groups, final, least)
        self._least = int(least[0])
        if not found:
            return None
        final = final[:found]
        final = final[np.argsort(last[final], kind="stable")]
        rows = self._rows(final)
        self._give_up(final)
        return rows

    def all(self) -> pa.RecordBatch:
        """Return the sessions that are open; added to others they make the same."""
        return self._rows(np.flatnonzero(self.slots[1] != FREE))

    def answered(self) -> pa.RecordBatch:
        """Return groups, and the last time of the newest session that was answered, where a row may be late for it."""
        last = self.groups[1, : self.keys.count]
        oldest = max(self.low - REMEMBERED * self.gap, NEVER)
        ids = np.flatnonzero((last > oldest) | ((last != NEVER) & (self.groups[0, : self.keys.count] != NOBODY)))
        columns = [*self.keys.columns(ids), pa.array(self.groups[1, ids])]
        return pa.RecordBatch.from_arrays(columns, [*self.columns.groups, self.columns.last])

    @property
    def sparse(self) -> bool:
        """Whether most of the memory is for groups that are over, or for sessions that were."""
        return self.keys.count > self._many_groups or self.slots.shape[1] > 4 * (self.count + SMALLEST)

    def _rows(self, slots: Words) -> pa.RecordBatch:
        first, last, _, _, group_of = self.slots
        arrays = dict(zip(self.columns.groups, self.keys.columns(group_of[slots]), strict=True))
        arrays |= {self.columns.first: pa.array(first[slots]), self.columns.last: pa.array(last[slots])}
        for each in self.accumulators:
            for name, words, is_float in zip(each.what.columns, each.words, each.floats, strict=True):
                values = words[slots]
                arrays[name] = pa.array(values.view(np.float64) if is_float else values)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _reserve(self, rows: int) -> None:
        """Have room for the groups seen, and for `rows` more sessions."""
        known, wanted = self.groups.shape[1], self.keys.count
        if wanted > known:
            more = max(wanted - known, known // 2, SMALLEST)
            self.groups = np.append(self.groups, np.full((2, more), NOBODY), axis=1)
            self.groups[1, known:] = NEVER
        free, slots = int(self._free_count[0]), self.slots.shape[1]
        if rows > free:
            more = max(rows - free, slots // 2, SMALLEST)
            self.slots = np.append(self.slots, np.full((5, more), NOBODY), axis=1)
            self.slots[1, slots:] = FREE
            places = np.empty(slots + more, np.int64)  # room for all: any may be given up
            places[:free] = self._free[:free]
            places[free : free + more] = np.arange(slots + more - 1, slots - 1, -1)
            self._free, self._free_count[0] = places, free + more
            for each in self.accumulators:
                each.reserve(slots + more)

    def _give_up(self, slots: Words) -> None:
        """Let others have some slots."""
        self.slots[1, slots] = FREE
        for each in self.accumulators:
            each.words[:, slots] = np.array(each.starts)[:, None]
        free = int(self._free_count[0])
        self._free[free : free + len(slots)] = slots
        self._free_count[0] = free + len(slots)
