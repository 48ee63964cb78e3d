"""The low-level node of one link: it reads every block once, for all queries on the link.

The node selects rows and counts them in tables of fixed size. It converts table entries to partials: the partial
aggregates of one group and one pane. A pane is the part of a window between two neighbouring window bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from capture.arrow_compute import array_of
from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture
from capture.files.stream import StreamedCapture
from capture.lazy_dataclasses import dataclass
from capture.metrics import BYTES_READ, FILES_DAMAGED, RECORDS_READ, Samples
from capture.units import SECOND
from lowlevel.metrics import (
    LATENESS,
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
from lowlevel.node.filter_join import LinkFilterJoins
from lowlevel.node.freed_memory import keep_freed_memory
from lowlevel.node.node_watchlists import NodeWatchlists
from lowlevel.plan import NEWEST_COLUMN, LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation, WatermarkRounder
from lowlevel.rows.readers import RowReader, Rows, make_reader
from lowlevel.table.budget import PROCESS_BUDGET, TableBudget
from lowlevel.table.flushing import AT_ONCE, Flushing, Policy
from lowlevel.table.query_tables import QueryTables
from lowlevel.table.reducer import QueryReducer, make_reducer
from lowlevel.table.sharing import SharedPlan, SharedTable, share, share_conditions
from lowlevel.table.table import Tally
from lowlevel.watch.watched_file import Watchlists
from lowlevel.watermarks.generators import WatermarkGenerator
from lowlevel.watermarks.jumps import JumpGuard, LinkTime
from lowlevel.watermarks.lateness import Lateness
from lowlevel.watermarks.rule import EXACT, Kind, WatermarkRule

TABLE_SLOTS = 1 << 18
"""Default slots of a table. With two IPv4 addresses as keys and two sub-aggregates, a table needs 11 MB."""


@dataclass(slots=True)
class TableGroup:
    """Tables that share one watermark.

    Their plans allow the same disorder, and are all provisional or all not provisional.

    `has_block_watermarks`: the watermark of a block's records is also the watermark of the rows. `follows_rows`: the
    generator needs the rows. `is_provisional`: partials leave after each block. `next_closing`: the smallest watermark
    that closes another pane of a table.
    """

    tables: list[SharedTable]
    generator: WatermarkGenerator
    has_block_watermarks: bool
    follows_rows: bool
    is_provisional: bool
    next_closing: int = BEGINNING + 1
    _partials: dict[int, list[pa.RecordBatch]] = field(
        default_factory=dict
    )  # the held partials of each plan, by its index

    def declare(self, block: Block) -> None:
        """Declare the watermark of the records of a block.

        It is ignored if rows can be older than their records, unless it is END.
        """
        if self.has_block_watermarks or block.watermark == END:
            self.generator.declare(block.watermark)

    def add(self, rows: Rows, *, flushes_at_once: bool) -> Iterator[tuple[int, Item]]:
        """Add rows to the tables. Yield partials, unless they are provisional."""
        if rows.earliest < self.generator.watermark:
            self.next_closing = BEGINNING + 1  # entries of late rows are flushed at once
        if self.follows_rows:
            self.generator.advance(rows)
        newest_time = END if flushes_at_once else self.generator.newest
        for table in self.tables:
            for batch in table.reducer.add(rows, newest_time):
                yield from self._hold_provisional(table.divide(batch))

    def _hold_provisional(self, items: Iterator[tuple[int, Item]]) -> Iterator[tuple[int, Item]]:
        """Keep provisional partials until the end of the block. Yield others."""
        if not self.is_provisional:
            yield from items
            return
        for index, item in items:
            assert isinstance(item, pa.RecordBatch)
            self._partials.setdefault(index, []).append(item)

    def release(self) -> Iterator[tuple[int, Item]]:
        """Flush provisional tables. Yield all partials since the last release as one batch for each plan."""
        if not self.is_provisional:
            return
        for table in self.tables:
            for batch in table.reducer.flush_all():
                yield from self._hold_provisional(table.divide(batch))
        partials, self._partials = self._partials, {}
        for index, batches in partials.items():
            (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
            position = batch.schema.get_field_index(NEWEST_COLUMN)
            if position >= 0:  # single rows have no aggregates
                newest = np.minimum(batch.column(position).to_numpy(), self.generator.newest)
                batch = batch.set_column(position, batch.schema.field(position), array_of(newest))
            yield index, batch


@dataclass(slots=True)
class Stream:
    """The rows of one kind on a link: the reader, the filter joins, and the groups of tables."""

    kind: str
    reader: RowReader
    filter_joins: LinkFilterJoins
    groups: list[TableGroup]

    @property
    def tables(self) -> Iterator[SharedTable]:
        """The tables of all groups."""
        return chain.from_iterable(group.tables for group in self.groups)


def budget_of(slots: int) -> TableBudget | None:
    """Return the budget of tables with `slots` slots. A number of slots that the user has chosen does not change."""
    return PROCESS_BUDGET if slots == TABLE_SLOTS else None


class Node:
    """Converts the blocks of a capture into partials and punctuations, for several plans.

    The memory is fixed by `slots`, `capacity`, and the widths of table entries. Not thread safe.
    """

    def __init__(
        self,
        link: str,
        file: AnyCapture,
        plans: Sequence[LowLevelPlan],
        slots: int = TABLE_SLOTS,
        capacity: int = BLOCK_RECORDS,
        watermark_rule: WatermarkRule = EXACT,
        flushing: Flushing = AT_ONCE,
        files: Sequence[Path] = (),
        watchlists: Watchlists | None = None,
        link_times: Mapping[str, LinkTime] | None = None,
        budget: TableBudget | None = None,
    ) -> None:
        """Create the tables of `plans` on one link.

        From now on the process keeps freed memory for later use (`keep_freed_memory`).

        * `slots`: number of slots of each table; `flushing`: their flush policy.
        * `capacity`: maximum number of records in a block. * `watermark_rule`: the rule for each kind of rows.
        * `files`: all files of the link, if it has several. Readers of flows search them for templates.
        * `watchlists`: the open watchlist files. By default the node opens them. Only nodes of finite inputs may share
          them.
        * `link_times`: the time of the link before the first block, by kind of rows, if earlier blocks exist.
        * `budget`: the memory that tables share with other nodes of this process. Without a budget each table has
          `slots` slots.
        """
        keep_freed_memory()
        self.link = link
        is_live = isinstance(file, StreamedCapture) and file.live
        self.watchlists = NodeWatchlists(is_live, watchlists or Watchlists())
        plans = self.watchlists.bind(tuple(plans))
        self.flushes_at_once = flushing.policy is Policy.AT_ONCE
        self._link_times = link_times or {}
        tables: list[SharedTable] = []
        for shared in share(plans, feeding=self.flushes_at_once):
            reducer = make_reducer(link, shared.plan, slots, capacity, flushing, budget)
            if shared.feeder is not None:
                feeder = tables[shared.feeder].reducer
                assert isinstance(feeder, QueryTables)
                assert isinstance(reducer, QueryTables)
                feeder.forward_entries_to(reducer)
            tables.append(SharedTable(shared, reducer))
        share_conditions(table.reducer for table in tables)
        table_by_plan = {sharer.index: table for table in tables for sharer in table.shared.sharers}
        self._tables = [table_by_plan[index] for index in range(len(plans))]  # a shared table occurs several times
        self.streams = []
        for kind, sampling in dict.fromkeys((plan.kind, plan.sampling) for plan in plans) or [("packets", None)]:
            tables_of_stream = [
                table for table in tables if (table.shared.plan.kind, table.shared.plan.sampling) == (kind, sampling)
            ]
            columns = frozenset({"ts"}).union(*(table.shared.plan.columns for table in tables_of_stream))
            reader = make_reader(kind, link, file, columns, capacity, sampling, files)
            filter_joins = LinkFilterJoins(table.shared.plan for table in tables_of_stream)
            groups = self._make_groups(kind, reader, tables_of_stream, watermark_rule)
            self.streams.append(Stream(kind, reader, filter_joins, groups))
        self.rounders = [WatermarkRounder(plan.pane, plan.origin) for plan in plans]
        self.holds_provisional = False
        """Whether provisional partials wait for `release`. Otherwise they are returned after each block."""
        self.records = 0
        self.bytes = 0

    def _make_groups(
        self, kind: str, reader: RowReader, tables: Sequence[SharedTable], rule: WatermarkRule
    ) -> list[TableGroup]:
        """Divide the tables of a stream into groups with equal watermarks.

        `rule` applies to plans that state no disorder.
        """
        rules = [(table.shared.plan.provisional, table.shared.plan.slack) for table in tables]
        groups = []
        for table_rule in dict.fromkeys(rules) or [(False, None)]:
            provisional, slack = table_rule
            own_rule = rule if slack is None else replace(rule, kind=Kind.LATE_BY_TIME, amount=slack)
            generator = own_rule.make()
            if kind in self._link_times:
                generator.resume(self._link_times[kind])
            own_tables = [table for table, other in zip(tables, rules, strict=True) if other == table_rule]
            has_block_watermarks = reader.has_record_watermarks and not provisional and slack is None
            follows_rows = own_rule.needs_rows or not self.flushes_at_once or provisional
            groups.append(TableGroup(own_tables, generator, has_block_watermarks, follows_rows, provisional))
        return groups

    @property
    def reducers(self) -> list[QueryReducer]:
        """The reducer of each plan. Plans that share a table have the same reducer."""
        return [table.reducer for table in self._tables]

    def process(self, block: Block) -> Iterator[tuple[int, Item]]:
        """Process one block; yield pairs (index of the plan, item). Punctuation follows all partials below it."""
        self.records += block.records
        self.bytes += block.end - block.start
        self.watchlists.begin_block()
        for stream in self.streams:
            yield from self._add(stream, stream.reader.read(block))
            if block.watermark == END:
                yield from self._add(stream, stream.reader.finish())
            for group in stream.groups:
                if not self.holds_provisional:
                    yield from group.release()
                group.declare(block)
                yield from self._close_panes(stream, group)

    def finish(self) -> Iterator[tuple[int, Item]]:
        """Process records that wait for templates in other files. Call it at the end of the capture."""
        self.watchlists.begin_block()
        for stream in self.streams:
            yield from self._add(stream, stream.reader.finish())
            for group in stream.groups:
                yield from group.release()

    def release(self) -> Iterator[tuple[int, Item]]:
        """Yield the partials of provisional plans since the last release."""
        for _, group in self._groups:
            yield from group.release()

    def _add(self, stream: Stream, batches: Iterator[Rows]) -> Iterator[tuple[int, Item]]:
        """Add rows to the tables of their stream."""
        for batch in batches:
            rows = stream.filter_joins.add(batch)
            for group in stream.groups:
                yield from group.add(rows, flushes_at_once=self.flushes_at_once)

    @property
    def _groups(self) -> Iterator[tuple[Stream, TableGroup]]:
        """Every group of tables, with its stream."""
        return ((stream, group) for stream in self.streams for group in stream.groups)

    def tick(self, now: int) -> Iterator[tuple[int, Item]]:
        """Record an empty poll; yield the partials and punctuation of the new watermark.

        `now` (ns) is the time at which the poll began (`lowlevel.watermarks.idle`).
        """
        for stream, group in self._groups:
            group.generator.tick(now)
            yield from self._close_panes(stream, group, is_idle=True)

    def end_block(self) -> Iterator[tuple[int, Item]]:
        """Record that a block of the source has ended; yield partials and punctuation of the new watermark."""
        for stream, group in self._groups:
            group.generator.end_block()
            yield from self._close_panes(stream, group)

    def declare_watermark(self, watermark: int) -> Iterator[tuple[int, Item]]:
        """Declare a watermark for all kinds of rows; yield its partials and punctuation."""
        for stream, group in self._groups:
            group.generator.declare(watermark)
            yield from self._close_panes(stream, group)

    @property
    def newest(self) -> int:
        """The newest accepted time of the link's rows, ns; BEGINNING if there is none, or if it is not computed."""
        return max(group.generator.newest for _, group in self._groups)

    def _close_panes(self, stream: Stream, group: TableGroup, is_idle: bool = False) -> Iterator[tuple[int, Item]]:
        """Yield the partials of closed panes, and then punctuation rounded down to the panes of each plan."""
        watermark = group.generator.watermark
        if stream.reader.waits:  # waiting records may have any time, so the watermark does not advance
            return
        if watermark == BEGINNING or (self.flushes_at_once and watermark < group.next_closing and not is_idle):
            return
        yield from group.release()
        for table in group.tables:
            for batch in table.reducer.advance_watermark(watermark, is_idle):
                yield from table.divide(batch)
            for sharer in table.shared.sharers:
                boundary = self.rounders[sharer.index].next_boundary(table.reducer.watermark)
                if boundary is not None:
                    yield sharer.index, Punctuation(self.link, boundary)
        group.next_closing = min((self._next_closing(table.shared) for table in group.tables), default=END)

    def _next_closing(self, shared: SharedPlan) -> int:
        """Return the smallest watermark that closes a pane of one of the plans.

        A plan that spreads rows over several panes may add rows to closed panes. For such a plan, every watermark
        flushes entries.
        """
        if shared.plan.spread:
            return BEGINNING + 1
        return min(self.rounders[sharer.index].next_watermark for sharer in shared.sharers)

    def flush(self) -> Iterator[tuple[int, Item]]:
        """Flush the tables without a new watermark. The caller uses it at the end of a byte range."""
        yield from self.release()
        for stream in self.streams:
            for table in stream.tables:
                for batch in table.reducer.flush_all():
                    yield from table.divide(batch)

    @property
    def sets_waiting(self) -> int:
        """Number of sets of flow records that wait for their template. All readers of the link have the same sets."""
        readers = [stream.reader for stream in self.streams]
        return max((reader.sets_waiting for reader in readers), default=0)

    def samples(self, query_names: Sequence[tuple[str, ...]], damage: str | None = None) -> Samples:
        """Return the counters.

        `query_names[i]`: the names of the queries that use plan i. They are labels of its counters. Queries that share
        a plan or a table have equal counters, but the bytes of the table are counted only for the first query.
        `damage`: the damage at the end of the file.
        """
        samples = Samples()
        samples.add(RECORDS_READ, self.records, self.link)
        samples.add(BYTES_READ, self.bytes, self.link)
        if damage:
            samples.add(FILES_DAMAGED, 1, self.link, damage)
        self.watchlists.add_samples(samples, self.link)
        for stream in self.streams:
            samples.update(stream.reader.samples())
            stream.filter_joins.add_samples(samples, self.link, stream.kind)
            self._add_watermark_samples(samples, stream)
        tallies: dict[QueryReducer, Tally] = {}
        named_tables = [
            (name, index, table)
            for index, (names, table) in enumerate(zip(query_names, self._tables, strict=True))
            for name in dict.fromkeys(names)
        ]
        for name, index, table in named_tables:
            reducer = table.reducer
            samples.add(ROWS_ACCEPTED, table.accepted(index), name, self.link)
            samples.add(ROWS_FILTERED, table.filtered(index), name, self.link)
            is_first = reducer not in tallies
            if is_first:
                tallies[reducer] = reducer.tally
            self._add_table_samples(samples, tallies[reducer], name)
            if not (self.flushes_at_once and reducer.plan.reduced):
                samples.add(TABLE_DIRECT, tallies[reducer].direct, name, self.link)
            if reducer.spreader is not None:
                samples.add(ROWS_NOT_SPREAD, reducer.spreader.too_long, name, self.link)
            samples.add(TABLE_BYTES, reducer.bytes if is_first else 0, name, self.link)
        return samples

    def _add_table_samples(self, samples: Samples, tally: Tally, name: str) -> None:
        samples.add(TABLE_COLLISIONS, tally.collisions, name, self.link)
        samples.add(TABLE_EVICTIONS, tally.evicted, name, self.link)
        samples.add(TABLE_FLUSHED, tally.flushed, name, self.link)
        if not self.flushes_at_once:
            samples.add(TABLE_SWEPT, tally.swept, name, self.link)
            samples.add(TABLE_FORCED, tally.forced, name, self.link)
        samples.set(TABLE_RESIDENT, tally.resident, name, self.link)
        samples.set(TABLE_PANES, tally.panes, name, self.link)
        samples.set(TABLE_BURST, tally.burst, name, self.link)

    @property
    def lateness(self) -> dict[str, Lateness]:
        """The late rows of the link by kind of rows, without kinds whose watermarks are exact.

        If several watermarks follow the rows, the result is for the watermark with the fewest rows from the past.
        """
        guards: dict[str, JumpGuard] = {}
        for stream, group in self._groups:
            guard, other = group.generator.guard, guards.get(stream.kind)
            if group.follows_rows and (other is None or other.back < guard.back):
                guards[stream.kind] = guard
        return {kind: guard.lateness for kind, guard in guards.items()}

    def _add_watermark_samples(self, samples: Samples, stream: Stream) -> None:
        """Add the counters of rows that do not fit a watermark, and of late rows.

        If there are several watermarks, the largest number counts.
        """
        labels = self.link, stream.kind
        generators = [group.generator for group in stream.groups if group.follows_rows]
        if not generators:
            return
        samples.add(ROWS_FROM_THE_FUTURE, max(generator.future_rows for generator in generators), *labels)
        samples.add(ROWS_FROM_THE_PAST, max(generator.past_rows for generator in generators), *labels)
        samples.add(ROWS_AFTER_ARRIVAL, max(generator.rows_after_arrival for generator in generators), *labels)
        samples.add(ROWS_BELOW_WATERMARK, max(generator.rows_below for generator in generators), *labels)
        if (lateness := self.lateness.get(stream.kind)) is not None:
            lateness.add_samples(samples, LATENESS, *labels)
        samples.add(LULL_WATERMARKS, max(generator.lulls for generator in generators), *labels)
        lags = [
            max(0, generator.newest - generator.watermark)
            for generator in generators
            if BEGINNING not in (generator.watermark, generator.newest) and generator.watermark != END
        ]
        if lags:
            samples.set(WATERMARK_LAG, max(lags) / SECOND, *labels)
