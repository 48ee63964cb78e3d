"""Runs that had their core to themselves.

A process that computes in one thread on one core spends on the processor what it takes by the clock. If it spends
clearly less, other processes used the core meanwhile, and the measured time includes them. Such a run is made again.
Runs are selected by their share of the core, never by their speed, so fast runs are not preferred. The number of
repeated runs is printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

SHARE = 0.95
"""Part of its cores from which on a run counts as undisturbed."""

ATTEMPTS = 6
"""Runs for one value at most: on a machine that is never quiet the least disturbed one is taken."""


class Shared(Protocol):
    """A run that knows how much it had of the cores it was given."""

    @property
    def share(self) -> float:
        """Part of its cores that it had or could have had, 0..1."""


@dataclass(frozen=True)
class Took:
    """Wall and processor time of one step in one thread, in seconds."""

    seconds: float
    processor: float

    @property
    def share(self) -> float:
        """How much of one core the step had."""
        return self.processor / self.seconds if self.seconds else 1.0


Run = TypeVar("Run", bound=Shared)


def undisturbed(once: Callable[[], Run]) -> tuple[Run, int]:
    """Run until one run had its core to itself; returns it, or the least disturbed, and how many were made again.

    >>> runs = iter([Took(2.0, 1.0), Took(1.1, 1.1)])
    >>> undisturbed(lambda: next(runs))
    (Took(seconds=1.1, processor=1.1), 1)
    """
    runs = [once()]
    while runs[-1].share < SHARE and len(runs) < ATTEMPTS:
        runs.append(once())
    return max(runs, key=lambda run: run.share), len(runs) - 1


def step(work: Callable[[], object]) -> Took:
    """Time some work in this process, all its threads together."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - wall, time.process_time() - processor)
