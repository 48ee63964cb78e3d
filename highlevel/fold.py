"""Fold: partials of single values become partials with sketches, one for each pane and group.

    pane  srcIP  destIP  count            pane  srcIP  sketch      count
    1     A      X       5                1     A      of X, Y     7
    1     A      Y       2         ──►    1     B      of X        1
    1     B      X       1

A pane's sketches leave when no older partial can come; until then there is one per group, and as many values as it
has cost no more. What is late leaves at once, as a partial of its own. A sketch leaves behind a number that no other
has, so that two that are equal by chance are never taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.detail import Folding
from highlevel.groups.merging import Accumulated
from highlevel.groups.table import GroupTable
from highlevel.sketches import MAKERS, Sketch, values_for

NUMBER_BYTES = 8
"""Bytes before a sketch: its number."""


class FoldedPane:
    """The groups of one pane: merged sub-aggregates, and a sketch for each of the foldings."""

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], what: Sequence[Accumulated], foldings: Sequence[Folding]
    ) -> None:
        """Hold nothing; `schema` is that of the partials."""
        self.table = GroupTable(schema, groups, what)
        self.foldings = foldings
        self.sketches: list[list[Sketch]] = [[] for _ in foldings]

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in partials of single values."""
        ids = self._grow(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            counts = batch.column(folding.count).to_numpy()
            values = batch.column(folding.source)
            rows = np.flatnonzero((counts > 0) & np.asarray(values.is_valid()))
            rows = rows[np.argsort(ids[rows], kind="stable")]
            given, counts = values_for(folding.function, values.take(pa.array(rows))), counts[rows]
            for group, first, end in _runs(ids[rows]):
                sketches[group].add(given[first:end], counts[first:end])

    def merge(self, batch: pa.RecordBatch) -> None:
        """Take in partials with sketches."""
        ids = self._grow(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            for group, data in zip(ids.tolist(), batch.column(folding.column).to_pylist(), strict=True):
                sketches[group].merge(data[NUMBER_BYTES:])

    def _grow(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Merge sub-aggregates, make room for sketches of new groups, and return the ids of the rows' groups."""
        ids = self.table.merge(batch)
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            sketches += [MAKERS[folding.function]() for _ in range(self.table.count - len(sketches))]
        return ids

    def to_arrow(self, number: int) -> pa.RecordBatch:
        """Return a row per group; its sketches are numbered from `number` on."""
        batch = self.table.to_arrow()
        for folding, sketches in zip(self.foldings, self.sketches, strict=True):
            numbered = [(number + place).to_bytes(NUMBER_BYTES, "little") for place in range(len(sketches))]
            data = [head + sketch.to_bytes() for head, sketch in zip(numbered, sketches, strict=True)]
            batch = batch.append_column(folding.column, pa.array(data, pa.binary()))
        return batch


def _runs(ids: npt.NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Return (id, first, end) for each run of equal ids; no run if there is no id, as of values that are all NULL."""
    begins = np.flatnonzero(np.append(True, np.diff(ids) != 0)[: len(ids)])
    ends = np.append(begins[1:], len(ids))[: len(begins)]
    return list(zip(ids[begins].tolist(), begins.tolist(), ends.tolist(), strict=True))


def told_of_sketches(
    folding: Folding, parameter: float, ids: npt.NDArray[np.int64], groups: int, column: pa.Array
) -> list[object]:
    """Merge the sketches of each group, row i being of group `ids[i]`, and return what they say."""
    sketches = [MAKERS[folding.function]() for _ in range(groups)]
    for group, data in zip(ids.tolist(), column.to_pylist(), strict=True):
        sketches[group].merge(data[NUMBER_BYTES:])
    return [sketch.told(parameter) for sketch in sketches]
