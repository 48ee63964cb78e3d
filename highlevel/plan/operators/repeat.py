"""Repeat: each row of a node as many times as one of its columns states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from highlevel.plan.nodes import Repeat
from highlevel.plan.operators.operator import AnyPunctuation, GraphItem, Stateless

BATCH_ROWS = 65_536
"""Most rows of a batch: a few rows may be repeated millions of times."""


class RepeatOperator(Stateless):
    """Repeats rows. Stateless."""

    def __init__(self, node: Repeat) -> None:
        """Repeat by the column `count` of `node`."""
        self.count = node.count

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[GraphItem]:
        """Return the rows with a positive count, equal ones after each other."""
        counts = np.maximum(batch.column(self.count).to_numpy(), 0)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for begin in range(0, total, BATCH_ROWS):
            numbers = np.arange(begin, min(begin + BATCH_ROWS, total))
            yield batch.take(pa.array(np.searchsorted(ends, numbers, side="right")))

    def punctuate(self, port: int, punctuation: AnyPunctuation) -> Iterator[GraphItem]:
        """Pass on the watermark."""
        yield punctuation
