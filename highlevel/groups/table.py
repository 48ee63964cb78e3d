"""A table of groups: partials in, one merged row per group out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.merging import Accumulated, Accumulator, words_of


class GroupTable:
    """Merges batches by the columns `groups`. Not thread safe.

    The rows are those of `pyarrow.Table.group_by(groups).aggregate(…)` over all that was merged, in the order in which
    their groups were first seen, with the columns and types of the batches: `groups`, then the accumulated ones.
    Sub-aggregates are int64 or float64 and never NULL. With `held` the table counts the rows that each group has in it:
    what was merged can be taken out again, and a group of which nothing is left is not there.
    """

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated], held: bool = False
    ) -> None:
        """Merge batches that have at least these columns, of the types in `schema`."""
        columns = [name for each in what for name in each.columns]
        self.schema = pa.schema([schema.field(name) for name in (*groups, *columns)])
        self.groups = list(groups)
        self.keys = Keys([schema.field(name).type for name in groups])
        self.accumulators = [
            Accumulator(each, [schema.field(name).type == pa.float64() for name in each.columns]) for each in what
        ]
        self.held: Words | None = np.zeros(0, np.int64) if held else None

    @property
    def count(self) -> int:
        """Groups that have an id, those of which nothing is left among them."""
        return self.keys.count

    @property
    def bytes(self) -> int:
        """Memory of the table."""
        words = sum(int(each.words.nbytes) for each in self.accumulators)
        return self.keys.bytes + words + (0 if self.held is None else int(self.held.nbytes))

    def merge(self, batch: pa.RecordBatch) -> None:
        """Take in a batch."""
        self._take(batch, False)

    def undo(self, batch: pa.RecordBatch) -> None:
        """Take out a batch whose rows, or their merged sums, were taken in: all rules are invertible, `held` is on.

        Its rows are as many of each group as those that were taken in.
        """
        self._take(batch, True)

    def _take(self, batch: pa.RecordBatch, undo: bool) -> None:
        ids = self.keys.of([batch.column(name) for name in self.groups], batch.num_rows)
        room = len(self.keys.ids.keys)
        for each in self.accumulators:
            each.reserve(room)
            each.merge(ids, [words_of(batch.column(name).to_numpy()) for name in each.what.columns], undo)
        if self.held is not None:
            if len(self.held) < room:
                self.held = np.append(self.held, np.zeros(room - len(self.held), np.int64))
            self.held[:] += (-1 if undo else 1) * np.bincount(ids, minlength=room)

    def present(self) -> npt.NDArray[np.int64] | None:
        """Return the ids of the groups that are there; None for all."""
        if self.held is None:
            return None
        there = np.flatnonzero(self.held)
        return None if len(there) == self.count else there

    def to_arrow(self) -> pa.RecordBatch:
        """Return a row per group; a copy."""
        ids = self.present()
        arrays = self.keys.columns(ids)
        count = self.count
        for each in self.accumulators:
            for words, is_float in zip(each.words, each.floats, strict=True):
                values = words[:count].copy() if ids is None else words[ids]
                arrays.append(pa.array(values.view(np.float64) if is_float else values))
        columns = [column.cast(field.type) for column, field in zip(arrays, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def merged(batches: Sequence[pa.RecordBatch], groups: Sequence[str], what: Sequence[Accumulated]) -> pa.RecordBatch:
    """Merge some batches, at least one, once."""
    table = GroupTable(batches[0].schema, groups, what)
    for batch in batches:
        table.merge(batch)
    return table.to_arrow()
