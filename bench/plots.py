"""Plots of the measurements of a bench. matplotlib is the optional extra `plots`, and is imported only for plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def bars(path: Path, title: str, values: Mapping[str, float]) -> None:
    """Write horizontal bars on a logarithmic axis, the first at the top. The suffix of the file is .svg or .png."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.45 * len(values)), layout="constrained")
    drawn = axes.barh(list(values), list(values.values()), color="#3b6ea5")
    axes.bar_label(drawn, fmt="%.3g", padding=3)
    axes.set(title=title, xscale="log")
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)


def curves(
    path: Path,
    title: str,
    x_values: Sequence[str],
    values: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
) -> None:
    """Write a line for each name over the same x values (`x_values`). `labels`: the texts of the axes."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, line), marker in zip(values.items(), "osv^Dx*P", strict=False):
        axes.plot(list(x_values), list(line), marker=marker, label=name)
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1], ylim=(0, None))
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)


def scatter(
    path: Path,
    title: str,
    points: Mapping[str, Sequence[tuple[float, float]]],
    labels: tuple[str, str],
    logarithmic: bool = False,
) -> None:
    """Write a line for each name through its points (x, y). `labels`: the texts of the axes."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, line), marker in zip(points.items(), "os*v^Dx", strict=False):
        size = 13 if len(line) == 1 else 6
        axes.plot(*zip(*line, strict=True), marker=marker, markersize=size, label=name)
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    if logarithmic:
        axes.set(xscale="log", yscale="log")
    elif min(x for line in points.values() for x, _ in line) >= 0:
        axes.set(xlim=(0, None))
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    plt.close(figure)


Cells = Mapping[tuple[str, str], float]
"""Values by the names of a column and a row."""


def triangles(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[str],
    labels: tuple[str, str],
    cells_by_title: Mapping[str, Cells],
) -> None:
    """Write a grid of coloured cells for each title in `cells_by_title`, as SVG or PNG.

    Cells without a value are left out. The first row is at the bottom, as in Figure 5 of CEDR. Colours are
    logarithmic; a darker cell is a larger value.
    """
    import matplotlib as mpl
    import numpy as np

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "wiretide"  # equal figures give equal files
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    size = (1.4 + 0.85 * len(columns), 1.3 + 0.42 * len(rows))
    figure, all_axes = plt.subplots(
        2, -(-len(cells_by_title) // 2), figsize=(2 * size[0], 2 * size[1]), layout="constrained"
    )
    for axes, (title, cells) in zip(all_axes.flat, cells_by_title.items(), strict=True):
        grid = np.array([[cells.get((column, row), np.nan) for column in columns] for row in rows])
        positive = grid[grid > 0]
        least = float(positive.min()) if len(positive) else 1.0
        colours = mpl.colors.LogNorm(least, max(float(np.nanmax(grid)), 1.01 * least))
        axes.imshow(np.maximum(grid, least), cmap="Blues", norm=colours, origin="lower", aspect="auto", alpha=0.85)
        for row, column in zip(*np.nonzero(~np.isnan(grid)), strict=True):
            value = float(grid[row, column])
            dark = value > 0 and colours(value) > 0.6
            text = f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color="w" if dark else "k")
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), rows)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
