"""The slow, obvious twins of the window operators: the definitions, over Python numbers, and the streams they run on.

Windows are numbered by their end: window w is `[o + (w+1)*s - r, o + (w+1)*s)`, w >= 0 (Li 2008, §5.1, with floors).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from highlevel.plan.plan import Plan
from lowlevel.punctuation import END
from tests.references.lowlevel_oracle import Row, aggregate, value


class Arrival(NamedTuple):
    """One tuple: its time, its group (None is a group too) and a number."""

    ts: int
    group: int | None
    number: int


@dataclass(frozen=True)
class Spec:
    """A window specification: RANGE r, SLIDE s, ORIGIN o."""

    range: int
    slide: int
    origin: int = 0

    def wids(self, ts: int) -> range:
        """The ids of the windows of a time (Li 2008, Eq. 5.3 with floors)."""
        since = ts - self.origin
        return range(max(0, since // self.slide), max(0, (since + self.range) // self.slide))

    def extent(self, wid: int) -> tuple[int, int]:
        """Start and end of a window, half-open (Li 2008, Eq. 5.1)."""
        end = self.origin + (wid + 1) * self.slide
        return end - self.range, end


def random_spec(random: Random) -> Spec:
    """Slides 1..30, ranges 1..100: r < s and r no multiple of s among them; half of the origins are the epoch."""
    origin = random.choice([0, 0, random.randint(-100, 100)])
    return Spec(random.randint(1, 100), random.randint(1, 30), origin)


def window_aggregates(arrivals: Iterable[Arrival], spec: Spec) -> set[tuple]:
    """Every non-empty window and group: (start, end, group, count, sum, smallest, largest)."""
    numbers: dict[tuple, list[int]] = defaultdict(list)
    for each in arrivals:
        for wid in spec.wids(each.ts):
            numbers[(*spec.extent(wid), each.group)].append(each.number)
    return {(*key, len(seen), sum(seen), min(seen), max(seen)) for key, seen in numbers.items()}


def numbers_by_window(arrivals: Iterable[Arrival], spec: Spec) -> dict[tuple[int, int | None], list[int]]:
    """The numbers of every non-empty window and group, by (wid, group)."""
    numbers: dict[tuple[int, int | None], list[int]] = defaultdict(list)
    for each in arrivals:
        for wid in spec.wids(each.ts):
            numbers[wid, each.group].append(each.number)
    return numbers


def low_watermarks(times: Sequence[int]) -> list[int]:
    """The smallest time after each prefix of a stream, from the empty prefix to the whole (Li 2008, Eq. 4.1)."""
    lows = [END]
    for ts in reversed(times):
        lows.append(min(lows[-1], ts))
    return lows[::-1]


def random_stream(random: Random, most: int = 60) -> list[Arrival | int]:
    """Up to `most` tuples as they arrive, and grammatical punctuation (a number: nothing later is older), then END.

    Ties are common. Rows are late by up to 0, 10 or 80 units. One stream in five has a gap of many windows. Punctuation
    may jump, be repeated, or be lower than the highest possible watermark.
    """
    span = random.randint(60, 200)
    disorder = random.choice([0, 10, 80])
    gap = random.randrange(span) if random.random() < 0.2 else span
    times = [random.randrange(span) for _ in range(random.randint(1, most))]
    times = [ts if ts < gap else ts + 10_000_000 for ts in times]
    times.sort(key=lambda ts: ts + random.uniform(0, disorder))
    lows = low_watermarks(times)
    often = random.choice([0.05, 0.3, 0.8])
    events: list[Arrival | int] = []
    promised = None
    for place, ts in enumerate(times):
        events.append(Arrival(ts, random.choice([None, 0, 1, 2, 7]), random.randint(-5, 100)))
        if random.random() < often and lows[place + 1] != END:
            low = lows[place + 1] - random.randint(0, 6)
            promised = low if promised is None else max(promised, low)
            events.append(promised)
    return [*events, END]


def random_inputs(random: Random) -> list[list[Arrival | int]]:
    """Return one to four streams. If there are several, one may be silent to its end."""
    inputs = [random_stream(random) for _ in range(random.randint(1, 4))]
    if len(inputs) > 1 and random.random() < 0.3:
        inputs[random.randrange(len(inputs))] = [END]
    return inputs


def answer(plan: Plan, rows: Iterable[Row]) -> list[tuple]:
    """Run a query over rows, one at a time, by the definition of its windows. Addresses are objects of `ipaddress`.

    The twin of tables, eviction, operators and engines, not of the compiler: it follows the plan.
    """
    spec = Spec(plan.window.range, plan.window.slide, plan.window.origin)
    low = plan.leaves[0].low
    seen: dict[tuple, list[list[Any]]] = {}
    for row in rows:
        if low.where is not None and value(low.where, row) is not True:
            continue
        keys = {key.name: value(key.expression, row) for key in low.keys} | {"link": row.get("link")}
        group = tuple(keys[name] for name in plan.aggregation.group_by)
        arguments = [True if sub.argument is None else value(sub.argument, row) for sub in low.subaggregates]
        for wid in spec.wids(row["ts"]):
            place = seen.setdefault((wid, group), [[] for _ in low.subaggregates])
            for values, argument in zip(place, arguments, strict=True):
                if argument is not None:
                    values.append((row["ts"], argument))
    found = []
    for (wid, group), place in seen.items():
        merged: dict[str, Any] = dict(zip(plan.aggregation.group_by, group, strict=True))
        merged |= {sub.name: aggregate(sub.kind, each) for sub, each in zip(low.subaggregates, place, strict=True)}
        if plan.aggregation.having is None or value(plan.aggregation.having, merged) is True:
            bounds = spec.extent(wid) if plan.windowed else ()
            found.append((*bounds, *(value(each.expression, merged) for each in plan.aggregation.select)))
    return found
