"""The merged values of all groups: arrays for each sub-aggregate, indexed by group IDs.

An array is filled with the neutral value of its rule (`highlevel.groups.merging`), so a new group is no special case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from highlevel.groups.key_words import Words
from highlevel.groups.merging import (
    INVERSES,
    NAN_WORD,
    NEUTRAL_WORDS,
    OPCODES,
    PAIRS,
    SUM,
    MergeFunction,
    MergeRule,
    merge_pairs,
    merge_values,
)
from lowlevel.subaggregates import INT_MAX, INT_MIN


class Accumulator:
    """The words of all groups for one `MergeRule`: a row of `words` for each of its columns."""

    def __init__(self, merge_rule: MergeRule, is_float_by_column: Sequence[bool]) -> None:
        """Accumulate the columns of `merge_rule`. `is_float_by_column`: for each column, True if its type is FLOAT."""
        self.merge_rule = merge_rule
        self.is_float_by_column = tuple(is_float_by_column)
        if merge_rule.function in PAIRS:
            is_first = merge_rule.function is MergeFunction.FIRST
            self.op = SUM  # not used, because pairs have a separate kernel
            self.initial_values = [
                INT_MAX if is_first else INT_MIN,
                _neutral_word(is_first, self.is_float_by_column[1]),
            ]
        else:
            self.op = OPCODES[merge_rule.function, self.is_float_by_column[0]]
            self.initial_values = [NEUTRAL_WORDS[self.op]]
        self.words: Words = np.empty((len(merge_rule.columns), 0), np.int64)

    def reserve(self, groups: int) -> None:
        """Allocate memory for IDs below `groups`."""
        before = self.words
        if before.shape[1] < groups:
            self.words = np.empty((len(before), groups), np.int64)
            self.words[:, : before.shape[1]] = before
            self.words[:, before.shape[1] :] = np.array(self.initial_values)[:, None]

    def copy(self) -> Accumulator:
        """Return an independent copy."""
        twin = Accumulator(self.merge_rule, self.is_float_by_column)
        twin.words = self.words.copy()
        return twin

    def merge(self, ids: Words, values: Sequence[Words], subtracts: bool = False) -> None:
        """Merge a batch, or with `subtracts` subtract a merged batch.

        `values`: words of the columns, floats as their bits.
        """
        if self.merge_rule.function in PAIRS:
            times, words = self.words
            is_last = self.merge_rule.function is MergeFunction.LAST
            merge_pairs(
                is_last, self.is_float_by_column[1], times, words, words.view(np.float64), ids, values[0], values[1],
                values[1].view(np.float64), len(ids),
            )  # fmt: skip
            return
        words = self.words[0]
        op = INVERSES[self.op] if subtracts else self.op
        merge_values(op, words, words.view(np.float64), ids, values[0], values[0].view(np.float64), len(ids))


def _neutral_word(is_first: bool, is_float: bool) -> int:
    """Return the neutral value word: for FIRST, every value precedes it; for LAST, every value follows it."""
    if is_float:
        return NAN_WORD if is_first else int(np.array(-np.inf).view(np.int64))
    return INT_MAX if is_first else INT_MIN


def words_of(values: npt.NDArray[Any]) -> Words:
    """Return a column's values as words."""
    if values.dtype == np.float64:
        return np.ascontiguousarray(values).view(np.int64)
    return np.ascontiguousarray(values, np.int64)
