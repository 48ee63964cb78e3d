"""What a join may promise of its rows, given what its inputs promised (Li 2008, §7, with its errata corrected).

Any row to come has a new row of some side in it: one of the left from b0 on, or one of the right from b1 on. With it
may be a row that is held, and that is not expired. So, `expired` and `beyond` as in `highlevel.joins.window`:

    left time   >= min(b0, expired(left, b1)) =: L          right time >= min(b1, expired(right, b0)) =: R
    not (left time < b0 and right time < b1): a box, for pairs that are in a window cut to
        (min(b0, beyond(left, b1)), min(b1, beyond(right, b0)))
    later time  >= max(L, R, min(b0, b1))                    earlier time >= min(L, R)

A row without a partner has one time alone, which L or R is about. The box never stops where one side is ahead for good,
and is cut so that it is not said anew where it only grows to where no window reaches.
"""

from __future__ import annotations

from highlevel.joins.spec import JoinKind, JoinSpec, Port, Progress
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, JointPunctuation, Punctuation

Lows = tuple[int, ...]


def lows_of(spec: JoinSpec, progress: Progress, bounds: tuple[int, int]) -> Lows:
    """Return the values of the promise, two for a box; BEGINNING where there is none yet."""
    window = spec.window
    left, right = bounds
    if progress is Progress.JOINT:
        return min(left, window.beyond(Port.LEFT, right)), min(right, window.beyond(Port.RIGHT, left))
    of_left = min(left, window.expired(Port.LEFT, right))
    of_right = min(right, window.expired(Port.RIGHT, left))
    if progress is Progress.LEFT:
        return (of_left,)
    if progress is Progress.RIGHT:
        return (of_right,)
    if progress is Progress.MIN:
        return (min(of_left, of_right),)
    alone = {JoinKind.LEFT: of_left, JoinKind.RIGHT: of_right, JoinKind.FULL: min(of_left, of_right)}
    return (alone.get(spec.kind, max(of_left, of_right, min(left, right))),)


def promise(lows: Lows) -> Punctuation | JointPunctuation | None:
    """Return the promise of these values, if they say anything: a box does where both of its sides do."""
    if BEGINNING in lows:
        return None
    return Punctuation(UNION, lows[0]) if len(lows) == 1 else JointPunctuation(UNION, (lows[0], lows[1]))
