"""What the low level counts. `packets_decoded = rows_accepted + rows_filtered`, for each query and link."""

from __future__ import annotations

from capture.metrics import Metric

ROWS_ACCEPTED = Metric(
    "wiretide_rows_accepted_total", "counter", ("query", "link"), "Packets that passed the query's predicate."
)
ROWS_FILTERED = Metric(
    "wiretide_rows_filtered_total", "counter", ("query", "link"), "Packets that the query's predicate turned away."
)
TABLE_EVICTIONS = Metric(
    "wiretide_table_evictions_total",
    "counter",
    ("query", "link"),
    "Entries that left the low-level table early, because another group needed the slot.",
)
TABLE_FLUSHED = Metric(
    "wiretide_table_flushed_total",
    "counter",
    ("query", "link"),
    "Entries that left the low-level table because their pane was complete or the input ended.",
)
TABLE_BYTES = Metric(
    "wiretide_table_bytes", "gauge", ("query", "link"), "Memory of the low-level tables; fixed once they are made."
)

METRICS = (ROWS_ACCEPTED, ROWS_FILTERED, TABLE_EVICTIONS, TABLE_FLUSHED, TABLE_BYTES)
