"""A replay of two links for queries with a consistency: skew, lulls, and late packets, in micro-batches of arrival.

The clock is the time of arrival, so the figures do not depend on the machine:

    95 %      of the packets arrive within JITTER
    5 %       arrive up to LATE later
    0.02 %    arrive up to VERY_LATE later
    link 1    is SKEW behind link 0
    lulls     both links are silent in the last LULL of every LULL_EVERY
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from highlevel.plan.operators.changing_windows import ChangingWindowsOperator
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.speculation.consistency import WEIGHT
from highlevel.speculation.provisional_windows import with_newest_time
from lowlevel.plan import NEWEST_COLUMN, LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Punctuation
from queries.gsql import compile_query

Numbers = npt.NDArray[np.int64]

SECOND = 1_000_000_000
STEP = SECOND // 2
"""Length of a micro-batch."""

JITTER, LATE, VERY_LATE = SECOND // 50, 2 * SECOND, 20 * SECOND
LATE_SHARE, VERY_LATE_SHARE = 0.05, 0.0002
SKEW = SECOND
LULL, LULL_EVERY = 5 * SECOND, 60 * SECOND
LINKS = ("near", "far")
RATE = 1000
"""Packets per second of a link."""

GROUPS = 200
WINDOW = 10 * SECOND
QUERY = "SELECT srcPort, count(*) AS n [RANGE 10 seconds] FROM packets GROUP BY srcPort"


def plan_of(wait: int | None, remember: int | None) -> Plan:
    """Compile the query with a consistency; times in ns, None for FOREVER."""
    named = ["FOREVER" if time is None else f"{time // 1_000_000} ms" for time in (wait, remember)]
    return compile_query(f"{QUERY} WITH CONSISTENCY (WAIT {named[0]}, REMEMBER {named[1]}) EMIT CHANGES")


@dataclass
class Packets:
    """Packets in the order of their arrival: the time, the arrival, the link and the group of each."""

    times: Numbers
    arrivals: Numbers
    links: Numbers
    groups: Numbers

    @cached_property
    def steps(self) -> list[slice]:
        """The packets of each micro-batch."""
        bounds = np.searchsorted(self.arrivals, np.arange(0, self.arrivals[-1] + 2 * STEP, STEP))
        return [slice(int(first), int(end)) for first, end in pairwise(bounds)]

    @cached_property
    def partials(self) -> list[pa.RecordBatch | None]:
        """The partials of each micro-batch, which are equal for every consistency; None without packets."""
        low = plan_of(0, 0).leaves[0].low
        return [partials_of(low, self, step) if step.start < step.stop else None for step in self.steps]

    @cached_property
    def newest(self) -> list[tuple[int, ...]]:
        """The newest time of each link after each micro-batch, ns; BEGINNING before its first packet."""
        newest, after = [BEGINNING] * len(LINKS), []
        for step in self.steps:
            for link in range(len(LINKS)):
                own = self.times[step][self.links[step] == link]
                newest[link] = max(newest[link], int(own.max(initial=BEGINNING)))
            after.append(tuple(newest))
        return after

    def exact(self) -> Counter[tuple[int, int]]:
        """Return the number of packets by window end and group."""
        ends = (self.times // WINDOW + 1) * WINDOW
        return Counter(zip(ends.tolist(), self.groups.tolist(), strict=True))


def make_packets(seconds: int, seed: int = 1) -> Packets:
    """Make the packets of `seconds` of both links."""
    random = np.random.default_rng(seed)
    times, arrivals, links = [], [], []
    for link in range(len(LINKS)):
        sent = np.sort(random.integers(seconds * SECOND, size=seconds * RATE))
        sent = sent[sent % LULL_EVERY < LULL_EVERY - LULL]
        chance = random.random(len(sent))
        delay = random.integers(JITTER, size=len(sent)) + link * SKEW
        delay += np.where(chance < LATE_SHARE, random.integers(LATE, size=len(sent)), 0)
        delay += np.where(chance > 1 - VERY_LATE_SHARE, random.integers(VERY_LATE, size=len(sent)), 0)
        times.append(sent)
        arrivals.append(sent + delay)
        links.append(np.full(len(sent), link))
    order = np.argsort(np.concatenate(arrivals), kind="stable")
    ranks = 1 / np.arange(1, GROUPS + 1)
    groups = random.choice(GROUPS, size=len(order), p=ranks / ranks.sum())
    sorted_times, sorted_arrivals, sorted_links = (np.concatenate(each)[order] for each in (times, arrivals, links))
    return Packets(sorted_times, sorted_arrivals, sorted_links, groups)


def partials_of(low: LowLevelPlan, packets: Packets, step: slice) -> pa.RecordBatch:
    """Return the packets of a micro-batch as partials: one for each link, pane and group."""
    links, panes, groups = packets.links[step], packets.times[step] // low.pane, packets.groups[step]
    keys, first, inverse, counts = np.unique(
        (links * (1 << 40) + panes) * GROUPS + groups, return_index=True, return_inverse=True, return_counts=True
    )
    newest = np.full(len(keys), BEGINNING)
    np.maximum.at(newest, inverse, packets.times[step])
    columns = {"link": np.array(LINKS)[links[first]], "pane": panes[first], low.keys[0].name: groups[first]}
    columns |= {sub.name: newest if sub.name == NEWEST_COLUMN else counts for sub in low.subaggregates}
    fields = [(columns[name], low.schema.field(name).type) for name in low.schema.names]
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for values, kind in fields], schema=low.schema)


@dataclass
class Outcome:
    """The changes of a replay. Times are of the arrival clock, ns.

    `first`, `last`: when the first and the last row of a window were returned, by the end of the window. `state`:
    bytes of the operator after each micro-batch. `result`: the sums of the weights, by window end, group and count.
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    state: list[int] = field(default_factory=list)
    result: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    corrections: int = 0

    def add(self, now: int, changes: pa.RecordBatch) -> None:
        """Add the changes that were returned at `now`."""
        columns = (changes.column(name).to_pylist() for name in ("window_end", "srcPort", "n", WEIGHT))
        for end, group, count, weight in zip(*columns, strict=True):
            self.first.setdefault(end, now)
            self.last[end] = now
            self.result[end, group, count] += weight
            self.corrections += max(0, -weight)

    @property
    def results(self) -> int:
        """The number of results."""
        return sum(self.result.values())

    @property
    def counted(self) -> int:
        """The packets in the results."""
        return sum(count * weight for (_, _, count), weight in self.result.items())

    def differences(self, exact: Counter[tuple[int, int]]) -> int:
        """Return the number of results that are only in this replay, or only in the exact answer."""
        expected = Counter((*key, count) for key, count in exact.items())
        return sum(abs(self.result[row] - expected[row]) for row in self.result.keys() | expected.keys())

    def latencies(self, moments: dict[int, int]) -> Numbers:
        """Return the times from the ends of windows to `moments` (by window end), in ns."""
        return np.array([moment - end for end, moment in sorted(moments.items())], np.int64)


