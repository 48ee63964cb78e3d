"""State under watermarks: flat in a long replay, and in proportion to the time that a query remembers.

The replay is that of `bench.replay`. The state is measured after each micro-batch, in bytes of the operator.
"""

from __future__ import annotations

import numpy as np

from bench.replay import LULL_EVERY, SECOND, STEP, make_packets, plan_of, replay
from bench.report import Report
from bench.setting import Setting

REMEMBERS = (5, 20, 40, 80)
"""Seconds."""

QUARTERS = 4


def run(setting: Setting) -> Report:
    """Replay with several times to remember; compare parts of each replay, and the replays."""
    seconds = 360 if setting.quick else 2400
    packets = make_packets(seconds)
    report, rows, means, growths = Report("C4"), [], {}, []
    forever = replay(plan_of(0, None), packets, None)
    for remember in (5, 40, 80) if setting.quick else REMEMBERS:
        outcome = replay(plan_of(0, remember * SECOND), packets, remember * SECOND)
        sizes = np.array(outcome.state[: seconds * SECOND // STEP])
        period = LULL_EVERY // STEP  # the state follows the lulls: whole periods are compared
        usable = sizes[2 * period : len(sizes) // period * period]
        parts = [float(part.mean()) for part in np.array_split(usable.reshape(-1, period), QUARTERS)]
        means[remember] = float(usable.mean())
        growths.append(max(parts) / min(parts))
        rows.append((f"{remember} s", *(f"{part / 1024:,.0f}" for part in parts), f"{sizes.max() / 1024:,.0f}"))
    end = forever.state[seconds * SECOND // STEP - 1]
    rows.append(("forever", "", "", "", f"{end / 1024:,.0f}", f"{max(forever.state) / 1024:,.0f}"))
    report.table(
        f"state of windows of 10 s in {seconds:,} s, KiB",
        ("REMEMBER", *(f"quarter {number}" for number in range(1, QUARTERS + 1)), "the most"),
        rows,
    )
    slopes = [(means[more] - means[less]) / (more - less) for less, more in ((5, 40), (40, 80))]
    report.add_criterion("mean state, largest / smallest quarter of a replay, the most", max(growths), "<= 1.1")
    report.add_criterion(
        "state of a further second of REMEMBER, 40 to 80 s / 5 to 40 s", slopes[1] / slopes[0], "<= 1.3"
    )
    report.add_criterion("state at the end, REMEMBER FOREVER / 80 s", end / means[80], ">= 2")
    return report
