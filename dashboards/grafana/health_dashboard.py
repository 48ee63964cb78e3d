"""The dashboard of the pipeline: input, watermarks, losses, tables and state, from the counters of Wiretide."""

from __future__ import annotations

from collections.abc import Iterator

from capture.metrics import (
    BYTES_READ,
    FILES_DAMAGED,
    INTERFACE_DROPPED,
    INTERFACE_RECEIVED,
    PACKETS_DECODED,
    RECORDS_READ,
    RECORDS_SKIPPED,
)
from dashboards.alerts.metrics import FIRING, MESSAGES, SILENCED, WAITING
from dashboards.changes.metrics import PROVISIONAL_AGE, PROVISIONAL_BYTES
from dashboards.grafana.metric_panels import AnyMetricPanel, CountPanel, MetricPanel
from dashboards.grafana.panels import NO_LOSS, YELLOW, Dashboard, PanelMaker, Variable, add_row, make_dashboard
from highlevel.metrics import (
    CORRECTIONS,
    LATE_PARTIALS,
    LATE_ROWS,
    LOW_WATERMARK,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    RESULT_ROWS,
    SPARK_RESTARTS,
    SPOOL_LATENESS,
    SPOOL_PARTIALS_READ,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
    STATE_BYTES,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from lowlevel.metrics import (
    LINK_STATE,
    LULL_WATERMARKS,
    NODE_LAG,
    PARTIALS_WRITTEN,
    RECORDS_SHED,
    ROWS_BELOW_WATERMARK,
    SAMPLING_RATE,
    SPOOL_BYTES,
    SPOOL_OLDEST_AGE,
    SPOOL_ROWS_DROPPED,
    TABLE_COLLISIONS,
    TABLE_EVICTIONS,
    TABLE_RESIDENT,
)

Rows = dict[str, tuple[AnyMetricPanel, ...]]

VARIABLES = (
    Variable("query", WINDOWS_CLOSED.name, "query"),
    Variable("link", f'{{__name__=~"{RECORDS_READ.name}|{LOW_WATERMARK.name}"}}', "link"),
)
"""Variables that select series by query and by link."""

WARN_FROM_ONE = ((1, YELLOW),)
"""Thresholds of rare events that need attention: yellow from 1."""

ROWS: Rows = {
    "Losses in this range": (
        CountPanel("Late", (LATE_PARTIALS,), WARN_FROM_ONE),
        CountPanel("Records that are no packets", (RECORDS_SKIPPED,)),
        CountPanel("Damaged files", (FILES_DAMAGED,), WARN_FROM_ONE),
        CountPanel("Restarts of Spark", (SPARK_RESTARTS,), WARN_FROM_ONE),
    ),
    "Input": (
        MetricPanel("Packets", (PACKETS_DECODED,), ("link",), "pps"),
        MetricPanel("Bytes read", (BYTES_READ,), ("link",), "Bps"),
        MetricPanel("Records read", (RECORDS_READ,), ("link",), "rps"),
    ),
    "Watermarks": (
        MetricPanel("Lag of the watermark", (PUNCTUATION_LAG,), ("query", "link"), "s", ((60.0, YELLOW),)),
        MetricPanel("Late", (LATE_ROWS, LATE_PARTIALS), ("query",), "rps"),
    ),
    "Windows and results": (
        MetricPanel("Windows closed", (WINDOWS_CLOSED,), ("query",), "wps"),
        MetricPanel("Result rows", (RESULT_ROWS,), ("query",), "rps"),
        MetricPanel("Open windows", (WINDOWS_OPEN,), ("query",)),
        MetricPanel("State", (STATE_BYTES,), ("query",), "bytes"),
        MetricPanel("Partials", (PARTIALS_RECEIVED,), ("query",), "rps"),
    ),
}
"""Panels of every pipeline, by the title of their row."""

NODE_ROWS: Rows = {
    "Losses of the node in this range": (
        CountPanel("Dropped by the interface", (INTERFACE_DROPPED,), NO_LOSS),
        CountPanel("Not processed (load shedding)", (RECORDS_SHED,), WARN_FROM_ONE),
        CountPanel("Below the watermark", (ROWS_BELOW_WATERMARK,), WARN_FROM_ONE),
        CountPanel("Lulls", (LULL_WATERMARKS,)),
        CountPanel("Dropped by a full spool", (SPOOL_ROWS_DROPPED,), NO_LOSS),
        CountPanel("Segments lost", (SPOOL_SEGMENTS_LOST,), NO_LOSS),
    ),
    "Node": (
        MetricPanel("Links by state", (LINK_STATE,), ("state",)),
        MetricPanel("Lag of the node", (NODE_LAG,), ("query", "link"), "s"),
        MetricPanel("Sampling rate", (SAMPLING_RATE,), ("link",), "short", ((2.0, YELLOW),)),
        MetricPanel("Partials written", (PARTIALS_WRITTEN,), ("query", "link"), "rps"),
        MetricPanel("Evictions and collisions", (TABLE_EVICTIONS, TABLE_COLLISIONS), ("query", "link"), "rps"),
        MetricPanel("Entries in tables", (TABLE_RESIDENT,), ("query", "link")),
    ),
    "Spools": (
        MetricPanel("Spool on the disk", (SPOOL_BYTES,), ("link",), "bytes"),
        MetricPanel("Age of the oldest unread segment", (SPOOL_OLDEST_AGE,), ("link",), "s", ((60.0, YELLOW),)),
        MetricPanel("Segments read", (SPOOL_SEGMENTS_READ,), ("link",), "ops"),
        MetricPanel("Partials read", (SPOOL_PARTIALS_READ,), ("query", "link"), "rps"),
        MetricPanel("Lateness of late rows (99 %)", (SPOOL_LATENESS,), ("link",), "s"),
    ),
}
"""Panels of pipelines with a node, which captures links and writes spools."""

INTERFACE_ROWS: Rows = {
    "Interfaces": (
        MetricPanel("Packets received and dropped", (INTERFACE_RECEIVED, INTERFACE_DROPPED), ("link",), "pps"),
    ),
}
"""Panels of pipelines with live interfaces."""


ALERT_ROWS: Rows = {
    "Alerts": (
        MetricPanel("Alerts that are firing", (FIRING,), ("rule",)),
        MetricPanel("Alerts that a silence covered", (SILENCED,), ("rule",), "cps"),
        MetricPanel("Messages about alerts", (MESSAGES,), ("receiver", "result"), "cps"),
        MetricPanel("Messages that wait", (WAITING,), ("receiver",)),
    ),
}
"""Panels of pipelines with alert rules."""


CHANGES_ROWS: Rows = {
    "Corrections": (
        MetricPanel("Rows that were withdrawn", (CORRECTIONS,), ("query",), "rps"),
        MetricPanel("Age of the oldest provisional window", (PROVISIONAL_AGE,), ("query",), "s"),
        MetricPanel("Provisional rows in memory", (PROVISIONAL_BYTES,), ("query",), "bytes"),
    ),
}
"""Panels of pipelines with queries that return changes."""


def rows_of(
    *, has_node: bool, has_interface: bool, has_alerts: bool, has_changes: bool
) -> Iterator[tuple[str, tuple[AnyMetricPanel, ...]]]:
    """Yield the rows of a pipeline: the title and the panels."""
    yield from ROWS.items()
    if has_changes:
        yield from CHANGES_ROWS.items()
    if has_alerts:
        yield from ALERT_ROWS.items()
    if has_node:
        yield from NODE_ROWS.items()
    if has_interface:
        yield from INTERFACE_ROWS.items()


def make_health_dashboard(
    uid: str,
    pipeline: str,
    maker: PanelMaker,
    *,
    has_node: bool,
    has_interface: bool,
    has_alerts: bool,
    has_changes: bool,
) -> Dashboard:
    """Return the dashboard of a pipeline.

    `has_node`: a node captures some links. `has_interface`: some links are interfaces. `has_alerts`: the pipeline has
    rules. `has_changes`: it has queries that return changes.
    """
    description = "The input, watermarks and losses of the pipeline."
    builder = make_dashboard(uid, f"Wiretide {pipeline}: health", description, pipeline)
    for variable in VARIABLES:
        builder = maker.add_variable(builder, variable)
    names = [variable.name for variable in VARIABLES]
    rows = rows_of(has_node=has_node, has_interface=has_interface, has_alerts=has_alerts, has_changes=has_changes)
    for title, panels in rows:
        builder = add_row(builder, title)
        for panel in panels:
            builder = builder.with_panel(panel.make(maker, names))
    return builder
