"""What the high level counts. `partials_received` = table evictions + table flushes of all links of the query."""

from __future__ import annotations

from capture.metrics import Metric

PARTIALS_RECEIVED = Metric(
    "wiretide_partials_received_total", "counter", ("query",), "Partials that reached the high level."
)
LATE_PARTIALS = Metric(
    "wiretide_late_partials_total",
    "counter",
    ("query",),
    "Times a partial was left out of a window because that window was already final.",
)
LATE_ROWS = Metric(
    "wiretide_late_rows_total",
    "counter",
    ("query",),
    "Rows left out of at least one window because it was final; without count(*) told in runs with a slack alone.",
)
OUTSIDE_WINDOWS = Metric(
    "wiretide_partials_outside_windows_total",
    "counter",
    ("query",),
    "Partials that belong to no window: older than ORIGIN, or between windows where SLIDE is greater than RANGE.",
)
WINDOWS_CLOSED = Metric(
    "wiretide_windows_closed_total", "counter", ("query",), "Windows that became final and had at least one group."
)
RESULT_ROWS = Metric("wiretide_result_rows_total", "counter", ("query",), "Rows of results, after HAVING.")
WINDOWS_OPEN = Metric("wiretide_windows_open", "gauge", ("query",), "Windows that hold groups and are not final yet.")
STATE_BYTES = Metric("wiretide_state_bytes", "gauge", ("query",), "Bytes of Arrow state of the open windows.")
LOW_WATERMARK = Metric(
    "wiretide_low_watermark_seconds",
    "gauge",
    ("query", "link"),
    "Promise of the link: no later packet is older than this (seconds since the epoch, in the capture's own time).",
)
PUNCTUATION_LAG = Metric(
    "wiretide_punctuation_lag_seconds",
    "gauge",
    ("query", "link"),
    "How far the link's low watermark lies behind the newest packet time seen on any link of the query.",
)

METRICS = (
    PARTIALS_RECEIVED,
    LATE_PARTIALS,
    LATE_ROWS,
    OUTSIDE_WINDOWS,
    WINDOWS_CLOSED,
    RESULT_ROWS,
    WINDOWS_OPEN,
    STATE_BYTES,
    LOW_WATERMARK,
    PUNCTUATION_LAG,
)
