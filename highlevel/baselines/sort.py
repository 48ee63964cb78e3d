"""Sort: rows leave in the order of their times once no earlier one is waited for (BSort; Li 2008, §3.2).

That is what in-order operators need in front of them where input is disordered. How long to wait is a *slack*, counted
from the largest time seen, or promised by punctuation, or whichever is sooner. A row behind what has left is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.baselines.sort_buffer import SortBuffer
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, Item, Punctuation


class SlackSort:
    """Takes rows with the time column `time` and gives them in order; its own promises are of what has left.

    `received` rows came, `late` of them were behind a promise or behind the largest time less the slack, each at its
    own place in the stream, and were dropped; `results` have left.
    """

    def __init__(self, slack: int | None, time: str = "ts") -> None:
        """Wait `slack` units of the column `time`; None waits for punctuation alone."""
        if slack is not None and slack < 0:
            raise ValueError(f"slack is how long to wait, got {slack}")
        self.slack, self.time = slack, time
        self.buffer = SortBuffer(time)
        self.high = BEGINNING
        self.promised = BEGINNING
        self.received = self.late = self.results = 0

    @property
    def rows_held(self) -> int:
        """Rows that wait."""
        return self.buffer.rows

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait."""
        return self.buffer.bytes

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Take rows in the order of their arrival; those leave that the slack lets."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        times = batch.column(self.time).to_numpy()
        bound = self.promised
        late = times < bound
        if self.slack is not None:
            highs = np.maximum.accumulate(np.maximum(times, self.high))
            late |= times < highs - self.slack
            self.high = int(highs[-1])
            bound = max(bound, self.high - self.slack)
        if late.any():
            self.late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        self.buffer.add(batch)
        yield from self._leave(bound)

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Let the rows leave that no later one is before."""
        yield from self._leave(mark.low)

    def _leave(self, bound: int) -> Iterator[Item]:
        """Let go of rows up to a bound that no later row is below, equal ones too: order is kept; promise it."""
        bound = max(bound, self.promised)
        for rows in self.buffer.take(bound):
            self.results += rows.num_rows
            yield rows
        if bound > self.promised:
            self.promised = bound
            yield Punctuation(UNION, bound)

    def snapshot(self) -> dict[str, pa.Table]:
        """How far the operator is, and the rows that wait."""
        tables = {"progress": pa.table({"high": [self.high], "promised": [self.promised]})}
        held = self.buffer.all()
        return tables | {"rows": pa.Table.from_batches(held)} if held else tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        ((self.high, self.promised),) = (tuple(row.values()) for row in tables["progress"].to_pylist())
        if "rows" in tables:
            for batch in tables["rows"].to_batches():
                self.buffer.add(batch)
