"""Distinct: the first row of each key (DupElim), which is forgotten once a promise covers it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.groups.keys import Keys
from highlevel.plan.nodes import Distinct, width_of
from highlevel.plan.operators.operator import GraphItem, Lows, Mark, Times, covered, lows_of, times_of
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING

KEYS, LOWS = "keys", "lows"
"""Tables of a snapshot: the keys that are known, and what was promised."""

LEFT_IN_PLACE = 4
"""Keys that are covered stay in the table until they are one in so many: forgetting costs as much as all the others."""


class DistinctOperator:
    """Holds the keys seen. A row whose key a promise covers is late: it may have been seen, so it is dropped.

    A key without one of the progressing columns is covered only when that is at its end.
    """

    def __init__(self, node: Distinct) -> None:
        """Compare rows by the keys of `node`."""
        self.names = list(node.keys)
        kinds = {column.name: ARROW_TYPES[column.type] for column in node.columns}
        self.schema = pa.schema([pa.field(name, kinds[name]) for name in node.keys])
        self.progress = [name if name in node.keys else None for name in node.progress] or [None]
        self.promised: Lows = (BEGINNING,) * width_of(node)
        self.received = 0
        self.results = 0
        self.late = 0
        self._forget()

    def _forget(self) -> None:
        self._keys = Keys(self.schema.types)
        self._times: list[Times | None] = [None if name is None else np.empty(0, np.int64) for name in self.progress]

    def _held(self) -> np.ndarray:
        """Return the ids of the keys that later rows may have."""
        gone = np.broadcast_to(covered(self._times, self.promised), self._keys.count)
        return np.flatnonzero(~gone)

    @property
    def rows_held(self) -> int:
        """Keys that later rows may have."""
        return len(self._held())

    @property
    def bytes(self) -> int:
        """Bytes of the keys."""
        return self._keys.bytes + sum(each.nbytes for each in self._times if each is not None)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Pass on the rows whose keys are new."""
        self.received += batch.num_rows
        times = self._times_in(batch)
        late = np.broadcast_to(covered(times, self.promised), batch.num_rows)
        if late.any():
            self.late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        known = self._keys.count
        ids = self._keys.of([batch.column(name) for name in self.names], batch.num_rows)
        seen, firsts = np.unique(ids, return_index=True)
        firsts = np.sort(firsts[seen >= known])  # new ids are given in the order of rows
        if not len(firsts):
            return
        new = batch if len(firsts) == batch.num_rows else batch.take(pa.array(firsts))
        self._add_times(new)
        self.results += new.num_rows
        yield new

    def _times_in(self, batch: pa.RecordBatch) -> list[Times | None]:
        return [None if name is None else times_of(batch.column(name)) for name in self.progress]

    def _add_times(self, new: pa.RecordBatch) -> None:
        self._times = [
            None if before is None or added is None else np.append(before, added)
            for before, added in zip(self._times, self._times_in(new), strict=True)
        ]

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Forget the keys that the mark covers, and pass it on."""
        told = lows_of(mark, len(self.promised))
        self.promised = tuple(max(each) for each in zip(self.promised, told, strict=True))
        held = self._held()
        if len(held) == 0:
            self._forget()
        elif len(held) < self._keys.count - self._keys.count // LEFT_IN_PLACE:
            self._keys = self._keys.only(held)
            self._times = [None if each is None else each[held] for each in self._times]
        yield mark

    def snapshot(self) -> dict[str, pa.Table]:
        """The keys that later rows may have, and what was promised."""
        keys = pa.Table.from_arrays(self._keys.columns(self._held()), schema=self.schema)
        return {KEYS: keys, LOWS: pa.table({LOWS: list(self.promised)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the keys."""
        self.promised = tuple(tables[LOWS][LOWS].to_pylist())
        for batch in tables[KEYS].to_batches():
            self._keys.of(batch.columns, batch.num_rows)
            self._add_times(batch)
