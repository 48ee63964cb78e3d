"""Progress: what a stream promises about its future (Li 2008, §4 and §5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

END = 2**63 - 1
"""The low watermark of a stream that has ended: P(inf)."""

BEGINNING = -(2**63)
"""The low watermark of a stream that has never spoken: no bound at all."""


@dataclass(frozen=True, slots=True)
class Punctuation:
    """A promise: no later row of `link` has a progressing value below `low`.

    Between the levels the value is `ts` in ns; after Bucket it is a window id. `END` says that nothing follows.
    """

    link: str
    low: int


Item = pa.RecordBatch | Punctuation
"""What flows between operators: rows, or a promise about the rows to come."""


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


# Describe: a consumer is told what it can use, and once (Li 2008, §8.1).
#
# Windows close at the boundaries of their panes alone. Promises are rounded down to them, each consumer's to its own;
# rounding to the smallest slide in use would delay the windows of every other.


class Described:
    """What one consumer has been told of a stream: boundaries `origin + k * pane`, each at most once."""

    def __init__(self, pane: int, origin: int = 0) -> None:
        """Round down to multiples of `pane` ns (at least 1) from `origin`."""
        self.pane = pane
        self.origin = origin
        self.due = BEGINNING + 1
        """The smallest promise that would be news."""

    def news(self, low: int) -> int | None:
        """Return what `low` means to the consumer, or None where it has been told as much."""
        if low < self.due:
            return None
        mark = low if low == END else self.origin + (low - self.origin) // self.pane * self.pane
        mark = max(mark, BEGINNING + 1)
        following = self.origin + ((mark - self.origin) // self.pane + 1) * self.pane
        self.due = min(following, END) if mark < END else END + 1
        return mark
