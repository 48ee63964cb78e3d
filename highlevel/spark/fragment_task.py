"""One fragment of a query in one partition, for one micro-batch: its pipeline and its output.

`highlevel.plan.fragments` divides a query into fragments, where its rows need a new partitioning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from highlevel.plan.fragments import Fragments, sources_of
from highlevel.plan.node_operators import make_finite_operator, make_operator
from highlevel.plan.nodes import Leaf, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, make_punctuation
from highlevel.plan.pipeline import Pipeline
from highlevel.plan.plan import Plan
from highlevel.spark.feeds import InputAssignment, SourcePort
from highlevel.spark.packing import unpack
from highlevel.spark.reading import ArrivalRow
from highlevel.spark.repartition import repartition_of
from lowlevel.punctuation import BEGINNING, END, Punctuation


@dataclass(frozen=True)
class Arrival:
    """Rows for one port of one query, and the watermark `low` after them.

    If there are two time columns, as after a join, `second` is the watermark of the second one.
    """

    query: int
    port: int
    sequence: int
    low: int
    second: int
    payload: pa.Scalar


@dataclass
class FragmentOutput:
    """The rows and the last watermark that a fragment returned in one micro-batch."""

    batches: list[pa.RecordBatch]
    mark: AnyPunctuation | None = None

    def add(self, items: Iterable[GraphItem]) -> None:
        """Add the items of a pipeline."""
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.batches.append(item)
            else:
                self.mark = item


@dataclass
class FragmentTask:
    """Fragment `number` of a query in partition `part`; `finite` if all rows arrive before the first watermark.

    `measure`: measure the operators.
    """

    feeds: InputAssignment
    query: int
    number: int
    part: int
    finite: bool = False
    measure: bool = False

    @property
    def fragments(self) -> Fragments:
        """The fragments of the query."""
        return self.feeds.fragments[self.query]

    @property
    def fragment(self) -> Plan:
        """This fragment."""
        return self.fragments.fragments[self.number]

    @property
    def last(self) -> bool:
        """Return True if the output is the result of the query."""
        return self.number == len(self.fragments.fragments) - 1

    @cached_property
    def sources(self) -> list[tuple[int, list[int]]]:
        """For each leaf: the number of its time columns (1 or 2), and the ports of the query that feed it."""
        leaves = zip(self.fragment.leaves, sources_of(self.fragment), strict=True)
        return [(bound_count(leaf), self.feeds.ports_of(self.query, source)) for leaf, source in leaves]

    @cached_property
    def ports(self) -> dict[int, tuple[int, int]]:
        """The ports of the query that the fragment reads, each with (port of the pipeline, number of its times)."""
        ports = [(port, width) for width, ports in self.sources for port in ports]
        return {port: (number, width) for number, (port, width) in enumerate(ports)}

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline. If the query has several operators, it counts the work of each."""
        links = [[self.feeds.link(self.query, port) for port in ports] for _, ports in self.sources]
        plan = self.fragments.plan
        several = len(plan.nodes) - len(plan.leaves) > 1
        make = make_finite_operator if self.finite else make_operator
        return Pipeline(
            self.fragment, links, make=make, count_operators=several, count_closed=False, measure=self.measure
        )

    def measurements(self) -> list[tuple[int, tuple[int, int, float, int]]]:
        """Return for each measured operator the position of its node in the plan of the query, and its figures.

        Leaves are measured where they are read (`highlevel.spark.byte_ranges`).
        """
        nodes, fragments = self.pipeline.nodes, self.fragments
        return [
            (fragments.plan.nodes.index(fragments.origin_of(node)), measured.figures)
            for node, measured in zip(nodes.nodes, nodes.measurements, strict=False)
            if not isinstance(node, Leaf)
        ]

    def feed(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        """Process the rows of all arrivals in their order, then the watermarks of all arrivals."""
        mine = [(*self.ports[arrival.port], arrival) for arrival in arrivals if arrival.port in self.ports]
        output = FragmentOutput([])
        for port, _, arrival in mine:
            if arrival.payload.is_valid:
                for batch in unpack(arrival.payload.as_buffer()).to_batches():
                    output.add(self.pipeline.rows(port, batch))
        for port, width, arrival in mine:
            if arrival.low != BEGINNING:
                mark = make_punctuation(self.pipeline.links[port], (arrival.low, arrival.second)[:width])
                output.add(self.pipeline.punctuate(port, mark))
        return output

    def finish(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        """Process all rows of a finite input, then the end of every port."""
        output = self.feed(arrivals)
        for port, link in enumerate(self.pipeline.links):
            output.add(self.pipeline.punctuate(port, Punctuation(link, END)))
        return output

    def repartitioned(self, output: FragmentOutput, sequence: int) -> Iterator[ArrivalRow]:
        """Yield the output for the fragments that read it: one ArrivalRow for each partition, even without data.

        So each of these fragments runs in every partition, and partitions without data receive the watermark too.
        """
        low = second = BEGINNING
        if output.mark is not None:
            low, second, *_ = (*bounds_of(output.mark, bound_count(self.fragment.root)), BEGINNING)
        for number, source in enumerate(self.fragments.sources):
            if source.fragment != self.number:
                continue
            port = self.feeds.ports[self.query].index(SourcePort(number, self.part))
            payloads = repartition_of(self.fragments, number).packed(output.batches, self.feeds.partitions)
            for part, payload in enumerate(payloads):
                yield part, self.query, port, sequence, low, second, payload
