"""The triangle of consistency: latency, corrections and memory for each WAIT and REMEMBER (CEDR, Figure 5).

A query counts packets by 200 groups in windows of 10 s, over the replay of `bench.replay`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np

from bench.plots import triangles
from bench.replay import SECOND, STEP, Outcome, due_steps, make_packets, plan_of, replay
from bench.report import Report
from bench.setting import Setting

WAITS = (0.0, 0.5, 1.0, 2.0, 3.5, 6.0, None)
REMEMBERS = (0.0, 3.5, 10.0, 25.0, None)
"""Seconds; None is FOREVER."""

ABOVE_JITTER, ABOVE_ALL = 3.5, 25.0
"""A WAIT above the skew and the delay of late packets, and a REMEMBER above the delay of very late packets."""

Seconds = float | None


def time_name(seconds: Seconds) -> str:
    """Return the text of a time."""
    return "forever" if seconds is None else f"{seconds:g} s"


def nanoseconds(seconds: Seconds) -> int | None:
    """Convert seconds to ns."""
    return None if seconds is None else round(seconds * SECOND)


def run(setting: Setting) -> Report:
    """Replay each WAIT with each REMEMBER that is not shorter."""
    packets = make_packets(60 if setting.quick else 600)
    waits, remembers = ((0.0, ABOVE_JITTER, None), (0.0, ABOVE_ALL)) if setting.quick else (WAITS, REMEMBERS)
    exact, total = packets.exact(), len(packets.times)
    outcomes: dict[tuple[Seconds, Seconds], Outcome] = {}
    for wait in waits:
        for remember in remembers:
            if wait is None or remember is None or wait <= remember:
                plan = plan_of(nanoseconds(wait), nanoseconds(remember))
                outcomes[wait, remember] = replay(plan, packets, nanoseconds(remember))
    report = Report("C3")
    rows = []
    for (wait, remember), outcome in outcomes.items():
        first, last = (outcome.latencies(moments) / SECOND for moments in (outcome.first, outcome.last))
        rows.append(
            (
                f"{time_name(wait)}, {time_name(remember)}",
                f"{np.median(first):.1f}",
                f"{np.median(last):.1f}",
                f"{corrections_per_result(outcome):.3f}",
                f"{100 * (1 - outcome.counted / total):.3f}",
                f"{statistics.median(outcome.state) / 1024:,.0f}",
            )
        )
    report.table(
        f"{total:,} packets of two links, windows of 10 s, 200 groups",
        ("WAIT, REMEMBER", "first result, s", "last change, s", "corrections per result", "late, %", "state, KiB"),
        rows,
    )
    due, eager = due_steps(packets), outcomes[0.0, ABOVE_ALL]
    patient, strong = outcomes[ABOVE_JITTER, ABOVE_ALL], outcomes[None, ABOVE_ALL]
    steps = max((eager.first[end] - moment) // STEP + 1 for end, moment in due.items())
    removed = 100.0 * (1 - patient.corrections / eager.corrections)
    report.add_criterion("micro-batches from the first later row to the first result, WAIT 0, the most", steps, "<= 1")
    report.add_criterion("corrections that a WAIT above the jitter removes, %", removed, ">= 95")
    wrong = max(outcome.differences(exact) for (_, memory), outcome in outcomes.items() if memory in (None, ABOVE_ALL))
    report.add_criterion("results that differ from the exact answer, REMEMBER above all delays", wrong, "<= 0")
    report.add_criterion("corrections, WAIT FOREVER", strong.corrections, "<= 0")
    if setting.plots:
        plot(setting, outcomes, total)
    return report


def corrections_per_result(outcome: Outcome) -> float:
    """Return the corrections per result."""
    return outcome.corrections / outcome.results


def plot(setting: Setting, outcomes: dict[tuple[Seconds, Seconds], Outcome], total: int) -> None:
    """Draw the triangle: what each WAIT with each REMEMBER costs and gives."""
    assert setting.plots is not None
    measures: dict[str, Callable[[Outcome], float]] = {
        "median time to the first result, s": lambda each: float(np.median(each.latencies(each.first))) / SECOND,
        "corrections per result": corrections_per_result,
        "late packets that are not counted, %": lambda each: 100 * (1 - each.counted / total),
        "median state, KiB": lambda each: statistics.median(each.state) / 1024,
    }
    waits = list(dict.fromkeys(wait for wait, _ in outcomes))
    memories = list(dict.fromkeys(memory for _, memory in outcomes))
    triangles(
        setting.plots / "consistency.svg",
        [time_name(memory) for memory in memories],
        [time_name(wait) for wait in waits],
        ("REMEMBER", "WAIT"),
        {
            title: {
                (time_name(memory), time_name(wait)): measure(outcome) for (wait, memory), outcome in outcomes.items()
            }
            for title, measure in measures.items()
        },
    )
