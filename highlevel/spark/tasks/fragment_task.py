"""Run one fragment of a query in one partition, for one micro-batch.

`highlevel.plan.fragments` divides a query into fragments: at each place where rows must be partitioned by another key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.plan.fragments import Fragments, sources_of
from highlevel.plan.nodes import Leaf, bound_count
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, bounds_of, make_punctuation
from highlevel.plan.pipeline import LinkUnion, Pipeline, make_finite_operator, make_operator
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.assignment import InputAssignment, SourcePort
from highlevel.spark.inputs.reading import ArrivalRow
from highlevel.spark.tasks.packing import unpack
from highlevel.spark.tasks.repartition import make_repartition
from highlevel.speculation.changes import add_up
from highlevel.speculation.provisional_windows import NO_PARTIALS, with_newest_time
from lowlevel.kinds import TABLE
from lowlevel.punctuation import BEGINNING, END, Punctuation


@dataclass(frozen=True)
class Arrival:
    """Rows for one port of one query, and the `watermark` after them.

    `second_watermark` is the watermark of the second time column, if there are two, as after a join. If the results are
    changes, it is the newest time of the rows so far instead.
    """

    query: int
    port: int
    sequence: int
    watermark: int
    second_watermark: int
    payload: pa.Scalar


@dataclass
class FragmentOutput:
    """The rows and the last watermark that a fragment has returned in one micro-batch."""

    batches: list[pa.RecordBatch]
    punctuation: AnyPunctuation | None = None

    def add(self, items: Iterable[GraphItem]) -> None:
        """Add the items of a pipeline."""
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.batches.append(item)
            else:
                self.punctuation = item

    def add_all(self, later: FragmentOutput) -> None:
        """Add a later output."""
        self.batches += later.batches
        self.punctuation = later.punctuation or self.punctuation


def _order_by_watermarks(arrivals: Sequence[Arrival], before: Mapping[int, int]) -> list[Arrival]:
    """Order arrivals by the watermark that their port had before them. Arrivals of one port keep their order.

    `before`: the watermarks of the ports before all these arrivals.
    """
    watermarks = dict(before)
    keys = {}
    for arrival in sorted(arrivals, key=lambda arrival: (arrival.port, arrival.sequence)):
        low = watermarks.get(arrival.port, BEGINNING)
        keys[arrival.port, arrival.sequence] = low, arrival.port, arrival.sequence
        watermarks[arrival.port] = max(low, arrival.watermark)
    return sorted(arrivals, key=lambda arrival: keys[arrival.port, arrival.sequence])


@dataclass
class FragmentTask:
    """Fragment `fragment_number` of a query in partition `part`.

    `is_finite`: the input is finite, so all rows arrive before the first watermark. `measure`: measure the operators.
    """

    assignment: InputAssignment
    query: int
    fragment_number: int
    part: int
    is_finite: bool = False
    measure: bool = False

    @property
    def fragments(self) -> Fragments:
        """The fragments of the query."""
        return self.assignment.fragments[self.query]

    @property
    def fragment(self) -> Plan:
        """This fragment."""
        return self.fragments.fragments[self.fragment_number]

    @property
    def state_key(self) -> str:
        """The key of the state: the ID of the query and the number of the fragment."""
        return f"{self.assignment.query_ids[self.query]}.{self.fragment_number}"

    @property
    def is_last(self) -> bool:
        """Return True if the output is the result of the query."""
        return self.fragment_number == len(self.fragments.fragments) - 1

    @cached_property
    def sources(self) -> list[tuple[int, list[int]]]:
        """For each leaf: the number of its time columns (1 or 2), and the ports of the query that feed it."""
        leaves = zip(self.fragment.leaves, sources_of(self.fragment), strict=True)
        return [(bound_count(leaf), self.assignment.ports_of(self.query, source)) for leaf, source in leaves]

    @cached_property
    def ports(self) -> dict[int, tuple[int, int]]:
        """The ports of the query that the fragment reads, each with (port of the pipeline, number of its times)."""
        ports = [(port, time_count) for time_count, ports in self.sources for port in ports]
        return {port: (pipeline_port, time_count) for pipeline_port, (port, time_count) in enumerate(ports)}

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline. If the query has several operators, it counts the work of each."""
        links = [[self.assignment.link(self.query, port) for port in ports] for _, ports in self.sources]
        plan = self.fragments.plan
        has_several_operators = len(plan.nodes) - len(plan.leaves) > 1
        return Pipeline(
            self.fragment,
            links,
            make=make_finite_operator if self.is_finite and not self.fragment.is_by_arrival else make_operator,
            count_operators=has_several_operators,
            count_closed=False,
            measure=self.measure,
        )

    def measurements(self) -> list[tuple[int, tuple[int, int, float, int]]]:
        """Return (position of the node in the plan of the query, figures) for each measured operator.

        Leaves are measured by the tasks that read them (`highlevel.spark.inputs.byte_ranges`).
        """
        nodes, fragments = self.pipeline.nodes, self.fragments
        return [
            (fragments.plan.nodes.index(fragments.origin_of(node)), measurement.figures)
            for node, measurement in zip(nodes.nodes, nodes.measurements, strict=False)
            if not isinstance(node, Leaf)
        ]

    @cached_property
    def _reads_tables(self) -> bool:
        return any(leaf.low.kind == TABLE for leaf in self.fragment.leaves)

    @property
    def _watermarks(self) -> dict[int, int]:
        """The watermarks of the ports that are links."""
        operators = zip(self.pipeline.leaf_operators, self.sources, strict=True)
        return {
            port: watermark
            for operator, (_, ports) in operators
            if isinstance(operator, LinkUnion)
            for port, watermark in zip(ports, operator.input_watermarks, strict=True)
        }

    def feed(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        """Process the rows of all arrivals in their order, and then the watermarks of all arrivals.

        If the inputs have a schema, rows may be late. Then links advance together, as in `finish`.
        """
        return self._without_cancelled(self._feed_in_turn(arrivals) if self._reads_tables else self._feed(arrivals))

    def _feed_in_turn(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        """Process the rows of each arrival, then its watermark. The next arrival is that after the smallest watermark.

        So the same rows are late as in the inline engine, for every division into micro-batches.
        """
        output = FragmentOutput([])
        own = [arrival for arrival in arrivals if arrival.port in self.ports]
        for arrival in _order_by_watermarks(own, self._watermarks):
            output.add_all(self._feed([arrival]))
        return output

    def _feed(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        port_arrivals = [(*self.ports[arrival.port], arrival) for arrival in arrivals if arrival.port in self.ports]
        output = FragmentOutput([])
        if self.fragment.has_changes:
            for time_count, ports in self.sources:
                output.add(self._feed_together([arrival for arrival in arrivals if arrival.port in ports], time_count))
        for port, _, arrival in port_arrivals if not self.fragment.has_changes else ():
            if arrival.payload.is_valid:
                for batch in unpack(arrival.payload.as_buffer()).to_batches():
                    output.add(self.pipeline.process_rows(port, batch))
        for port, time_count, arrival in port_arrivals:
            if arrival.watermark != BEGINNING:
                punctuation = make_punctuation(
                    self.pipeline.links[port], (arrival.watermark, arrival.second_watermark)[:time_count]
                )
                output.add(self.pipeline.punctuate(port, punctuation))
        return output

    def _without_cancelled(self, output: FragmentOutput) -> FragmentOutput:
        """Add up the changes of a micro-batch, so that each row is corrected at most once.

        Other results are not changed.
        """
        if self.fragment.has_changes and len(output.batches) > 1:
            (batch,) = pa.Table.from_batches(output.batches).combine_chunks().to_batches() or [output.batches[0]]
            output.batches = list(add_up(batch))
        return output

    def ends_of(self, input_ids: Collection[int]) -> list[Arrival]:
        """Return arrivals that end the ports of the inputs with these IDs."""
        arrivals = []
        for port in self.ports:
            source_port = self.assignment.ports[self.query][port]
            is_link = self.fragments.sources[source_port.source].leaf is not None
            if is_link and self.assignment.input_ids[source_port.number] in input_ids:
                arrivals.append(Arrival(self.query, port, 0, END, BEGINNING, pa.scalar(None, pa.binary())))
        return arrivals

    def watermarks_from(self, newest_times: Mapping[int, int]) -> list[Arrival]:
        """Return watermarks of DataFrames and of partitions of topics that have no more rows.

        `newest_times`: the newest first time of the link, ns, by the number of the input
        (`highlevel.spark.inputs.topic_reading`).
        """
        arrivals = []
        for port in self.ports:
            source_port = self.assignment.ports[self.query][port]
            leaf_number = self.fragments.sources[source_port.source].leaf
            if leaf_number is None or source_port.number not in newest_times:
                continue
            stream = self.assignment.inputs[source_port.number].rows
            time = self.fragments.plan.leaves[leaf_number].streams[1]
            if stream is not None and time == next(iter(stream.times), None):
                band = stream.slack_of(time)
                if band is not None:
                    watermark = newest_times[source_port.number] - band
                    arrivals.append(Arrival(self.query, port, -1, watermark, BEGINNING, pa.scalar(None, pa.binary())))
        return arrivals

    def _feed_together(self, arrivals: Sequence[Arrival], time_count: int) -> Iterator[GraphItem]:
        """Process all rows for a leaf with `time_count` times at once, so that a result is corrected at most once.

        The newest time is processed in partitions without rows too, because their windows wait for it.
        """
        newest_times = [arrival.second_watermark for arrival in arrivals] if time_count == 1 else []
        newest = max(newest_times, default=BEGINNING)
        tables = [unpack(arrival.payload.as_buffer()) for arrival in arrivals if arrival.payload.is_valid]
        if newest == BEGINNING and not tables:
            return iter(())
        port, _ = self.ports[arrivals[0].port]
        (batch,) = pa.concat_tables(tables).combine_chunks().to_batches() if tables else [NO_PARTIALS]
        return self.pipeline.process_rows(port, with_newest_time(batch, newest))

    def finish(self, arrivals: Sequence[Arrival]) -> FragmentOutput:
        """Process all rows of a finite input, then the end of every port.

        If rows may be late, links advance together: the arrival after the smallest watermark is always next.
        """
        output = self._feed_in_turn(arrivals) if self.fragment.is_by_arrival else self._feed(arrivals)
        for port, link in enumerate(self.pipeline.links):
            output.add(self.pipeline.punctuate(port, Punctuation(link, END)))
        return self._without_cancelled(output)

    def repartition(self, output: FragmentOutput, sequence: int) -> Iterator[ArrivalRow]:
        """Yield the output for the fragments that read it: one ArrivalRow for each partition, even if it has no data.

        So each of these fragments runs in every partition, and every partition receives the watermark.
        """
        watermark = second_watermark = BEGINNING
        if output.punctuation is not None:
            watermark, second_watermark, *_ = (
                *bounds_of(output.punctuation, bound_count(self.fragment.root)),
                BEGINNING,
            )
        for source_number, source in enumerate(self.fragments.sources):
            if source.fragment != self.fragment_number:
                continue
            port = self.assignment.ports[self.query].index(SourcePort(source_number, self.part))
            payloads = make_repartition(self.fragments, source_number).pack_parts(
                output.batches, self.assignment.partitions
            )
            for part, payload in enumerate(payloads):
                yield part, self.query, port, sequence, watermark, second_watermark, payload
