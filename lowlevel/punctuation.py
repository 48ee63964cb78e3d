"""Punctuation: the messages in a stream that carry its watermark (Li 2008, §4 and §5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

END = 2**63 - 1
"""The low watermark of a stream that has ended; P(inf) in the paper."""

BEGINNING = -(2**63)
"""The low watermark of a stream without a row yet: no bound."""


@dataclass(frozen=True, slots=True)
class Punctuation:
    """The watermark `low` of `link`: no later row has a smaller time.

    Between the levels the time is `ts` in ns; after Bucket it is a window ID. `END` means that no row follows.
    """

    link: str
    low: int


Item = pa.RecordBatch | Punctuation
"""A message between operators: rows or a watermark."""


@dataclass(frozen=True, slots=True)
class JointPunctuation:
    """A watermark over the two time columns of a join (Li 2008, §7.1).

    No later row of `link` has its first time below lows[0] AND its second time below lows[1]. Each of the two bounds
    increases, and neither is a watermark by itself. A row of an outer join that lacks one of the times is not covered.
    """

    link: str
    lows: tuple[int, int]


GraphItem = Item | JointPunctuation
"""A message between the operators of a plan: rows, a watermark, or a joint watermark."""


class WatermarkRounder:
    """Rounds watermarks down to the pane boundaries of one consumer, `origin + k * pane`, each at most once.

    Windows close at pane boundaries only. Each consumer has its own boundaries: with the smallest slide of all
    consumers the windows of the others would close later. Operator Describe in Li 2008, §8.1.
    """

    def __init__(self, pane: int, origin: int = 0) -> None:
        """Round down to multiples of `pane` ns (at least 1) from `origin`."""
        self.pane = pane
        self.origin = origin
        self.due = BEGINNING + 1
        """The smallest watermark that is a new boundary for this consumer."""

    def next_boundary(self, low: int) -> int | None:
        """Round `low` down to a boundary. Return it if it is new for this consumer, otherwise None."""
        if low < self.due:
            return None
        mark = low if low == END else self.origin + (low - self.origin) // self.pane * self.pane
        mark = max(mark, BEGINNING + 1)
        following = self.origin + ((mark - self.origin) // self.pane + 1) * self.pane
        self.due = min(following, END) if mark < END else END + 1
        return mark
