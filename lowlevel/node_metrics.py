"""What a low-level node counts of each link, beside its reader, its tables and its spool.

Records that came are `records_read + records_shed (all causes)`, and what the ring lost before them.
"""

from __future__ import annotations

from capture.metrics import Metric

RECORDS_SHED = Metric(
    "wiretide_records_shed_total",
    "counter",
    ("link", "cause"),
    "Records that the node passed over: because its spool or its ring was filling (others stand for them), or because "
    "its spool was full.",
)
SAMPLING_RATE = Metric(
    "wiretide_node_sampling_rate",
    "gauge",
    ("link",),
    "One block of records in so many is reduced; 1 where nothing is shed.",
)
SAMPLING_ASKED = Metric(
    "wiretide_node_sampling_asked",
    "gauge",
    ("link", "cause"),
    "The sampling rate that the room in the spool, or the ring's occupancy, asks for; the larger is in force.",
)
PARTIALS_LEFT = Metric(
    "wiretide_node_partials_total", "counter", ("query", "link"), "Partials that the node has given to the spool."
)
ITEMS_WAITING = Metric(
    "wiretide_node_waiting_items", "gauge", ("link",), "Batches of partials that wait for room in the spool."
)
NODE_WATERMARK = Metric(
    "wiretide_node_low_watermark_seconds",
    "gauge",
    ("query", "link"),
    "What the node has promised the query: no later row is older (seconds since the epoch, in the capture's time).",
)
NODE_LAG = Metric(
    "wiretide_node_lag_seconds",
    "gauge",
    ("query", "link"),
    "How far that promise is behind the newest record of the last block, in the capture's time.",
)
LINK_STATE = Metric(
    "wiretide_node_links", "gauge", ("state",), "Links of the node by state: running, ended, stopped or failed."
)

METRICS = (
    RECORDS_SHED,
    SAMPLING_RATE,
    SAMPLING_ASKED,
    PARTIALS_LEFT,
    ITEMS_WAITING,
    NODE_WATERMARK,
    NODE_LAG,
    LINK_STATE,
)
