"""A sort of each input, followed by the in-order join.

Disorder of one input delays both inputs: the rows of this input wait in its sort, and the rows of the other input wait
in the join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from highlevel.baselines.iop_join import IopJoin
from highlevel.baselines.sort import SlackSort
from highlevel.joins.spec import JoinSpec
from highlevel.operators.state import restore_to, snapshot_of
from lowlevel.punctuation import Item, Punctuation


class SortedJoin:
    """Join two inputs that are not in order.

    `slacks` are the slacks of the left and the right sort; with None a sort waits for watermarks.
    """

    def __init__(self, spec: JoinSpec, slacks: tuple[int | None, int | None] = (None, None)) -> None:
        """Join by `spec`."""
        sides = (spec.left, spec.right)
        self.sorts = [SlackSort(slack, side.time) for slack, side in zip(slacks, sides, strict=True)]
        self.join = IopJoin(spec)

    @property
    def received(self) -> int:
        """Number of rows received."""
        return sum(sort.received for sort in self.sorts)

    @property
    def late(self) -> int:
        """Number of dropped rows: rows that exceeded the slack of their sort, or were below a watermark."""
        return sum(sort.late for sort in self.sorts)

    @property
    def results(self) -> int:
        """Number of emitted pairs."""
        return self.join.results

    @property
    def rows_held(self) -> int:
        """Rows that wait in the sorts, and rows of the join."""
        return sum(sort.rows_held for sort in self.sorts) + self.join.rows_held

    @property
    def bytes(self) -> int:
        """Bytes of the rows in the sorts and in the join."""
        return sum(sort.bytes for sort in self.sorts) + self.join.bytes

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Sort rows, and join the rows that the sort emits."""
        yield from self._join_sorted(port, self.sorts[port].process_rows(0, batch))

    def punctuate(self, port: int, punctuation: Punctuation) -> Iterator[Item]:
        """Join the rows that the sort emits at the watermark."""
        yield from self._join_sorted(port, self.sorts[port].punctuate(0, punctuation))

    def _join_sorted(self, port: int, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            yield from (
                self.join.punctuate(port, item) if isinstance(item, Punctuation) else self.join.process_rows(port, item)
            )

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state of both sorts and of the join."""
        return snapshot_of([*self.sorts, self.join])

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""
        restore_to([*self.sorts, self.join], tables)
