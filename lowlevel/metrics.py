"""What the low level counts. The rows of a kind that a link has are `rows_accepted + rows_filtered`, for each query."""

from __future__ import annotations

from capture.metrics import Metric

ROWS_ACCEPTED = Metric(
    "wiretide_rows_accepted_total", "counter", ("query", "link"), "Rows that passed the query's predicate."
)
ROWS_FILTERED = Metric(
    "wiretide_rows_filtered_total", "counter", ("query", "link"), "Rows that the query's predicate turned away."
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

ROWS_FROM_THE_FUTURE = Metric(
    "wiretide_rows_from_the_future_total",
    "counter",
    ("link", "kind"),
    "Rows dated over an hour ahead of their link that too few others agreed with for its progress to follow them.",
)

ROWS_NOT_SPREAD = Metric(
    "wiretide_rows_not_spread_total",
    "counter",
    ("query", "link"),
    "Rows that lasted more panes than a row is spread over; each is whole in the pane it ends in.",
)

METRICS = (
    ROWS_ACCEPTED,
    ROWS_FILTERED,
    TABLE_EVICTIONS,
    TABLE_FLUSHED,
    TABLE_BYTES,
    ROWS_FROM_THE_FUTURE,
    ROWS_NOT_SPREAD,
)
