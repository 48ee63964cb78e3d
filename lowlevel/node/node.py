"""The low-level node of one link: one pass over its blocks feeds every query on it, of all kinds of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture
from capture.files.stream import StreamedCapture
from capture.metrics import BYTES_READ, FILES_DAMAGED, RECORDS_READ, Samples
from capture.units import SECOND
from lowlevel.metrics import (
    LULL_WATERMARKS,
    ROWS_ACCEPTED,
    ROWS_AFTER_ARRIVAL,
    ROWS_BELOW_WATERMARK,
    ROWS_FILTERED,
    ROWS_FROM_THE_FUTURE,
    ROWS_FROM_THE_PAST,
    ROWS_NOT_SPREAD,
    TABLE_BURST,
    TABLE_BYTES,
    TABLE_COLLISIONS,
    TABLE_DIRECT,
    TABLE_EVICTIONS,
    TABLE_FLUSHED,
    TABLE_FORCED,
    TABLE_PANES,
    TABLE_RESIDENT,
    TABLE_SWEPT,
    WATERMARK_LAG,
)
from lowlevel.node.filter_join import Recalling
from lowlevel.node.freed_memory import keep_freed_memory
from lowlevel.node.watching import Watching
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation, WatermarkRounder
from lowlevel.rows.flows import FlowReader
from lowlevel.rows.readers import RowReader, Rows, make_reader
from lowlevel.table.flushing import AT_ONCE, Flushing, Policy
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.reducer import QueryReducer, make_reducer
from lowlevel.table.sharing import SharedPlan, share, share_conditions
from lowlevel.table.table import Tally
from lowlevel.watch.watched_file import Watchlists
from lowlevel.watermarks.generators import WatermarkGenerator
from lowlevel.watermarks.rule import EXACT, WatermarkRule

TABLE_SLOTS = 1 << 18
"""Default slots of each table: 11 MB with buffers for a pair of IPv4 addresses and two sub-aggregates."""


@dataclass(slots=True)
class Stream:
    """The rows of one kind on a link: their reader, their filter joins, their tables and their watermark.

    A watermark below `due` closes no further pane of any table.
    """

    kind: str
    reader: RowReader
    recalling: Recalling
    tables: list[tuple[QueryReducer, SharedPlan]]
    promise: WatermarkGenerator
    due: int = BEGINNING + 1

    def declare(self, block: Block) -> None:
        """Declare the watermark of a block: from a file's scan if the ts of a row is that of its record, or END."""
        if self.reader.exact_low or block.watermark == END:
            self.promise.declare(block.watermark)


