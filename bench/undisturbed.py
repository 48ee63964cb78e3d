"""Runs that no other process has disturbed.

The CPU time of a process with one computing thread on one core is equal to its wall time. If its CPU time is clearly
less, other processes used the core, and the wall time includes them. Such a run is repeated. Runs are selected by their
share of the core, never by their speed, so fast runs are not preferred. The number of repeated runs is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

MIN_CORE_SHARE = 0.95
"""Smallest share of its cores with which a run counts as undisturbed."""

ATTEMPTS = 6
"""Maximum runs for one value. If all of them are disturbed, the least disturbed run is used."""


class CoreShare(Protocol):
    """A run with its share of its cores."""

    @property
    def share(self) -> float:
        """The share of its cores that no other process used, 0..1."""


@dataclass(frozen=True)
class StepTime:
    """Wall and processor time of one step in one thread, in seconds."""

    seconds: float
    processor: float

    @property
    def share(self) -> float:
        """The step's share of one core."""
        return self.processor / self.seconds if self.seconds else 1.0


Run = TypeVar("Run", bound=CoreShare)


def run_undisturbed(once: Callable[[], Run]) -> tuple[Run, int]:
    """Repeat a run until it is undisturbed. Return this run, or the least disturbed, and the number of repetitions.

    >>> runs = iter([StepTime(2.0, 1.0), StepTime(1.1, 1.1)])
    >>> run_undisturbed(lambda: next(runs))
    (StepTime(seconds=1.1, processor=1.1), 1)
    """
    runs = [once()]
    while runs[-1].share < MIN_CORE_SHARE and len(runs) < ATTEMPTS:
        runs.append(once())
    return max(runs, key=lambda run: run.share), len(runs) - 1


def time_step(work: Callable[[], object]) -> StepTime:
    """Measure work in this process, over all its threads."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return StepTime(time.perf_counter() - wall, time.process_time() - processor)
