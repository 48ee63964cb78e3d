"""WeightedRows: the content of a changing result, as rows with weights (Z-set).

    changes     a +1    b +1    a -1    c +1    b +1
    content     b with weight 2, c with weight 1

Changes wait in a list until the content is read, so adding a change does not copy the content.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.plan.operators.group_numbers import number_groups
from highlevel.speculation.changes import Weights
from highlevel.speculation.consistency import WEIGHT

Mask = npt.NDArray[np.bool_]


class WeightedRows:
    """Rows with weights other than 0. Equal rows are merged into one row when a row is withdrawn."""

    def __init__(self, schema: pa.Schema) -> None:
        """Store no rows yet. `schema` has no column of weights."""
        self._schema = schema
        self._rows: pa.Table = schema.empty_table()
        self._weights: Weights = np.zeros(0, np.int64)
        self._added_changes: list[tuple[pa.Table, Weights]] = []

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows and weights."""
        stored = [(self._rows, self._weights), *self._added_changes]
        return sum(rows.nbytes + weights.nbytes for rows, weights in stored)

    @property
    def num_rows(self) -> int:
        """Number of stored rows, including changes that cancel each other when the content is read."""
        return self._rows.num_rows + sum(rows.num_rows for rows, _ in self._added_changes)

    @property
    def content(self) -> tuple[pa.Table, Weights]:
        """The rows and their weights."""
        if self._added_changes:
            tables, weights = zip((self._rows, self._weights), *self._added_changes, strict=True)
            self._rows, self._weights = pa.concat_tables(tables).combine_chunks(), np.concatenate(weights)
            self._added_changes = []
            if (self._weights < 0).any():
                self._add_up()
        return self._rows, self._weights

    def _add_up(self) -> None:
        """Merge equal rows into one row, and remove rows with the weight 0."""
        numbers = number_groups(self._rows, tuple(self._schema.names))
        totals = np.zeros(numbers.max(initial=-1) + 1, np.int64)
        np.add.at(totals, numbers, self._weights)
        firsts = np.sort(np.unique(numbers, return_index=True)[1])
        firsts = firsts[totals[numbers[firsts]] != 0]
        self._rows = pc.take(self._rows, array_of(firsts)).combine_chunks()
        self._weights = totals[numbers[firsts]]

    def add(self, rows: pa.Table, weights: Weights) -> None:
        """Add changes."""
        if rows.num_rows:
            self._added_changes.append((rows.cast(self._schema), weights))

    def repeated(self, chosen: Mask | None = None) -> pa.Table:
        """Return the rows, or only the `chosen` rows of the content, each as often as its weight."""
        rows, weights = self.content
        if chosen is not None:
            rows, weights = pc.filter(rows, array_of(chosen)), weights[chosen]
        if (weights == 1).all():
            return rows
        return pc.take(rows, array_of(np.repeat(np.arange(len(weights)), np.maximum(weights, 0))))

    def remove(self, chosen: Mask) -> tuple[pa.Table, Weights]:
        """Remove and return the `chosen` rows of the content."""
        rows, weights = self.content
        self._rows, self._weights = pc.filter(rows, array_of(~chosen)).combine_chunks(), weights[~chosen]
        return pc.filter(rows, array_of(chosen)), weights[chosen]

    def snapshot(self) -> pa.Table:
        """Return the content with a last column of weights."""
        rows, weights = self.content
        return rows.append_column(WEIGHT, array_of(weights))

    def restore(self, table: pa.Table) -> None:
        """Load the content of a snapshot."""
        rows = table.combine_chunks()
        self._rows, self._added_changes = rows.drop_columns([WEIGHT]).cast(self._schema), []
        self._weights = rows.column(WEIGHT).to_numpy()
