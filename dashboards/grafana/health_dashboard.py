"""The dashboard of the pipeline: input, watermarks, late rows, tables and state, from the counters of Wiretide."""

from __future__ import annotations

from collections.abc import Sequence

from capture.lazy_dataclasses import dataclass
from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ, RECORDS_SKIPPED, Metric
from dashboards.alerts.metrics import FIRING, MESSAGES, SILENCED, WAITING
from dashboards.grafana.panels import Dashboard, Line, PanelMaker, add_row, make_dashboard
from highlevel.metrics import (
    LATE_PARTIALS,
    LATE_ROWS,
    PARTIALS_RECEIVED,
    PUNCTUATION_LAG,
    RESULT_ROWS,
    SPARK_RESTARTS,
    SPOOL_SEGMENTS_LOST,
    SPOOL_SEGMENTS_READ,
    STATE_BYTES,
    WINDOWS_CLOSED,
    WINDOWS_OPEN,
)
from lowlevel.metrics import (
    LULL_WATERMARKS,
    RECORDS_SHED,
    ROWS_BELOW_WATERMARK,
    SPOOL_BYTES,
    SPOOL_ROWS_DROPPED,
    TABLE_COLLISIONS,
    TABLE_EVICTIONS,
    TABLE_RESIDENT,
)

INTERVAL = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class HealthPanel:
    """A panel over metrics with the same labels. Counters are shown as rates per second."""

    title: str
    metrics: tuple[Metric, ...]
    by: tuple[str, ...]
    unit: str = "short"

    def __post_init__(self) -> None:
        """Raise ValueError for a label that a metric does not have."""
        for metric in self.metrics:
            if not {*self.by} <= {*metric.labels}:
                raise ValueError(f"{metric.name}: got the labels {self.by}, expected some of {metric.labels}")

    @property
    def description(self) -> str:
        """The help texts of the metrics."""
        return " ".join(metric.help for metric in self.metrics)

    @property
    def lines(self) -> list[Line]:
        """A line for each metric."""
        legend = " ".join(f"{{{{{label}}}}}" for label in self.by)
        return [
            Line(
                _per_second(metric, self.by) if metric.kind == "counter" else metric.name,
                legend if len(self.metrics) == 1 else f"{_short_name(metric)} {legend}",
            )
            for metric in self.metrics
        ]


ROWS: dict[str, tuple[HealthPanel, ...]] = {
    "Input": (
        HealthPanel("Packets", (PACKETS_DECODED,), ("link",), "pps"),
        HealthPanel("Bytes read", (BYTES_READ,), ("link",), "Bps"),
        HealthPanel("Records read", (RECORDS_READ,), ("link",), "rps"),
        HealthPanel("Records that are no packets", (RECORDS_SKIPPED,), ("link", "cause"), "rps"),
    ),
    "Watermarks": (
        HealthPanel("Lag of the watermark", (PUNCTUATION_LAG,), ("query", "link"), "s"),
        HealthPanel("Late", (LATE_ROWS, LATE_PARTIALS), ("query",), "rps"),
    ),
    "Windows and results": (
        HealthPanel("Windows closed", (WINDOWS_CLOSED,), ("query",), "wps"),
        HealthPanel("Result rows", (RESULT_ROWS,), ("query",), "rps"),
        HealthPanel("Open windows", (WINDOWS_OPEN,), ("query",)),
        HealthPanel("State", (STATE_BYTES,), ("query",), "bytes"),
        HealthPanel("Partials", (PARTIALS_RECEIVED,), ("query",), "rps"),
        HealthPanel("Restarts of Spark", (SPARK_RESTARTS,), SPARK_RESTARTS.labels),
    ),
}
"""Panels of every pipeline, by the title of their row."""

NODE_ROWS: dict[str, tuple[HealthPanel, ...]] = {
    "Node": (
        HealthPanel("Lulls", (LULL_WATERMARKS,), ("link",)),
        HealthPanel("Rows below the watermark", (ROWS_BELOW_WATERMARK,), ("link",), "rps"),
        HealthPanel("Records not processed (load shedding)", (RECORDS_SHED,), ("link",), "rps"),
        HealthPanel("Evictions and collisions", (TABLE_EVICTIONS, TABLE_COLLISIONS), ("query", "link"), "rps"),
        HealthPanel("Entries in tables", (TABLE_RESIDENT,), ("query", "link")),
    ),
    "Spools": (
        HealthPanel("Spool on the disk", (SPOOL_BYTES,), ("link",), "bytes"),
        HealthPanel("Rows dropped, because a spool was full", (SPOOL_ROWS_DROPPED,), ("link",), "rps"),
        HealthPanel("Segments read and lost", (SPOOL_SEGMENTS_READ, SPOOL_SEGMENTS_LOST), ("link",), "ops"),
    ),
}
"""Panels of pipelines with a node, which captures links and writes spools."""


ALERT_ROWS: dict[str, tuple[HealthPanel, ...]] = {
    "Alerts": (
        HealthPanel("Alerts that are firing", (FIRING,), ("rule",)),
        HealthPanel("Alerts that a silence covered", (SILENCED,), ("rule",), "cps"),
        HealthPanel("Messages about alerts", (MESSAGES,), ("receiver", "result"), "cps"),
        HealthPanel("Messages that wait", (WAITING,), ("receiver",)),
    ),
}
"""Panels of pipelines with alert rules."""


def make_health_dashboard(
    uid: str, title: str, maker: PanelMaker, *, has_node: bool, has_alerts: bool = False
) -> Dashboard:
    """Return the dashboard of a pipeline. `has_node`: a node captures some of its links. `has_alerts`: it has rules."""
    made = make_dashboard(uid, title, "What the pipeline reads, how far its watermarks are, and what it drops.")
    rows = {**ROWS, **(ALERT_ROWS if has_alerts else {}), **(NODE_ROWS if has_node else {})}
    for row, panels in rows.items():
        made = add_row(made, row)
        for panel in panels:
            made = made.with_panel(maker.make_time_series(panel.title, panel.description, panel.lines, panel.unit))
    return made


def _per_second(metric: Metric, by: Sequence[str]) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric.name}[{INTERVAL}]))"


def _short_name(metric: Metric) -> str:
    """Return a name for legends.

    >>> _short_name(LATE_ROWS)
    'late rows'
    """
    return metric.name.removeprefix("wiretide_").removesuffix("_total").replace("_", " ")
