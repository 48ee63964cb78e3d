"""Describe: a consumer is told what it can use, and once (Li 2008, §8.1).

Windows close at the boundaries of their panes alone. Promises are rounded down to them, each consumer's to its own;
rounding to the smallest slide in use would delay the windows of every other.
"""

from __future__ import annotations

from lowlevel.punctuation import BEGINNING, END


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
