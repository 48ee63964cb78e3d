"""The metrics of the live page."""

from __future__ import annotations

from capture.metrics import Metric

HISTORY_WINDOWS = Metric("wiretide_page_windows", "gauge", (), "Closed windows in the store of the live page.")
HISTORY_BYTES = Metric("wiretide_page_bytes", "gauge", (), "Bytes of the rows in the store of the live page.")
HISTORY_DELETED = Metric(
    "wiretide_page_windows_deleted_total",
    "counter",
    (),
    "Windows that were deleted from the store of the live page, because they were too old or the store was full.",
)
HISTORY_ROWS_CUT = Metric(
    "wiretide_page_rows_cut_total",
    "counter",
    (),
    "Rows that are not in the store of the live page, because their window had more than 10,000.",
)
HISTORY_LOST = Metric(
    "wiretide_page_windows_lost_total",
    "counter",
    (),
    "Windows that could not be written to the store of the live page, for example to a full disk.",
)
STREAMS = Metric("wiretide_page_streams", "gauge", (), "Browsers that receive the events of the live page.")
STREAMS_REFUSED = Metric(
    "wiretide_page_streams_refused_total",
    "counter",
    (),
    "Requests for the events of the live page that were refused, because there were too many.",
)
EVENTS_SKIPPED = Metric(
    "wiretide_page_events_skipped_total",
    "counter",
    (),
    "Windows that a browser did not receive, because it was too many windows late. The page states their number.",
)
PAGE_QUERIES = Metric(
    "wiretide_page_queries_total",
    "counter",
    ("result",),
    "Queries from the live page: answered, refused for an error in the text (wrong), or stopped after 5 s (time).",
)
EXPORTS = Metric(
    "wiretide_page_exports_total",
    "counter",
    ("result",),
    "Exports of stored windows: complete, broken (the browser disconnected, or the store could not be read), or "
    "refused, because there were too many.",
)

METRICS = (
    HISTORY_WINDOWS,
    HISTORY_BYTES,
    HISTORY_DELETED,
    HISTORY_ROWS_CUT,
    HISTORY_LOST,
    STREAMS,
    STREAMS_REFUSED,
    EVENTS_SKIPPED,
    PAGE_QUERIES,
    EXPORTS,
)
