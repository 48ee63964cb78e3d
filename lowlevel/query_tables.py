"""The tables of one query on one link, and the partials that leave them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.packets.decoder import Packets
from lowlevel.evaluate import evaluate, true_rows
from lowlevel.expressions import Type
from lowlevel.keys import KeyLayout
from lowlevel.packet_columns import PacketColumns
from lowlevel.plan import LowLevelPlan
from lowlevel.punctuation import END
from lowlevel.subaggregates import INT_MAX, Kind
from lowlevel.table import IDENTITIES, Table, opcode

ANY_VERSION = 0


class QueryTables:
    """Reduces packets to partials for one query; with an address among the keys, in a table for each IP version.

    Not thread safe. Memory: the tables, made when the first packet of their version comes.
    """

    def __init__(self, link: str, plan: LowLevelPlan, slots: int, capacity: int) -> None:
        """Prepare for blocks of up to `capacity` packets of `link`."""
        self.link = link
        self.plan = plan
        self.slots = slots
        self.capacity = capacity
        self.tables: dict[int, tuple[KeyLayout, Table]] = {}
        self.by_version = any(key.expression.type is Type.ADDRESS for key in plan.keys)
        self.oldest = INT_MAX  # no resident entry has a smaller pane
        self.accepted = 0
        self.filtered = 0
        self.evicted = 0
        self.flushed = 0

    @property
    def bytes(self) -> int:
        """Memory of the tables made so far."""
        return sum(table.bytes for _, table in self.tables.values())

    def add(self, packets: Packets, earliest: int) -> Iterator[pa.RecordBatch]:
        """Take in one decoded block whose smallest ts is `earliest`; evicted entries may leave."""
        rows = packets.rows
        if rows == 0:
            return
        columns = PacketColumns(self.link, packets)
        chosen = None if self.plan.where is None else true_rows(self.plan.where, columns, rows)
        accepted = rows if chosen is None else int(np.count_nonzero(chosen))
        self.accepted += accepted
        self.filtered += rows - accepted
        if accepted == 0:
            return
        self.oldest = min(self.oldest, (earliest - self.plan.origin) // self.plan.pane)
        if not self.by_version:
            yield from self._add(ANY_VERSION, columns, rows, chosen)
        elif packets.only_ipv4:
            yield from self._add(4, columns, rows, chosen)
        else:
            versions = packets.field("ip_version")
            for version in (4, 6):
                of_version = versions == version if chosen is None else chosen & (versions == version)
                if of_version.any():
                    yield from self._add(version, columns, rows, of_version)

    def _add(
        self, version: int, columns: PacketColumns, rows: int, chosen: npt.NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        layout, table = self._table(version)
        if table.evictions_due:
            yield from self._partials(layout, table, table.take_evicted(), early=True)
        layout.pack(columns, rows, table.words)
        for number, sub in enumerate(self.plan.subaggregates):
            if sub.argument is None:
                continue
            vector = evaluate(sub.argument, columns)
            argument = table.args[number, :rows]
            if sub.type is Type.FLOAT:
                argument = argument.view(np.float64)
            if sub.kind is Kind.COUNT:
                argument[:] = True if vector.valid is None else vector.valid
            else:
                argument[:] = vector.data  # type: ignore[union-attr]  # the compiler admits no address here
                if vector.valid is not None:
                    argument[~np.broadcast_to(vector.valid, rows)] = IDENTITIES[opcode(sub)]
        times = columns["ts"].data  # type: ignore[union-attr]
        table.update(times, None if chosen is None else chosen.view(np.uint8), self.plan.pane, self.plan.origin)

    def _table(self, version: int) -> tuple[KeyLayout, Table]:
        if version not in self.tables:
            layout = KeyLayout(self.plan.keys, version)
            self.tables[version] = layout, Table(layout.words, self.plan.subaggregates, self.slots, self.capacity)
        return self.tables[version]

    def complete(self, low: int) -> Iterator[pa.RecordBatch]:
        """Let every entry leave whose pane ends at or before the low watermark `low`; END empties the tables."""
        pane = INT_MAX if low == END else (low - self.plan.origin) // self.plan.pane
        if pane <= self.oldest:
            return
        oldest = INT_MAX
        for layout, table in self.tables.values():
            yield from self._partials(layout, table, table.take_evicted(), early=True)
            yield from self._partials(layout, table, table.flush(pane), early=False)
            oldest = min(oldest, int(table.oldest[0]))
        self.oldest = oldest

    def _partials(
        self, layout: KeyLayout, table: Table, entries: npt.NDArray[np.int64], *, early: bool
    ) -> Iterator[pa.RecordBatch]:
        """Turn entries of a table into one batch of partials."""
        if early:
            self.evicted += len(entries)
        else:
            self.flushed += len(entries)
        if len(entries) == 0:
            return
        link = pa.DictionaryArray.from_arrays(np.zeros(len(entries), np.int8), [self.link]).cast(pa.string())
        columns = [link, pa.array(entries[:, 0].copy())]
        columns += layout.unpack(entries[:, 1 : 1 + table.key_words])
        for number, sub in enumerate(self.plan.subaggregates):
            values = entries[:, 1 + table.key_words + number].copy()
            columns.append(pa.array(values.view(np.float64) if sub.type is Type.FLOAT else values))
        yield pa.RecordBatch.from_arrays(columns, schema=self.plan.schema)