def replay(plan: Plan, packets: Packets, remember: int | None) -> Outcome:
    """Run a query over the packets. The watermark of a link is its newest time minus `remember`."""
    pipeline = Pipeline(plan, [list(LINKS)])
    (operator,) = (each for each in pipeline.operators if isinstance(each, ChangingWindowsOperator))
    outcome = Outcome()
    for number, (batch, newest) in enumerate(zip(packets.partials, packets.newest, strict=True)):
        now = (number + 1) * STEP
        for item in pipeline.process_rows(0, with_newest_time(batch, max(newest))) if batch is not None else ():
            assert isinstance(item, pa.RecordBatch)
            outcome.add(now, item)
        lows = [BEGINNING if remember is None or time == BEGINNING else time - remember for time in newest]
        punctuate(pipeline, lows, now, outcome)
        outcome.state.append(operator.bytes)
    punctuate(pipeline, [END] * len(LINKS), len(packets.steps) * STEP, outcome)
    return outcome


def punctuate(pipeline: Pipeline, watermarks: list[int], now: int, outcome: Outcome) -> None:
    """Send the watermark of each link."""
    for port, watermark in enumerate(watermarks):
        if watermark != BEGINNING:
            for item in pipeline.punctuate(port, Punctuation(LINKS[port], watermark)):
                if isinstance(item, pa.RecordBatch):
                    outcome.add(now, item)


def due_steps(packets: Packets) -> dict[int, int]:
    """Return the end of the micro-batch that brings the first row after each window, by window end."""
    due: dict[int, int] = {}
    following = WINDOW
    for number, newest in enumerate(packets.newest):
        while following <= max(newest):
            due[following] = (number + 1) * STEP
            following += WINDOW
    return due
