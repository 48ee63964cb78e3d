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
    places: Sequence[str],
    values: Mapping[str, Sequence[float]],
    labels: tuple[str, str],
) -> None:
    """Write a line for each name over the same x values (`places`). `labels`: the texts of the axes."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for (name, line), marker in zip(values.items(), "osv^Dx*P", strict=False):
        axes.plot(list(places), list(line), marker=marker, label=name)
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


Panel = tuple[str, tuple[str, str, str], Sequence[float], Sequence[float], Sequence[float]]
"""A title, the labels of the x axis and of both y axes, the places, and a line for each y axis."""


def panels(path: Path, described: Sequence[Panel]) -> None:
    """Write panels side by side, each with a line for the left axis and one for the right axis, as SVG or PNG."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "wiretide"  # equal figures give equal files
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, all_axes = plt.subplots(1, len(described), figsize=(5.5 * len(described), 4), layout="constrained")
    for axes, (title, labels, positions, left, right) in zip(all_axes, described, strict=True):
        other = axes.twinx()
        axes.plot(list(positions), list(left), marker="o", color="#3b6ea5")
        other.plot(list(positions), list(right), marker="s", linestyle="--", color="#b5532a")
        axes.set(title=title, xlabel=labels[0], ylim=(0, None))
        other.set(ylim=(0, None))
        axes.set_ylabel(f"● {labels[1]}", color="#3b6ea5")
        other.set_ylabel(f"■ {labels[2]}", color="#b5532a")
        for each in (axes, other):
            each.spines["top"].set_visible(False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    plt.close(figure)
