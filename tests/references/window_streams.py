"""Random queries over windows of every kind: the plan, the streams of its links, and its windows by definition.

Windows that depend on the order of arrival have one link. Other windows have two links, and one of them may be silent
to its end. The rows are those of the definition in the tests of each operator, over all that arrives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pyarrow as pa

from highlevel.aggregation import Aggregation, Output
from highlevel.operators.session import TS
from highlevel.plan.nodes import PANE, Leaf, Windowed
from highlevel.plan.plan import Plan
from highlevel.windows.kind import DEFAULT_CAP, AnyWindow, LandmarkWindow, SessionWindow, SlidingWindow, TupleWindow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.plan import Key, LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references import landmark_twin, session_twin, slide_by_tuple_twin, tuple_windows_twin
from tests.references.windows_oracle import Arrival, Spec, random_stream, window_aggregates

GROUP, NUMBER = Column("k", Type.INT, nullable=True), Column("number", Type.INT)
TOLD = (
    SubAggregate("count", Kind.COUNT),
    SubAggregate("sum", Kind.SUM, NUMBER),
    SubAggregate("min", Kind.MIN, NUMBER),
    SubAggregate("max", Kind.MAX, NUMBER),
)
TIMES = (SubAggregate("first", Kind.MIN, TS), SubAggregate("last", Kind.MAX, TS))
VALUES: dict[str, Callable[[list[Arrival]], int]] = {
    "count": len,
    "sum": lambda rows: sum(each.number for each in rows),
    "min": lambda rows: min(each.number for each in rows),
    "max": lambda rows: max(each.number for each in rows),
    "first": lambda rows: min(each.ts for each in rows),
    "last": lambda rows: max(each.ts for each in rows),
}
"""Aggregate values of some rows."""

MOST = 12
"""Rows of a link at most: there are many streams."""

Stream = list[Arrival | int]


@dataclass(frozen=True)
class Asked:
    """A query, the input of each of its links, its rows, and the number of windows."""

    aggregation: Aggregation
    streams: list[Stream]
    rows: Counter[tuple]
    windows: int
    partitions: int = 1

    @property
    def arrivals(self) -> list[Arrival]:
        """All rows, those of a link in the order in which they arrive."""
        return [each for stream in self.streams for each in stream if isinstance(each, Arrival)]

    def plan_of(self, name: str) -> Plan:
        """The query, which reads a link for each stream."""
        leaf = Leaf(name, tuple("ab"[: len(self.streams)]), self.aggregation.low)
        return Plan(name, "", Windowed(leaf, self.aggregation, PANE))

    def partials(self, arrivals: list[Arrival], reduce: bool) -> list[pa.RecordBatch]:
        """Return the partials of rows: one per row, or with `reduce` one per pane and group."""
        low = self.aggregation.low
        seen: dict[tuple, list[Arrival]] = defaultdict(list)
        for place, each in enumerate(arrivals):
            key = (each.ts - low.origin) // low.pane, each.number % self.partitions, each.group
            seen[*key, 0 if reduce and low.reduced else place].append(each)
        columns = {
            "pane": pa.array([key[0] for key in seen], pa.int64()),
            "p": pa.array([key[1] for key in seen], pa.int64()),
            "k": pa.array([key[2] for key in seen], pa.int64()),
        }
        for sub in low.subaggregates:
            columns[sub.name] = pa.array([VALUES[sub.name](rows) for rows in seen.values()], pa.int64())
        return [pa.record_batch(columns)] if seen else []


def asked(
    window: AnyWindow,
    streams: list[Stream],
    rows: Counter[tuple],
    windows: int,
    subs: tuple[SubAggregate, ...] = TOLD,
    partitions: int | None = None,
) -> Asked:
    """The plan of a window as the compiler makes it. `subs`: the sub-aggregates of its select list."""
    groups = ("k",) if partitions is None else ("p", "k")
    keys = tuple(Key(name, Column(name, Type.INT, nullable=True)) for name in groups)
    stored = (*subs, *(TIMES if isinstance(window, SessionWindow) else ()))
    low = LowLevelPlan(
        None, keys, stored, window.pane, window.origin, reduced=window.reduced, in_arrival_order=window.in_arrival_order
    )
    select = [Output(name, Column(name, Type.INT, nullable=True)) for name in groups]
    select += [Output(sub.name, Column(sub.name, Type.INT)) for sub in subs]
    partition = ("p",) if isinstance(window, TupleWindow) and window.partitioned else ()
    aggregation = Aggregation(window, low, groups, None, tuple(select), partition=partition)
    return Asked(aggregation, streams, rows, windows, partitions or 1)


def two_streams(random: Random) -> tuple[list[Stream], list[Arrival]]:
    """Streams of two links, one of them silent now and then, and all that arrives."""
    streams = [random_stream(random, MOST), random_stream(random, MOST)]
    if random.random() < 0.2:
        streams[random.randrange(2)] = [END]
    return streams, [each for stream in streams for each in stream if isinstance(each, Arrival)]


def sliding(random: Random, spec: Spec, subs: tuple[SubAggregate, ...]) -> Asked:
    streams, arrivals = two_streams(random)
    rows = Counter(row[: 3 + len(subs)] for row in window_aggregates(arrivals, spec))
    window = SlidingWindow(spec.range, spec.slide, spec.origin)
    return asked(window, streams, rows, len({row[:2] for row in rows}), subs)


def of_wids(random: Random) -> Asked:
    """Sliding, tumbling and gapped windows."""
    length = random.randint(1, 100)
    slide = length if random.random() < 0.3 else random.randint(5, 40)
    return sliding(random, Spec(length, slide, random.choice([0, random.randint(-100, 100)])), TOLD)


def of_panes(random: Random) -> Asked:
    """Sliding windows of several panes; of counts and sums, which can be undone, or of extremes too."""
    slide = random.randint(12, 40)
    spec = Spec(slide * random.randint(2, 5), slide, random.randint(-9, 9))
    return sliding(random, spec, TOLD[: random.choice([2, 4])])


def landmark(random: Random) -> Asked:
    streams, arrivals = two_streams(random)
    window = LandmarkWindow(random.randint(5, 60), random.randint(-50, 50), random.choice([1, 3, DEFAULT_CAP]))
    rows = Counter(landmark_twin.definition(window, arrivals))
    return asked(window, streams, rows, len({row[:2] for row in rows}))


def session(random: Random) -> Asked:
    streams, arrivals = two_streams(random)
    window = SessionWindow(random.choice(session_twin.GAPS))
    rows = Counter(
        (start, end, group, count, total, greatest)
        for start, end, group, count, total, _, _, greatest in session_twin.sessions(window.gap, arrivals)
    )
    return asked(window, streams, rows, rows.total(), (TOLD[0], TOLD[1], TOLD[3]))


def of_rows(random: Random) -> Asked:
    """Windows of a number of rows, of all of them or of partitions."""
    partitioned = random.random() < 0.5
    idle = random.choice([None, 5, 50]) if partitioned else None
    slide = random.randint(2, 12)
    length = random.choice([random.randint(1, 30), 2 * slide])
    window = TupleWindow(length, slide, partitioned, idle)
    stream, partitions = random_stream(random, 2 * MOST), random.randint(1, 5) if partitioned else 1
    arrivals = [each for each in stream if isinstance(each, Arrival)]
    rows = tuple_windows_twin.aggregates(window, arrivals, partitions)
    lives = tuple_windows_twin.lives(window, ((each.number % partitions, each.ts, each) for each in arrivals))
    windows = sum(len(tuple_windows_twin.windows_of(window, life)) for _, life in lives)
    return asked(window, [stream], rows, windows, partitions=partitions)


def by_tuple(random: Random) -> Asked:
    """Windows that slide by rows: up to each, up to each n-th that arrives, or each n-th in the order of time."""
    window = slide_by_tuple_twin.random_window(random, random.choice(slide_by_tuple_twin.FORMS))
    streams, arrivals = two_streams(random)
    if window.in_arrival_order:
        streams = [random_stream(random, 2 * MOST)]
        arrivals = [each for each in streams[0] if isinstance(each, Arrival)]
    rows, twin = slide_by_tuple_twin.by_definition(window, [*arrivals, END])
    return asked(window, streams, Counter(rows), twin.closed)


FAMILIES = (of_wids, of_panes, landmark, session, of_rows, by_tuple)
