"""The rows of one schema: conversion of Arrow columns to matrices of words with group IDs, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from highlevel.groups.accumulator import words_of
from highlevel.groups.key_words import Words
from highlevel.groups.keys import Keys
from highlevel.groups.merging import MergeRule
from highlevel.slide_by_tuple.extent import Extent
from highlevel.slide_by_tuple.runs import TIME, Runs

PANE = "pane"
GROUP, VALUES = 1, 2
"""Words of a row after its time: the group ID, and the first word of the sub-aggregates."""

MAX_EMPTY_GROUPS = 1024
"""Maximum number of groups without rows that are not removed."""


class Rows:
    """Pending rows (not below the watermark), final rows, and the group IDs of both."""

    def __init__(
        self, schema: pa.Schema, groups: Sequence[str], merge_rules: Sequence[MergeRule], window_range: int
    ) -> None:
        """Create an empty store. `schema` is the schema of the partials; a window has a length of `window_range` ns."""
        self.groups = list(groups)
        self.columns = [name for merge_rule in merge_rules for name in merge_rule.columns]
        self.schema = pa.schema([schema.field(name) for name in (PANE, *self.groups, *self.columns)])
        floats = [
            [schema.field(name).type == pa.float64() for name in merge_rule.columns] for merge_rule in merge_rules
        ]
        self.keys = Keys([schema.field(name).type for name in self.groups])
        self.pending = Runs(VALUES + len(self.columns))
        self.extent = Extent(window_range, list(zip(merge_rules, floats, strict=True)))

    @property
    def bytes(self) -> int:
        """Bytes of the rows, their groups and the totals."""
        return self.pending.bytes + self.extent.bytes + self.keys.bytes

    def words(self, batch: pa.RecordBatch) -> Words:
        """Return rows as columns of a matrix, and assign group IDs."""
        rows = np.empty((VALUES + len(self.columns), batch.num_rows), np.int64)
        rows[TIME] = batch.column(PANE).to_numpy()
        rows[GROUP] = self.keys.find_or_insert([batch.column(name) for name in self.groups], batch.num_rows)
        for index, name in enumerate(self.columns):
            rows[VALUES + index] = words_of(batch.column(name).to_numpy())
        return rows

    def batch(self, words: Words) -> pa.RecordBatch:
        """Convert words to rows with the schema of the partials, without the links of stored rows."""
        times, *values = words[TIME].copy(), *words[VALUES:].copy()
        floats = [self.schema.field(name).type == pa.float64() for name in self.columns]
        values = [
            column_words.view(np.float64) if is_float else column_words
            for column_words, is_float in zip(values, floats, strict=True)
        ]
        columns = [pa.array(times), *self.keys.columns(words[GROUP]), *map(pa.array, values)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def remove_until(self, last_time: int) -> int | None:
        """Remove final rows at or before the time `last_time` (ns), and groups without rows if there are many.

        If no row remains, return the number of removed rows that were in no window, otherwise None.
        """
        self.extent.remove_until(last_time)
        live = self.pending.rows + len(self.extent.times)
        if live == 0:
            return self.extent.outside
        if self.keys.count > 2 * live + MAX_EMPTY_GROUPS:
            ids = np.union1d(self.pending.all()[GROUP], self.extent.groups)
            new = np.zeros(self.keys.count, np.int64)
            new[ids] = np.arange(len(ids))
            self.keys = self.keys.copy_of(ids)
            self.pending.replace_word(GROUP, new)
            self.extent.renumber_groups(ids, new)
        return None
