"""Distinct: the first row of each key (DupElim). A key below the watermark is deleted."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.plan.nodes import Distinct, bound_count
from highlevel.plan.operators.operator import (
    AnyPunctuation,
    Bounds,
    GraphItem,
    Times,
    bounds_of,
    mask_covered,
    times_of,
)
from lowlevel.plan import ARROW_TYPES
from lowlevel.punctuation import BEGINNING

KEYS, WATERMARKS = "keys", "lows"
"""Tables of a snapshot: the stored keys, and the watermark."""

COVERED_SHARE = 4
"""Covered keys are deleted when they are 1/4 of all keys: the other keys are then inserted into a new table."""


class DistinctOperator:
    """Stores keys. A row whose key is below the watermark is late.

    It is dropped, because its key may be deleted already.

    A key with NULL in a time column stays until the watermark of this column is END.
    """

    def __init__(self, node: Distinct) -> None:
        """Prepare an empty set of keys for `node`."""
        self.names = list(node.keys)
        kinds = {column.name: ARROW_TYPES[column.type] for column in node.columns}
        self.schema = pa.schema([pa.field(name, kinds[name]) for name in node.keys])
        self._key_times = [name if name in node.keys else None for name in node.time_columns] or [None]
        self.watermark: Bounds = (BEGINNING,) * bound_count(node)
        self.received = 0
        self.results = 0
        self.late = 0
        self._clear()

    def _clear(self) -> None:
        self._keys = Keys(self.schema.types)
        self._times: list[Times | None] = [None if name is None else np.empty(0, np.int64) for name in self._key_times]

    def _stored(self) -> np.ndarray:
        """Return the IDs of the keys that the watermark does not cover."""
        is_covered = np.broadcast_to(mask_covered(self._times, self.watermark), self._keys.count)
        return np.flatnonzero(~is_covered)

    @property
    def rows_held(self) -> int:
        """Number of keys that the watermark does not cover."""
        return len(self._stored())

    @property
    def bytes(self) -> int:
        """Bytes of the keys."""
        return self._keys.bytes + sum(times.nbytes for times in self._times if times is not None)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows whose keys are new."""
        self.received += batch.num_rows
        times = self._times_in(batch)
        late = np.broadcast_to(mask_covered(times, self.watermark), batch.num_rows)
        if late.any():
            self.late += int(np.count_nonzero(late))
            batch = pc.filter(batch, array_of(~late))
        known = self._keys.count
        ids = self._keys.find_or_insert([batch.column(name) for name in self.names], batch.num_rows)
        seen, firsts = np.unique(ids, return_index=True)
        firsts = np.sort(firsts[seen >= known])  # new IDs are in the order of rows
        if not len(firsts):
            return
        new = batch if len(firsts) == batch.num_rows else pc.take(batch, array_of(firsts))
        self._add_times(new)
        self.results += new.num_rows
        yield new

    def _times_in(self, batch: pa.RecordBatch) -> list[Times | None]:
        return [None if name is None else times_of(batch.column(name)) for name in self._key_times]

    def _add_times(self, new: pa.RecordBatch) -> None:
        self._times = [
            None if before is None or added is None else np.append(before, added)
            for before, added in zip(self._times, self._times_in(new), strict=True)
        ]

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Delete the keys that the watermark covers, and return the watermark."""
        self.watermark = tuple(map(max, self.watermark, bounds_of(punctuation, len(self.watermark))))
        stored = self._stored()
        if len(stored) == 0:
            self._clear()
        elif len(stored) < self._keys.count - self._keys.count // COVERED_SHARE:
            self._keys = self._keys.copy_of(stored)
            self._times = [None if times is None else times[stored] for times in self._times]
        yield punctuation

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the keys that the watermark does not cover, and the watermark."""
        keys = pa.Table.from_arrays(self._keys.columns(self._stored()), schema=self.schema)
        return {KEYS: keys, WATERMARKS: pa.table({WATERMARKS: list(self.watermark)})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the keys and the watermark."""
        self.watermark = tuple(tables[WATERMARKS][WATERMARKS].to_pylist())
        for batch in tables[KEYS].to_batches():
            self._keys.find_or_insert(batch.columns, batch.num_rows)
            self._add_times(batch)
