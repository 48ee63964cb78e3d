"""OPOB-Join: order preserved by a buffer behind the join (Li 2008, §7.3).

An OA-Join whose results are parked until no later one has an earlier left time. A pair waits for what its window may
still bring, so the buffer grows with the rate of results times RANGE, where the join grows with the rate of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from highlevel.baselines.buffered_join import BufferedJoin, left_time
from highlevel.joins.spec import JoinSpec
from lowlevel.punctuation import GraphItem, Punctuation


class OpobJoin(BufferedJoin):
    """Gives the rows of OA-Join, with its promises of the left's time, in the order of that."""

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        super().__init__(spec, left_time(spec))
        self.results = 0

    @property
    def received(self) -> int:
        """Rows that came."""
        return self.join.received

    @property
    def late(self) -> int:
        """Rows that came behind a promise."""
        return self.join.late

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Park the pairs of these rows."""
        yield from self._in_order(self.join.rows(port, batch))

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[GraphItem]:
        """Let the results leave that no later one is before, in order."""
        yield from self._in_order(self.join.punctuate(port, mark))

    def _in_order(self, items: Iterable[GraphItem]) -> Iterator[GraphItem]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.buffer.add(item)
            else:
                assert isinstance(item, Punctuation)
                for rows in self.buffer.take(item.low - 1):
                    self.results += rows.num_rows
                    yield rows
                yield item
