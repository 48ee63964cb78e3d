"""Throughput of operators over changes, on one core: snapshot operators and the join, in order and with late rows.

1 M rows, one per unit of time, each true for 30, in micro-batches of 10 000 with a CTI after each. Late rows arrive up
to 20 places late. The yardsticks compute the same answer: "waiting" holds all rows until a CTI, so that nothing is
corrected; "recomputing" computes the aggregate of all rows of the window again at each row, and for a join the pairs of
a row with all rows of the window of the other input. All figures are processor time, the least of several runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from bench.changes import SCHEMA, Workload, batches
from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION
from highlevel.speculation.lifetimes.aggregates import parse_aggregate
from highlevel.speculation.lifetimes.align import Align, Release
from highlevel.speculation.lifetimes.equi_join import LifetimeJoin
from highlevel.speculation.lifetimes.model import change_schema, times_of
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator

BATCH = 10_000
LATE = (0.0, 0.05, 0.2)
RECOMPUTED = 20_000
"""Rows of the runs that recompute the window."""

COUNT_SUM, MEDIAN, LARGEST, JOIN = "count, sum", "median", "largest 5", "join"
AGGREGATES = {
    "count": ["count(*)"],
    COUNT_SUM: ["count(*)", "sum(x)"],
    "sum, avg, variance": ["sum(x)", "avg(x)", "variance(x)"],
    "min, max": ["min(x)", "max(x)"],
    "count distinct": ["count_distinct(x)"],
    MEDIAN: ["median(x)"],
    LARGEST: ["largest(x, 5)"],
}
RECOMPUTE: dict[str, Callable[[np.ndarray], object]] = {
    COUNT_SUM: lambda values: (len(values), values.sum()),
    "sum, avg, variance": lambda values: (values.sum(), values.mean(), values.var()),
    "min, max": lambda values: (values.min(), values.max()),
    "count distinct": lambda values: len(np.unique(values)),
    MEDIAN: np.median,
    LARGEST: lambda values: np.sort(values)[-5:],
}
KEYS = 10_000
JOIN_LIFETIME = 20_000
"""Number of keys of the join, and lifetime of its rows: at each time two rows of a key are true."""

ONE_KEY = (10_000, 100_000)
"""Rows of the joins of one key. Each row ends when the next row of its side begins. No CTI forgets them."""


def run(setting: Setting) -> Report:
    """Measure rows per second of every operator."""
    rows = setting.packets(MILLION)
    found, waiting, recomputing = on_one_core(measure, rows, setting.runs(3), LATE)
    of_one_key = on_one_core(measure_one_key, setting.runs(3))
    report = Report("C2")
    report.table(
        f"{rows:,} rows in micro-batches of {BATCH:,}, M rows/s",
        ("operator", "rows", "ours", "waiting", "recomputing"),
        [
            (
                name,
                "in order" if late == 0 else f"{late:.0%} late",
                f"{found[name, late] / 1e6:.2f}",
                f"{waiting[name, late] / 1e6:.2f}" if (name, late) in waiting else "",
                f"{recomputing[name, late] / 1e6:.3f}" if (name, late) in recomputing else "",
            )
            for name in (*AGGREGATES, JOIN)
            for late in LATE
        ],
    )
    report.table(
        "A join of rows with one key, which follow each other",
        ("rows", "M rows/s"),
        [(f"{count:,}", f"{rate / 1e6:.2f}") for count, rate in of_one_key.items()],
    )
    judged = not setting.quick
    for name, target in ((COUNT_SUM, ">= 1000000"), (MEDIAN, ">= 200000"), (LARGEST, ">= 200000"), (JOIN, ">= 300000")):
        slowest = min(found[name, late] for late in LATE)
        report.add_criterion(f"rows/s, {name}, in order, 5 % and 20 % late", slowest, target, judged)
    quotients = [min(found[name, late] / recomputing[name, late] for name in (*RECOMPUTE, JOIN)) for late in LATE]
    report.add_criterion("rows/s, each operator / recomputing the window, in order", quotients[0], ">= 2", judged)
    report.add_criterion(
        "rows/s, each operator / recomputing the window, late rows", min(quotients[1:]), ">= 1.5", judged
    )
    fewer, more = of_one_key.values()
    report.add_criterion("rows/s, join of one key, 100 000 rows / 10 000 rows", more / fewer, ">= 0.5", judged)
    cost = min(found[name, LATE[1]] / waiting[name, LATE[1]] for name in (*AGGREGATES, JOIN))
    report.add_criterion("rows/s, each operator / waiting for a CTI, 5 % late", cost, ">= 0.5", judged)
    return report


Rates = dict[tuple[str, float], float]
"""Rows per second of an operator and a part of late rows."""


def measure(rows: int, runs: int, parts_late: tuple[float, ...]) -> tuple[Rates, Rates, Rates]:
    """Return rows per second of each operator and part of late rows, and of the yardsticks."""
    found, waiting, recomputing = {}, {}, {}
    for late in parts_late:
        changes = list(batches(Workload(rows, late=late), BATCH))
        for name, texts in AGGREGATES.items():
            found[name, late] = rows / min_seconds(partial(aggregate, changes, texts), runs)
            waiting[name, late] = rows / min_seconds(partial(aggregate, changes, texts, waits=True), runs)
        joined = Workload(rows // 2, JOIN_LIFETIME, late, keys=KEYS)
        left, right = (list(batches(joined, BATCH, seed)) for seed in (1, 2))
        found[JOIN, late] = rows / min_seconds(partial(join, left, right), runs)
        waiting[JOIN, late] = rows / min_seconds(partial(join, left, right, waits=True), runs)
        random = np.random.default_rng(1)
        values = random.integers(40, 1500, RECOMPUTED)
        delays = np.where(random.random(RECOMPUTED) < late, random.integers(1, 21, RECOMPUTED), 0).tolist()
        for name, compute in RECOMPUTE.items():
            recomputing[name, late] = RECOMPUTED / min_seconds(partial(recompute, values, delays, compute), runs)
        keys = random.integers(0, KEYS, (2, RECOMPUTED + JOIN_LIFETIME))
        recomputing[JOIN, late] = 2 * RECOMPUTED / min_seconds(partial(recompute_pairs, keys), runs)
    return found, waiting, recomputing


def measure_one_key(runs: int) -> dict[int, float]:
    """Return rows per second of a join of one key, by the number of rows."""
    rates = {}
    for rows in ONE_KEY:
        work = Workload(rows // 2, 1)
        left, right = (list(batches(work, BATCH, seed, cti_every=rows)) for seed in (1, 2))
        rates[rows] = rows / min_seconds(partial(join, left, right), runs)
    return rates


def min_seconds(work: Callable[[], object], runs: int) -> float:
    """Return the least processor time of some work, in seconds. The first run is not counted."""
    seconds = []
    for _ in range(runs + 1):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds[1:])


def aggregate(changes: list[pa.RecordBatch], texts: list[str], *, waits: bool = False) -> None:
    """Aggregate changes. If it `waits`, hold the changes until a CTI first."""
    operator = SnapshotOperator(SCHEMA, [parse_aggregate(text, text) for text in texts])
    align = Align(SCHEMA, None, Release.SYNC)
    for batch in changes:
        operator.process(align.process(batch) if waits else batch)


def recompute(values: np.ndarray, delays: list[int], compute: Callable[[np.ndarray], object]) -> None:
    """Compute an aggregate of the last 30 rows at each row, and at the rows before which a late row belongs."""
    for row, delay in enumerate(delays):
        for end in range(row + 1, row + delay + 2):
            compute(values[max(0, end - 30) : end])


def recompute_pairs(keys: np.ndarray) -> None:
    """Find the pairs of each row with the rows of the last JOIN_LIFETIME units of the other input. No row is late."""
    for row in range(JOIN_LIFETIME, keys.shape[1]):
        for side in (0, 1):
            np.flatnonzero(keys[1 - side, row - JOIN_LIFETIME : row] == keys[side, row])


def join(left: list[pa.RecordBatch], right: list[pa.RecordBatch], *, waits: bool = False) -> int:
    """Join two streams of changes. If it `waits`, hold them until a CTI first. Return the number of changes."""
    schema = change_schema(pa.schema([pa.field("key", pa.int64()), pa.field("y", pa.int64())]))
    operator = LifetimeJoin(SCHEMA, schema, [("key", "key")])
    aligns = [Align(each, None, Release.SYNC) for each in (SCHEMA, schema)]
    found = 0
    for one, other in zip(left, right, strict=True):
        for side, batch in enumerate((one, other.rename_columns(schema.names))):
            released = aligns[side].process(batch) if waits else batch
            found += len(times_of(operator.process(side, released))[0])
    return found
