"""Draw charts with matplotlib, the optional extra `plots`, as SVG or PNG.

Values of tumbling windows are steps: a value holds for the whole window. Values of other windows are points at the
ends of windows, with lines between them. Two lines differ by color and by dashes, so colors are not necessary.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from capture.errors import WiretideError
from dashboards.page.charts import Line
from dashboards.plots.answer_charts import AnswerChart
from dashboards.wire_text import escape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#3b7fc4", "#c8483f", "#3f8f46", "#8d5fb8", "#b87a1d", "#1f8a8f", "#b04a8a", "#7a8230")
"""Colors of the groups, readable on white and on black."""

OTHER_COLOR = "#8a8a84"

DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)))
"""Dash patterns. Line i has color i and dash pattern i."""

TEXT, LINE = "#010203", "#010204"
"""Placeholders for the colors of texts and of axes in SVG, which `to_svg` replaces."""

WIDTH_INCHES, HEIGHT_INCHES, BAR_HEIGHT_INCHES = 9.0, 3.3, 0.34
"""The width of a figure, the height of a chart of lines, and the height of a bar."""

MAX_LABEL_LENGTH = 40
"""Maximum number of characters of a name. Longer names are shortened."""

UNITS_WITHOUT_PREFIX = ("ms", "%")
"""Units that have no SI prefixes. They are in the title of a chart, not at the axis."""

STYLE: Any = {
    "text.parse_math": False,  # `$` in a name is no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "wiretide",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.titlecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "axes.edgecolor": LINE,
    "grid.color": LINE,
    "grid.alpha": 0.25,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "timezone": "UTC",
    "date.epoch": "1970-01-01T00:00:00",
}


class NoMatplotlibError(WiretideError):
    """A plot was requested, but matplotlib is not installed."""

    status = 2


def require_matplotlib(option: str) -> None:
    """Raise NoMatplotlibError if matplotlib is not installed. Call this before work that takes long."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise NoMatplotlibError(f"{option} needs matplotlib, which is not installed: pip install 'wiretide[plots]'")


def draw_svg(title: str, charts: Sequence[AnswerChart], prefix: str = "plot") -> str:
    """Return charts below each other as an SVG element without XML header.

    Texts and axes have the color of the surrounding text, so the element is readable on light and dark pages. IDs begin
    with `prefix`, so a document can contain several elements.
    """
    svg = _render(title, charts, "svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", svg)
    return svg.replace(TEXT, "currentColor").replace(LINE, "currentColor")


def draw_png(title: str, charts: Sequence[AnswerChart]) -> bytes:
    """Return charts below each other as a PNG with a white background."""
    return _render(title, charts, "png")


