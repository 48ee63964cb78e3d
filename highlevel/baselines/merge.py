"""Merge: the union of ordered inputs that is ordered itself (Li 2008, §8.1).

The smallest head is emitted when every input has a head, or a punctuation that excludes an earlier row. Meanwhile the
rows of other inputs wait in unlimited memory. A link that is idle or late delays the rows of all other links. `Meld`
does not wait, because its output has no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.baselines.sort_buffer import Run, in_order
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, Item, Punctuation


class OrderedMerge:
    """Merge ordered inputs with the time column `time` into one ordered output.

    The bound of an input is its newest row or its watermark, the larger of both; equal times are allowed. A row below
    this bound is not in order: it is dropped and counted in `late`.
    """

    def __init__(self, inputs: int, time: str = "ts") -> None:
        """Unite `inputs` (at least one) inputs, ports 0 to inputs - 1."""
        self.time = time
        self.known = [BEGINNING] * inputs
        self.queues: list[deque[Run]] = [deque() for _ in range(inputs)]
        self.promised = BEGINNING
        self.rows_held = 0
        self.received = self.late = self.results = 0

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait."""
        return sum(run.bytes for queue in self.queues for run in queue)

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Queue rows, and emit the rows that all inputs have reached."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        times = batch.column(self.time).to_numpy()
        highs = np.maximum.accumulate(np.maximum(times, self.known[port]))
        ordered = times >= highs
        if not ordered.all():
            self.late += int(np.count_nonzero(~ordered))
            batch, times = batch.filter(pa.array(ordered)), times[ordered]
        if batch.num_rows:
            self.queues[port].append(Run(times, batch, len(times)))
            self.rows_held += batch.num_rows
            self.known[port] = int(times[-1])
        yield from self._leave()

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Use a watermark instead of a head, when the input is idle or at its end."""
        self.known[port] = max(self.known[port], punctuation.watermark)
        yield from self._leave()

    def _leave(self) -> Iterator[Item]:
        bound = min(self.known)
        ready = [batch for queue in self.queues for batch in self._heads(queue, bound)]
        if ready:
            rows = in_order(ready, self.time).batch
            self.rows_held -= rows.num_rows
            self.results += rows.num_rows
            yield rows
        if bound > self.promised:
            self.promised = bound
            yield Punctuation(UNION, bound)

    @staticmethod
    def _heads(queue: deque[Run], bound: int) -> Iterator[pa.RecordBatch]:
        """Remove the rows of a queue up to a bound, and yield them."""
        while queue and queue[0].times[0] <= bound:
            run = queue.popleft()
            place = int(np.searchsorted(run.times, bound, "right"))
            yield run.batch.slice(0, place)
            if place < len(run.times):
                queue.appendleft(run.rest(place))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the bounds of the inputs, the emitted watermark, and the waiting rows by port."""
        tables = {"progress": pa.table({"known": [*self.known, self.promised]})}
        for port, queue in enumerate(self.queues):
            if queue:
                tables[f"port-{port}"] = pa.Table.from_batches([run.batch for run in queue])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the state of a snapshot with the same number of inputs."""
        *self.known, self.promised = tables["progress"]["known"].to_pylist()
        for port, queue in enumerate(self.queues):
            if f"port-{port}" in tables:
                for batch in tables[f"port-{port}"].to_batches():
                    queue.append(Run(batch.column(self.time).to_numpy(), batch, batch.num_rows))
                    self.rows_held += batch.num_rows
