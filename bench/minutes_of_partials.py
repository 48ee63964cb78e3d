"""Minutes of partials by address pair, and an operator that is fed one after the other.

They come as a table next to the packets lets them go: batches of groups that recur. Windows of any number of minutes
are fed the very same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.undisturbed import step
from highlevel.sliding.aggregate import Aggregate
from highlevel.sliding.bucket import END_WID, FIRST_WID
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
    """How much is merged: groups, partials of a batch, batches of a minute, minutes that are timed, and runs."""

    groups: int
    rows: int
    batches: int
    minutes: int
    runs: int


def partials(size: Size) -> list[pa.RecordBatch]:
    """Batches of a minute: each partial of any of the pairs."""
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


def in_windows(batches: Sequence[pa.RecordBatch], minute: int, windows: int) -> list[pa.RecordBatch]:
    """The partials of a minute, in so many windows that slide by a minute."""
    return [
        batch.append_column(FIRST_WID, pa.array(np.full(batch.num_rows, minute))).append_column(
            END_WID, pa.array(np.full(batch.num_rows, minute + windows))
        )
        for batch in batches
    ]


class Rolling:
    """An operator that receives minutes of partials. Its window is full after construction."""

    def __init__(self, query: str, batches: list[pa.RecordBatch], windows: int) -> None:
        self.aggregate = Aggregate(PAIR, QUERIES[query])
        self.batches = batches
        self.windows = windows
        self.minute = 0
        while self.minute < windows + 2:
            self.seconds(1)

    def seconds(self, minutes: int) -> float:
        """Processor seconds of each of the next minutes: its partials merged, and its window closed."""
        places = range(self.minute, self.minute + minutes)
        tagged = [in_windows(self.batches, minute, self.windows) for minute in places]

        def once() -> None:
            for minute, batches in zip(places, tagged, strict=True):
                for batch in batches:
                    for _ in self.aggregate.rows(0, batch):
                        pass
                for _ in self.aggregate.punctuate(0, Punctuation("link", minute + 1)):
                    pass

        self.minute += minutes
        return step(once).processor / minutes
