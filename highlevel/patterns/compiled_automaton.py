"""CompiledAutomaton: an automaton as arrays for kernels, and the layout of rows as words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.arc_places import TARGET, TRANSFER, TRANSFER_END
from highlevel.patterns.automaton import Field
from highlevel.patterns.kernels.expressions import Machine
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type

Words = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CONDITIONS_PER_WORD = 62
"""Maximum number of condition bits in one word of a row."""

NO_INDEX = -1
"""A value instead of the index of a condition, word, state or arc: there is none."""

NEVER, ALWAYS, AT_END = range(3)
"""When a state is final: never, after any row, or after the last row of the partition only."""

KEY_WORD, FIRST_ARC, END_ARC, KEY_GROUP_WORDS = range(4)
"""Words of a key group (the arcs of a state that compare one column with constants).

KEY_WORD: the index of the row word that is looked up. The group has the arcs `[FIRST_ARC, END_ARC)`, ordered by KEY.
"""

NUMBERED = (Type.TEXT, Type.ADDRESS, Type.BYTES)
"""Types whose values are replaced by numbers. Equal values have equal numbers."""


@dataclass(frozen=True)
class CompiledAutomaton:
    """An automaton as arrays.

    * `integers`, `floats`: the fields of the register by type. In both, the decisive fields come first: those that
      decide, directly or through transfers, which arcs apply.
    * `decisive_field_counts`: the numbers of decisive integers and floats; (0, 0) if the arcs may change.
    * `conditions`: expressions over a row, whose values are bits. Condition i has the place
      `p = condition_places[i]`: bit `p % CONDITIONS_PER_WORD` of word `p // CONDITIONS_PER_WORD`.
    * `row_integers`, `row_floats`: expressions over a row, whose values are words. Integer expression i is word
      `integer_places[i]` of a row. A row has `row_words` words.
    * `is_final`: NEVER, ALWAYS or AT_END for each state.
    * `empty_condition`: the condition of a run without rows, or NO_INDEX.
    * `machine`: the instructions of fences, transfers and deadlines.
    * `arcs`: ARC_WORDS per arc. There are four kinds, one after the other; each kind is ordered by the source:

      1. Arcs without a key: those of a state are `[first_arcs[state], end_arcs[state])`.
      2. Arcs with a key, in key groups. `key_groups` has KEY_GROUP_WORDS per group; those of a state are
         `[first_key_groups[state], first_key_groups[state + 1])`.
      3. Silent arcs: those of a state are `[first_silent[state], first_silent[state + 1])`.
      4. Arcs with a deadline: those of a state are `[first_deadlines[state], first_deadlines[state + 1])`. Their fence
         computes the deadline.
    """

    register: tuple[Field, ...]
    states: tuple[str, ...]
    integers: tuple[str, ...]
    floats: tuple[str, ...]
    decisive_field_counts: tuple[int, int]
    conditions: tuple[Expression, ...]
    condition_places: tuple[int, ...]
    row_integers: tuple[Expression, ...]
    integer_places: tuple[int, ...]
    row_words: int
    row_floats: tuple[Expression, ...]
    arcs: Words
    first_arcs: Words
    end_arcs: Words
    key_groups: Words
    first_key_groups: Words
    first_silent: Words
    first_deadlines: Words
    is_final: Words
    empty_condition: int
    machine: Machine

    @property
    def can_ignore(self) -> Words:
        """1 for each state in which a run may ignore rows, 0 for the others.

        An ignorable arc leads from the state to itself and changes no field. The state is not final: in a final state
        every row gives another result, so no row can be ignored. No silent arc leaves the state, because a silent arc
        may apply at the times of only some of the ignored rows.
        """
        count = len(self.states)
        sources = np.repeat(np.arange(count), np.diff(self.first_arcs))
        arcs = self.arcs[self.first_arcs[0] : self.first_arcs[-1]]
        is_used = self.first_arcs[0] + np.arange(len(arcs)) < self.end_arcs[sources]
        is_ignorable = is_used & (arcs[:, TARGET] == sources) & (arcs[:, TRANSFER] == arcs[:, TRANSFER_END])
        can_ignore = (self.is_final == NEVER) & (np.diff(self.first_silent) == 0)
        can_ignore &= np.bincount(sources[is_ignorable], minlength=count) > 0
        return can_ignore.astype(np.int64)
