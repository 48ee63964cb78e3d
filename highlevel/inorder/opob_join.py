"""OPOB-Join: order preserved by a buffer behind the join (Li 2008, §7.3).

An OA-Join whose results are parked until no later one has an earlier left time. A pair waits for what its window may
still bring, so the buffer grows with the rate of results times RANGE, where the join grows with the rate of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from highlevel.graph.joint import GraphItem
from highlevel.inorder.sort_buffer import SortBuffer
from highlevel.joins.oa_join import OAJoin
from highlevel.joins.spec import JoinKind, JoinSpec, Progress
from lowlevel.punctuation import Punctuation

PARKED = "parked"
"""Table of a snapshot beside those of the join."""


def left_time(spec: JoinSpec) -> str:
    """Return the name under which the left's time leaves, which order is kept by; every row must have one."""
    if spec.kind in (JoinKind.RIGHT, JoinKind.FULL):
        raise ValueError(f"a join in order of its left times has one in every row, got {spec.kind}")
    (name,) = spec.progress_columns(Progress.LEFT)
    return name


class OpobJoin:
    """Gives the rows of OA-Join, with its promises of the left's time, in the order of that."""

    def __init__(self, spec: JoinSpec) -> None:
        """Join by `spec`."""
        self.buffer = SortBuffer(left_time(spec))
        self.join = OAJoin(spec, Progress.LEFT)
        self.results = 0

    @property
    def received(self) -> int:
        """Rows that came."""
        return self.join.received

    @property
    def late(self) -> int:
        """Rows that came behind a promise."""
        return self.join.late

    @property
    def rows_held(self) -> int:
        """Rows of the join, and results that wait."""
        return self.join.rows_held + self.buffer.rows

    @property
    def bytes(self) -> int:
        """Bytes of them."""
        return self.join.bytes + self.buffer.bytes

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

    def snapshot(self) -> dict[str, pa.Table]:
        """The state of the join, and the results that wait."""
        parked = self.buffer.runs()
        return self.join.snapshot() | ({PARKED: pa.Table.from_batches(parked)} if parked else {})

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Take over the state of a snapshot."""
        self.join.restore({name: table for name, table in tables.items() if name != PARKED})
        for batch in tables[PARKED].to_batches() if PARKED in tables else []:
            self.buffer.add(batch)
