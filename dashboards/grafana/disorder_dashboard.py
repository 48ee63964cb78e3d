"""The dashboard about disorder: the distance between the times of links, and the figures of `wiretide compare`.

An operator that needs sorted rows must store all rows between the times of the slowest and the fastest link. It returns
results only when the slowest link has caught up. `wiretide compare --openmetrics` measures this for a query.
"""

from __future__ import annotations

from dashboards.grafana.metric_panels import MetricPanel, selector
from dashboards.grafana.panels import Dashboard, Line, PanelMaker, Variable, add_row, make_dashboard
from dashboards.prometheus.comparison_samples import (
    BYTES_HELD,
    LATE,
    LATENCY,
    MAX_LATENCY,
    RATE,
    ROWS_HELD,
    WRONG,
)
from highlevel.metrics import LATE_PARTIALS, LOW_WATERMARK, PUNCTUATION_LAG, STATE_BYTES, WINDOWS_OPEN

DESCRIPTION = "The distance between the times of links, and the cost of processing in order and out of order."

VARIABLES = (
    Variable("query", ROWS_HELD.name, "query of the comparison"),
    Variable("variant", ROWS_HELD.name, "variant"),
)

PIPELINE_PANELS = (
    MetricPanel("Lag of the watermark", (PUNCTUATION_LAG,), ("query", "link"), "s"),
    MetricPanel("Open windows", (WINDOWS_OPEN,), ("query",)),
    MetricPanel("State", (STATE_BYTES,), ("query",), "bytes"),
    MetricPanel("Late", (LATE_PARTIALS,), ("query",), "rps"),
)
"""Rows and windows that the pipeline stores and loses because the times of its links differ."""


def make_disorder_dashboard(
    uid: str, pipeline: str, maker: PanelMaker, *, has_links: bool, has_comparison: bool
) -> Dashboard:
    """Return the dashboard. `has_links`: several or live links. `has_comparison`: panels of `wiretide compare`."""
    builder = make_dashboard(uid, f"Wiretide {pipeline}: out of order against in order", DESCRIPTION, pipeline)
    if has_links:
        builder = add_row(builder, "Links of the pipeline")
        low = LOW_WATERMARK.name
        apart = Line(f"max by (query) ({low}) - min by (query) ({low})", "{{query}}")
        text = (
            f"{LOW_WATERMARK.help} The difference between the largest and the smallest one of a query: operators that "
            "need sorted rows store all rows of this time."
        )
        builder = builder.with_panel(maker.make_time_series("Distance between the links", text, [apart], "s"))
        for panel in PIPELINE_PANELS:
            builder = builder.with_panel(panel.make(maker, ()))
    if has_comparison:
        for variable in VARIABLES:
            builder = maker.add_variable(builder, variable)
        builder = _add_comparison(builder, maker)
    return builder


def _add_comparison(builder: Dashboard, maker: PanelMaker) -> Dashboard:
    names = [variable.name for variable in VARIABLES]
    legend = "{{query}} {{variant}}"
    builder = add_row(builder, "wiretide compare")
    for metric, title, unit in ((ROWS_HELD, "Rows stored", "short"), (BYTES_HELD, "Bytes stored", "bytes")):
        lines = [Line(selector(metric, names), legend)]
        builder = builder.with_panel(maker.make_time_series(title, metric.help, lines, unit))
    for metric, title, unit in (
        (LATENCY, "Median latency", "s"),
        (MAX_LATENCY, "Largest latency", "s"),
        (RATE, "Rows per second of CPU", "rps"),
        (WRONG, "Wrong or missing results", "percentunit"),
        (LATE, "Late rows", "short"),
    ):
        line = Line(f"last_over_time({selector(metric, names)}[$__range])", legend)
        builder = builder.with_panel(maker.make_bars(title, metric.help, line, unit))
    return builder
