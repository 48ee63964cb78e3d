"""One fragment of one query in one partition, for one micro-batch: its pipeline, and where what leaves it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from highlevel.plan.fragments import sources_of
from highlevel.plan.nodes import width_of
from highlevel.plan.operators.operator import Mark, lows_of
from highlevel.plan.pipeline import Pipeline, make_finite_operator, make_operator
from highlevel.spark.dealing import repartition_of
from highlevel.spark.feeds import Feeds, PortOf
from highlevel.spark.packing import unpack
from highlevel.spark.reading import ArrivalRow
from lowlevel.punctuation import BEGINNING, END, JointPunctuation, Punctuation


@dataclass(frozen=True)
class Arrival:
    """One row for one port of one query: partials or rows, and the promise behind them."""

    query: int
    port: int
    sequence: int
    low: int
    second: int
    payload: pa.Scalar


@dataclass
class Left:
    """What left a pipeline in one micro-batch: rows, and the last promise."""

    batches: list[pa.RecordBatch]
    mark: Mark | None = None


@dataclass
class Hosted:
    """Fragment `number` of a query in partition `part`."""

    feeds: Feeds
    query: int
    number: int
    part: int
    finite: bool = False

    @property
    def last(self) -> bool:
        """Whether what leaves are the query's results."""
        return self.number == len(self.feeds.fragments[self.query].fragments) - 1

    @cached_property
    def ports(self) -> dict[int, int]:
        """The port of the pipeline for each port of the query that this fragment is handed."""
        fragments = self.feeds.fragments[self.query]
        handed = sources_of(fragments.fragments[self.number])
        ports = [port for source in handed for port in self.feeds.ports_of(self.query, source)]
        return {port: place for place, port in enumerate(ports)}

    @cached_property
    def pipeline(self) -> Pipeline:
        """A new pipeline."""
        fragments = self.feeds.fragments[self.query]
        fragment = fragments.fragments[self.number]
        links = [
            [self.feeds.link(self.query, port) for port in self.feeds.ports_of(self.query, source)]
            for source in sources_of(fragment)
        ]
        plan = fragments.plan
        several = len(plan.nodes) - len(plan.leaves) > 1
        return Pipeline(
            fragment, links, make=make_finite_operator if self.finite else make_operator, count_operators=several
        )

    @cached_property
    def widths(self) -> list[int]:
        """How many bounds the promises of each port of the pipeline have."""
        fragments = self.feeds.fragments[self.query]
        fragment = fragments.fragments[self.number]
        return [
            width_of(leaf)
            for leaf, source in zip(fragment.leaves, sources_of(fragment), strict=True)
            for _ in self.feeds.ports_of(self.query, source)
        ]

    def feed(self, arrivals: Sequence[Arrival]) -> Left:
        """Give the pipeline the rows of all ports, in their order, then the promises of all ports."""
        mine = [(self.ports[each.port], each) for each in arrivals if each.port in self.ports]
        left = Left([])
        for port, each in mine:
            if each.payload.is_valid:
                for batch in unpack(each.payload.as_buffer()).to_batches():
                    self._keep(left, self.pipeline.rows(port, batch))
        for port, each in mine:
            if each.low == BEGINNING:
                continue
            link = self.pipeline.links[port]
            if self.widths[port] == 1:
                self._keep(left, self.pipeline.punctuate(port, Punctuation(link, each.low)))
            else:
                box = JointPunctuation(link, (each.low, each.second))
                self._keep(left, self.pipeline.punctuate(port, box))
        return left

    def finish(self, arrivals: Sequence[Arrival]) -> Left:
        """Give the pipeline all rows there are, and then the end of every port."""
        left = self.feed(arrivals)
        for port, link in enumerate(self.pipeline.links):
            self._keep(left, self.pipeline.punctuate(port, Punctuation(link, END)))
        return left

    def _keep(self, left: Left, items: Iterator[pa.RecordBatch | Mark]) -> None:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                left.batches.append(item)
            else:
                left.mark = item

    def handed_on(self, left: Left, sequence: int) -> Iterator[ArrivalRow]:
        """Deal what left to the fragments that read it: a row for every partition, with or without rows.

        So every partition runs at every level, and no promise is lost in an empty one.
        """
        fragments = self.feeds.fragments[self.query]
        fragment = fragments.fragments[self.number]
        low = second = BEGINNING
        if left.mark is not None:
            low, second, *_ = (*lows_of(left.mark, width_of(fragment.root)), BEGINNING)
        for source, of in enumerate(fragments.sources):
            if of.fragment != self.number:
                continue
            port = self.feeds.ports[self.query].index(PortOf(source, self.part))
            for part, payload in enumerate(repartition_of(fragments, source).packed(left.batches, self.feeds.parts)):
                yield part, self.query, port, sequence, low, second, payload
