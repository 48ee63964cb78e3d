"""Delay and wrong results for a stream that is sorted by blocks (Li 2008, Figure 6-12): slack, and punctuation.

count over RANGE 600 s, SLIDE 60 s; blocks of 490 s. There is no compromise: a slack below the length of a block
causes wrong results and saves no time. A larger slack waits for the next block.
"""

from __future__ import annotations

from bench.accuracy import Errors, compute_errors, compute_true_results, run_with_punctuations, run_with_slack
from bench.disorder import SECOND, Stream, blocks
from bench.plots import scatter
from bench.report import Report
from bench.setting import Setting
from highlevel.baselines.slack import Lateness
from highlevel.windows.kind import SlidingWindow

WINDOW = SlidingWindow(600 * SECOND, 60 * SECOND)
LENGTH = 490
SLACKS = (0.0, 54.4, 109.1, 218.2, 327.3, 434.2, 490.9, 600.0)
MODEL = (100, 100, 100, 100, 100, 86, 0, 0)
"""Wrong windows in %, from a model of blocks."""

RATE = 30
STEP = 0.5
"""Accuracy in seconds of the smallest slack without errors."""


class Experiment:
    """A stream and its true results."""

    def __init__(self, count: int) -> None:
        """Make `count` blocks."""
        self.stream: Stream = blocks(count, LENGTH, RATE, seed=1)
        self.windows = int(self.stream.times.max()) // WINDOW.slide
        self.judged = slice(10, self.windows - 20)  # whole windows that close before the stream ends
        self.true = compute_true_results(self.stream, WINDOW, self.windows)

    def slack(self, seconds: float, lateness: Lateness) -> Errors:
        """Return the errors with a slack."""
        results = run_with_slack(self.stream, WINDOW, self.windows, round(seconds * SECOND), lateness)
        return compute_errors(results, self.true, self.judged)

    def punctuation(self) -> Errors:
        """Return the errors with a watermark whenever the watermark grows: at the ends of blocks."""
        return compute_errors(run_with_punctuations(self.stream, WINDOW, self.windows), self.true, self.judged)

    def smallest_slack(self) -> float:
        """Return the smallest slack without errors, by bisection."""
        wrong, right = 0.0, 2.0 * LENGTH
        while right - wrong > STEP:
            middle = (wrong + right) / 2
            wrong, right = (wrong, middle) if self.slack(middle, Lateness.GENEROUS).wrong == 0 else (middle, right)
        return right


def run(setting: Setting) -> Report:
    """Compare slack with punctuation."""
    experiment = Experiment(12 if setting.quick else 24)
    found = {(lateness, each): experiment.slack(each, lateness) for lateness in Lateness for each in SLACKS}
    punctuation = experiment.punctuation()
    least = experiment.smallest_slack()
    report = Report("X3")
    rows = [
        (
            f"slack {each:g} s",
            f"{found[Lateness.GENEROUS, each].delay:.0f}",
            f"{found[Lateness.GENEROUS, each].behind:.0f}",
            *(f"{found[lateness, each].wrong:.0f}" for lateness in Lateness),
            str(model),
            *(f"{found[lateness, each].count:.1f}" for lateness in Lateness),
        )
        for each, model in zip(SLACKS, MODEL, strict=True)
    ]
    alone = (f"{punctuation.wrong:.0f}", "", "0", f"{punctuation.count:.1f}", "")
    report.table(
        f"count over 600 s each 60 s, {len(experiment.stream):,} tuples in blocks of {LENGTH} s",
        (
            "closes by",
            "median delay, s",
            "tuples since complete",
            *("wrong, %, consistent", "generous", "model", "error, %, consistent", "generous"),
        ),
        [*rows, ("punctuation", f"{punctuation.delay:.0f}", f"{punctuation.behind:.0f}", *alone)],
    )
    report.notes.append(f"the least slack without an error is {least:.1f} s (to {STEP} s)")
    exact = min(each.delay for each in found.values() if each.wrong == 0)
    report.add_criterion("punctuation, wrong windows, %", punctuation.wrong, "<= 0")
    report.add_criterion("least slack without an error / length of a block", least / LENGTH, ">= 0.99")
    report.add_criterion("least slack without an error / length of a block", least / LENGTH, "<= 1.002")
    report.add_criterion("delay, punctuation / least slack without an error", punctuation.delay / exact, "<= 1")
    if setting.plots:
        points = {
            f"{lateness} slack": [(found[lateness, each].behind, found[lateness, each].wrong) for each in SLACKS]
            for lateness in Lateness
        }
        points["punctuation"] = [(punctuation.behind, punctuation.wrong)]
        labels = ("mean number of tuples between the completion of a window and its result", "wrong windows, %")
        scatter(setting.plots / "x3.svg", "Blocks of 490 s", points, labels)
    return report
