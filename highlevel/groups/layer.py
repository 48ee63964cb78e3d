"""A layer: the sub-aggregates of groups, indexed by group IDs, without the columns of the groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.arrow_compute import array_of
from highlevel.groups.accumulator import Accumulator, words_of
from highlevel.groups.key_words import Words
from highlevel.groups.merging import MergeFunction, MergeRule

ROW_COUNT = "held"
"""Internal column with the number of rows. No input column has this name."""


class Layer:
    """One accumulator per sub-aggregate, and optionally the number of rows per group.

    Sub-aggregates are int64 or float64 and never NULL.
    """

    def __init__(self, schema: pa.Schema, merge_rules: Sequence[MergeRule], counts_rows: bool = False) -> None:
        """Create an empty layer. `schema` contains the types of the columns in `merge_rules`."""
        self.accumulators = [
            Accumulator(merge_rule, [schema.field(name).type == pa.float64() for name in merge_rule.columns])
            for merge_rule in merge_rules
        ]
        self.row_counts = Accumulator(MergeRule((ROW_COUNT,), MergeFunction.SUM), [False]) if counts_rows else None

    @property
    def all(self) -> list[Accumulator]:
        """All accumulators. If rows are counted, the last accumulator contains the row counts."""
        return self.accumulators if self.row_counts is None else [*self.accumulators, self.row_counts]

    @property
    def bytes(self) -> int:
        """Bytes of the accumulators."""
        return sum(int(each.words.nbytes) for each in self.all)

    def merge(self, ids: Words, batch: pa.RecordBatch, id_end: int, subtracts: bool = False) -> None:
        """Merge a batch.

        With `subtracts`, subtract a batch that was merged before. Row i belongs to the group `ids[i]`. All IDs are
        below `id_end`.
        """
        for accumulator in self.accumulators:
            accumulator.reserve(id_end)
            accumulator.merge(
                ids, [words_of(batch.column(name).to_numpy()) for name in accumulator.merge_rule.columns], subtracts
            )
        if self.row_counts is not None:
            self.row_counts.reserve(id_end)
            self.row_counts.merge(ids, [np.ones(len(ids), np.int64)], subtracts)

    def merge_layer(self, other: Layer) -> None:
        """Merge another layer over the same groups."""
        groups = other.all[0].words.shape[1] if other.all else 0
        ids = np.arange(groups)
        for array, other_array in zip(self.all, other.all, strict=True):
            array.reserve(groups)
            array.merge(ids, list(other_array.words))

    def copy(self) -> Layer:
        """Return an independent copy."""
        twin = object.__new__(Layer)
        twin.accumulators = [accumulator.copy() for accumulator in self.accumulators]
        twin.row_counts = None if self.row_counts is None else self.row_counts.copy()
        return twin

    def keep(self, ids: npt.NDArray[np.int64]) -> None:
        """Keep only the groups `ids`. Their new IDs are 0, 1, …."""
        for accumulator in self.all:
            accumulator.words = np.ascontiguousarray(accumulator.words[:, ids])

    def groups_with_rows(self, count: int) -> npt.NDArray[np.int64] | None:
        """Return the IDs of the groups that have rows, among the first `count` groups.

        Return None if all of them have rows, or if rows are not counted.
        """
        if self.row_counts is None:
            return None
        self.row_counts.reserve(count)
        has_rows = self.row_counts.words[0, :count]
        return None if has_rows.all() else np.flatnonzero(has_rows)

    def columns(self, ids: npt.NDArray[np.int64] | None, count: int) -> list[pa.Array]:
        """Return a copy of the values of some groups, or of all `count`."""
        columns = []
        for accumulator in self.accumulators:
            accumulator.reserve(count)
            for words, is_float in zip(accumulator.words, accumulator.is_float_by_column, strict=True):
                values = words[:count].copy() if ids is None else words[ids]
                columns.append(array_of(values.view(np.float64) if is_float else values))
        return columns
