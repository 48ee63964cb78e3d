"""Measure all variants over the same arrivals, and compare them with the exact answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from capture.lazy_dataclasses import dataclass
from highlevel.compare.answers import Answer, Difference
from highlevel.compare.arrivals import Arrivals
from highlevel.compare.drive import observe, timed
from highlevel.compare.question import Question
from highlevel.compare.recording import Numbers
from highlevel.compare.variants import Variant, variants_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """Cost, state and answer of one variant.

    Latencies are in s, NaN if no result was emitted before the end of the input.
    """

    variant: Variant
    processor: float
    rows: int
    items: Numbers
    bytes: Numbers
    latency: float
    latency_most: float
    call: float
    difference: Difference
    late: int

    @property
    def rate(self) -> float:
        """Rows per second of CPU time."""
        return self.rows / max(self.processor, 1e-9)


@dataclass(frozen=True)
class Comparison:
    """Variants in their order, the first of which is exact; `exact` is its answer."""

    question: Question
    arrivals: Arrivals
    exact: Answer
    measured: Sequence[Measurement]


def compare(
    question: Question,
    arrivals: Arrivals,
    slacks: Sequence[int],
    repeat: int = 3,
    progress: Progress | None = None,
) -> Comparison:
    """Run all variants in turn: once to sample them, `repeat` times to time them.

    `progress` receives (runs done, all runs).

    The CPU time is the median.
    """
    variants = variants_of(question, slacks)
    runs = len(variants) * (repeat + 1)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, runs)

    seen = []
    exact: Answer | None = None
    for variant in variants:
        observation = observe(question, variant, arrivals)
        answer = Answer(question, observation.results)
        exact = exact or answer
        observation.results = []
        seen.append((observation, exact.difference(answer)))
        step()
    assert exact is not None
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(repeat):
        for variant, taken in zip(variants, times, strict=True):
            taken.append(timed(question, variant, arrivals))
            step()
    measured = []
    for variant, (observation, difference), taken in zip(variants, seen, times, strict=True):
        waits = np.concatenate([*observation.latencies, np.empty(0, np.int64)]) / 1e9
        measured.append(
            Measurement(
                variant,
                median(taken),
                arrivals.rows,
                np.array(observation.items or [0]),
                np.array(observation.bytes or [0]),
                float(np.median(waits)) if len(waits) else float("nan"),
                float(waits.max()) if len(waits) else float("nan"),
                median(observation.call_seconds) if observation.call_seconds else float("nan"),
                difference,
                observation.late,
            )
        )
    return Comparison(question, arrivals, exact, measured)
