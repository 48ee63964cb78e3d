"""The dashboard of a topic: a row for each of its queries, with variables that select groups."""

from __future__ import annotations

from collections.abc import Sequence

from capture.metrics import FLOW_DATAGRAMS, FLOW_RECORDS, FLOW_SETS_DROPPED
from dashboards.grafana.metric_panels import AnyMetricPanel, CountPanel, MetricPanel
from dashboards.grafana.panels import NO_LOSS, Dashboard, PanelMaker, add_row, make_dashboard
from dashboards.grafana.query_panels import make_query_panels, make_variables
from dashboards.grafana.topics import TITLES
from dashboards.prometheus.query_series import QuerySeries
from queries.catalogue.topics import Topic

FLOW_PANELS: tuple[AnyMetricPanel, ...] = (
    MetricPanel("Datagrams", (FLOW_DATAGRAMS,), ("exporter", "version"), "pps"),
    MetricPanel("Flow records", (FLOW_RECORDS,), ("exporter", "version"), "rps"),
    CountPanel("Sets without a template", (FLOW_SETS_DROPPED,), NO_LOSS),
)
"""Panels over the exporters of flows."""


def make_topic_dashboard(
    uid: str, pipeline: str, topic: Topic, queries: Sequence[QuerySeries], maker: PanelMaker
) -> Dashboard:
    """Return the dashboard of a topic with its queries, which have value columns."""
    title, description = TITLES[topic]
    builder = make_dashboard(uid, f"Wiretide {pipeline}: {title}", description, pipeline)
    variables = make_variables(queries)
    for variable in variables:
        builder = maker.add_variable(builder, variable)
    names = [variable.name for variable in variables]
    for series in queries:
        builder = add_row(builder, series.plan.name)
        for panel in make_query_panels(series, maker, names):
            builder = builder.with_panel(panel)
    if topic is Topic.FLOWS:
        builder = add_row(builder, "Exporters")
        for flow_panel in FLOW_PANELS:
            builder = builder.with_panel(flow_panel.make(maker, ()))
    return builder
