"""Sort: emit rows in time order (BSort; Li 2008, §3.2).

In-order operators need this operator before them if the input is disordered. A row is emitted when the newest row is at
least `slack` newer, or when a watermark reaches its time. An arriving row is dropped if it is older than the last
emitted watermark, or older than the newest row by more than `slack`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.baselines.sort_buffer import SortBuffer
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, Item, Punctuation


class SlackSort:
    """Sorts rows by the column `time_column`. It emits a watermark after each group of sorted rows.

    No row that is emitted after a watermark is older than this watermark. `received` counts input rows, `results`
    output rows and `late` dropped rows.
    """

    def __init__(self, slack: int | None, time_column: str = "ts") -> None:
        """Wait `slack` units of the column `time_column`. None: rows wait for punctuations."""
        if slack is not None and slack < 0:
            raise ValueError(f"slack must not be negative, got {slack}")
        self.slack, self.time_column = slack, time_column
        self.buffer = SortBuffer(time_column)
        self.newest = BEGINNING
        self.emitted_watermark = BEGINNING
        self.received = self.late = self.results = 0

    @property
    def rows_held(self) -> int:
        """Number of the stored rows."""
        return self.buffer.rows

    @property
    def bytes(self) -> int:
        """Bytes of the stored rows."""
        return self.buffer.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Drop late rows, store the other rows, and emit stored rows at least `slack` older than the newest row."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        times = batch.column(self.time_column).to_numpy()
        bound = self.emitted_watermark
        late = times < bound
        if self.slack is not None:
            newest_so_far = np.maximum.accumulate(np.maximum(times, self.newest))
            late |= times < newest_so_far - self.slack
            self.newest = int(newest_so_far[-1])
            bound = max(bound, self.newest - self.slack)
        if late.any():
            self.late += int(np.count_nonzero(late))
            batch = batch.filter(pa.array(~late))
        self.buffer.add(batch)
        yield from self._emit_up_to(bound)

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Emit the rows up to the watermark."""
        yield from self._emit_up_to(punctuation.watermark)

    def _emit_up_to(self, bound: int) -> Iterator[Item]:
        """Emit the rows up to and including `bound`, then `bound` as watermark."""
        bound = max(bound, self.emitted_watermark)
        for rows in self.buffer.take(bound):
            self.results += rows.num_rows
            yield rows
        if bound > self.emitted_watermark:
            self.emitted_watermark = bound
            yield Punctuation(UNION, bound)

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the newest time, the last watermark and the stored rows."""
        tables = {"progress": pa.table({"newest": [self.newest], "emitted_watermark": [self.emitted_watermark]})}
        waiting = self.buffer.all()
        return tables | {"rows": pa.Table.from_batches(waiting)} if waiting else tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        ((self.newest, self.emitted_watermark),) = (tuple(row.values()) for row in tables["progress"].to_pylist())
        if "rows" in tables:
            for batch in tables["rows"].to_batches():
                self.buffer.add(batch)
