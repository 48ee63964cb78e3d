"""Watermarks of a join, computed from the watermarks of its inputs (Li 2008, §7, with its errata corrected).

Let b0 and b1 be the watermarks of the left and the right input. A later result contains a new left row (time >= b0) or
a new right row (time >= b1). The other row of the pair is also new, or it is stored. Stored left rows are not older
than `expiry_time(left, b1)`, and stored right rows not older than `expiry_time(right, b0)` (see
`highlevel.joins.window`). So for all later results:

    left time      >= L = min(b0, expiry_time(left, b1))
    right time     >= R = min(b1, expiry_time(right, b0))
    later time     >= max(L, R, min(b0, b1))
    earlier time   >= min(L, R)
    joint          not (left time < b0 and right time < b1)

A row without a match has only one time, at least L or R. The joint watermark grows even if one side is always ahead of
the other. Its bounds are limited to `(min(b0, unmatched_from(left, b1)), min(b1, unmatched_from(right, b0)))`: above
these limits no pair is in a window, so larger bounds have no effect.
"""

from __future__ import annotations

from highlevel.joins.spec import JoinKind, JoinSpec, Port, WatermarkForm
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, JointPunctuation, Punctuation

Bounds = tuple[int, ...]


def output_bounds(spec: JoinSpec, watermark_form: WatermarkForm, bounds: tuple[int, int]) -> Bounds:
    """Return the watermark of the results for the watermarks `bounds` of the left and the right input.

    A joint watermark has two bounds, other watermarks have one. A bound is BEGINNING if an input has no watermark yet.
    """
    window = spec.window
    left, right = bounds
    if watermark_form is WatermarkForm.JOINT:
        return min(left, window.unmatched_from(Port.LEFT, right)), min(right, window.unmatched_from(Port.RIGHT, left))
    left_bound = min(left, window.expiry_time(Port.LEFT, right))
    right_bound = min(right, window.expiry_time(Port.RIGHT, left))
    if watermark_form is WatermarkForm.LEFT:
        return (left_bound,)
    if watermark_form is WatermarkForm.RIGHT:
        return (right_bound,)
    if watermark_form is WatermarkForm.MIN:
        return (min(left_bound, right_bound),)
    unmatched = {JoinKind.LEFT: left_bound, JoinKind.RIGHT: right_bound, JoinKind.FULL: min(left_bound, right_bound)}
    return (unmatched.get(spec.kind, max(left_bound, right_bound, min(left, right))),)


def make_punctuation(bounds: Bounds) -> Punctuation | JointPunctuation | None:
    """Return the message with a watermark, or None if a bound is BEGINNING."""
    if BEGINNING in bounds:
        return None
    return Punctuation(UNION, bounds[0]) if len(bounds) == 1 else JointPunctuation(UNION, (bounds[0], bounds[1]))
