"""OPIB-Join: order preserved by a buffer in front of the join (Li 2008, §7.3).

A left row waits until all its possible matches have arrived. So the results are in the order of left times. A right row
is stored until no waiting left row can match it. With equal ranges and rates the state contains the rows of three
ranges, instead of two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.baselines.buffered_join import BufferedJoin, left_time_name
from highlevel.baselines.sort_buffer import sort_by_time
from highlevel.joins.spec import JoinSpec, Port
from lowlevel.punctuation import BEGINNING, GraphItem, Punctuation

WATERMARKS = "watermarks"
"""Snapshot table of the watermarks of both sides."""


class OpibJoin(BufferedJoin):
    """Emits the results of OA-Join in the order of left times, with watermarks of the left time."""

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        self.time = left_time_name(spec)
        super().__init__(spec, spec.left.time)
        self.window = spec.window
        self.bounds = [BEGINNING, BEGINNING]
        self.received = self._late = 0

    @property
    def late(self) -> int:
        """Rows below a watermark."""
        return self.join.late + self._late

    @property
    def results(self) -> int:
        """Number of emitted rows."""
        return self.join.results

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Delay rows of the left input; store rows of the right."""
        self.received += batch.num_rows
        if port == Port.RIGHT:
            yield from self.join.rows(port, batch)
            return
        late = batch.column(self.buffer.time).to_numpy() < self.bounds[Port.LEFT]
        if late.any():
            self._late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        self.buffer.add(batch)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[GraphItem]:
        """Join, in order, the left rows whose possible matches have all arrived."""
        if punctuation.watermark <= self.bounds[port]:
            return
        self.bounds[port] = punctuation.watermark
        if port == Port.RIGHT:
            yield from self.join.punctuate(port, punctuation)
        # No later left row is older than this time, and left rows that are older match no later right row.
        complete = min(self.bounds[Port.LEFT], self.window.expired(Port.LEFT, self.bounds[Port.RIGHT]))
        if complete == BEGINNING:
            return
        pairs = []
        for batch in self.buffer.take(complete - 1):
            pairs += [item for item in self.join.rows(Port.LEFT, batch) if isinstance(item, pa.RecordBatch)]
        if pairs:
            yield sort_by_time(pairs, self.time).batch
        yield from self.join.punctuate(Port.LEFT, Punctuation(punctuation.link, complete))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the join, the waiting rows, and the watermarks of both sides."""
        return super().snapshot() | {WATERMARKS: pa.table({"bound": self.bounds})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        super().restore(tables)
        self.bounds = tables[WATERMARKS]["bound"].to_pylist()
