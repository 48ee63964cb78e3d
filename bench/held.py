"""Plans of operators that links feed, and what they hold while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from bench.links import Link, events
from bench.report import Report
from highlevel.aggregate import Aggregate
from highlevel.bucket import END_WID, FIRST_WID
from highlevel.inorder.buffering import BufferingAggregate
from highlevel.windows.sliding import SlidingWindow
from lowlevel.punctuation import END, Item, Punctuation


class ByWindow:
    """Makes rows partials of windows by their column `time`, and times in promises window ids.

    Rows without a column `packets` count as one each, and keep none of their columns.
    """

    def __init__(self, window: SlidingWindow, time: str = "ts") -> None:
        self.window, self.time = window, time

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Tag rows."""
        first, end = self.window.wids(batch.column(self.time).to_numpy())
        if "packets" in batch.schema.names:
            tagged = batch.drop_columns([self.time])
        else:
            tagged = pa.RecordBatch.from_pydict({"packets": pa.array(np.ones(batch.num_rows, np.int64))})
        yield tagged.append_column(FIRST_WID, pa.array(first)).append_column(END_WID, pa.array(end))

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Round down."""
        yield mark if mark.low == END else Punctuation(mark.link, self.window.closed_before(mark.low))


class Again:
    """Makes rows of windows partials of the same windows."""

    def rows(self, port: int, batch: pa.RecordBatch) -> Iterator[Item]:
        """Give the window as a range of one."""
        wids = batch.column("wid").to_numpy()
        tagged = batch.drop_columns(["wid"]).append_column(FIRST_WID, pa.array(wids))
        yield tagged.append_column(END_WID, pa.array(wids + 1))

    def punctuate(self, port: int, mark: Punctuation) -> Iterator[Item]:
        """Pass on."""
        yield mark


class Step:
    """An operator, and what is below each of its ports: the number of a link, or another step."""

    def __init__(self, operator: Any, *below: Step | int) -> None:
        self.operator, self.below = operator, below

    def take(self, link: int, item: Item) -> Iterator[Item]:
        """Feed what a link sends; yield what leaves."""
        for port, each in enumerate(self.below):
            arrived: Iterable[Item] = each.take(link, item) if isinstance(each, Step) else [item] * (each == link)
            for one in arrived:
                mark = isinstance(one, Punctuation)
                yield from self.operator.punctuate(port, one) if mark else self.operator.rows(port, one)

    def steps(self) -> Iterator[Step]:
        """Yield this and all below."""
        yield self
        for each in self.below:
            if isinstance(each, Step):
                yield from each.steps()


def held(operator: object) -> int:
    """Count what an operator holds: rows, or partials."""
    if isinstance(operator, Aggregate):
        return sum(pile.rows for pile in operator.open.piles.values())
    if isinstance(operator, BufferingAggregate):
        return operator.tuples
    return int(getattr(operator, "rows_held", 0))


@dataclass
class Held:
    """What a plan held, sampled each tick after it had settled; what it took, and what left it."""

    items: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    processor: float = 0.0
    rows: int = 0
    results: int = 0
    checksum: int = 0

    @property
    def most(self) -> int:
        """Rows and partials at most."""
        return max(self.items)

    @property
    def mean(self) -> float:
        """Rows and partials in the mean."""
        return float(np.mean(self.items))

    @property
    def most_bytes(self) -> int:
        """Bytes at most."""
        return max(self.bytes)

    @property
    def mean_bytes(self) -> float:
        """Bytes in the mean."""
        return float(np.mean(self.bytes))


Seen = Callable[[int, pa.RecordBatch], None]
"""Told of each batch that leaves, and when."""


def fed(
    top: Step,
    links: Sequence[Link],
    seconds: int,
    settled: int,
    counted: str,
    seen: Seen | None = None,
    sampled: Step | None = None,
) -> Held:
    """Feed a plan so many seconds; the checksum is of the column `counted`.

    What it holds is sampled behind `settled` µs, or what a step of it does, with all below.
    """
    found = Held()
    operators = [step.operator for step in (sampled or top).steps()]
    before = 0
    for now, link, item in events(links, seconds):
        if now > before >= settled:  # a tick is over
            found.items.append(sum(map(held, operators)))
            found.bytes.append(sum(getattr(operator, "bytes", 0) for operator in operators))
        before = now
        began = time.process_time()
        left = list(top.take(link, item))
        found.processor += time.process_time() - began
        if isinstance(item, pa.RecordBatch):
            found.rows += item.num_rows
        for one in left:
            if isinstance(one, pa.RecordBatch):
                found.results += one.num_rows
                found.checksum += int(one.column(counted).to_numpy().sum())
                if seen is not None:
                    seen(now, one)
    return found


FIGURES: dict[str, Callable[[Held], str]] = {
    "tuples and partials held at most (in the mean)": lambda each: f"{each.most:,} ({each.mean:,.0f})",
    "KB held at most (in the mean)": lambda each: f"{each.most_bytes / 1e3:,.0f} ({each.mean_bytes / 1e3:,.0f})",
    "processor time, ns for a tuple": lambda each: f"{each.processor / each.rows * 1e9:,.0f}",
}


def tell(report: Report, title: str, over: str, found: Mapping[int, Mapping[str, Held]]) -> None:
    """Add a table of each figure: a column for each plan, a row for each value, in seconds, of what it is told over."""
    for what, shown in FIGURES.items():
        rows = [(f"{place} s", *(shown(each) for each in plans.values())) for place, plans in found.items()]
        report.table(f"{title}: {what}", (over, *next(iter(found.values()))), rows)


def same(found: dict[str, Held]) -> None:
    """Raise ValueError where plans do not say the same."""
    answers = {name: (each.results, each.checksum) for name, each in found.items()}
    if len(set(answers.values())) != 1:
        raise ValueError(f"the plans do not say the same: {answers}")
