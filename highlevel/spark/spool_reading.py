"""Tasks of the stream source for a spool: convert a run of segments to packed partials, watermarks and counters.

The node has already run the low level. The items of a plan are sent to the queries with this low-level plan
(`highlevel.spark.spool_plans`), in the same form as for captures. Watermarks are taken unchanged from the segments.
After a restart of the node they may decrease; the union of links ignores this.

A lost segment (dropped by a full spool, or damaged) is counted and reported. Reading continues, because the next
segment does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from capture.metrics import Samples
from capture.units import SECOND
from highlevel.inline.engine import Input
from highlevel.metrics import (
    SPOOL_NEWEST,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_PASSED_OVER,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SAMPLED,
    SPOOL_PARTIALS_SHED,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
    SPOOL_SEGMENTS_WITHOUT_QUERY,
)
from highlevel.plan.nodes import Leaf
from highlevel.spark.estimates import sampled_times, with_ranges
from highlevel.spark.feeds import InputAssignment
from highlevel.spark.reading import LeafOutput, TaskOutput, rows_of
from highlevel.spark.spool_backlog import SegmentRun
from highlevel.spark.spool_plans import Match, Offered, SpoolQuery, match, without_plan
from lowlevel.integer_ranges import Ranges
from lowlevel.node.shedding import SAMPLED
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import SegmentLostError, SpoolError, numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import Segment


@dataclass(frozen=True)
class SpoolRun:
    """Run of segments of the spool that is input `number`. `partials_lost` is the known number in lost segments."""

    number: int
    segments: SegmentRun
    partials_lost: int = 0


def read_spool_run(feeds: InputAssignment, run: SpoolRun) -> Iterator[pa.RecordBatch]:
    """Read a run of segments and yield its rows as one batch. Raise SpoolError if the spool belongs to another link."""
    yield rows_of(feeds, _Reading(feeds, run).read())


class _Reading:
    """State while a run of segments is read."""

    def __init__(self, feeds: InputAssignment, run: SpoolRun) -> None:
        self.run = run
        self.input: Input = feeds.inputs[run.number]
        self.plans: dict[int, Leaf] = {reader: feeds.leaf(reader) for reader in feeds.readers(run.number)}
        self.wanted = {
            reader: SpoolQuery(feeds.node_name(reader), fingerprint(plan.low)) for reader, plan in self.plans.items()
        }
        self.taken = {query: LeafOutput(BEGINNING, []) for query in self.plans}
        self.samples = Samples()
        self.warnings: dict[str, None] = {}
        self.sampled: dict[int, Ranges] = {}
        self.newest: int | None = None
        self.ended = False

    def read(self) -> TaskOutput:
        run, segments, path = self.run, self.run.segments, self.input.path
        link = self.input.link
        read = 0
        damaged = []
        reader = SpoolReader(path)
        for number in numbers(path):
            if not segments.first <= number < segments.end:
                continue
            try:
                segment = reader.read(number)
            except SegmentLostError as error:
                if segment_path(path, number).exists():
                    damaged.append(str(error))
                continue
            if segment.link != link:
                raise SpoolError(f"{path}: got the spool of the link {segment.link}, expected that of {link}")
            self._take(segment)
            read += 1
        self.samples.add(SPOOL_SEGMENTS_READ, read, link)
        self._count_lost(read, damaged)
        return TaskOutput(
            number=run.number,
            sequence=segments.first,
            taken=self.taken,
            samples=self.samples,
            newest=self.newest,
            done=segments.end,
            total=segments.end if self.ended else segments.end + 1,
            warnings=tuple(self.warnings),
            sampled=self.sampled,
        )

    def _take(self, segment: Segment) -> None:
        """Pass on the items of a segment.

        Its end is sent to all queries, including those that the node does not know.
        """
        link = self.input.link
        found = match(self.wanted, segment.plans)
        for query in self.plans if segment.header.skipped else ():
            self._estimates(query, segment.header.skipped)
        for name, print_of, item in segment.items:
            query_numbers = found.queries_by_plan.get((name, print_of), ())
            if isinstance(item, Punctuation):
                for query in query_numbers:
                    self._promise(query, item.watermark)
                continue
            if not query_numbers:
                self.samples.add(SPOOL_PARTIALS_PASSED_OVER, item.num_rows, link)
            for query in query_numbers:
                self._partials(query, item)
        self._tell_missing(found, segment.plans)
        self.ended = segment.ended
        if segment.ended:
            for query in self.plans:
                self._promise(query, END)
        self.samples.set(SPOOL_PARTIALS_SHED, segment.header.shed_before, link)
        if segment.trailer.last:
            self.samples.set(SPOOL_NEWEST, segment.trailer.last / SECOND, link)

    def _promise(self, query: int, low: int) -> None:
        taken = self.taken[query]
        self.taken[query] = LeafOutput(max(taken.low, low), taken.batches)

    def _partials(self, query: int, batch: pa.RecordBatch) -> None:
        plan = self.plans[query]
        self.samples.add(SPOOL_PARTIALS_READ, batch.num_rows, plan.name, self.input.link)
        self.taken[query].batches.append(batch)
        if SAMPLED in (batch.schema.metadata or {}) and batch.num_rows:
            times = sampled_times(batch.column("pane").to_numpy(), plan.low.origin, plan.low.pane)
            self._estimates(query, times)
            self.samples.add(SPOOL_PARTIALS_SAMPLED, batch.num_rows, plan.name, self.input.link)
        if batch.num_rows:
            begin = plan.low.origin + pc.max(batch.column("pane")).as_py() * plan.low.pane
            self.newest = begin if self.newest is None else max(self.newest, begin)

    def _estimates(self, query: int, times: Iterable[tuple[int, int]]) -> None:
        """Record times, as ranges, in which the node did not process all packets."""
        self.sampled[query] = with_ranges(self.sampled.get(query, []), list(times))
        warning = f"{self.input.path}: some results are estimates: its node sampled, as spool or ring was filling"
        self.warnings[warning] = None

    def _tell_missing(self, found: Match, offered: tuple[Offered, ...]) -> None:
        for query in found.missing:
            wanted = self.wanted[query]
            self.samples.add(SPOOL_SEGMENTS_WITHOUT_QUERY, 1, wanted.name, self.input.link)
            self.warnings[without_plan(str(self.input.path), wanted, offered)] = None

    def _count_lost(self, read: int, damaged: list[str]) -> None:
        """Count and report the segments that were not read. `damaged` contains the reason for each damaged segment."""
        segments, path, link = self.run.segments, self.input.path, self.input.link
        missing = segments.end - segments.first - read - len(damaged)
        if damaged:
            self.samples.add(SPOOL_SEGMENTS_LOST, len(damaged), link, "damaged")
            self.warnings |= dict.fromkeys(f"{wrong}; its rows are missing in the results" for wrong in damaged)
        if missing:
            self.samples.add(SPOOL_SEGMENTS_LOST, missing, link, "missing")
            what = "segment is" if missing == 1 else "segments are"
            warning = (
                f"{path}: {missing:,} {what} missing between {segments.first} and {segments.end - 1}, dropped by a "
                "full spool or deleted; their rows are missing in the results"
            )
            self.warnings[warning] = None
        if self.run.partials_lost:
            self.samples.add(SPOOL_PARTIALS_LOST, self.run.partials_lost, link)
