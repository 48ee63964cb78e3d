"""Provisional windows by their definition: every window is recomputed from all its rows whenever it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

Row = tuple[int, str | None, int]
"""ts, group, number."""

Change = tuple[tuple, int, bool]
"""A result `(window_start, window_end, group, count, sum)`, its weight, and whether it is final."""


@dataclass
class ProvisionalReference:
    """Tumbling or sliding windows with count and sum of each group. `having`: the least count of a result."""

    range: int
    slide: int
    wait: int | None
    early: int | None
    having: int = 0
    clock: int = -(10**9)
    low: int = -(10**9)
    rows: list[tuple[str | None, int, list[int]]] = field(default_factory=list)
    """The group and the number of each row, and the windows for which it is not late."""
    shown: dict[int, Counter[tuple]] = field(default_factory=dict)
    shown_at: dict[int, int] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    late: int = 0

    def ends_of(self, ts: int) -> list[int]:
        """The ends of the windows that contain `ts`: multiples of the slide, and window 0 is the first."""
        first = ts // self.slide * self.slide + self.slide
        return [
            end for end in range(first, ts + self.range + 1, self.slide) if end - self.range <= ts < end and end > 0
        ]

    def add(self, batch: Sequence[Row]) -> Counter[Change]:
        """Rows that arrive together."""
        self.clock = max(self.clock, *(ts for ts, _, _ in batch))
        for ts, group, number in batch:
            open_ends = [end for end in self.ends_of(ts) if end > self.low]
            self.late += len(self.ends_of(ts)) - len(open_ends)
            self.changed.update(open_ends)
            self.rows.append((group, number, open_ends))
        return self.publish([end for end in self.changed if self.is_due(end)], final=False)

    def is_due(self, end: int) -> bool:
        if self.wait is None:
            return False
        begin = self.shown_at.get(end, end - self.range)
        return self.clock >= end + self.wait or (self.early is not None and self.clock >= begin + self.early)

    def watermark(self, low: int) -> Counter[Change]:
        """No later row is below `low`."""
        closing = [end for end in self.changed if end <= low]
        self.low = max(self.low, low)
        return self.publish(closing, final=True)

    def result(self, end: int) -> Counter[tuple]:
        members: dict[str | None, list[int]] = {}
        for group, number, ends in self.rows:
            if end in ends:
                members.setdefault(group, []).append(number)
        return Counter(
            (end - self.range, end, group, len(numbers), sum(numbers))
            for group, numbers in members.items()
            if len(numbers) >= self.having
        )

    def publish(self, ends: Sequence[int], *, final: bool) -> Counter[Change]:
        changes: Counter[Change] = Counter()
        for end in ends:
            before, after = self.shown.get(end, Counter()), self.result(end)
            changes.update((row, -1, final) for row in (before - after).elements())
            changes.update((row, 1, final) for row in (after - before).elements())
            self.shown[end], self.shown_at[end] = after, self.clock
            self.changed.discard(end)
        return changes
