"""The slow twin of windows over a number of rows: plain lists, a row at a time, by the definition of the window.

A partition is one list of rows, in the order of arrival. With IDLE, a row begins a new list if it is later than the
latest row of its partition by that time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa

from highlevel.windows.kind import TupleWindow
from lowlevel.subaggregates import Kind, SubAggregate
from tests.references.windows_oracle import Arrival

Row = TypeVar("Row")


def lives(window: TupleWindow, rows: Iterable[tuple[Hashable, int, Row]]) -> list[tuple[Hashable, list[Row]]]:
    """Part (partition, ts, row) into the rows that are counted together, in the order of arrival."""
    found: list[tuple[Hashable, list[Row]]] = []
    current: dict[Hashable, tuple[int, list[Row]]] = {}
    for partition, ts, row in rows:
        latest, life = current.get(partition, (ts, None))
        if life is None or (window.idle is not None and ts - latest >= window.idle):
            life = []
            found.append((partition, life))
            latest = ts
        life.append(row)
        current[partition] = max(latest, ts), life
    return found


def windows_of(window: TupleWindow, life: Sequence[Row]) -> list[tuple[int, int, list[Row]]]:
    """Each window that holds rows of a list: its bounds, and the rows that its extent holds."""
    numbers = np.arange(len(life))
    wids = {wid for first, end in zip(*window.wids(numbers), strict=True) for wid in range(first, end)}
    return [
        (*window.bounds(wid), [life[place] for place in np.flatnonzero(window.extent(wid, numbers)).tolist()])
        for wid in sorted(wids)
    ]


def aggregates(window: TupleWindow, arrivals: Iterable[Arrival], partitions: int) -> Counter[tuple]:
    """Rows (start, end, partition, group, count, sum, smallest, largest), of partitions `number % partitions`.

    A window is reported once for each list of rows; so a partition that was forgotten reports the same numbers again.
    """
    parted = [(each.number % partitions, each.ts, each) for each in arrivals]
    found: Counter[tuple] = Counter()
    for partition, life in lives(window, parted):
        for start, end, rows in windows_of(window, life):
            groups = defaultdict(list)
            for each in rows:
                groups[each.group].append(each.number)
            for group, seen in groups.items():
                found[start, end, partition, group, len(seen), sum(seen), min(seen), max(seen)] += 1
    return found


SUBS = [SubAggregate(f"s{n}", kind) for n, kind in enumerate((Kind.COUNT, Kind.SUM, Kind.MIN, Kind.MAX))]


SCHEMA = pa.schema([(name, pa.int64()) for name in ("pane", "p", "k", "s0", "s1", "s2", "s3")])


def partials(arrivals: list[Arrival], partitions: int = 1) -> pa.RecordBatch:
    rows = [(each.ts, each.number % partitions, each.group, 1, *[each.number] * 3) for each in arrivals]
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def window_of(random: Random) -> TupleWindow:
    slide = random.randint(1, 12)
    return TupleWindow(random.choice([random.randint(1, 40), slide * random.randint(1, 5)]), slide)
