"""Feed a pipeline with arrivals, to sample its state and latencies, or to measure its CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from highlevel.baselines.buffering import BufferingAggregate
from highlevel.baselines.slack import SlackAggregate
from highlevel.compare.arrivals import Arrivals, Event, make_punctuation
from highlevel.compare.ordered import CompositeOperator
from highlevel.compare.question import Question, times_of_pairs
from highlevel.compare.recording import Numbers
from highlevel.compare.variants import Variant
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.nodes import Join, Node
from highlevel.plan.operators.operator import AnyPunctuation, NodeOperator
from highlevel.plan.operators.windowed import WindowedOperator
from highlevel.plan.pipeline import Pipeline
from highlevel.sliding.aggregate import Aggregate
from highlevel.sliding.operator import SlidingAggregate
from lowlevel.punctuation import GraphItem


def held(operator: object) -> int:
    """Return the number of stored rows or partials of an operator."""
    match operator:
        case Aggregate():
            return operator.rows_held
        case BufferingAggregate():
            return operator.tuples
        case SlackAggregate() | SlidingAggregate():
            return held(operator.aggregate)
        case WindowedOperator():
            return held(operator.windows)
        case CompositeOperator():
            return sum(map(held, operator.parts))
    return int(getattr(operator, "rows_held", 0))


def held_bytes(operator: object) -> int:
    """Count the bytes of the state of an operator."""
    match operator:
        case SlackAggregate():
            return operator.aggregate.bytes
        case CompositeOperator():
            return sum(map(held_bytes, operator.parts))
    return int(getattr(operator, "bytes", 0))


def late(operator: object) -> int:
    """Return the number of rows that an operator left out of (a part of) its answer because they were late."""
    match operator:
        case BufferingAggregate():
            return operator.disordered
        case WindowedOperator():
            return operator.late_rows
        case CompositeOperator():
            return sum(map(late, operator.parts))
    return int(getattr(operator, "late", 0))


@dataclass
class VariantSamples:
    """Samples of one variant: `items` and `bytes` after each tick, `latencies` of windows or pairs in ns.

    `calls` contains the wall time in seconds of each watermark or batch that emitted results.
    """

    items: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    latencies: list[Numbers] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    results: list[pa.RecordBatch] = field(default_factory=list)
    late: int = 0


class ObservedJoin:
    """Join with a callback for its pairs."""

    def __init__(self, join: NodeOperator, tell: Callable[[pa.RecordBatch], None]) -> None:
        """Call `tell` with the pairs of `join`."""
        self.join, self.tell = join, tell

    @property
    def bytes(self) -> int:
        """Bytes of the join."""
        return self.join.bytes

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Join rows."""
        return self._told(self.join.rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark."""
        return self._told(self.join.punctuate(port, punctuation))

    def _told(self, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.tell(item)
            yield item

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the join."""
        return self.join.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of the join."""
        self.join.restore(tables)


def observe(question: Question, variant: Variant, arrivals: Arrivals) -> VariantSamples:
    """Run a variant once and sample it after each tick.

    A latency is the time from the end of a window, or the later time of a pair, to the tick of its emission. Results
    after the end of the input have no latency.
    """
    seen = VariantSamples()
    now, over = 0, False

    def pairs(batch: pa.RecordBatch) -> None:
        left, right = (batch.column(name).to_numpy() for name in times)
        if not over:
            seen.latencies.append(now - np.maximum(left, right))

    join = question.join
    operators: list[NodeOperator] = []

    def make(node: Node, ports: int) -> NodeOperator:
        operators.append(variant.make(node, ports))
        watched = isinstance(node, Join) and not question.windowed
        return ObservedJoin(operators[-1], pairs) if watched else operators[-1]

    if join is not None and not question.windowed:
        times = times_of_pairs(join.spec)
    pipeline = Pipeline(question.plan, arrivals.links(len(question.plan.leaves)), make=make)
    tick = 0
    for event in arrivals.events(variant.late):
        if event.tick != tick:
            _sample(seen, operators, event.tick - tick)
            tick = event.tick
        now, over = event.now, event.ends
        for call in _calls(pipeline, arrivals, event):
            began = time.perf_counter()
            left = [item for item in call if isinstance(item, pa.RecordBatch) and item.num_rows]
            if left:
                seen.calls.append(time.perf_counter() - began)
            for batch in left:
                seen.results.append(batch)
                if question.windowed and not over:
                    waited = now - np.unique(batch.column(WINDOW_END).to_numpy())
                    seen.latencies.append(waited[waited >= 0])
    seen.late = sum(map(late, operators))
    return seen


def timed(question: Question, variant: Variant, arrivals: Arrivals) -> float:
    """Run a variant once without samples. Return the CPU time in seconds."""
    pipeline = variant.pipeline(question, arrivals.links(len(question.plan.leaves)))
    began = time.process_time()
    for event in arrivals.events(variant.late):
        for call in _calls(pipeline, arrivals, event):
            for _ in call:
                pass
    return time.process_time() - began


def _calls(pipeline: Pipeline, arrivals: Arrivals, event: Event) -> Iterator[Iterator[GraphItem]]:
    if event.rows is not None:
        yield pipeline.rows(event.port, event.rows)
    yield pipeline.punctuate(event.port, make_punctuation(arrivals.sources[event.port], event.low))


def _sample(seen: VariantSamples, operators: Sequence[object], ticks: int) -> None:
    """Sample the operators after a tick. Following ticks without events have the same sample."""
    seen.items += [sum(map(held, operators))] * ticks
    seen.bytes += [sum(map(held_bytes, operators))] * ticks
