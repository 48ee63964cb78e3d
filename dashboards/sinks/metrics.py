"""The metrics of sinks."""

from __future__ import annotations

from capture.metrics import Metric

SINK_ROWS = Metric(
    "wiretide_sink_rows_total",
    "counter",
    ("sink", "query"),
    "Result rows, or changes, that the sink has stored since the start of the process.",
)
SINK_RETRIES = Metric(
    "wiretide_sink_retries_total",
    "counter",
    ("sink",),
    "Failed attempts to store a micro-batch in the sink, each of which was repeated after a wait.",
)

METRICS = (SINK_ROWS, SINK_RETRIES)
