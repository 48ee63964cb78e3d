"""The counters of one fragment in one partition and micro-batch, as JSON, and their sums over all partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capture.metrics import Samples
from highlevel.inline.engine import ALL_METRICS
from highlevel.metrics import (
    CORRECTIONS,
    LOW_WATERMARK,
    OLDEST_PARTIAL_MATCH,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    RESULT_ROWS,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from highlevel.plan.fragments import sources_of
from highlevel.plan.nodes import bound_count
from highlevel.plan.operators.counters import earlier_time
from highlevel.plan.operators.operator import bounds_of
from highlevel.plan.pipeline import LinkUnion
from highlevel.spark.tasks.fragment_task import FragmentOutput, FragmentTask
from highlevel.speculation.changes import count_withdrawn
from lowlevel.integer_ranges import count, unite
from lowlevel.punctuation import BEGINNING

Counts = dict[str, Any]
"""Counters of one fragment, partition and micro-batch, as JSON."""

DRIVER_METRICS = frozenset(
    metric.name for metric in (LOW_WATERMARK, PUNCTUATION_LAG, WINDOWS_CLOSED, WINDOWS_OPEN, PARTIALS_RECEIVED)
)
"""Metrics of links and of windows. Only the driver computes them, from the watermarks of links (`bounds`) and the
windows of all partitions.
"""


def collect_counts(task: FragmentTask, output: FragmentOutput) -> Counts:
    """Return the counters of a micro-batch.

    The result also contains the closed windows, the open windows, the watermarks of links (`bounds`), and the watermark
    of the results.
    """
    pipeline = task.pipeline
    windows = [
        (number, operator.take_closed_windows(), operator.open_windows())
        for number, operator in pipeline.window_operators
    ]
    bounds, received_partials = _collect_link_counts(task)
    counted = pipeline.samples(BEGINNING)
    if pipeline.plan.has_changes:  # changes of one micro-batch that cancel each other are not returned
        query = task.fragments.plan.name
        counted.set(RESULT_ROWS, sum(batch.num_rows for batch in output.batches), query)
        counted.set(CORRECTIONS, sum(map(count_withdrawn, output.batches)), query)
    skipped = DRIVER_METRICS if task.is_last else {*DRIVER_METRICS, RESULT_ROWS.name, CORRECTIONS.name}
    samples = [[name, labels, value] for (name, labels), value in counted.items() if name not in skipped]
    punctuation = output.punctuation if task.is_last else None
    return {
        "query": task.query,
        "fragment": task.fragment_number,
        "samples": [*samples, [PARTIALS_RECEIVED.name, [task.fragments.plan.name], received_partials]],
        "windows": windows,
        "bounds": bounds,
        "watermark": None if punctuation is None else min(bounds_of(punctuation, bound_count(pipeline.plan.root))),
    }


def _collect_link_counts(task: FragmentTask) -> tuple[list[tuple[int, int]], int]:
    """Return (input number, watermark) for each port that receives a link, and the number of partials from links."""
    bounds: list[tuple[int, int]] = []
    received_partials = 0
    ports = task.assignment.ports[task.query]
    for operator, (_, leaf_ports), source in zip(
        task.pipeline.leaf_operators, task.sources, sources_of(task.fragment), strict=True
    ):
        if task.fragments.sources[source].leaf is not None and isinstance(operator, LinkUnion):
            bounds += zip((ports[port].number for port in leaf_ports), operator.input_watermarks, strict=True)
            received_partials += operator.received
    return bounds, received_partials


def add_counts(samples: Samples, query: str, parts: Sequence[Counts]) -> None:
    """Add the counters of all partitions of a query. Its gauges are sums over the partitions.

    Exceptions: the oldest partial match is the oldest one of all partitions, and a window that several partitions have
    is counted once.
    """
    sums = Samples()
    closed_windows: dict[tuple[int, int], list[Any]] = {}
    open_windows: dict[tuple[int, int], list[Any]] = {}
    for counts in parts:
        for name, labels, value in counts["samples"]:
            key = name, tuple(labels)
            is_time = name == OLDEST_PARTIAL_MATCH.name
            sums[key] = earlier_time(sums.get(key, 0), value) if is_time else sums.get(key, 0) + value
        for node, closed_part, open_part in counts["windows"]:
            closed_windows.setdefault((counts["fragment"], node), []).append(closed_part)
            open_windows.setdefault((counts["fragment"], node), []).append(open_part)
    samples.merge(sums, ALL_METRICS)
    if closed_windows:
        samples.add(WINDOWS_CLOSED, sum(map(count_windows, closed_windows.values())), query)
        samples.set(WINDOWS_OPEN, sum(map(count_windows, open_windows.values())), query)


def count_windows(parts: Sequence[list[list[int]] | int]) -> int:
    """Return the number of windows of all partitions. A window that several partitions have is counted once."""
    ranges = [(first, end) for part in parts if not isinstance(part, int) for first, end in part]
    return count(unite(ranges)) + sum(part for part in parts if isinstance(part, int))
