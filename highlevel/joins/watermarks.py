"""Watermarks of a join, computed from the watermarks of its inputs (Li 2008, §7, with its errata corrected).

Every future result contains a new row: a left row at or after b0, or a right row at or after b1. Its match may be a
stored row that is not expired. With `expired` and `beyond` of `highlevel.joins.window` this gives:

    left time   >= min(b0, expired(left, b1)) =: L          right time >= min(b1, expired(right, b0)) =: R
    not (left time < b0 and right time < b1): a joint watermark, limited for pairs that are in a window to
        (min(b0, beyond(left, b1)), min(b1, beyond(right, b0)))
    later time  >= max(L, R, min(b0, b1))                    earlier time >= min(L, R)

A row without a match has only one time, bounded by L or R. The joint watermark advances even if one side is permanently
ahead. The limit avoids a new punctuation if the watermark grows only where no pair is possible.
"""

from __future__ import annotations

from highlevel.joins.spec import JoinKind, JoinSpec, Port, WatermarkForm
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, JointPunctuation, Punctuation

Bounds = tuple[int, ...]


def output_bounds(spec: JoinSpec, watermark_form: WatermarkForm, bounds: tuple[int, int]) -> Bounds:
    """Return the watermark values, two for a joint watermark, BEGINNING if there is none."""
    window = spec.window
    left, right = bounds
    if watermark_form is WatermarkForm.JOINT:
        return min(left, window.beyond(Port.LEFT, right)), min(right, window.beyond(Port.RIGHT, left))
    of_left = min(left, window.expired(Port.LEFT, right))
    of_right = min(right, window.expired(Port.RIGHT, left))
    if watermark_form is WatermarkForm.LEFT:
        return (of_left,)
    if watermark_form is WatermarkForm.RIGHT:
        return (of_right,)
    if watermark_form is WatermarkForm.MIN:
        return (min(of_left, of_right),)
    alone = {JoinKind.LEFT: of_left, JoinKind.RIGHT: of_right, JoinKind.FULL: min(of_left, of_right)}
    return (alone.get(spec.kind, max(of_left, of_right, min(left, right))),)


def make_punctuation(bounds: Bounds) -> Punctuation | JointPunctuation | None:
    """Return the punctuation with these values. A joint punctuation needs both."""
    if BEGINNING in bounds:
        return None
    return Punctuation(UNION, bounds[0]) if len(bounds) == 1 else JointPunctuation(UNION, (bounds[0], bounds[1]))
