"""The low-level node of one link: one pass over its blocks feeds every query on it, of all kinds of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import AnyCapture
from capture.metrics import BYTES_READ, FILES_DAMAGED, RECORDS_READ, Samples
from lowlevel.metrics import (
    ROWS_ACCEPTED,
    ROWS_FILTERED,
    ROWS_FROM_THE_FUTURE,
    ROWS_NOT_SPREAD,
    TABLE_BYTES,
    TABLE_EVICTIONS,
    TABLE_FLUSHED,
)
from lowlevel.pace import Pace
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.query_tables import QueryTables
from lowlevel.readers import RowReader, make_reader
from lowlevel.sharing import SharedPlan, share

TABLE_SLOTS = 1 << 18
"""Slots of each table unless told otherwise: 19 MB with buffers for a pair of IPv4 addresses and two sub-aggregates."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The rows of one kind on a link: who reads them, which tables they feed and for whom, and what they promise."""

    kind: str
    reader: RowReader
    tables: list[tuple[QueryTables, SharedPlan]]
    pace: Pace | None

    def low(self, block: Block) -> int:
        """Return the low watermark after a block: no later row of the kind has a ts below it, save late ones.

        A file's rows keep what its scan found exactly, where their ts is the record's. Otherwise the promise is made
        at the end of the input, or, with a slack, follows the newest row.
        """
        exact = block.low if self.reader.exact_low or block.low == END else BEGINNING
        return exact if self.pace is None else max(exact, self.pace.low)


class Node:
    """Turns blocks of a capture into partials and punctuation, for each of several plans.

    Memory is fixed by `slots`, the widths of the plans' entries and `capacity` (records in a block). Not thread safe.
    """

    def __init__(
        self,
        link: str,
        file: AnyCapture,
        plans: Sequence[LowLevelPlan],
        slots: int = TABLE_SLOTS,
        capacity: int = BLOCK_RECORDS,
        slack: int | None = None,
    ) -> None:
        """Serve `plans` on one link; `capacity` is the largest number of records in a block.

        With a `slack` (ns) the promises of each kind of rows stay that far behind its newest row (`lowlevel.pace`), for
        links whose blocks cannot promise; rows that come later than that are late. Without it promises are exact.
        """
        self.link = link
        tables = [(QueryTables(link, shared.plan, slots, capacity), shared) for shared in share(plans)]
        of_number = {sharer.number: query for query, shared in tables for sharer in shared.sharers}
        self.queries = [of_number[number] for number in range(len(plans))]  # one that is shared is there several times
        self.streams = []
        for kind, sampling in dict.fromkeys((plan.kind, plan.sampling) for plan in plans) or [("packets", None)]:
            fed = [each for each in tables if (each[0].plan.kind, each[0].plan.sampling) == (kind, sampling)]
            columns = frozenset({"ts"}).union(*(query.plan.columns for query, _ in fed))
            reader = make_reader(kind, link, file, columns, capacity, sampling)
            self.streams.append(Stream(kind, reader, fed, None if slack is None else Pace(slack)))
        self.promised = [BEGINNING] * len(plans)
        self.records = 0
        self.bytes = 0

    def process(self, block: Block) -> Iterator[tuple[int, Item]]:
        """Take in one block; yields (number of the plan, item). Punctuation comes after the partials it covers."""
        self.records += block.records
        self.bytes += block.end - block.start
        for stream in self.streams:
            for rows in stream.reader.read(block):
                if stream.pace is not None:
                    stream.pace.advance(rows)
                for query, shared in stream.tables:
                    yield from shared.handed_out(query.add(rows))
            yield from self._progress(stream, stream.low(block))

    def progress(self, low: int) -> Iterator[tuple[int, Item]]:
        """Pass on the promise that no later row of any kind has a ts below `low`, rounded down to each plan's panes."""
        for stream in self.streams:
            yield from self._progress(stream, low)

    def _progress(self, stream: Stream, low: int) -> Iterator[tuple[int, Item]]:
        if low == BEGINNING:
            return
        for query, shared in stream.tables:
            yield from shared.handed_out(query.complete(low))
            plan = query.plan
            mark = low if low == END else plan.origin + (low - plan.origin) // plan.pane * plan.pane
            for sharer in shared.sharers:
                if mark > self.promised[sharer.number]:
                    self.promised[sharer.number] = mark
                    yield sharer.number, Punctuation(self.link, mark)

    def flush(self) -> Iterator[tuple[int, Item]]:
        """Empty the tables without a promise: the end of a byte range, not of the link."""
        for stream in self.streams:
            for query, shared in stream.tables:
                yield from shared.handed_out(query.complete(END))

    def samples(self, names: Sequence[str], damage: str | None = None) -> Samples:
        """Return the counters so far; `names` are the plans' queries, `damage` how the file ended if badly."""
        samples = Samples()
        samples.add(RECORDS_READ, self.records, self.link)
        samples.add(BYTES_READ, self.bytes, self.link)
        if damage:
            samples.add(FILES_DAMAGED, 1, self.link, damage)
        for stream in self.streams:
            samples.update(stream.reader.samples())
            if stream.pace is not None:
                samples.add(ROWS_FROM_THE_FUTURE, stream.pace.future, self.link, stream.kind)
        held: set[int] = set()  # tables that are shared are held once, under the name of their first query
        for name, query in zip(names, self.queries, strict=True):
            samples.add(ROWS_ACCEPTED, query.accepted, name, self.link)
            samples.add(ROWS_FILTERED, query.filtered, name, self.link)
            samples.add(TABLE_EVICTIONS, query.evicted, name, self.link)
            samples.add(TABLE_FLUSHED, query.flushed, name, self.link)
            if query.spreader is not None:
                samples.add(ROWS_NOT_SPREAD, query.spreader.too_long, name, self.link)
            samples.set(TABLE_BYTES, 0 if id(query) in held else query.bytes, name, self.link)
            held.add(id(query))
        return samples
