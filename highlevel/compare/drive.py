"""Feeds a pipeline with arrivals: to see what it holds and when its results leave, or to see how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from highlevel.compare.arrivals import Arrivals, Event, promise
from highlevel.compare.held import held, held_bytes, late
from highlevel.compare.question import Question, times_of_pairs
from highlevel.compare.recording import Numbers
from highlevel.compare.variants import Variant
from highlevel.operators.window_operator import WINDOW_END
from highlevel.plan.nodes import Join, Node
from highlevel.plan.operators.operator import Mark, NodeOperator
from highlevel.plan.pipeline import Pipeline
from lowlevel.punctuation import GraphItem


@dataclass
class Seen:
    """What was seen of one variant; `items` and `bytes` behind each tick, `latencies` of windows, or pairs, in ns.

    `calls` are seconds of wall time that a promise took, or a batch, of which results left.
    """

    items: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    latencies: list[Numbers] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    results: list[pa.RecordBatch] = field(default_factory=list)
    late: int = 0


class SeenJoin:
    """A join, and who is told of the pairs that leave it."""

    def __init__(self, join: NodeOperator, tell: Callable[[pa.RecordBatch], None]) -> None:
        """Tell of the pairs of `join`."""
        self.join, self.tell = join, tell

    @property
    def bytes(self) -> int:
        """Bytes of the join."""
        return self.join.bytes

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Take rows."""
        return self._told(self.join.rows(port, batch))

    def punctuate(self, port: int, mark: Mark) -> Iterator[GraphItem]:
        """Take a promise."""
        return self._told(self.join.punctuate(port, mark))

    def _told(self, items: Iterator[GraphItem]) -> Iterator[GraphItem]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.tell(item)
            yield item

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the join."""
        return self.join.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of the join."""
        self.join.restore(tables)


def observe(question: Question, variant: Variant, arrivals: Arrivals) -> Seen:
    """Run a variant once and look at it behind each tick.

    A latency is from the end of a window, or the later time of a pair, to the tick in which it leaves; what leaves
    since the input ends has not waited for its time, and is not counted.
    """
    seen = Seen()
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
        return SeenJoin(operators[-1], pairs) if watched else operators[-1]

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
    """Run a variant once and look at nothing: seconds of CPU time."""
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
    yield pipeline.punctuate(event.port, promise(arrivals.sources[event.port], event.low))


def _sample(seen: Seen, operators: Sequence[object], ticks: int) -> None:
    """Look at the operators behind a tick, and so behind those after it in which nothing happened."""
    seen.items += [sum(map(held, operators))] * ticks
    seen.bytes += [sum(map(held_bytes, operators))] * ticks
