"""OPOB-Join: order preserved by a buffer after the join (Li 2008, §7.3).

The results of an OA-Join wait until no result with an earlier left time can follow, at most for RANGE. So the buffer
contains the results of one RANGE, in addition to the rows in the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from highlevel.baselines.buffered_join import BufferedJoin, left_time_name
from highlevel.joins.spec import JoinSpec
from lowlevel.punctuation import GraphItem, Punctuation


class OpobJoin(BufferedJoin):
    """Emits the results of OAJoin, which needs no order, in the order of left times.

    Its watermarks bound left times.
    """

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        super().__init__(spec, left_time_name(spec))
        self.results = 0

    @property
    def received(self) -> int:
        """Number of rows received."""
        return self.join.received

    @property
    def late(self) -> int:
        """Rows below a watermark."""
        return self.join.late

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Join rows, and store the resulting pairs in the buffer."""
        yield from self._sort_results(self.join.process_rows(port, batch))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[GraphItem]:
        """Emit, in order, the results before which no later result can be."""
        yield from self._sort_results(self.join.punctuate(port, punctuation))

    def _sort_results(self, items: Iterable[GraphItem]) -> Iterator[GraphItem]:
        for item in items:
            if isinstance(item, pa.RecordBatch):
                self.buffer.add(item)
            else:
                assert isinstance(item, Punctuation)
                for rows in self.buffer.take(item.watermark - 1):
                    self.results += rows.num_rows
                    yield rows
                yield item