class Node:
    """Converts blocks of a capture into partials and punctuation, for several plans.

    Memory is fixed by `slots`, the widths of the plans' entries and `capacity` (records in a block). Not thread safe.
    """

    def __init__(
        self,
        link: str,
        file: AnyCapture,
        plans: Sequence[LowLevelPlan],
        slots: int = TABLE_SLOTS,
        capacity: int = BLOCK_RECORDS,
        promise: WatermarkRule = EXACT,
        flushing: Flushing = AT_ONCE,
        files: Sequence[Path] = (),
        watchlists: Watchlists | None = None,
    ) -> None:
        """Serve `plans` on one link; `capacity` is the largest number of records in a block.

        `promise` is the watermark rule for each kind of rows. `files` are all files of the link, if it has several:
        readers of flows look for templates in them. `flushing` is the flush policy of the tables. The process keeps
        freed memory from now on. `watchlists` are the open files, by default its own; only nodes of finite inputs may
        share them.
        """
        keep_freed_memory()
        self.link = link
        self.watching = Watching(isinstance(file, StreamedCapture) and file.live, watchlists or Watchlists())
        plans = self.watching.bind(tuple(plans))
        self.at_once = flushing.policy is Policy.AT_ONCE
        self.follows = promise.by_rows or not self.at_once  # then each row can change the newest time
        tables: list[tuple[QueryReducer, SharedPlan]] = []
        for shared in share(plans, feeding=self.at_once):
            query = make_reducer(link, shared.plan, slots, capacity, flushing)
            if shared.feeder is not None:
                feeder = tables[shared.feeder][0]
                assert isinstance(feeder, QueryTables)
                assert isinstance(query, QueryTables)
                feeder.feed(query)
            tables.append((query, shared))
        share_conditions(query for query, _ in tables)
        of_number = {sharer.index: query for query, shared in tables for sharer in shared.sharers}
        self.queries = [of_number[number] for number in range(len(plans))]  # a shared table occurs several times
        self.streams = []
        for kind, sampling in dict.fromkeys((plan.kind, plan.sampling) for plan in plans) or [("packets", None)]:
            fed = [each for each in tables if (each[0].plan.kind, each[0].plan.sampling) == (kind, sampling)]
            columns = frozenset({"ts"}).union(*(query.plan.columns for query, _ in fed))
            reader = make_reader(kind, link, file, columns, capacity, sampling, files)
            recalling = Recalling(query.plan for query, _ in fed)
            self.streams.append(Stream(kind, reader, recalling, fed, promise.make()))
        self.described = [WatermarkRounder(plan.pane, plan.origin) for plan in plans]
        self.records = 0
        self.bytes = 0

    def process(self, block: Block) -> Iterator[tuple[int, Item]]:
        """Process one block; yield (number of the plan, item). Punctuation is after the partials that it covers."""
        self.records += block.records
        self.bytes += block.end - block.start
        self.watching.begin_block()
        for stream in self.streams:
            yield from self._add(stream, stream.reader.read(block))
            if block.watermark == END:
                yield from self._add(stream, stream.reader.finish())
            stream.declare(block)
            yield from self._progress(stream)

    def finish(self) -> Iterator[tuple[int, Item]]:
        """Process records that wait for templates of the link's other files; call it at the end of the capture."""
        self.watching.begin_block()
        for stream in self.streams:
            yield from self._add(stream, stream.reader.finish())

    def _add(self, stream: Stream, read: Iterator[Rows]) -> Iterator[tuple[int, Item]]:
        """Add rows to the tables of their stream."""
        for each in read:
            rows = stream.recalling.add(each)
            if rows.earliest < stream.promise.low:
                stream.due = BEGINNING + 1  # late rows leave at once
            if self.follows:
                stream.promise.advance(rows)
            newest = END if self.at_once else stream.promise.newest
            for query, shared in stream.tables:
                for batch in query.add(rows, newest):
                    yield from shared.partials_by_query(batch)

    def tick(self, now: int) -> Iterator[tuple[int, Item]]:
        """Record that a poll at `now` (ns) found no data; yield the partials and punctuation that follow from it.

        Call it on empty polls only, with the time at which the poll began (`lowlevel.watermarks.idle`).
        """
        for stream in self.streams:
            stream.promise.tick(now)
            yield from self._progress(stream, idle=True)

    def end_block(self) -> Iterator[tuple[int, Item]]:
        """Record that a block of the source has ended, and yield the new punctuation."""
        for stream in self.streams:
            stream.promise.end_block()
            yield from self._progress(stream)

    def progress(self, low: int) -> Iterator[tuple[int, Item]]:
        """Declare the watermark `low` for all kinds of rows, rounded down to the panes of each plan."""
        for stream in self.streams:
            stream.promise.declare(low)
            yield from self._progress(stream)

    @property
    def newest(self) -> int:
        """The newest accepted time of the link's rows, ns; BEGINNING if there is none, or if it is not needed."""
        return max(stream.promise.newest for stream in self.streams)

    def _progress(self, stream: Stream, idle: bool = False) -> Iterator[tuple[int, Item]]:
        low = stream.promise.low
        if stream.reader.waits:  # records that wait may be as old as any: the watermark waits for them
            return
        if low == BEGINNING or (self.at_once and low < stream.due and not idle):
            return
        for query, shared in stream.tables:
            for batch in query.complete(low, idle):
                yield from shared.partials_by_query(batch)
            for sharer in shared.sharers:
                mark = self.described[sharer.index].next_boundary(query.low)
                if mark is not None:
                    yield sharer.index, Punctuation(self.link, mark)
        stream.due = min((self._due(shared) for _, shared in stream.tables), default=END)

    def _due(self, shared: SharedPlan) -> int:
        """Return the next watermark that flushes entries: any watermark, if rows are spread over closed panes."""
        if shared.plan.spread:
            return BEGINNING + 1
        return min(self.described[sharer.index].due for sharer in shared.sharers)

    def flush(self) -> Iterator[tuple[int, Item]]:
        """Flush the tables without a watermark: at the end of a byte range, not of the link."""
        for stream in self.streams:
            for query, shared in stream.tables:
                for batch in query.flush_all():
                    yield from shared.partials_by_query(batch)

    @property
    def sets_waiting(self) -> int:
        """Number of sets of flow records that wait for their template; readers of one link hold the same sets."""
        readers = [stream.reader for stream in self.streams]
        return max((len(reader.decoder.waiting) for reader in readers if isinstance(reader, FlowReader)), default=0)

    def samples(self, names: Sequence[str], damage: str | None = None) -> Samples:
        """Return the counters. `names`: queries of the plans. `damage`: the damage at the end of the file, if any."""
        samples = Samples()
        samples.add(RECORDS_READ, self.records, self.link)
        samples.add(BYTES_READ, self.bytes, self.link)
        if damage:
            samples.add(FILES_DAMAGED, 1, self.link, damage)
        self.watching.add_samples(samples, self.link)
        for stream in self.streams:
            samples.update(stream.reader.samples())
            stream.recalling.add_samples(samples, self.link, stream.kind)
            if self.follows:
                self._add_promise(samples, stream)
        tallies: dict[
            QueryReducer, Tally
        ] = {}  # of tables that are shared: one, and bytes under the first query's name
        for name, query in zip(names, self.queries, strict=True):
            samples.add(ROWS_ACCEPTED, query.accepted, name, self.link)
            samples.add(ROWS_FILTERED, query.filtered, name, self.link)
            first = query not in tallies
            if first:
                tallies[query] = query.tally
            self._add_tally(samples, tallies[query], name)
            if not (self.at_once and query.plan.reduced):
                samples.add(TABLE_DIRECT, tallies[query].direct, name, self.link)
            if query.spreader is not None:
                samples.add(ROWS_NOT_SPREAD, query.spreader.too_long, name, self.link)
            samples.add(TABLE_BYTES, query.bytes if first else 0, name, self.link)  # a query may have several tables
        return samples

    def _add_tally(self, samples: Samples, tally: Tally, name: str) -> None:
        samples.add(TABLE_COLLISIONS, tally.collisions, name, self.link)
        samples.add(TABLE_EVICTIONS, tally.evicted, name, self.link)
        samples.add(TABLE_FLUSHED, tally.flushed, name, self.link)
        if not self.at_once:
            samples.add(TABLE_SWEPT, tally.swept, name, self.link)
            samples.add(TABLE_FORCED, tally.forced, name, self.link)
        samples.set(TABLE_RESIDENT, tally.resident, name, self.link)
        samples.set(TABLE_PANES, tally.panes, name, self.link)
        samples.set(TABLE_BURST, tally.burst, name, self.link)

    def _add_promise(self, samples: Samples, stream: Stream) -> None:
        promise, labels = stream.promise, (self.link, stream.kind)
        samples.add(ROWS_FROM_THE_FUTURE, promise.future, *labels)
        samples.add(ROWS_FROM_THE_PAST, promise.past, *labels)
        samples.add(ROWS_AFTER_ARRIVAL, promise.after_arrival, *labels)
        samples.add(ROWS_BELOW_WATERMARK, promise.below, *labels)
        samples.add(LULL_WATERMARKS, promise.lulls, *labels)
        if BEGINNING not in (promise.low, promise.newest) and promise.low != END:
            samples.set(WATERMARK_LAG, max(0, promise.newest - promise.low) / SECOND, *labels)
