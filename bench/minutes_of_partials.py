"""Partials by address pair for several minutes, and an operator that receives one minute after the other.

The partials are like those of a low-level table: batches in which groups occur again. Operators with windows of any
number of minutes receive the same partials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.undisturbed import time_step
from highlevel.sliding.aggregate import END_WID, FIRST_WID, Aggregate
from lowlevel.expressions.arrow import to_arrow
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.punctuation import Punctuation
from lowlevel.subaggregates import Kind, SubAggregate

PAIR = ["srcIP", "destIP"]
LENGTH = Column("len", Type.INT)
PACKETS = SubAggregate("packets", Kind.COUNT)
QUERIES = {
    "count, sum": (PACKETS, SubAggregate("bytes", Kind.SUM, LENGTH)),
    "count, sum, max": (
        PACKETS,
        SubAggregate("bytes", Kind.SUM, LENGTH),
        SubAggregate("most", Kind.MAX, LENGTH),
    ),
}
COLUMNS = ("packets", "bytes", "most")


@dataclass(frozen=True)
class Size:
    """The amount of work: groups, partials per batch, batches per minute, measured minutes, and runs."""

    groups: int
    rows: int
    batches: int
    minutes: int
    runs: int


def partials(size: Size) -> list[pa.RecordBatch]:
    """Return the batches of a minute. Each partial is of a random pair."""
    random = np.random.default_rng(1)
    addresses = random.integers(0, 1 << 32, (2, size.groups), np.uint64)
    found = []
    for _ in range(size.batches):
        group = random.integers(size.groups, size=size.rows)
        none = np.zeros(size.rows, np.uint64)
        columns = [to_arrow(4, none, side[group]) for side in addresses]
        columns += [pa.array(random.integers(1, 1500, size.rows)) for _ in COLUMNS]
        found.append(pa.RecordBatch.from_arrays(columns, [*PAIR, *COLUMNS]))
    return found


def assign_windows(batches: Sequence[pa.RecordBatch], minute: int, windows: int) -> list[pa.RecordBatch]:
    """Return the partials of a minute as members of `windows` windows that slide by a minute."""
    return [
        batch.append_column(FIRST_WID, pa.array(np.full(batch.num_rows, minute))).append_column(
            END_WID, pa.array(np.full(batch.num_rows, minute + windows))
        )
        for batch in batches
    ]


class RollingOperator:
    """An operator that receives the partials of one minute after the other. Its window is full at the beginning."""

    def __init__(self, query: str, batches: list[pa.RecordBatch], windows: int) -> None:
        self.aggregate = Aggregate(PAIR, QUERIES[query])
        self.batches = batches
        self.windows = windows
        self.minute = 0
        while self.minute < windows + 2:
            self.seconds(1)

    def seconds(self, minutes: int) -> float:
        """Return the CPU seconds of each of the next minutes: merge its partials, and close its window."""
        positions = range(self.minute, self.minute + minutes)
        tagged = [assign_windows(self.batches, minute, self.windows) for minute in positions]

        def once() -> None:
            for minute, batches in zip(positions, tagged, strict=True):
                for batch in batches:
                    for _ in self.aggregate.process_rows(0, batch):
                        pass
                for _ in self.aggregate.punctuate(0, Punctuation("link", minute + 1)):
                    pass

        self.minute += minutes
        return time_step(once).processor / minutes
