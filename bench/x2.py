"""Delay and error for a stream with disorder in a band (Li 2008, Figure 6-11): two kinds of slack, and punctuation.

avg over RANGE 64 s, SLIDE 6.4 s of values that do not depend on time. A consistent operator drops a late tuple from all
its windows, a generous operator only from closed windows.
"""

from __future__ import annotations

from bench.accuracy import Errors, compute_errors, compute_true_results, run_with_punctuations, run_with_slack
from bench.disorder import BAND, SECOND, band
from bench.plots import scatter
from bench.report import Report
from bench.setting import Setting
from highlevel.baselines.slack import Lateness
from highlevel.windows.kind import SlidingWindow

WINDOW = SlidingWindow(64 * SECOND, 64 * SECOND // 10)
SLACKS = (0.0, 0.32, 0.64, 1.28, 2.56, 3.2)
RATE = 100
MODEL = {"consistent": (20.9, 16.7, 12.8, 6.5, 0.41, 0.0), "generous": (2.1, 1.7, 1.3, 0.65, 0.043, 0.0)}
"""Errors of counts in %, from a model of independent delays."""


def measure(seconds: int) -> tuple[dict[tuple[Lateness, float], Errors], Errors]:
    """Run all slacks of both kinds, and punctuation."""
    stream = band(seconds, RATE, seed=1)
    windows = (seconds - int(BAND)) * SECOND // WINDOW.slide
    judged = slice(9, windows)  # whole windows that close before the stream ends
    true = compute_true_results(stream, WINDOW, windows)
    found = {
        (lateness, slack): compute_errors(
            run_with_slack(stream, WINDOW, windows, round(slack * SECOND), lateness), true, judged
        )
        for lateness in Lateness
        for slack in SLACKS
    }
    return found, compute_errors(run_with_punctuations(stream, WINDOW, windows), true, judged)


def run(setting: Setting) -> Report:
    """Compare slack with punctuation."""
    seconds = 400 if setting.quick else 4000
    slack, punctuation = measure(seconds)
    report = Report("X2")
    rows = [
        (
            f"{lateness}, slack {each:g} s",
            f"{each_errors.delay:.2f}",
            f"{each_errors.behind:.0f}",
            f"{each_errors.average:.3f}",
            f"{each_errors.count:.3f}",
            f"{MODEL[lateness][SLACKS.index(each)]:g}",
            f"{each_errors.wrong:.0f}",
        )
        for (lateness, each), each_errors in slack.items()
    ]
    rows.append(
        (
            "punctuation",
            f"{punctuation.delay:.2f}",
            f"{punctuation.behind:.0f}",
            f"{punctuation.average:.3f}",
            f"{punctuation.count:.3f}",
            "0",
            "0",
        )
    )
    report.table(
        f"avg over 64 s each 6.4 s, {seconds * RATE:,} tuples up to {BAND} s late",
        (
            "closes by",
            "median delay, s",
            "tuples since complete",
            "error of avg, %",
            "of count, %",
            "model",
            "wrong, %",
        ),
        rows,
    )
    shares = [
        slack[Lateness.GENEROUS, each].count / slack[Lateness.CONSISTENT, each].count
        for each in SLACKS
        if slack[Lateness.CONSISTENT, each].count
    ]
    exact = min(each.delay for each in slack.values() if each.wrong == 0)
    report.add_criterion("punctuation, wrong windows, %", punctuation.wrong, "<= 0")
    report.add_criterion("error of count, generous / consistent, the most of any slack", max(shares), "<= 0.5")
    report.add_criterion("delay, punctuation / least slack without an error", punctuation.delay / exact, "<= 1")
    if setting.plots:
        points = {
            f"{lateness} slack": [(slack[lateness, each].delay, slack[lateness, each].average) for each in SLACKS]
            for lateness in Lateness
        }
        points["punctuation"] = [(punctuation.delay, punctuation.average)]
        labels = ("median delay of a window, s", "mean error of avg, %")
        scatter(setting.plots / "x2.svg", "Band disorder of up to 3.2 s", points, labels)
    return report
