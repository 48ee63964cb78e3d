"""The overview of a pipeline: its traffic, its losses, and for each topic a panel that links to its dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capture.metrics import BYTES_READ, INTERFACE_DROPPED, PACKETS_DECODED, RECORDS_READ
from dashboards.grafana.metric_panels import INTERVAL, growth_of, help_of, per_second
from dashboards.grafana.panels import (
    NO_LOSS,
    RED,
    YELLOW,
    Dashboard,
    Line,
    PanelMaker,
    add_row,
    link_to,
    make_dashboard,
)
from dashboards.grafana.query_panels import main_value, make_query_panels, make_value_panel
from dashboards.grafana.topics import TITLES
from dashboards.prometheus.query_series import QuerySeries
from highlevel.metrics import LATE_PARTIALS, PUNCTUATION_LAG, SPOOL_SEGMENTS_LOST, WINDOWS_CLOSED
from lowlevel.metrics import RECORDS_SHED, SPOOL_ROWS_DROPPED
from queries.catalogue.topics import Topic

LOSSES = (INTERFACE_DROPPED, RECORDS_SHED, SPOOL_ROWS_DROPPED, SPOOL_SEGMENTS_LOST)
"""Counters of lost packets, records, rows and segments."""

LAG_LIMITS = ((60.0, YELLOW), (600.0, RED))
"""Seconds of lag from which the pipeline needs attention."""


def make_overview(
    uid: str,
    pipeline: str,
    queries: Mapping[Topic, Sequence[QuerySeries]],
    uids: Mapping[Topic, str],
    health: str,
    maker: PanelMaker,
) -> Dashboard:
    """Return the overview. `uids`: uids of the dashboards of topics. `health`: uid of the dashboard `health`."""
    title, description = TITLES[Topic.OVERVIEW]
    builder = make_dashboard(uid, f"Wiretide {pipeline}: {title}", description, pipeline)
    builder = add_row(builder, "Now")
    # Flow exports have no packets.
    rate = PACKETS_DECODED if set(queries) - {Topic.FLOWS} else RECORDS_READ
    name, unit = ("Packets", "pps") if rate is PACKETS_DECODED else ("Records", "rps")
    late = (LATE_PARTIALS,)
    lag = f"max({PUNCTUATION_LAG.name}) or vector(0)"
    for panel in (
        maker.make_stat(name, rate.help, per_second(rate, ()), unit),
        maker.make_stat("Bits", BYTES_READ.help, f"8 * {per_second(BYTES_READ, ())}", "bps"),
        maker.make_stat(
            "Windows closed", WINDOWS_CLOSED.help, growth_of([WINDOWS_CLOSED]), "short", draws_sparkline=False
        ),
        maker.make_stat("Largest lag", PUNCTUATION_LAG.help, lag, "s", LAG_LIMITS),
        maker.make_stat("Late", help_of(late), growth_of(late), "short", ((1, YELLOW),), draws_sparkline=False),
        maker.make_stat("Lost", help_of(LOSSES), growth_of(LOSSES), "short", NO_LOSS, draws_sparkline=False),
    ):
        builder = builder.with_panel(panel.links([link_to(health, "health of the pipeline")]))
    builder = add_row(builder, "Links")
    builder = builder.with_panel(
        maker.make_time_series(name, rate.help, [Line(per_second(rate, ("link",)), "{{link}}")], unit)
    )
    bits = f"8 * sum by (link) (rate({BYTES_READ.name}[{INTERVAL}]))"
    builder = builder.with_panel(maker.make_time_series("Bits", BYTES_READ.help, [Line(bits, "{{link}}")], "bps"))
    for series in queries.get(Topic.OVERVIEW, ()):
        builder = add_row(builder, series.plan.name)
        for query_panel in make_query_panels(series, maker):
            builder = builder.with_panel(query_panel)
    if uids:
        builder = add_row(builder, "Topics")
    for topic, topic_uid in uids.items():
        series = queries[topic][0]
        panel_of_topic = make_value_panel(series, main_value(series), maker)
        builder = builder.with_panel(panel_of_topic.links([link_to(topic_uid, TITLES[topic][0])]))
    return builder
