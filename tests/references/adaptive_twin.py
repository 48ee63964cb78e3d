"""AdaptWID written slowly, after the algorithm as corrected (Li 2008, §6.3.4): a sum, dictionaries and lists."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa

from highlevel.baselines.adaptive.thresholds import ALWAYS_EAGER, ALWAYS_LAZY, MemoryModel, ThresholdPolicy, Thresholds


@dataclass
class Group:
    """How a group's tuples are held: `partials` is wid -> [sum, tuples counted here]."""

    eager: bool = False
    volume: int = 0
    partials: dict[int, list[int]] = field(default_factory=dict)


class AdaptiveTwin:
    """`up` and `down` are fixed; window ids are given."""

    def __init__(self, up: float, down: float) -> None:
        self.up, self.down = up, down
        self.groups: dict[int | None, Group] = {}
        self.buffer: list[tuple[int | None, int, int, int]] = []
        self.closed = 0
        self.to_eager = 0

    @property
    def partials(self) -> int:
        return sum(len(group.partials) for group in self.groups.values())

    def take(self, name: int | None, number: int, first: int, end: int) -> None:
        """A tuple of the windows `[first, end)`."""
        first = max(first, self.closed)
        if first >= end:
            return
        group = self.groups.setdefault(name, Group())
        group.volume += 1
        if group.eager:
            self._add(group, number, first, end)
            return
        self.buffer.append((name, number, first, end))
        if group.volume > self.up:
            for each in [each for each in self.buffer if each[0] == name]:
                self._add(group, each[1], max(each[2], self.closed), each[3])
                self.buffer.remove(each)
            group.eager = True
            self.to_eager += 1

    def _add(self, group: Group, number: int, first: int, end: int) -> None:
        for wid in range(first, end):
            group.partials.setdefault(wid, [0, 0])[0] += number
        group.partials[end - 1][1] += 1

    def close(self, low: int) -> dict[tuple[int, int | None], int]:
        """Windows below `low`: (wid, group) -> sum."""
        if low <= self.closed:
            return {}
        found: dict[tuple[int, int | None], int] = defaultdict(int)
        for name, number, first, end in self.buffer:
            for wid in range(max(first, self.closed), min(end, low)):
                found[wid, name] += number
        for name, _, _, end in self.buffer:
            if end <= low:
                self.groups[name].volume -= 1
        self.buffer = [each for each in self.buffer if each[3] > low]
        for name, group in self.groups.items():
            for wid in sorted(wid for wid in group.partials if wid < low):
                total, tuples = group.partials.pop(wid)
                found[wid, name] += total
                group.volume -= tuples
        self.closed = low
        for name, group in list(self.groups.items()):
            if group.eager and group.volume < self.down:
                group.eager = False
            if group.volume == 0 and not group.partials:
                del self.groups[name]
        return dict(found)


@dataclass
class Moody:
    """A policy that changes its mind whenever it is asked."""

    random: Random

    def for_group(self, open_windows: float, partial_bytes: int, tuple_bytes: int) -> Thresholds:
        up = self.random.choice([0, 0, 1, 2, 3, 5, 8, float("inf")])
        return Thresholds(up, min(up, self.random.choice([0, 1, 2, 4, 30])))


def policy_of(seed: int, random: Random) -> ThresholdPolicy:
    kinds = (
        Moody(random),
        Moody(random),
        Thresholds(up := random.randint(0, 6), random.randint(0, up)),
        MemoryModel(random.choice([0.2, 0.5, 1])),
        ALWAYS_EAGER,
        ALWAYS_LAZY,
    )
    return kinds[seed % len(kinds)]


def held(tables: dict[str, pa.Table]) -> int:
    return sum(
        table.num_rows for name, table in tables.items() if name in ("groups", "tuples", "opened") or "window-" in name
    )
