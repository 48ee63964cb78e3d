"""ChangingUnion, ChangingRepeat and NetChanges: operators over changes that store no rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from highlevel.operators.meld import UNION
from highlevel.operators.operator import StatelessOperator
from highlevel.plan.change_nodes import ChangingRepeat, ChangingUnion, NetChanges, implies_watermark
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, times_of
from highlevel.plan.operators.union import UnionOperator
from highlevel.speculation.changes import add_up, make_changes, split_changes
from lowlevel.punctuation import END, Punctuation


class ChangingUnionOperator(UnionOperator):
    """Passes on changes. A row is final if its time is final in all inputs."""

    def __init__(self, node: ChangingUnion) -> None:
        """Merge the inputs of `node`, one for each port."""
        super().__init__(node)
        self._time = node.time_columns[0] if node.time_columns else None
        self._implies_watermark = [implies_watermark(branch) for branch in node.branches]

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the changes, and the watermark that follows from final rows."""
        rows, weights, final = split_changes(batch)
        if self._time is None:
            yield from make_changes(rows, weights, False)
            return
        times = times_of(batch.column(self._time))
        final_times = times[final & (times < END)]
        progress: list[GraphItem] = []
        if len(final_times) and self._implies_watermark[port]:
            progress = list(super().punctuate(port, Punctuation(UNION, int(final_times.max()) + 1)))
        yield from make_changes(rows, weights, times < self.watermark[0])
        yield from progress


class ChangingRepeatOperator(StatelessOperator):
    """Multiplies the weights of changes by the column `count` of the node."""

    def __init__(self, node: ChangingRepeat) -> None:
        """Multiply by the column `count` of `node`."""
        self._count = node.count

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the changes with a positive count."""
        rows, weights, final = split_changes(batch)
        counts = batch.column(self._count).to_numpy()
        kept = counts > 0
        yield from make_changes(rows.filter(pa.array(kept)), (weights * counts)[kept], final[kept])

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Pass on the watermark."""
        yield punctuation


class NetChangesOperator(StatelessOperator):
    """Sums the weights of equal rows in each batch. Withdrawn rows are first."""

    def __init__(self, node: NetChanges) -> None:
        """Prepare for batches of changes."""

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the changes of a batch that do not cancel each other."""
        yield from add_up(batch)

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Pass on the watermark."""
        yield punctuation
