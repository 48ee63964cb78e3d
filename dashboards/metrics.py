"""What the exporter says of the windows it shows.

`query_groups = query_series_folded` + rows shown as series of their own.
"""

from __future__ import annotations

from capture.metrics import Metric

WINDOW_START = Metric(
    "wiretide_query_window_start_seconds",
    "gauge",
    ("query",),
    "Start of the query's last closed window (seconds since the epoch, in the capture's own time).",
)
WINDOW_END = Metric(
    "wiretide_query_window_end_seconds",
    "gauge",
    ("query",),
    "End, not included, of the query's last closed window (seconds since the epoch, in the capture's own time).",
)
GROUPS = Metric(
    "wiretide_query_groups", "gauge", ("query",), "Result rows of the query's last closed window, after HAVING."
)
SERIES_FOLDED = Metric(
    "wiretide_query_series_folded",
    "gauge",
    ("query",),
    "Result rows of the query's last closed window that have no series of their own and are part of other.",
)

METRICS = (WINDOW_START, WINDOW_END, GROUPS, SERIES_FOLDED)
