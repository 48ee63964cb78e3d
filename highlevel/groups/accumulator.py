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
    MergeRule,
    Rule,
    merge_pairs,
    merge_values,
)
from lowlevel.subaggregates import INT_MAX, INT_MIN


class Accumulator:
    """The words of all groups for one `MergeRule`: a row of `words` for each of its columns."""

    def __init__(self, merge_rules: MergeRule, floats: Sequence[bool]) -> None:
        """Accumulate the columns of `merge_rules`. `floats` is True for FLOAT columns."""
        self.merge_rules = merge_rules
        self.floats = tuple(floats)
        if merge_rules.rule in PAIRS:
            is_first = merge_rules.rule is Rule.FIRST
            self.op = SUM  # not used, because pairs have a separate kernel
            self.initial_values = [INT_MAX if is_first else INT_MIN, _neutral_word(is_first, self.floats[1])]
        else:
            self.op = OPCODES[merge_rules.rule, self.floats[0]]
            self.initial_values = [NEUTRAL_WORDS[self.op]]
        self.words: Words = np.empty((len(merge_rules.columns), 0), np.int64)

    def reserve(self, groups: int) -> None:
        """Make room for IDs below `groups`."""
        before = self.words
        if before.shape[1] < groups:
            self.words = np.empty((len(before), groups), np.int64)
            self.words[:, : before.shape[1]] = before
            self.words[:, before.shape[1] :] = np.array(self.initial_values)[:, None]

    def copy(self) -> Accumulator:
        """Return an independent copy."""
        twin = Accumulator(self.merge_rules, self.floats)
        twin.words = self.words.copy()
        return twin

    def merge(self, ids: Words, values: Sequence[Words], undo: bool = False) -> None:
        """Merge a batch, or subtract a merged batch (`undo`). `values`: words of the columns, floats as their bits."""
        if self.merge_rules.rule in PAIRS:
            times, words = self.words
            is_last = self.merge_rules.rule is Rule.LAST
            merge_pairs(
                is_last, self.floats[1], times, words, words.view(np.float64), ids, values[0], values[1],
                values[1].view(np.float64), len(ids),
            )  # fmt: skip
            return
        words = self.words[0]
        op = INVERSES[self.op] if undo else self.op
        merge_values(op, words, words.view(np.float64), ids, values[0], values[0].view(np.float64), len(ids))


def _neutral_word(first: bool, is_float: bool) -> int:
    """Return the neutral word for FIRST, before which every value is, or for LAST, after which every value is."""
    if is_float:
        return NAN_WORD if first else int(np.array(-np.inf).view(np.int64))
    return INT_MAX if first else INT_MIN


def words_of(values: npt.NDArray[Any]) -> Words:
    """Return a column's values as words."""
    if values.dtype == np.float64:
        return np.ascontiguousarray(values).view(np.int64)
    return np.ascontiguousarray(values, np.int64)
