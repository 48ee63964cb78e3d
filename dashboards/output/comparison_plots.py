"""Plots of a comparison. matplotlib is the optional extra `plots`, imported only if a plot is requested.

`state.svg` shows the variants with exact watermarks, and at most two with a slack: one in order and one out of order.
Each of these has the smallest slack without wrong or missing results. `latency.svg` shows all variants.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dashboards.output.comparison_table import Row, exact_variants
from dashboards.plots.drawing import COLORS, DASHES, use_style
from highlevel.compare.comparison import Comparison

STATE_FILE, LATENCY_FILE = "state.svg", "latency.svg"
"""Files of the two plots."""


def shown_variants(rows: Sequence[Row]) -> list[Row]:
    """Return the variants that `state.svg` shows, the variants out of order first."""
    shown = []
    for in_order in (False, True):
        shown += exact_variants(rows, None, in_order)
        slacks = sorted({row["promised_late_s"] for row in rows} - {None})
        sufficient = [variants for slack in slacks if (variants := exact_variants(rows, slack, in_order))]
        shown += sufficient[0][:1] if sufficient else []
    return shown


def state_title(rows: Sequence[Row]) -> str:
    """Return a title that compares the memory of the best exact variant in order and of the best one out of order."""
    out_of_order, ordered = (
        min((row["bytes_held_most"] for row in exact_variants(rows, None, in_order)), default=0)
        for in_order in (False, True)
    )
    if not (out_of_order and ordered):
        return "Memory of the stored rows"
    if max(out_of_order, ordered) <= 1.1 * min(out_of_order, ordered):
        return "In order and out of order need equal memory"
    more, less = ("In order", "out of order") if ordered > out_of_order else ("Out of order", "in order")
    return f"{more} needs {max(out_of_order, ordered) / min(out_of_order, ordered):.1f} times the memory of {less}"


def draw(comparison: Comparison, table: pa.Table, folder: Path) -> list[Path]:
    """Draw the state over arrival time, and the latency and the errors of each variant; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = table.to_pylist()
    with use_style() as new_figure:
        _draw_state(new_figure(9, 4.2), comparison, rows).savefig(folder / STATE_FILE)
        _draw_costs(new_figure(11, 1.1 + 0.32 * len(rows)), rows).savefig(folder / LATENCY_FILE)
    return [folder / STATE_FILE, folder / LATENCY_FILE]


def _draw_state(figure: Any, comparison: Comparison, rows: Sequence[Row]) -> Any:
    """Draw the bytes that variants store, as steps: the state changes only at the end of a tick."""
    from matplotlib.ticker import EngFormatter

    axes = figure.subplots()
    ticks = comparison.arrivals.ticks
    seconds = (ticks - ticks[0]) / 1e9
    measured = {measurement.variant.name: measurement for measurement in comparison.measured}
    for number, row in enumerate(shown_variants(rows)):
        stored = measured[row["variant"]].stored_bytes.astype(np.float64)
        stored[stored <= 0] = np.nan  # a logarithmic axis has no zero
        axes.plot(
            seconds[: len(stored)],
            stored,
            drawstyle="steps-post",
            color=COLORS[number % len(COLORS)],
            linestyle=DASHES[number % len(DASHES)],
            label=row["variant"],
        )
    axes.set(title=state_title(rows), xlabel="arrival time, s", ylabel="stored", yscale="log")
    _label_log_axis(axes.yaxis, EngFormatter("B"))
    axes.grid(axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0, handlelength=2.6)
    return figure


def _draw_costs(figure: Any, rows: Sequence[Row]) -> Any:
    """Draw the latency on a logarithmic axis, and the share of wrong and missing results."""
    from matplotlib.ticker import EngFormatter

    waits, errors = figure.subplots(1, 2, sharey=True)
    positions = np.arange(len(rows))
    latencies = [row["latency_median_s"] or np.nan for row in rows]
    colors = [COLORS[1] if row["in_order"] else COLORS[0] for row in rows]
    waits.barh(positions, latencies, color=colors)
    waits.set(title="Latency in the median", xlabel="arrival time", xscale="log")
    _label_log_axis(waits.xaxis, EngFormatter("s"))
    waits.set_yticks(positions, [row["variant"] for row in rows])
    waits.invert_yaxis()
    wrong = [row["wrong_percent"] for row in rows]
    errors.barh(positions, wrong, color=COLORS[1], label="wrong")
    errors.barh(positions, [row["missing_percent"] for row in rows], left=wrong, color=COLORS[4], label="missing")
    errors.set(title="Wrong and missing results", xlabel="% of the results", xlim=(0, None))
    errors.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0)
    for axes in (waits, errors):
        axes.grid(axis="x")
    return figure


def _label_log_axis(axis: Any, formatter: Any) -> None:
    """Label 1, 2 and 5 times each power of ten, because a short axis may contain no power of ten."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(formatter)
