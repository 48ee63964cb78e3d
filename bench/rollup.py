"""The high level on one core: merge partials by address pair, in tumbling and in sliding windows.

It is compared with Arrow's `group_by` of the same batches. A window of an hour that slides by a minute receives the
same partials as a tumbling minute. The measurement starts when the hour is full. At the low level both windows are
compared over the same packets. All figures are the smallest CPU time of several runs. The workloads take turns.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.flood import resident
from bench.minutes_of_partials import PACKETS, PAIR, QUERIES, RollingOperator, Size, assign_windows, partials
from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.several import minute_query
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from bench.undisturbed import time_step
from highlevel.sliding.aggregate import Aggregate
from lowlevel.subaggregates import MERGE

HOUR = 60
"""Minutes in the range of the sliding window."""

KEY_BYTES = 8
"""Bytes of a pair of IPv4 addresses."""


@dataclass(frozen=True)
class Costs:
    """CPU seconds of a minute of partials, and the strategy of each window."""

    arrow: float
    tumbling: float
    sliding: float
    strategies: tuple[str, str]


def measure_costs(query: str, size: Size) -> Costs:
    """Merge the same partials in three ways, in turns."""
    batches = partials(size)
    table = pa.Table.from_batches(batches)
    merges = [(sub.name, MERGE[sub.kind]) for sub in QUERIES[query]]
    tumbling, sliding = RollingOperator(query, batches, 1), RollingOperator(query, batches, HOUR)

    def by_arrow() -> float:
        return time_step(lambda: table.group_by(PAIR, use_threads=False).aggregate(merges)).processor

    found = [(by_arrow(), tumbling.seconds(size.minutes), sliding.seconds(size.minutes)) for _ in range(size.runs)]
    strategies = (tumbling.aggregate.strategy.name, sliding.aggregate.strategy.name)
    arrow, anew, slid = (min(each) for each in zip(*found, strict=True))
    return Costs(arrow, anew, slid, strategies)


def measure_memory(size: Size, windows: int) -> tuple[float, float]:
    """Return the bytes per open window and group with one count: resident memory, and as the operator reports."""
    aggregate = Aggregate(PAIR, [PACKETS])
    batches = [batch.select([*PAIR, "packets"]) for batch in partials(size)]
    before = 0
    for window in range(windows + 1):
        for batch in assign_windows(batches, window, 1):
            for _ in aggregate.process_rows(0, batch):
                pass
        if window == 0:
            before, told = resident(), aggregate.bytes  # the first run allocates memory that later runs use again
    entries = windows * size.groups
    return (resident() - before) / entries, (aggregate.bytes - told) / entries


def measure_low_level(path: Path, runs: int) -> dict[str, float]:
    """Return the CPU time of the low level over the same packets, for a tumbling minute and for a sliding hour.

    It is the sum of the smallest times of each block of packets, because every run does the same work with a block.
    """
    from capture.files.scan import scan
    from capture.open import open_mapped
    from lowlevel.node.node import Node
    from queries.gsql import compile_query

    tumbling = minute_query("count(*) AS packets, sum(len) AS bytes", "srcIP, destIP")
    texts = {"tumbling": tumbling, "sliding": tumbling.replace("RANGE 1 minute", "RANGE 60 minutes")}
    plans = {name: compile_query(text).leaves[0].low for name, text in texts.items()}
    file = open_mapped(path, "a bench")
    blocks = scan(file).blocks
    step_time = {name: np.empty((runs, len(blocks))) for name in plans}
    for number in range(runs):
        for name in sorted(plans, reverse=number % 2 == 1):
            node = Node("link", file, [plans[name]])
            for position, block in enumerate(blocks):
                begin = time.thread_time_ns()
                for _ in node.process(block):
                    pass
                step_time[name][number, position] = time.thread_time_ns() - begin
    return {name: float(each.min(axis=0).sum()) for name, each in step_time.items()}


def run(setting: Setting) -> Report:
    """Measure merging, sliding and memory."""
    size = Size(1000, 1000, 5, 2, 1) if setting.quick else Size(100_000, 100_000, 10, 3, 7)
    judged = not setting.quick
    report = Report("rollup")
    lines = []
    found = {}
    for query in QUERIES:
        for each in (size, replace(size, batches=1)):
            rows = each.rows * each.batches
            cost = found[query, each.batches] = on_one_core(measure_costs, query, each)
            for name, seconds, strategy in (
                ("Arrow's group_by", cost.arrow, ""),
                ("a tumbling minute", cost.tumbling, cost.strategies[0]),
                ("an hour by minutes", cost.sliding, cost.strategies[1]),
            ):
                figures = f"{rows / seconds / MILLION:.1f}", f"{seconds / cost.tumbling:.2f}"
                lines.append((query, f"{rows:,}", name, *figures, strategy))
    report.table(
        f"partials of {size.groups:,} address pairs, merged and closed",
        ("sub-aggregates", "partials a minute", "by", "M partials/s", "cost / tumbling", "strategy"),
        lines,
    )
    path = generate_cached(address_pairs(setting.packets(5 * MILLION)), setting.data)
    read_into_cache(path)
    low = on_one_core(measure_low_level, path, setting.runs(8))
    resided, told = on_one_core(measure_memory, size, 3 if setting.quick else 20)
    report.notes.append(f"an open window and group with one count: {resided:.0f} bytes resident, {told:.0f} as told")
    many = found["count, sum", size.batches]
    rate = size.rows * size.batches / many.tumbling / MILLION
    report.add_information("partials of address pairs, a tumbling minute, one core, M partials/s", f"{rate:.3g}")
    against = many.arrow / many.tumbling
    report.add_criterion("partials/s, a tumbling minute / Arrow's group_by, count and sum", against, ">= 1.2", judged)
    report.add_criterion(
        "an hour by minutes / a tumbling minute, count and sum", many.sliding / many.tumbling, "<= 1.5", judged
    )
    report.add_criterion(
        "an hour by minutes / a tumbling minute, low level", low["sliding"] / low["tumbling"], "<= 1.05", judged
    )
    report.add_criterion("bytes beside the key of a window and group", max(resided, told) - KEY_BYTES, "<= 64", judged)
    return report
