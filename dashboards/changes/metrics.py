"""The metrics of queries with changes."""

from __future__ import annotations

from capture.metrics import Metric

PROVISIONAL_AGE = Metric(
    "wiretide_query_provisional_age_seconds",
    "gauge",
    ("query",),
    "Time from the end of the oldest window with results that are not final to the newest packet of the query's run "
    "(of a query with EMIT CHANGES). 0 if all results are final.",
)
PROVISIONAL_BYTES = Metric(
    "wiretide_query_provisional_bytes",
    "gauge",
    ("query",),
    "Bytes of the rows of windows that are not final, which gauges, page and alerts read (of a query with EMIT "
    "CHANGES).",
)
FINAL_WATERMARK = Metric(
    "wiretide_query_final_watermark_seconds",
    "gauge",
    ("query",),
    "Windows that end by this time are final (of a query with EMIT CHANGES; seconds since the epoch, in the capture's "
    "own time).",
)

METRICS = (PROVISIONAL_AGE, PROVISIONAL_BYTES, FINAL_WATERMARK)
