"""Align: delays changes (WAIT, B in CEDR), and merges the changes of one row while they wait (CEDR, §4).

The stored changes are rows with weights (`model.weighted`): +1 for a row to insert, -1 to retract a row that was
returned before. Equal rows with opposite weights cancel each other. So a waiting row is shortened before it is
returned, and several retractions of a row become one retraction. The retraction of a row and the insert of a shorter
row with the same start and values also become one retraction.

Stored changes are returned after a CTI, by one of these rules, or when `wait` has passed. Without a clock, `wait` is
measured from the start of the row to the newest start; with a clock, from the arrival of the first waiting change of
the row.

    SYNC      all changes with a sync time below the CTI, in the order of sync times: the output is ordered
    PERFECT   rows in the order of their starts, up to the first row that ends after the CTI: no retraction follows
    ENDS      rows and retractions that end at or before the CTI: the fewest changes, in no order
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT, RETRACTION
from highlevel.speculation.lifetimes.model import (
    VS,
    Words,
    concat,
    from_weighted,
    make_changes,
    make_ctis,
    payload_of,
    payload_schema,
    times_of,
    weighted,
)
from lowlevel.punctuation import BEGINNING, END


class Release(Enum):
    """The rule by which stored changes are returned after a CTI."""

    SYNC = "sync"
    PERFECT = "perfect"
    ENDS = "ends"


class Align:
    """Delays and merges changes.

    The returned changes are valid, and have the same canonical history as the received changes.
    """

    def __init__(
        self,
        schema: pa.Schema,
        wait: int | None,
        release: Release = Release.SYNC,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Delay changes of `schema` until `wait` ns after the start of their row; None: only until a CTI.

        With a `clock` (a function that returns ns), changes are delayed until `wait` ns after their arrival.
        """
        self.schema = schema
        self._wait = wait
        self._release = release
        self._clock = clock
        self._newest = BEGINNING
        self._cti = BEGINNING
        self._payload = payload_schema(schema)
        self._stored = make_ctis([], self._payload)
        self._arrival_times: Words = np.zeros(0, np.int64)
        """With a clock: the time at which the first waiting change of each stored row arrived."""

    @property
    def stored(self) -> int:
        """Number of stored changes."""
        return int(self._stored.num_rows)

    def process(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Store changes. Return the changes that need not wait longer, and a CTI if the CTI advances.

        With a clock, a call without changes returns the changes that have waited long enough.
        """
        kind, start, _, _ = times_of(changes)
        batches = []
        begin = 0
        for end in [*np.flatnonzero(kind == CTI).tolist(), len(kind)]:
            rows = changes.slice(begin, end - begin)
            if rows.num_rows:
                self._newest = max(self._newest, int(start[begin:end].max()))
                self._stored = concat([self._stored, rows], self.schema)
                if self._clock is not None:
                    self._arrival_times = np.append(self._arrival_times, np.full(rows.num_rows, self._clock()))
            if (rows.num_rows and self._wait is not None) or end == len(kind):
                self._merge()
                batches.append(self._take_waited())
            if end < len(kind):
                self._merge()
                batches += self._advance(int(start[end]))
            begin = end + 1
        return concat(batches, self.schema)

    def _merge(self) -> None:
        """Replace the stored changes by the smallest number of changes with the same effect."""
        kind = times_of(self._stored)[0]
        if (kind == INSERT).all():
            return
        rows = weighted(self._stored)
        table = pa.Table.from_batches([rows.drop_columns([WEIGHT])])
        numbers = number_groups(table, tuple(table.schema.names))
        sums = np.zeros(numbers.max(initial=-1) + 1, np.int64)
        np.add.at(sums, numbers, rows.column(WEIGHT).to_numpy())
        firsts = np.sort(np.unique(numbers, return_index=True)[1])
        net = sums[numbers[firsts]]
        rows = pc.take(rows, array_of(firsts[net != 0]))
        at = rows.schema.get_field_index(WEIGHT)
        rows = from_weighted(rows.set_column(at, WEIGHT, array_of(net[net != 0])))
        merged = _pair_retractions(rows)
        if self._clock is not None:
            self._arrival_times = _first_arrivals(self._stored, self._arrival_times, merged)
        self._stored = merged

    def _take_waited(self) -> pa.RecordBatch:
        """Return the changes that have waited long enough, in the order of the starts of their rows.

        Without a clock, these changes are of rows that began at least `wait` before the newest start.
        """
        if self._wait is None or not self._stored.num_rows:
            return self._stored.slice(0, 0)
        kind, start, _, _ = times_of(self._stored)
        due = (
            start <= self._newest - self._wait
            if self._clock is None
            else self._arrival_times <= self._clock() - self._wait
        )
        return self._take(due, start, kind)

    def _advance(self, time: int) -> list[pa.RecordBatch]:
        """Return the changes that the CTI releases, the changes that have waited long enough, and the CTI."""
        kind, start, stop, new_stop = times_of(self._stored)
        sync = np.where(kind == RETRACTION, new_stop, start)
        if self._release is Release.SYNC:
            parts = [self._take(sync < time, sync, kind)]
        elif self._release is Release.ENDS:
            ends = np.where(kind == RETRACTION, new_stop, stop)
            parts = [self._take(ends <= time, ends, kind)]
        else:
            first_kept = start[(kind == INSERT) & (stop > time)].min(initial=time)
            parts = [self._take(start < first_kept, start, kind)]
        parts.append(self._take_waited())
        left = times_of(self._stored)[1]
        cti = int(left.min(initial=time))
        if cti > self._cti:
            self._cti = cti
            parts.append(make_ctis([cti], self._payload))
        return parts

    def _take(self, chosen: np.ndarray, order: Words, change_types: Words) -> pa.RecordBatch:
        """Remove and return the chosen changes in the order `order`; at equal times inserts are first."""
        positions = np.flatnonzero(chosen)
        positions = positions[np.lexsort((change_types[positions], order[positions]))]
        taken = pc.take(self._stored, array_of(positions))
        if len(positions):
            self._stored = pc.filter(self._stored, array_of(~chosen))
            self._arrival_times = self._arrival_times[~chosen] if self._clock is not None else self._arrival_times
        return taken


def _first_arrivals(stored: pa.RecordBatch, arrived: Words, merged: pa.RecordBatch) -> Words:
    """Return for each merged change the first arrival of a stored change with the same start and values."""
    rows = [batch.select([VS, *payload_of(batch).schema.names]) for batch in (stored, merged)]
    table = pa.Table.from_batches(rows)
    numbers = number_groups(table, tuple(table.schema.names))
    firsts = np.full(numbers.max(initial=-1) + 1, END)
    np.minimum.at(firsts, numbers[: len(arrived)], arrived)
    return firsts[numbers[len(arrived) :]]


def _pair_retractions(changes: pa.RecordBatch) -> pa.RecordBatch:
    """Replace full retractions and inserts of shorter rows with the same start and values by partial retractions."""
    kind, start, stop, _ = times_of(changes)
    if not (kind == RETRACTION).any():
        return changes
    payload = payload_of(changes)
    table = pa.Table.from_batches([payload]).append_column(VS, pa.chunked_array([array_of(start)]))
    numbers = number_groups(table, tuple(table.schema.names))
    new_stop = start.copy()
    is_kept = np.ones(len(kind), bool)
    retracted = np.isin(numbers, numbers[kind == RETRACTION])
    free: list[int] = []
    group = -1
    # From the latest end to the earliest: a retraction takes the latest row that ends before it.
    order = np.flatnonzero(retracted)
    order = order[np.lexsort((kind[order] == INSERT, stop[order], numbers[order]))]
    for position in order.tolist():
        if numbers[position] != group:
            group, free = int(numbers[position]), []
        if kind[position] == INSERT:
            free.append(position)
        elif free:
            shorter = free.pop()
            if stop[shorter] < stop[position]:
                new_stop[position] = stop[shorter]
                is_kept[shorter] = False
    return pc.filter(make_changes(kind, start, stop, new_stop, payload), array_of(is_kept))
