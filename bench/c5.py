"""How the cost of operators over changes grows with their input: the slope of time over n log n + m, on one core.

n are the rows of the input, m the changes of the result. With a slope of 1 the cost is proportional. The memory per
unit of time is constant, because CTIs remove final rows. Times are the smallest processor time of several runs.
"""

from __future__ import annotations

import math
import time

import numpy as np

from bench.changes import SCHEMA, Workload, batches
from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from highlevel.speculation.lifetimes.aggregates import parse_aggregate
from highlevel.speculation.lifetimes.snapshot import SnapshotOperator

BATCH = 10_000
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
CASES = {
    "count, in order": (["count(*)"], Workload(0)),
    "count, 5 % late": (["count(*)"], Workload(0, late=0.05)),
    "count, lifetimes of 10 000": (["count(*)"], Workload(0, lifetime=10_000)),
    "median, in order": (["median(x)"], Workload(0)),
    "median, 5 % late": (["median(x)"], Workload(0, late=0.05)),
}
"""Aggregates, and workloads. SIZES contains the numbers of their rows."""

Point = tuple[int, int, float, int]
"""Rows, changes of the result, seconds, and bytes of state."""


def run(setting: Setting) -> Report:
    """Measure each case at each size."""
    sizes = SIZES[:2] if setting.quick else SIZES
    found = on_one_core(measure, sizes, setting.runs(2))
    report = Report("C5")
    report.table(
        "seconds (changes of the result)",
        ("operator", *(f"{size:,} rows" for size in sizes), "slope"),
        [
            (name, *(f"{seconds:.3f} ({changes:,})" for _, changes, seconds, _ in points), f"{slope(points):.2f}")
            for name, points in found.items()
        ],
    )
    steepest = max(slope(points) for points in found.values())
    report.add_criterion("slope of time over n log n + m, the steepest", steepest, "<= 1.15", not setting.quick)
    grown = max(points[-1][3] / points[1][3] for points in found.values())
    report.add_criterion("bytes of state, most rows / 100 000 rows", grown, "<= 1.5", not setting.quick)
    return report


def measure(sizes: tuple[int, ...], runs: int) -> dict[str, list[Point]]:
    """Return the points of each case."""
    return {name: [measure_size(texts, work, size, runs) for size in sizes] for name, (texts, work) in CASES.items()}


def measure_size(texts: list[str], work: Workload, size: int, runs: int) -> Point:
    """Return the point of one case and size. Rows are generated before each batch and not counted."""
    least, changes, memory = math.inf, 0, 0
    sized = Workload(size, work.lifetime, work.late, work.delay)
    for _ in range(runs):
        operator = SnapshotOperator(SCHEMA, [parse_aggregate(text, text) for text in texts])
        seconds, changes = 0.0, 0
        for batch in batches(sized, BATCH):
            began = time.process_time()
            changes += operator.process(batch).num_rows
            seconds += time.process_time() - began
        least, memory = min(least, seconds), operator.bytes
    return size, changes, least, memory


def slope(points: list[Point]) -> float:
    """Return the slope of the logarithm of seconds over the logarithm of n log n + m."""
    work = [math.log(rows * math.log2(rows) + changes) for rows, changes, _, _ in points]
    return float(np.polyfit(work, [math.log(seconds) for _, _, seconds, _ in points], 1)[0])
