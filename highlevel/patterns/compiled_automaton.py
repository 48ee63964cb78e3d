"""CompiledAutomaton: an automaton as arrays, which kernels and the words of rows read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.arc_places import TARGET, TRANSFER, TRANSFER_END
from highlevel.patterns.automaton import Field
from highlevel.patterns.kernels.expressions import (
    Machine,
)
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type

Words = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BITS = 62
"""Conditions in a word of a row."""

NONE = -1

NEVER, ALWAYS, AT_END = range(3)
"""When a state is final: after any row, or after the last row of the partition only."""

KEY_WORD, FIRST_ARC, LAST_ARC, PART_WORDS = range(4)
"""Words of a part: the word of the row that must be the KEY of an arc, and its arcs `[FIRST_ARC, LAST_ARC)`."""

NUMBERED = (Type.TEXT, Type.ADDRESS, Type.BYTES)
"""Types whose values are replaced by numbers. Equal values have equal numbers."""


@dataclass(frozen=True)
class CompiledAutomaton:
    """An automaton as arrays. `integers` and `floats` are the fields of the register, fields of fences first.

    * `compared`: how many of these fields decide which arcs apply, directly or through transfers.
    * `conditions`: expressions over a row, whose values are bits. The bit `place % BITS` of the word `place // BITS` is
      that of the condition with this place in `condition_places`.
    * `row_integers`, `row_floats`: expressions over a row, whose values are words. Those of integers have the places
      `integer_places` in a row of `row_words` words.
    * `is_final`: NEVER, ALWAYS or AT_END for each state.
    * `empty_condition`: the condition of a run without rows, or NONE.
    * `arcs`: ARC_WORDS per arc, ordered by source; those of a state are `[first_arcs[state], end_arcs[state])`. Arcs
      with a key follow, ordered by source and key: `parts` has PART_WORDS per part, and those of a state begin at
      `first_parts[state]`. Silent arcs follow, from `first_silent[state]` on, and arcs with a deadline from
      `first_deadlines[state]` on. The fence of the latter computes the deadline.
    """

    register: tuple[Field, ...]
    states: tuple[str, ...]
    integers: tuple[str, ...]
    floats: tuple[str, ...]
    compared: tuple[int, int]
    conditions: tuple[Expression, ...]
    condition_places: tuple[int, ...]
    row_integers: tuple[Expression, ...]
    integer_places: tuple[int, ...]
    row_words: int
    row_floats: tuple[Expression, ...]
    arcs: Words
    first_arcs: Words
    end_arcs: Words
    parts: Words
    first_parts: Words
    first_silent: Words
    first_deadlines: Words
    is_final: Words
    empty_condition: int
    machine: Machine

    @property
    def can_ignore(self) -> Words:
        """1 for each state in which a run may ignore rows, 0 for the others.

        An ignorable arc leads from the state to itself and changes no field. The state is not final, because each row
        is another result. No silent arc leaves it, because the lifetime of a silent arc may contain some rows only.
        """
        count = len(self.states)
        sources = np.repeat(np.arange(count), np.diff(self.first_arcs))
        arcs = self.arcs[self.first_arcs[0] : self.first_arcs[-1]]
        is_used = self.first_arcs[0] + np.arange(len(arcs)) < self.end_arcs[sources]
        is_ignorable = is_used & (arcs[:, TARGET] == sources) & (arcs[:, TRANSFER] == arcs[:, TRANSFER_END])
        can_ignore = (self.is_final == NEVER) & (np.diff(self.first_silent) == 0)
        can_ignore &= np.bincount(sources[is_ignorable], minlength=count) > 0
        return can_ignore.astype(np.int64)
