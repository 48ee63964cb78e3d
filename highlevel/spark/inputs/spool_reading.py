"""The tasks of the stream source for spools: read segments, and return packed partials, watermarks and counters.

The node has already run the low level. The items of each plan are sent to the queries with this low-level plan
(`spark.inputs.spool_plans`), in the same form as for captures. Watermarks are those of the segments. After a restart
of the node they may be smaller than before; the union of links ignores such watermarks.

A lost segment (damaged, or dropped by a full spool) is counted and reported. Reading continues, because the next
segment does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from capture.units import SECOND
from highlevel.inline.engine import Input
from highlevel.metrics import (
    SPOOL_LATENESS,
    SPOOL_LINK_COUNTS,
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
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.estimates import merge_pane_times, merge_ranges
from highlevel.spark.inputs.quarantine import Damage
from highlevel.spark.inputs.reading import LeafOutput, TaskOutput, pack_output
from highlevel.spark.inputs.spool_backlog import SegmentRange
from highlevel.spark.inputs.spool_plans import OfferedPlan, PlanMatches, SpoolQuery, describe_missing_plan, match_plans
from lowlevel.integer_ranges import Ranges
from lowlevel.node.shedding import SAMPLING_FACTOR_KEY
from lowlevel.punctuation import BEGINNING, END, Punctuation
from lowlevel.spool.fingerprint import fingerprint
from lowlevel.spool.folder import SegmentLostError, SpoolError, segment_numbers, segment_path
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.segment import Segment


@dataclass(frozen=True)
class SpoolRange:
    """A range of segments of the spool that is input `input_number`.

    `partials_lost` is the number of partials in lost segments, as far as it is known.
    """

    input_number: int
    segments: SegmentRange
    partials_lost: int = 0


def read_spool_range(assignment: InputAssignment, spool_range: SpoolRange) -> Iterator[pa.RecordBatch]:
    """Read a range of segments and yield its rows as one batch.

    Raise SpoolError if the spool belongs to another link.
    """
    yield pack_output(assignment, _SpoolRangeReader(assignment, spool_range).read())


class _SpoolRangeReader:
    """Reads one range of segments, once. `reader` is the number of a leaf over all queries."""

    def __init__(self, assignment: InputAssignment, spool_range: SpoolRange) -> None:
        self.spool_range = spool_range
        self.input: Input = assignment.inputs[spool_range.input_number]
        self.leaves: dict[int, Leaf] = {
            reader: assignment.leaf(reader) for reader in assignment.readers(spool_range.input_number)
        }
        self.queries = {
            reader: SpoolQuery(assignment.node_name(reader), fingerprint(leaf.low))
            for reader, leaf in self.leaves.items()
        }
        self.leaf_outputs = {reader: LeafOutput(BEGINNING, []) for reader in self.leaves}
        self.samples = Samples()
        self.warnings: dict[str, None] = {}
        self.sampled_ranges: dict[int, Ranges] = {}
        self.newest_time: int | None = None
        self.has_ended = False

    def read(self) -> TaskOutput:
        spool_range, segments, path = self.spool_range, self.spool_range.segments, self.input.path
        link = self.input.link
        read_count = 0
        damage_messages = []
        damages = []
        spool = SpoolReader(path)
        for number in segment_numbers(path):
            if not segments.first <= number < segments.end:
                continue
            try:
                segment = spool.read(number)
            except SegmentLostError as error:
                if segment_path(path, number).exists():
                    damage_messages.append(str(error))
                    segment_file = str(segment_path(path, number).absolute())
                    damages.append(Damage(segment_file, f"segment {number}", str(error), link=link))
                continue
            if segment.link != link:
                raise SpoolError(f"{path}: got the spool of the link {segment.link}, expected that of {link}")
            self._add_segment(segment)
            read_count += 1
        self.samples.add(SPOOL_SEGMENTS_READ, read_count, link)
        self._report_lost_segments(read_count, damage_messages)
        return TaskOutput(
            input_number=spool_range.input_number,
            sequence=segments.first,
            leaf_outputs=self.leaf_outputs,
            samples=self.samples,
            newest_time=self.newest_time,
            position=segments.end,
            input_size=segments.end if self.has_ended else segments.end + 1,
            warnings=tuple(self.warnings),
            damages=tuple(damages),
            sampled_ranges=self.sampled_ranges,
        )

    def _add_segment(self, segment: Segment) -> None:
        """Add the items of a segment to the output of the queries.

        If the spool ends with this segment, all queries receive END, even those that the node does not know.
        """
        link = self.input.link
        matches = match_plans(self.queries, segment.plans)
        for reader in self.leaves if segment.header.skipped else ():
            self._add_sampled_ranges(reader, segment.header.skipped)
        for name, plan_fingerprint, item in segment.items:
            readers = matches.queries_by_plan.get((name, plan_fingerprint), ())
            if isinstance(item, Punctuation):
                for reader in readers:
                    self._advance_watermark(reader, item.watermark)
                continue
            if not readers:
                self.samples.add(SPOOL_PARTIALS_PASSED_OVER, item.num_rows, link)
            for reader in readers:
                self._add_partials(reader, item)
        self._report_missing_plans(matches, segment.plans)
        self.has_ended = segment.ended
        if segment.ended:
            for reader in self.leaves:
                self._advance_watermark(reader, END)
        self.samples.set(SPOOL_PARTIALS_SHED, segment.header.shed_before, link)
        if (counts := segment.header.counts) is not None:
            self.samples.set(SPOOL_LATENESS, counts.lateness / SECOND, link)
            for field, metric in SPOOL_LINK_COUNTS.items():
                self.samples.set(metric, getattr(counts, field), link)
        if segment.trailer.last:
            self.samples.set(SPOOL_NEWEST, segment.trailer.last / SECOND, link)

    def _advance_watermark(self, reader: int, watermark: int) -> None:
        leaf_output = self.leaf_outputs[reader]
        self.leaf_outputs[reader] = LeafOutput(max(leaf_output.watermark, watermark), leaf_output.batches)

    def _add_partials(self, reader: int, batch: pa.RecordBatch) -> None:
        leaf = self.leaves[reader]
        self.samples.add(SPOOL_PARTIALS_READ, batch.num_rows, leaf.name, self.input.link)
        self.leaf_outputs[reader].batches.append(batch)
        if SAMPLING_FACTOR_KEY in (batch.schema.metadata or {}) and batch.num_rows:
            times = merge_pane_times(batch.column("pane").to_numpy(), leaf.low.origin, leaf.low.pane)
            self._add_sampled_ranges(reader, times)
            self.samples.add(SPOOL_PARTIALS_SAMPLED, batch.num_rows, leaf.name, self.input.link)
        if batch.num_rows:
            pane_start = leaf.low.origin + pc.max(batch.column("pane")).as_py() * leaf.low.pane
            self.newest_time = pane_start if self.newest_time is None else max(self.newest_time, pane_start)

    def _add_sampled_ranges(self, reader: int, ranges: Iterable[tuple[int, int]]) -> None:
        """Record the ranges of time in which the node did not process all packets."""
        self.sampled_ranges[reader] = merge_ranges(self.sampled_ranges.get(reader, []), list(ranges))
        reason = "its node sampled packets, because its spool or ring was nearly full"
        warning = f"{self.input.path}: some results are estimates: {reason}"
        self.warnings[warning] = None

    def _report_missing_plans(self, matches: PlanMatches, offered_plans: tuple[OfferedPlan, ...]) -> None:
        for query_number in matches.missing_queries:
            query = self.queries[query_number]
            self.samples.add(SPOOL_SEGMENTS_WITHOUT_QUERY, 1, query.name, self.input.link)
            self.warnings[describe_missing_plan(str(self.input.path), query, offered_plans)] = None

    def _report_lost_segments(self, read_count: int, damage_messages: list[str]) -> None:
        """Count and report the segments that were not read. `damage_messages`: one message for each damaged segment."""
        segments, path, link = self.spool_range.segments, self.input.path, self.input.link
        missing_count = segments.end - segments.first - read_count - len(damage_messages)
        if damage_messages:
            self.samples.add(SPOOL_SEGMENTS_LOST, len(damage_messages), link, "damaged")
            self.warnings |= dict.fromkeys(
                f"{message}; its rows are missing in the results" for message in damage_messages
            )
        if missing_count:
            self.samples.add(SPOOL_SEGMENTS_LOST, missing_count, link, "missing")
            subject = "segment is" if missing_count == 1 else "segments are"
            warning = (
                f"{path}: {missing_count:,} {subject} missing between {segments.first} and {segments.end - 1}, dropped "
                "by a full spool or deleted; their rows are missing in the results"
            )
            self.warnings[warning] = None
        if self.spool_range.partials_lost:
            self.samples.add(SPOOL_PARTIALS_LOST, self.spool_range.partials_lost, link)
