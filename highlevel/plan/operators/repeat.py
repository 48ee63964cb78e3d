"""Repeat: each row of a node, repeated by the number in one of its columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.operators.operator import StatelessOperator
from highlevel.plan.nodes import Repeat
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem

BATCH_ROWS = 65_536
"""Maximum number of rows in a batch of results: a few rows may be repeated millions of times."""


class RepeatOperator(StatelessOperator):
    """Repeats each row by its value of the column `_count_column` of the node."""

    def __init__(self, node: Repeat) -> None:
        """Repeat by the column `_count_column` of `node`."""
        self._count_column = node.count

    def process_rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return each row with a positive count, `_count_column` times in succession."""
        counts = np.maximum(batch.column(self._count_column).to_numpy(), 0)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for start in range(0, total, BATCH_ROWS):
            result_positions = np.arange(start, min(start + BATCH_ROWS, total))
            yield batch.take(pa.array(np.searchsorted(ends, result_positions, side="right")))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Return the same watermark."""
        yield punctuation
