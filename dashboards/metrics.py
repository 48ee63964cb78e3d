"""What the exporter says of the windows it shows, and of the server that it is read through.

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

HTTP_CONNECTIONS = Metric(
    "wiretide_http_connections_total", "counter", (), "Connections that the metrics server accepted, refused ones too."
)
HTTP_REFUSED = Metric(
    "wiretide_http_connections_refused_total",
    "counter",
    ("cause",),
    "Connections that the metrics server closed at once: too many in all (connections) or of one client (client), or "
    "no thread was left (threads).",
)
HTTP_REJECTED = Metric(
    "wiretide_http_requests_rejected_total",
    "counter",
    ("cause",),
    "Requests that were not answered as asked: not complete in time (deadline), too long (size), another method than "
    "GET (method), or a foreign name in the header Host (host).",
)
HTTP_RETRIES = Metric(
    "wiretide_http_accept_retries_total",
    "counter",
    (),
    "Times that the metrics server found no free file descriptor for a connection and waited.",
)

METRICS = (WINDOW_START, WINDOW_END, GROUPS, SERIES_FOLDED)
HTTP_METRICS = (HTTP_CONNECTIONS, HTTP_REFUSED, HTTP_REJECTED, HTTP_RETRIES)