@contextlib.contextmanager
def use_style() -> Iterator[Callable[[float, float], Figure]]:
    """Yield a function that returns a figure with a width and a height in inches, in dark grey on white."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    with mpl.rc_context(_style_with_color("#222222")):
        yield lambda width, height: Figure(figsize=(width, height), layout="constrained")


def _style_with_color(color: str) -> Any:
    """Return STYLE with this color for texts and axes."""
    return {key: color if value in (TEXT, LINE) else value for key, value in STYLE.items()}


def _render(title: str, charts: Sequence[AnswerChart], kind: str) -> bytes:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    style = STYLE if kind == "svg" else _style_with_color("#222222")
    heights = [_height(chart) for chart in charts]
    with mpl.rc_context(style):
        figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + (0.35 if title else 0.0)), layout="constrained")
        panels = figure.subplots(len(charts), 1, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
        if title:
            figure.suptitle(_shorten(title, 110), x=0.01, ha="left", fontsize=11, fontweight="bold")
        for axes, chart in zip(panels, charts, strict=True):
            if chart.is_bars:
                _draw_bars(axes, chart)
            else:
                _draw_lines(axes, chart)
        target = io.BytesIO()
        metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
        figure.savefig(target, format=kind, dpi=144, transparent=kind == "svg", metadata=metadata)
    return target.getvalue()


def _height(chart: AnswerChart) -> float:
    if not chart.is_bars:
        return HEIGHT_INCHES
    return 0.8 + BAR_HEIGHT_INCHES * len(_lines_of(chart))


def _lines_of(chart: AnswerChart) -> list[Line]:
    other = chart.chart.other
    return [*chart.chart.lines, *([other] if other is not None and other.total else [])]


def _label_of(line: Line) -> str:
    """Return the name of a group, changed if it begins with `_`, because matplotlib hides such labels."""
    text = _shorten(escape(line.name), MAX_LABEL_LENGTH)
    return f"\u2009{text}" if text.startswith("_") else text


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _draw_lines(axes: Axes, chart: AnswerChart) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    for number, line in enumerate(_lines_of(chart)):
        is_other = line is chart.chart.other
        x, y = line_points(chart, line)
        axes.plot(
            x.astype("datetime64[ns]") if chart.is_timed else x,
            y,
            color=OTHER_COLOR if is_other else COLORS[number % len(COLORS)],
            linestyle="-" if is_other else DASHES[number % len(DASHES)],
            linewidth=1.6,
            marker="" if chart.step_ns or len(x) > 60 else "o",
            markersize=3,
            label=_label_of(line),
        )
    if chart.is_timed:
        locator = AutoDateLocator(maxticks=9)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    else:
        axes.set_xlabel("number of the row")
    axes.set_title(_title_of(chart))
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    axes.margins(x=0.01)
    axes.grid(axis="y")
    _set_units(axes.yaxis, chart)
    if len(_lines_of(chart)) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0.0, handlelength=2.6)


def line_points(chart: AnswerChart, group: Line) -> tuple[np.ndarray, np.ndarray]:
    """Return the coordinates of a line. NaN interrupts it.

    For tumbling windows each value has two points: the start and the end of its window.
    """
    ends = np.array(chart.chart.ends, np.int64)
    values = np.array([np.nan if value is None else value for value in group.values], np.float64)
    if not chart.step_ns:
        return ends, values
    x = np.stack([ends - chart.step_ns, ends], axis=1).reshape(-1)
    return x, np.repeat(values, 2)


def _draw_bars(axes: Axes, chart: AnswerChart) -> None:
    lines = _lines_of(chart)
    names = [_label_of(line) for line in lines]
    colors = [OTHER_COLOR if line is chart.chart.other else COLORS[0] for line in lines]
    positions = np.arange(len(lines))
    drawn = axes.barh(positions, [line.total for line in lines], color=colors, height=0.7)
    axes.set_yticks(positions, names)
    axes.invert_yaxis()
    _set_units(axes.xaxis, chart)
    axes.bar_label(drawn, [_value_text(line.total, chart, axes.xaxis) for line in lines], padding=3)
    axes.margins(x=0.12)
    axes.set_title(_title_of(chart))
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _value_text(value: float, chart: AnswerChart, axis: Any) -> str:
    """Return a value with three digits and its unit."""
    rounded = float(f"{value:.3g}")
    if chart.unit.symbol in UNITS_WITHOUT_PREFIX:
        return f"{rounded:,g} {chart.unit.symbol}"
    text: str = axis.get_major_formatter().format_data(rounded)
    return text


def _title_of(chart: AnswerChart) -> str:
    symbol = chart.unit.symbol
    return f"{chart.chart.column} ({symbol})" if symbol in UNITS_WITHOUT_PREFIX else chart.chart.column


def _set_units(axis: Any, chart: AnswerChart) -> None:
    """Write values with SI prefixes, such as 1.2 M and 3 GB."""
    from matplotlib.ticker import EngFormatter, ScalarFormatter

    symbol = chart.unit.symbol
    if symbol in UNITS_WITHOUT_PREFIX:
        formatter = ScalarFormatter(useOffset=False)
        formatter.set_scientific(False)
    else:
        formatter = EngFormatter(symbol)
    axis.set_major_formatter(formatter)
