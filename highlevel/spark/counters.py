"""What a pipeline tells of one micro-batch and partition, as what JSON can say, and how all of them add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capture.metrics import Samples
from highlevel.inline.engine import ALL_METRICS
from highlevel.metrics import (
    LOW_WATERMARK,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    RESULT_ROWS,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from highlevel.plan.fragments import sources_of
from highlevel.plan.nodes import width_of
from highlevel.plan.operators.operator import lows_of
from highlevel.plan.pipeline import LinkUnion, Pipeline
from highlevel.sliding.wid_ranges import count, unite
from highlevel.spark.hosted import Hosted, Left
from lowlevel.punctuation import BEGINNING

Told = dict[str, Any]


def told_of(hosted: Hosted, left: Left) -> Told:
    """Return the counters, the bounds of links and the open windows after a micro-batch."""
    pipeline = hosted.pipeline
    windows = [(number, operator.take_closed(), operator.open_windows()) for number, operator in pipeline.windowed]
    samples = pipeline.samples(BEGINNING)
    of_links = {
        LOW_WATERMARK.name,
        PUNCTUATION_LAG.name,
        WINDOWS_CLOSED.name,
        WINDOWS_OPEN.name,
        PARTIALS_RECEIVED.name,
    }
    if not hosted.last:
        of_links.add(RESULT_ROWS.name)
    bounds, received = _of_links(hosted, pipeline)
    query = hosted.feeds.plans[hosted.query].name
    kept = [[name, labels, value] for (name, labels), value in samples.items() if name not in of_links]
    of_results = left.mark if hosted.last else None
    return {
        "query": hosted.query,
        "fragment": hosted.number,
        "samples": [*kept, [PARTIALS_RECEIVED.name, [query], received]],
        "windows": windows,
        "bounds": bounds,
        "promised": None if of_results is None else min(lows_of(of_results, width_of(pipeline.plan.root))),
    }


def _of_links(hosted: Hosted, pipeline: Pipeline) -> tuple[list[tuple[int, int]], int]:
    """Return (number of the input, its bound) for each port that a link stands behind, and the partials of those."""
    fragments = hosted.feeds.fragments[hosted.query]
    bounds, received = [], 0
    for meld, source in zip(pipeline.leaf_operators, sources_of(pipeline.plan), strict=True):
        if fragments.sources[source].leaf is None or not isinstance(meld, LinkUnion):
            continue
        ports = hosted.feeds.ports_of(hosted.query, source)
        bounds += [
            (hosted.feeds.ports[hosted.query][port].number, bound)
            for port, bound in zip(ports, meld.bounds, strict=True)
        ]
        received += meld.received
    return bounds, received


def added(samples: Samples, query: str, parts: Sequence[Told]) -> None:
    """Add the counters of all partitions of a query; its gauges are the sums over the partitions."""
    together = Samples()
    for told in parts:
        for name, labels, value in told["samples"]:
            key = name, tuple(labels)
            together[key] = together.get(key, 0) + value
    samples.merge(together, ALL_METRICS)
    windows = [(told["fragment"], *each) for told in parts for each in told["windows"]]
    if windows:
        samples.add(WINDOWS_CLOSED, _together([((f, place), closed) for f, place, closed, _ in windows]), query)
        samples.set(WINDOWS_OPEN, _together([((f, place), still) for f, place, _, still in windows]), query)


def _together(told: Sequence[tuple[tuple[int, int], Any]]) -> int:
    """Count the windows of all partitions, those that they share once, by fragment and node."""
    by_node: dict[tuple[int, int], list[Any]] = {}
    for node, each in told:
        by_node.setdefault(node, []).append(each)
    return sum(windows_of(each) for each in by_node.values())


def windows_of(parts: Sequence[list[list[int]] | int]) -> int:
    """Count the windows of all partitions: those that they share once."""
    shared = [(first, end) for part in parts if not isinstance(part, int) for first, end in part]
    return count(unite(shared)) + sum(part for part in parts if isinstance(part, int))
