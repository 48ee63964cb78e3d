"""The low-level node of one link: one pass over its packets feeds every query on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from capture.files.blocks import BLOCK_RECORDS, Block
from capture.files.capture import Capture
from capture.metrics import BYTES_READ, FILES_DAMAGED, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED, Samples
from capture.packets.decoder import Decoder
from capture.packets.fields import SKIPPED
from lowlevel.metrics import ROWS_ACCEPTED, ROWS_FILTERED, TABLE_BYTES, TABLE_EVICTIONS, TABLE_FLUSHED
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import BEGINNING, END, Item, Punctuation
from lowlevel.query_tables import QueryTables

TABLE_SLOTS = 1 << 18
"""Slots of each table unless told otherwise: 19 MB with buffers for a pair of IPv4 addresses and two sub-aggregates."""


class Node:
    """Turns blocks of a capture into partials and punctuation, for each of several plans.

    Memory is fixed by `slots`, the widths of the plans' entries and `capacity` (records in a block). Not thread safe.
    """

    def __init__(
        self,
        link: str,
        file: Capture,
        plans: Sequence[LowLevelPlan],
        slots: int = TABLE_SLOTS,
        capacity: int = BLOCK_RECORDS,
    ) -> None:
        """Serve `plans` on one link; `capacity` is the largest number of records in a block."""
        self.link = link
        self.queries = [QueryTables(link, plan, slots, capacity) for plan in plans]
        self.decoder = Decoder(file, frozenset().union(*(plan.columns for plan in plans)), capacity)
        self.promised = [BEGINNING] * len(plans)
        self.records = 0
        self.packets = 0
        self.bytes = 0

    def process(self, block: Block) -> Iterator[tuple[int, Item]]:
        """Take in one block; yields (number of the plan, item). Punctuation comes after the partials it covers."""
        packets = self.decoder.decode(block)
        self.records += block.records
        self.packets += packets.rows
        self.bytes += block.end - block.start
        for number, query in enumerate(self.queries):
            for batch in query.add(packets, block.first):
                yield number, batch
        yield from self.progress(block.low)

    def progress(self, low: int) -> Iterator[tuple[int, Item]]:
        """Pass on the promise that no later packet has a ts below `low`, rounded down to each plan's panes."""
        for number, query in enumerate(self.queries):
            for batch in query.complete(low):
                yield number, batch
            plan = query.plan
            mark = low if low == END else plan.origin + (low - plan.origin) // plan.pane * plan.pane
            if mark > self.promised[number]:
                self.promised[number] = mark
                yield number, Punctuation(self.link, mark)

    def flush(self) -> Iterator[tuple[int, Item]]:
        """Empty the tables without a promise: the end of a byte range, not of the link."""
        for number, query in enumerate(self.queries):
            for batch in query.complete(END):
                yield number, batch

    def samples(self, names: Sequence[str], damage: str | None = None) -> Samples:
        """Return the counters so far; `names` are the plans' queries, `damage` how the file ended if badly."""
        samples = Samples()
        samples.add(RECORDS_READ, self.records, self.link)
        samples.add(PACKETS_DECODED, self.packets, self.link)
        samples.add(BYTES_READ, self.bytes, self.link)
        for cause, count in zip(SKIPPED, self.decoder.skipped.tolist(), strict=True):
            samples.add(RECORDS_SKIPPED, count, self.link, cause)
        if damage:
            samples.add(FILES_DAMAGED, 1, self.link, damage)
        for name, query in zip(names, self.queries, strict=True):
            samples.add(ROWS_ACCEPTED, query.accepted, name, self.link)
            samples.add(ROWS_FILTERED, query.filtered, name, self.link)
            samples.add(TABLE_EVICTIONS, query.evicted, name, self.link)
            samples.add(TABLE_FLUSHED, query.flushed, name, self.link)
            samples.set(TABLE_BYTES, query.bytes, name, self.link)
        return samples
