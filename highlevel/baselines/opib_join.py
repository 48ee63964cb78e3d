"""OPIB-Join: order preserved by a buffer in front of the join (Li 2008, §7.3).

A left row waits until all its possible matches have arrived. So the results are in the order of left times. A right row
is stored until no waiting left row can match it. If both windows have the same range and both inputs the same rate, it
stores the rows of three ranges. A join without this buffer stores the rows of two ranges.
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
    """Emits the results of OAJoin, which needs no order, in the order of left times.

    Its watermarks bound left times.
    """

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        self.time = left_time_name(spec)
        super().__init__(spec, spec.left.time)
        self.window = spec.window
        self.watermarks = [BEGINNING, BEGINNING]
        self.received = self._late = 0

    @property
    def late(self) -> int:
        """Rows below a watermark."""
        return self.join.late + self._late

    @property
    def results(self) -> int:
        """Number of emitted rows."""
        return self.join.results

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Delay rows of the left input. Store rows of the right input."""
        self.received += batch.num_rows
        if port == Port.RIGHT:
            yield from self.join.process_rows(port, batch)
            return
        late = batch.column(self.buffer.time).to_numpy() < self.watermarks[Port.LEFT]
        if late.any():
            self._late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        self.buffer.add(batch)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[GraphItem]:
        """Join, in order, the left rows whose possible matches have all arrived."""
        if punctuation.watermark <= self.watermarks[port]:
            return
        self.watermarks[port] = punctuation.watermark
        if port == Port.RIGHT:
            yield from self.join.punctuate(port, punctuation)
        # All left rows before this time have arrived, and no right row that arrives from now on matches them.
        complete = min(self.watermarks[Port.LEFT], self.window.expiry_time(Port.LEFT, self.watermarks[Port.RIGHT]))
        if complete == BEGINNING:
            return
        pairs = []
        for batch in self.buffer.take(complete - 1):
            pairs += [item for item in self.join.process_rows(Port.LEFT, batch) if isinstance(item, pa.RecordBatch)]
        if pairs:
            yield sort_by_time(pairs, self.time).batch
        yield from self.join.punctuate(Port.LEFT, Punctuation(punctuation.link, complete))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of the join, the waiting rows, and the watermarks of both sides."""
        return super().snapshot() | {WATERMARKS: pa.table({"bound": self.watermarks})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        super().restore(tables)
        self.watermarks = tables[WATERMARKS]["bound"].to_pylist()
