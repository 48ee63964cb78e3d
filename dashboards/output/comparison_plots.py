"""Plots of a comparison. matplotlib is the optional extra `plots`, imported only if a plot is requested."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from capture.errors import WiretideError
from highlevel.compare.comparison import Comparison

STATE, LATENCY = "state.svg", "latency.svg"
"""Files of the two plots."""


class PlotsError(WiretideError):
    """Plots were requested, but matplotlib is not installed."""

    status = 2


def require_plots() -> None:
    """Raise PlotsError if matplotlib is not installed. Call this before the comparison, which takes long."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise PlotsError("--plots needs matplotlib, which is not installed: pip install 'wiretide[plots]'")


def draw(comparison: Comparison, table: pa.Table, folder: Path) -> list[Path]:
    """Draw the state over arrival time, and the latency and the errors of each variant; return the files."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    ticks = comparison.arrivals.ticks
    seconds = (ticks - ticks[0]) / 1e9
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for result in comparison.measured:
        style = "--" if result.variant.ordered else "-"
        axes.plot(seconds[: len(result.bytes)], result.bytes / 1e3, style, label=result.variant.name, linewidth=1)
    axes.set(title="State", xlabel="arrival time, s", ylabel="KB held", ylim=(0, None))
    axes.legend(fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / STATE)
    plt.close(figure)
    names = table.column("variant").to_pylist()
    figure, (waits, errors) = plt.subplots(
        1, 2, figsize=(11, 0.8 + 0.35 * len(names)), sharey=True, layout="constrained"
    )
    waits.barh(names, [value or 0 for value in table.column("latency_median_s").to_pylist()], color="#3b6ea5")
    waits.set(title="Latency in the median", xlabel="s of arrival time")
    waits.invert_yaxis()
    error_shares = zip(
        table.column("wrong_percent").to_pylist(), table.column("missing_percent").to_pylist(), strict=True
    )
    errors.barh(names, [sum(pair) for pair in error_shares], color="#a53b3b")
    errors.set(title="Wrong or missing", xlabel="% of the results")
    for panel in (waits, errors):
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / LATENCY)
    plt.close(figure)
    return [folder / STATE, folder / LATENCY]
