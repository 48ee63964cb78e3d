"""Run a pipeline over arrivals, to sample its state and latencies, or to measure its CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
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
from highlevel.sliding.aggregate import Aggregate, SlidingAggregate
from lowlevel.punctuation import GraphItem


def count_stored(operator: object) -> int:
    """Return the number of stored rows or partials of an operator."""
    match operator:
        case Aggregate():
            return operator.rows_held
        case BufferingAggregate():
            return operator.tuples
        case SlackAggregate() | SlidingAggregate():
            return count_stored(operator.aggregate)
        case WindowedOperator():
            return count_stored(operator.windows)
        case CompositeOperator():
            return sum(map(count_stored, operator.parts))
    return int(getattr(operator, "rows_held", 0))


def count_state_bytes(operator: object) -> int:
    """Count the bytes of the state of an operator."""
    match operator:
        case SlackAggregate():
            return operator.aggregate.bytes
        case CompositeOperator():
            return sum(map(count_state_bytes, operator.parts))
    return int(getattr(operator, "bytes", 0))


def count_late(operator: object) -> int:
    """Return the number of late rows of an operator: rows that are missing in at least one of its results."""
    match operator:
        case BufferingAggregate():
            return operator.disordered
        case WindowedOperator():
            return operator.late_rows
        case CompositeOperator():
            return sum(map(count_late, operator.parts))
    return int(getattr(operator, "late", 0))


@dataclass
class VariantSamples:
    """Samples of one variant: number and bytes of stored items after each tick, and `latencies` of results in ns.

    `call_seconds`: wall time of each call of the pipeline that emitted results. `late_rows`: number of late rows.
    """

    stored_items: list[int] = field(default_factory=list)
    stored_bytes: list[int] = field(default_factory=list)
    latencies: list[Numbers] = field(default_factory=list)
    call_seconds: list[float] = field(default_factory=list)
    results: list[pa.RecordBatch] = field(default_factory=list)
    late_rows: int = 0


class ObservedJoin:
    """A join that passes its pairs to a callback before it emits them."""

    def __init__(self, join: NodeOperator, on_pairs: Callable[[pa.RecordBatch], None]) -> None:
        """Call `on_pairs` with the pairs of `join`."""
        self.join, self.on_pairs = join, on_pairs

    @property
    def bytes(self) -> int:
        """Bytes of the join."""
        return self.join.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Join rows."""
        return self._report_items(self.join.process_rows(port, batch))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Process a watermark."""
        return self._report_items(self.join.punctuate(port, punctuation))

    def _report_items(self, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.on_pairs(item)
            yield item

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the join."""
        return self.join.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of the join."""
        self.join.restore(tables)


def observe(question: Question, variant: Variant, arrivals: Arrivals) -> VariantSamples:
    """Run a variant once and sample it after each tick.

    The latency of a result is the time of the tick in which it was emitted, minus the end of its window. For a pair of
    a join it is the time of the tick minus the later time of the two rows. Results after the end of the input have no
    latency.
    """
    samples = VariantSamples()
    now, input_ended = 0, False

    def add_pair_latencies(batch: pa.RecordBatch) -> None:
        left, right = (batch.column(name).to_numpy() for name in times)
        if not input_ended:
            samples.latencies.append(now - np.maximum(left, right))

    join = question.join
    operators: list[NodeOperator] = []

    def make(node: Node, ports: int) -> NodeOperator:
        operators.append(variant.make(node, ports))
        has_callback = isinstance(node, Join) and not question.windowed
        return ObservedJoin(operators[-1], add_pair_latencies) if has_callback else operators[-1]

    if join is not None and not question.windowed:
        times = times_of_pairs(join.spec)
    pipeline = Pipeline(question.plan, arrivals.links(len(question.plan.leaves)), make=make)
    tick = 0
    for event in arrivals.events(variant.watermark_delay):
        if event.tick != tick:
            _sample(samples, operators, event.tick - tick)
            tick = event.tick
        now, input_ended = event.now, event.is_end
        for call in _process_event(pipeline, arrivals, event):
            began = time.perf_counter()
            results = [item for item in call if isinstance(item, pa.RecordBatch) and item.num_rows]
            if results:
                samples.call_seconds.append(time.perf_counter() - began)
            for batch in results:
                samples.results.append(batch)
                if question.windowed and not input_ended:
                    latencies = now - np.unique(batch.column(WINDOW_END).to_numpy())
                    samples.latencies.append(latencies[latencies >= 0])
    samples.late_rows = sum(map(count_late, operators))
    return samples


def measure_cpu_time(question: Question, variant: Variant, arrivals: Arrivals) -> float:
    """Run a variant once without samples. Return the CPU time in seconds."""
    pipeline = variant.pipeline(question, arrivals.links(len(question.plan.leaves)))
    began = time.process_time()
    for event in arrivals.events(variant.watermark_delay):
        for call in _process_event(pipeline, arrivals, event):
            for _ in call:
                pass
    return time.process_time() - began


def _process_event(pipeline: Pipeline, arrivals: Arrivals, event: Event) -> Iterator[Iterator[GraphItem]]:
    if event.rows is not None:
        yield pipeline.process_rows(event.port, event.rows)
    yield pipeline.punctuate(event.port, make_punctuation(arrivals.sources[event.port], event.watermark))


def _sample(samples: VariantSamples, operators: Sequence[object], ticks: int) -> None:
    """Add `ticks` equal samples, one per tick since the last event, because no event changed the state."""
    samples.stored_items += [sum(map(count_stored, operators))] * ticks
    samples.stored_bytes += [sum(map(count_state_bytes, operators))] * ticks
