"""Merge: the union of ordered inputs that is ordered itself (Li 2008, §8.1).

The smallest head leaves when every input has one, or has said by punctuation that none is to come before it. What the
others send in the meantime waits, without any bound: a link that is silent, or behind, holds back all the others'
traffic for as long as it is. Meld does not wait, since it does not order.
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
    """Takes rows of several inputs with the time column `time`, each in order, and gives them in order.

    An input is known up to its newest row, equal times included, or its promise, whichever is more. A row behind that
    is not in order: it is dropped, and counted in `late`.
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
        """Queue rows; those of any input leave that all inputs have reached."""
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

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Take a promise in place of a head: that of a lull, or of the end."""
        self.known[port] = max(self.known[port], mark.low)
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
        """Take the rows of a queue up to a bound out of it."""
        while queue and queue[0].times[0] <= bound:
            run = queue.popleft()
            place = int(np.searchsorted(run.times, bound, "right"))
            yield run.batch.slice(0, place)
            if place < len(run.times):
                queue.appendleft(run.rest(place))

    def snapshot(self) -> dict[str, pa.Table]:
        """What is known of the inputs, what was promised, and the rows that wait, by port."""
        tables = {"progress": pa.table({"known": [*self.known, self.promised]})}
        for port, queue in enumerate(self.queues):
            if queue:
                tables[f"port-{port}"] = pa.Table.from_batches([run.batch for run in queue])
        return tables

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot of as many inputs."""
        *self.known, self.promised = tables["progress"]["known"].to_pylist()
        for port, queue in enumerate(self.queues):
            if f"port-{port}" in tables:
                for batch in tables[f"port-{port}"].to_batches():
                    queue.append(Run(batch.column(self.time).to_numpy(), batch, batch.num_rows))
                    self.rows_held += batch.num_rows
