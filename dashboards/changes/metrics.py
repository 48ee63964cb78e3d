"""The metrics of queries with EMIT CHANGES, which emit results before they are final."""

from __future__ import annotations

from capture.metrics import Metric

PROVISIONAL_AGE = Metric(
    "wiretide_query_provisional_age_seconds",
    "gauge",
    ("query",),
    "For a query with EMIT CHANGES: the time of the newest packet of its run, minus the end of the oldest window "
    "whose "
    "results are not all final. 0 if all results are final.",
)
PROVISIONAL_BYTES = Metric(
    "wiretide_query_provisional_bytes",
    "gauge",
    ("query",),
    "For a query with EMIT CHANGES: bytes of the stored rows of windows that are not final. The gauges, the live page "
    "and the alerts read these rows.",
)
FINAL_WATERMARK = Metric(
    "wiretide_query_final_watermark_seconds",
    "gauge",
    ("query",),
    "For a query with EMIT CHANGES: windows that end by this time are final. Seconds since the epoch, by the times of "
    "the packets.",
)

METRICS = (PROVISIONAL_AGE, PROVISIONAL_BYTES, FINAL_WATERMARK)
