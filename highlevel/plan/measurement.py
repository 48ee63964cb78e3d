"""Measurement of a node's operator in a run: rows, bytes, seconds and memory (`wiretide explain --analyze`)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.plan.operators.operator import GraphItem, NodeOperator

MAX_SAMPLING_SHARE = 0.05
"""Maximum share of the time for measuring the size of the state. A measurement is slow if many windows are open."""


@dataclass(slots=True)
class Measurement:
    """`rows`, `bytes`: totals of the batches that the operator returned.

    `seconds`: the time of the operator, without later operators. `state_bytes`: the largest measured state.
    """

    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    state_bytes: int = 0
    _next_sample: float = 0.0

    def add(self, rows: int, bytes_: int, seconds: float, state_bytes: int) -> None:
        """Add the figures of the operator of the same node in another partition."""
        self.rows += rows
        self.bytes += bytes_
        self.seconds += seconds
        self.state_bytes += state_bytes

    def continue_with(self, later: Measurement) -> None:
        """Add the figures of a later part of the run. `state_bytes` becomes the maximum of both."""
        state_bytes = max(self.state_bytes, later.state_bytes)
        self.add(later.rows, later.bytes, later.seconds, 0)
        self.state_bytes = state_bytes

    @property
    def figures(self) -> tuple[int, int, float, int]:
        """Return the arguments of `add`, as JSON values."""
        return self.rows, self.bytes, self.seconds, self.state_bytes

    def measure(self, operator: NodeOperator, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        """Yield the items of an operator. The time in which the consumer processes an item is not measured."""
        while True:
            begin = time.perf_counter()
            item = next(items, None)
            end = time.perf_counter()
            self.seconds += end - begin
            if item is None:
                break
            if isinstance(item, pa.RecordBatch):
                self.rows += item.num_rows
                self.bytes += item.nbytes
            yield item
        if end >= self._next_sample:
            self.state_bytes = max(self.state_bytes, operator.bytes)
            sampled_at = time.perf_counter()
            self._next_sample = sampled_at + (sampled_at - end) / MAX_SAMPLING_SHARE


def sum_measurements(node_count: int, counters: Iterable[Mapping[str, Any]]) -> list[Measurement]:
    """Return the figures of each node of a plan, from the counters of all tasks.

    The entry `measured` of each task contains pairs: the index of a node in the plan, and its `figures`.
    """
    measurements = [Measurement() for _ in range(node_count)]
    for counts in counters:
        for position, figures in counts["measured"]:
            measurements[position].add(*figures)
    return measurements
