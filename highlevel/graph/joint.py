"""Joint punctuation: a promise about two progressing columns at once, a box (Li 2008, §7.1)."""

from __future__ import annotations

from dataclasses import dataclass

from lowlevel.punctuation import Item


@dataclass(frozen=True, slots=True)
class JointPunctuation:
    """A promise: no later row of `link` has its first progressing value below lows[0] AND its second below lows[1].

    What a join can promise of the times of both its sides. Each of the two grows and neither says anything alone: boxes
    are never reduced to one number. A row without one of the values (of an outer join) is in no box.
    """

    link: str
    lows: tuple[int, int]


GraphItem = Item | JointPunctuation
"""What flows between the operators of a graph: rows, or a promise of either kind."""
