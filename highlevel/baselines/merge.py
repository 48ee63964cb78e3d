"""Merge: the union of ordered inputs, with an ordered output (Li 2008, §8.1).

A row is emitted when no input can have an earlier row: each input has a waiting row that is not earlier, or a watermark
that excludes earlier rows. Until then rows wait in unlimited memory. So an idle or late input delays the rows of all
other inputs. `Meld` does not wait, because its output has no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.baselines.sort_buffer import Run, sort_by_time
from highlevel.operators.meld import UNION
from lowlevel.punctuation import BEGINNING, Item, Punctuation


class OrderedMerge:
    """Merge ordered inputs with the time column `time` into one ordered output.

    The bound of an input is the larger of its newest time and its watermark. A row below this bound is not in order: it
    is dropped and counted in `late`.
    """

    def __init__(self, inputs: int, time: str = "ts") -> None:
        """Merge `inputs` (at least 1) inputs, ports 0 to inputs - 1."""
        self.time = time
        self.bounds = [BEGINNING] * inputs
        self.queues: list[deque[Run]] = [deque() for _ in range(inputs)]
        self.emitted_watermark = BEGINNING
        self.rows_held = 0
        self.received = self.late = self.results = 0

    @property
    def bytes(self) -> int:
        """Bytes of the rows that wait."""
        return sum(run.bytes for queue in self.queues for run in queue)

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Queue rows, and emit the rows up to the smallest bound of the inputs."""
        if batch.num_rows == 0:
            return
        self.received += batch.num_rows
        times = batch.column(self.time).to_numpy()
        newest_so_far = np.maximum.accumulate(np.maximum(times, self.bounds[port]))
        ordered = times >= newest_so_far
        if not ordered.all():
            self.late += int(np.count_nonzero(~ordered))
            batch, times = batch.filter(pa.array(ordered)), times[ordered]
        if batch.num_rows:
            self.queues[port].append(Run(times, batch, len(times)))
            self.rows_held += batch.num_rows
            self.bounds[port] = int(times[-1])
        yield from self._emit_up_to()

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Advance the bound of an input to its watermark, and emit rows up to the smallest bound."""
        self.bounds[port] = max(self.bounds[port], punctuation.watermark)
        yield from self._emit_up_to()

    def _emit_up_to(self) -> Iterator[Item]:
        bound = min(self.bounds)
        ready = [batch for queue in self.queues for batch in self._remove_up_to(queue, bound)]
        if ready:
            rows = sort_by_time(ready, self.time).batch
            self.rows_held -= rows.num_rows
            self.results += rows.num_rows
            yield rows
        if bound > self.emitted_watermark:
            self.emitted_watermark = bound
            yield Punctuation(UNION, bound)

    @staticmethod
    def _remove_up_to(queue: deque[Run], bound: int) -> Iterator[pa.RecordBatch]:
        """Remove the rows of a queue up to a bound, and yield them."""
        while queue and queue[0].times[0] <= bound:
            run = queue.popleft()
            position = int(np.searchsorted(run.times, bound, "right"))
            yield run.batch.slice(0, position)
            if position < len(run.times):
                queue.appendleft(run.rest(position))

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the bounds of the inputs, the emitted watermark, and the waiting rows by port."""
        tables = {"progress": pa.table({"bounds": [*self.bounds, self.emitted_watermark]})}
        for port, queue in enumerate(self.queues):
            if queue:
                tables[f"port-{port}"] = pa.Table.from_batches([run.batch for run in queue])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Restore the state of a snapshot with the same number of inputs."""
        *self.bounds, self.emitted_watermark = tables["progress"]["bounds"].to_pylist()
        for port, queue in enumerate(self.queues):
            if f"port-{port}" in tables:
                for batch in tables[f"port-{port}"].to_batches():
                    queue.append(Run(batch.column(self.time).to_numpy(), batch, batch.num_rows))
                    self.rows_held += batch.num_rows
