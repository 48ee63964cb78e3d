"""Punctuation: the messages in a stream that carry its watermark (Li 2008, §4 and §5.2)."""

from __future__ import annotations

import pyarrow as pa

from capture.lazy_dataclasses import dataclass

END = 2**63 - 1
"""The watermark of a stream that has ended: P(inf) in the paper."""

BEGINNING = -(2**63)
"""The watermark of a stream before its first punctuation: any row may follow."""


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The `watermark` of `link`: no later row has a smaller time.

    Between the levels the time is `ts` in ns; after the operator Bucket it is a window ID. END: no row follows.
    """

    link: str
    watermark: int


Item = pa.RecordBatch | Punctuation
"""A message between operators: a batch of rows or a punctuation."""


@dataclass(frozen=True, slots=True)
class JointPunctuation:
    """A watermark over the two time columns of a join (Li 2008, §7.1).

    No later row of `link` has its first time below `bounds[0]` AND its second time below `bounds[1]`. The bounds never
    decrease. A single bound is not a watermark. Rows of an outer join with only one time are not covered.
    """

    link: str
    bounds: tuple[int, int]


GraphItem = Item | JointPunctuation
"""A message between the operators of a plan: a batch of rows, a watermark, or a joint watermark."""


class WatermarkRounder:
    """Rounds watermarks down to the pane boundaries of one query, `origin + k * pane`, and drops repetitions.

    A pane is the part of a window between two neighbouring window bounds, so windows close only at pane boundaries. The
    boundaries depend on the query. This is the operator Describe in Li 2008, §8.1.
    """

    def __init__(self, pane: int, origin: int = 0) -> None:
        """Set the length of panes in ns (at least 1) and the origin."""
        self.pane = pane
        self.origin = origin
        self.next_watermark = BEGINNING + 1
        """The smallest watermark with a new boundary."""

    def next_boundary(self, watermark: int) -> int | None:
        """Round a watermark down to a boundary; return the boundary if it is new, otherwise None."""
        if watermark < self.next_watermark:
            return None
        panes = (watermark - self.origin) // self.pane
        boundary = watermark if watermark == END else max(self.origin + panes * self.pane, BEGINNING + 1)
        following = self.origin + ((boundary - self.origin) // self.pane + 1) * self.pane
        self.next_watermark = min(following, END) if boundary < END else END + 1
        return boundary
