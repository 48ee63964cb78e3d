"""Running totals of groups, of which no more than a cap are kept."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from highlevel.groups.accumulator import Accumulator, words_of
from highlevel.groups.ids import NOBODY
from highlevel.groups.keys import Keys
from highlevel.groups.merging import Accumulated


class LandmarkTotals:
    """Totals of the groups that came first, `cap` of them.

    Where not all new groups of a batch have room, those with the smallest values have, column by column, IPv4 before
    IPv6 and NULL last: which groups are kept depends on what the batches hold, and not on the order of their rows.
    """

    def __init__(self, schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated], cap: int) -> None:
        """Hold nothing; `schema` is that of the batches."""
        self.groups = list(groups)
        self.cap = cap
        self.keys = Keys([schema.field(name).type for name in groups])
        self.accumulators = [
            Accumulator(each, [schema.field(name).type == pa.float64() for name in each.columns]) for each in what
        ]
        self._key_columns: list[pa.Array] = []

    @property
    def count(self) -> int:
        """Groups held."""
        return self.keys.count

    @property
    def bytes(self) -> int:
        """Memory of groups and totals."""
        words = sum(int(each.words.nbytes) for each in self.accumulators)
        return self.keys.bytes + words + sum(int(each.nbytes) for each in self._key_columns)

    def add(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Take in rows, each of another group; return which of them there was no room for."""
        columns = [batch.column(name) for name in self.groups]
        beyond = np.zeros(batch.num_rows, np.bool_)
        room = self.cap - self.count
        if batch.num_rows > room:
            new = np.flatnonzero(self.keys.find(columns, batch.num_rows) == NOBODY)
            if len(new) > room:
                beyond[self._in_order(batch, new)[room:] if room else new] = True
                batch = batch.filter(pa.array(~beyond))
                columns = [batch.column(name) for name in self.groups]
        ids = self.keys.of(columns, batch.num_rows)
        for each in self.accumulators:
            each.reserve(_room(self.count, each.words.shape[1]))
            each.merge(ids, [words_of(batch.column(name).to_numpy()) for name in each.what.columns])
        return beyond

    def rows(self) -> pa.RecordBatch:
        """Return a row per group: the groups, then the totals. A copy, whose columns of groups are shared with others.

        The groups stand in the order in which they came.
        """
        if not self._key_columns or len(self._key_columns[0]) < self.count:
            self._key_columns = self.keys.columns()
        arrays = dict(zip(self.groups, self._key_columns, strict=True))
        for each in self.accumulators:
            for name, words, is_float in zip(each.what.columns, each.words, each.floats, strict=True):
                values = words[: self.count].copy()
                arrays[name] = pa.array(values.view(np.float64) if is_float else values)
        return pa.RecordBatch.from_arrays(list(arrays.values()), list(arrays))

    def _in_order(self, batch: pa.RecordBatch, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return some rows' places in the order of their groups."""
        groups = batch.select(self.groups).take(pa.array(places))
        columns: list[pa.Array] = []
        for column in groups.columns:
            # Addresses rise by version, then value: an IPv4 address is the shorter string of bytes.
            columns += [pc.binary_length(column), column] if pa.types.is_binary(column.type) else [column]
        table = pa.table(columns, [str(number) for number in range(len(columns))])
        return places[pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names]).to_numpy()]


def _room(count: int, had: int) -> int:
    """Return for how many groups there is to be room: twice as many as before, where it is not enough."""
    return had if count <= had else max(count, 2 * had)
