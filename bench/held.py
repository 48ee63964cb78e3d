"""State and CPU time of plans while links send rows, and the time that pairs wait in them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bench.disorder import SECOND
from bench.links import Link, events
from bench.report import Report
from bench.steps import Step
from highlevel.compare.drive import count_state_bytes, count_stored


@dataclass
class PlanState:
    """The state of a plan at each tick after the settling time, its CPU time, and its output."""

    items: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    processor: float = 0.0
    rows: int = 0
    results: int = 0
    checksum: int = 0
    waited: float = 0.0

    @property
    def max_items(self) -> int:
        """Maximum number of stored rows and partials."""
        return max(self.items)

    @property
    def mean_items(self) -> float:
        """Mean number of stored rows and partials."""
        return float(np.mean(self.items))

    @property
    def max_bytes(self) -> int:
        """Maximum bytes."""
        return max(self.bytes)

    @property
    def mean_bytes(self) -> float:
        """Mean bytes."""
        return float(np.mean(self.bytes))


@dataclass
class Pairs:
    """Measures how long the pairs of a join wait, before the END of all links: at END pairs no longer wait."""

    begin: int
    end: int
    total: int = 0
    count: int = 0

    def __call__(self, now: int, pairs: pa.RecordBatch) -> None:
        """Add the times from the later time of each pair to its emission."""
        if self.begin < now < self.end:
            there = np.maximum(pairs.column("left_ts").to_numpy(), pairs.column("right_ts").to_numpy())
            self.total += int((now - there).sum())
            self.count += len(there)

    @property
    def seconds(self) -> float:
        """The mean wait, in seconds."""
        return self.total / self.count / SECOND


BatchReceiver = Callable[[int, pa.RecordBatch], None]
"""Receives each emitted batch with its time."""


def feed_plan(
    top: Step,
    links: Sequence[Link],
    seconds: int,
    settled: int,
    counted: str,
    seen: BatchReceiver | None = None,
    sampled: Step | None = None,
) -> PlanState:
    """Feed a plan with the rows of `seconds` seconds. The checksum is computed from the column `counted`.

    From `settled` µs on, the state is sampled: the state of the plan, or of a step and all steps below it.
    """
    found = PlanState()
    operators = [step.operator for step in (sampled or top).steps()]
    before = 0
    for at, link, item in events(links, seconds):
        if at > before >= settled:  # a tick is over
            found.items.append(sum(map(count_stored, operators)))
            found.bytes.append(sum(map(count_state_bytes, operators)))
        before = at
        began = time.process_time()
        left = list(top.process(link, item))
        found.processor += time.process_time() - began
        if isinstance(item, pa.RecordBatch):
            found.rows += item.num_rows
        for one in left:
            if isinstance(one, pa.RecordBatch):
                found.results += one.num_rows
                found.checksum += int(one.column(counted).to_numpy().sum())
                if seen is not None:
                    seen(at, one)
    return found


FIGURES: dict[str, Callable[[PlanState], str]] = {
    "tuples and partials held at most (in the mean)": lambda each: f"{each.max_items:,} ({each.mean_items:,.0f})",
    "KB held at most (in the mean)": lambda each: f"{each.max_bytes / 1e3:,.0f} ({each.mean_bytes / 1e3:,.0f})",
    "processor time, ns for a tuple": lambda each: f"{each.processor / each.rows * 1e9:,.0f}",
}


def add_tables(report: Report, title: str, over: str, found: Mapping[int, Mapping[str, PlanState]]) -> None:
    """Add a table for each figure: a column per plan, and a row per value of the parameter in seconds."""
    for what, shown in FIGURES.items():
        rows = [(f"{place} s", *(shown(plan) for plan in plans.values())) for place, plans in found.items()]
        report.table(f"{title}: {what}", (over, *next(iter(found.values()))), rows)


def run_join(top: Step, links: Sequence[Link], seconds: int, settled: int) -> PlanState:
    """Feed a plan that emits pairs. `waited`: mean seconds from the later time of a pair to its emission."""
    pairs = Pairs(settled, seconds * SECOND)
    found = feed_plan(top, links, seconds, settled, "left", pairs)
    found.waited = pairs.seconds
    return found


def add_wait_table(report: Report, title: str, over: str, found: Mapping[int, Mapping[str, PlanState]]) -> None:
    """Add a table of how long pairs wait."""
    rows = [(f"{place} s", *(f"{each.waited:.1f}" for each in plans.values())) for place, plans in found.items()]
    what = "s from the later time of a pair to its leaving, mean"
    report.table(f"{title}: {what}", (over, *next(iter(found.values()))), rows)


def check_equal_results(found: dict[str, PlanState]) -> None:
    """Raise ValueError if the results of the plans differ."""
    answers = {name: (each.results, each.checksum) for name, each in found.items()}
    if len(set(answers.values())) != 1:
        raise ValueError(f"the plans have different results: {answers}")
