"""OPIB-Join: order preserved by a buffer in front of the join (Li 2008, §7.3).

A row of the left waits until all that it may meet is there, and meets it then: so results come out in the order of
left times. The right waits for the left that waits: for equal ranges and rates three ranges of rows are held, not two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.graph.joint import GraphItem
from highlevel.inorder.opob_join import left_time
from highlevel.inorder.sort_buffer import SortBuffer, in_order
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinSpec, Port, Progress
from lowlevel.punctuation import BEGINNING, Punctuation

DELAYED, PROMISED = "delayed", "promised"
"""Tables of a snapshot beside those of the join."""


class OpibJoin:
    """Gives the rows of OA-Join, with its promises of the left's time, in the order of that."""

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        self.time = left_time(spec)
        self.window = spec.window
        self.buffer = SortBuffer(spec.left.time)
        self.join = OAJoin(spec, Progress.LEFT)
        self.bounds = [BEGINNING, BEGINNING]
        self.received = self._late = 0

    @property
    def late(self) -> int:
        """Rows that came behind a promise."""
        return self.join.late + self._late

    @property
    def results(self) -> int:
        """Rows that left."""
        return self.join.results

    @property
    def rows_held(self) -> int:
        """Rows of the left that wait, and those of the right."""
        return self.join.rows_held + self.buffer.rows

    @property
    def bytes(self) -> int:
        """Bytes of them."""
        return self.join.bytes + self.buffer.bytes

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Delay rows of the left; hold those of the right."""
        self.received += batch.num_rows
        if port == Port.RIGHT:
            yield from self.join.rows(port, batch)
            return
        late = batch.column(self.buffer.time).to_numpy() < self.bounds[Port.LEFT]
        if late.any():
            self._late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        self.buffer.add(batch)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[GraphItem]:
        """Join the rows of the left that all they may meet is there for, in order."""
        if mark.low <= self.bounds[port]:
            return
        self.bounds[port] = mark.low
        if port == Port.RIGHT:
            yield from self.join.punctuate(port, mark)
        # No later row of the left is before this, and those before it meet nobody to come.
        complete = min(self.bounds[Port.LEFT], self.window.expired(Port.LEFT, self.bounds[Port.RIGHT]))
        if complete == BEGINNING:
            return
        found = []
        for batch in self.buffer.take(complete - 1):
            found += [item for item in self.join.rows(Port.LEFT, batch) if isinstance(item, pa.RecordBatch)]
        if found:  # rows without a partner come behind pairs
            yield in_order(found, self.time).batch
        yield from self.join.punctuate(Port.LEFT, Punctuation(mark.link, complete))

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the join, the rows that wait, and what was promised of both sides."""
        tables = self.join.snapshot() | {PROMISED: pa.table({"bound": self.bounds})}
        delayed = self.buffer.runs()
        return tables | ({DELAYED: pa.Table.from_batches(delayed)} if delayed else {})

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        self.join.restore({name: table for name, table in tables.items() if name not in (DELAYED, PROMISED)})
        self.bounds = tables[PROMISED]["bound"].to_pylist()
        for batch in tables[DELAYED].to_batches() if DELAYED in tables else []:
            self.buffer.add(batch)
