"""Measure all variants over the same arrivals, and compare them with the exact answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from capture.lazy_dataclasses import dataclass
from highlevel.compare.answers import Answer, Difference
from highlevel.compare.arrivals import Arrivals
from highlevel.compare.drive import measure_cpu_time, observe
from highlevel.compare.question import Question
from highlevel.compare.recording import Numbers
from highlevel.compare.variants import Variant, variants_of

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Measurement:
    """Cost, state and answer of one variant.

    `stored_items` and `stored_bytes`: number and bytes of stored rows or partials, one sample per tick.
    `median_latency`, `max_latency`: latency of results in s. `call_seconds`: median wall time of a call with results.
    These three are NaN if no result was emitted before the end of the input.
    """

    variant: Variant
    cpu_seconds: float
    rows: int
    stored_items: Numbers
    stored_bytes: Numbers
    median_latency: float
    max_latency: float
    call_seconds: float
    difference: Difference
    late: int

    @property
    def rate(self) -> float:
        """Rows per second of CPU time."""
        return self.rows / max(self.cpu_seconds, 1e-9)


@dataclass(frozen=True)
class Comparison:
    """The measurements of all variants, in their order. `exact`: the answer of the first variant, which is exact."""

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
    """Run all variants in turn: once to sample their state, then `repeat` times to measure their CPU time.

    The reported CPU time is the median. `progress` is called with (finished runs, all runs).
    """
    variants = variants_of(question, slacks)
    runs = len(variants) * (repeat + 1)
    finished = 0

    def step() -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(finished, runs)

    samples_and_differences = []
    exact: Answer | None = None
    for variant in variants:
        observation = observe(question, variant, arrivals)
        answer = Answer(question, observation.results)
        exact = exact or answer
        observation.results = []
        samples_and_differences.append((observation, exact.difference(answer)))
        step()
    assert exact is not None
    times: list[list[float]] = [[] for _ in variants]
    for _ in range(repeat):
        for variant, cpu_times in zip(variants, times, strict=True):
            cpu_times.append(measure_cpu_time(question, variant, arrivals))
            step()
    measured = []
    for variant, (observation, difference), cpu_times in zip(variants, samples_and_differences, times, strict=True):
        latencies = np.concatenate([*observation.latencies, np.empty(0, np.int64)]) / 1e9
        measured.append(
            Measurement(
                variant,
                median(cpu_times),
                arrivals.rows,
                np.array(observation.stored_items or [0]),
                np.array(observation.stored_bytes or [0]),
                float(np.median(latencies)) if len(latencies) else float("nan"),
                float(latencies.max()) if len(latencies) else float("nan"),
                median(observation.call_seconds) if observation.call_seconds else float("nan"),
                difference,
                observation.late_rows,
            )
        )
    return Comparison(question, arrivals, exact, measured)
