"""Throughput of Q1 over late quotes, by the share of late quotes (Chandramouli et al., 2010, Figures 12, 13)."""

from __future__ import annotations

from functools import partial

from bench.a1 import match, min_seconds
from bench.one_core import on_one_core
from bench.quotes import Quotes, changes, vees
from bench.report import Report
from bench.setting import Setting

COUNT, BATCH, WINDOW, DROP, VEES = 200_000, 10_000, 500, 0.25, 2
LATE = (0.0, 0.01, 0.05, 0.1, 0.2)
MOST_LATE = 1000
"""Largest number of places that a quote is late."""


def run(setting: Setting) -> Report:
    """Measure events per second."""
    count = setting.packets(COUNT)
    rates = on_one_core(measure, count, setting.runs(3))
    report = Report("A4")
    rows = [(f"{late:.0%}", f"{rate / 1e6:.3f}", f"{rate / rates[0.0]:.2f}") for late, rate in rates.items()]
    report.table(
        f"Q1, k = {VEES}, p = 0.7, W = {WINDOW}, {count:,} quotes, late ones by 1 to {MOST_LATE:,} places",
        ("late", "M events/s", "/ in order"),
        rows,
    )
    report.notes.append("the paper, with Q2: 200 K events/s in order, and less with late quotes")
    report.add_criterion("events/s, 5 % late, one core", rates[0.05], ">= 500000", not setting.quick)
    return report


def measure(count: int, runs: int) -> dict[float, float]:
    """Return events per second by the share of late quotes."""
    rates = {}
    for late in LATE:
        batches = list(changes(Quotes(count, rise=0.7, late=late, most_late=MOST_LATE), WINDOW, BATCH))
        rates[late] = count / min_seconds(partial(match, batches, vees(VEES, DROP, WINDOW)), runs)
    return rates
