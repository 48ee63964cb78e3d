"""The dashboard of the queries: for each query a row with the course of each value column, and the newest window."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.grafana.panels import Dashboard, Line, PanelMaker, add_row, make_dashboard
from dashboards.prometheus.query_series import OTHER, QuerySeries, Value

UNITS = (("bits_per_second", "bps"), ("bits", "decbits"), ("bytes", "decbytes"), ("seconds", "s"), ("latency", "s"))
"""Units of Grafana by a part of the name of a value column. The unit of other columns is a number."""

NUMBER = "short"


def unit_of(value: Value) -> str:
    """Return Grafana's unit of a value column.

    >>> unit_of(Value("bytes", "wiretide_query_talkers_bytes", "", "sum"))
    'decbytes'
    """
    return next((unit for part, unit in UNITS if part in value.name.rpartition("query_")[2]), NUMBER)


def make_query_dashboard(uid: str, title: str, queries: Sequence[QuerySeries], maker: PanelMaker) -> Dashboard:
    """Return the dashboard of queries with windows. A query without value columns has no row."""
    description = "Newest closed windows of the queries, in the time of the scrape."
    made = make_dashboard(uid, title, description)
    for series in queries:
        if not series.values:
            continue
        made = add_row(made, series.plan.name)
        sql = " ".join(series.plan.sql.split())
        legend = " ".join(f"{{{{{label}}}}}" for label in series.labels)
        for value in series.values:
            rest = f" The series {OTHER} is the rest." if series.labels and value.fold else ""
            groups = f" The {series.top} largest groups of each window.{rest}" if series.labels else ""
            lines = [Line(value.name, legend or value.column)]
            panel = maker.make_time_series(
                f"{series.plan.name}: {value.column}", f"{sql}{groups}", lines, unit_of(value), steps=True
            )
            made = made.with_panel(panel)
        if series.labels:
            metrics = [(value.name, value.column) for value in series.values]
            made = made.with_panel(maker.make_table(f"{series.plan.name}: newest window", sql, metrics))
    return made
