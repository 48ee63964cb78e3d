"""What the low level counts. The rows of a kind that a link has are `rows_accepted + rows_filtered`, for each query."""

from __future__ import annotations

from capture.metrics import Metric

# What a low-level node counts of each link, beside its reader, its tables and its spool.
#
# Records that came are `records_read + records_shed (all causes)`, and what the ring lost before them.


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

NODE_METRICS = (
    RECORDS_SHED,
    SAMPLING_RATE,
    SAMPLING_ASKED,
    PARTIALS_LEFT,
    ITEMS_WAITING,
    NODE_WATERMARK,
    NODE_LAG,
    LINK_STATE,
)


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
    "Entries whose slot of the low-level table another entry took: another group, or the same one in a later pane.",
)
TABLE_FLUSHED = Metric(
    "wiretide_table_flushed_total",
    "counter",
    ("query", "link"),
    "Entries that left the low-level table because their pane was complete or the input ended.",
)
TABLE_BYTES = Metric(
    "wiretide_table_bytes",
    "gauge",
    ("query", "link"),
    "Memory of the low-level tables, fixed once they are made; one that queries share is counted for the first.",
)

TABLE_COLLISIONS = Metric(
    "wiretide_table_collisions_total",
    "counter",
    ("query", "link"),
    "Rows that found another entry of an open pane in the slot of the low-level table where they looked first; "
    "but for policies in order, only rows that began an entry.",
)
TABLE_SWEPT = Metric(
    "wiretide_table_swept_total",
    "counter",
    ("query", "link"),
    "Entries of old panes that left the low-level table one by one beside the packets (slow and paced flushes).",
)
TABLE_FORCED = Metric(
    "wiretide_table_forced_total",
    "counter",
    ("query", "link"),
    "Entries that had to leave the low-level table together: their pane was older than the bound, or out of order.",
)
TABLE_DIRECT = Metric(
    "wiretide_table_direct_total",
    "counter",
    ("query", "link"),
    "Rows that left as partials of their own: of panes older than the low-level table keeps, or far ahead; or all, for "
    "windows that depend on single rows.",
)
TABLE_RESIDENT = Metric(
    "wiretide_table_resident_entries", "gauge", ("query", "link"), "Entries that are in the low-level tables."
)
TABLE_PANES = Metric(
    "wiretide_table_open_panes", "gauge", ("query", "link"), "Panes that those entries are of, in the fullest table."
)
TABLE_BURST = Metric(
    "wiretide_table_largest_burst",
    "gauge",
    ("query", "link"),
    "Most entries that ever left a low-level table together, for up to 64 packets or a promise; not on empty polls.",
)

ROWS_FROM_THE_FUTURE = Metric(
    "wiretide_rows_from_the_future_total",
    "counter",
    ("link", "kind"),
    "Rows dated further ahead of their link than is believed (an hour, or its clock_jump) that too few others agreed "
    "with for its progress to follow them.",
)

ROWS_FROM_THE_PAST = Metric(
    "wiretide_rows_from_the_past_total",
    "counter",
    ("link", "kind"),
    "Rows dated further behind their link than that, and than its promise allows.",
)
ROWS_AFTER_ARRIVAL = Metric(
    "wiretide_rows_after_arrival_total",
    "counter",
    ("link", "kind"),
    "Rows dated further after the arrival of their datagram than that: their exporter's clock is ahead, and the link's "
    "progress follows the arrival.",
)
ROWS_BELOW_PROMISE = Metric(
    "wiretide_rows_below_promise_total",
    "counter",
    ("link", "kind"),
    "Rows older than what had been promised of their link; late are those of them whose windows were final.",
)
LULL_PROMISES = Metric(
    "wiretide_lull_promises_total",
    "counter",
    ("link", "kind"),
    "Times that the promise of a link grew by the clock, because there was nothing to read.",
)
PROMISE_LAG = Metric(
    "wiretide_promise_lag_seconds",
    "gauge",
    ("link", "kind"),
    "How far the promise of a link lies behind its newest row, or behind the clock less the threshold in a lull.",
)

ROWS_NOT_SPREAD = Metric(
    "wiretide_rows_not_spread_total",
    "counter",
    ("query", "link"),
    "Rows that lasted more panes than a row is spread over; each is whole in the pane it ends in.",
)

WATCHLIST_ENTRIES = Metric(
    "wiretide_watchlist_entries", "gauge", ("link", "file"), "Lines of a watchlist that a query of the link looks into."
)
WATCHLIST_RELOADS = Metric(
    "wiretide_watchlist_reloads_total",
    "counter",
    ("link", "file"),
    "Times that a watchlist was read again because its file had changed.",
)
WATCHLIST_FAILED = Metric(
    "wiretide_watchlist_failed_reloads_total",
    "counter",
    ("link", "file"),
    "Times that the file of a watchlist had changed into what is none, or had vanished; the list stays as it was.",
)

FILTER_JOIN_KEYS = Metric(
    "wiretide_filter_join_keys", "gauge", ("link", "kind"), "Keys that filter joins (seen_within) remember of rows."
)
FILTER_JOIN_BYTES = Metric(
    "wiretide_filter_join_bytes", "gauge", ("link", "kind"), "Memory of filter joins, fixed once they are made."
)
FILTER_JOIN_EVICTIONS = Metric(
    "wiretide_filter_join_evictions_total",
    "counter",
    ("link", "kind", "cause"),
    "Keys that filter joins gave up for others: such as rows to come may have asked for (alive), and such as only late "
    "ones could have (over). Without the first, what they say of rows in order is exact.",
)

SPOOL_SEGMENTS_WRITTEN = Metric(
    "wiretide_spool_segments_written_total", "counter", ("link",), "Segments that were written through to the disk."
)
SPOOL_BYTES_WRITTEN = Metric(
    "wiretide_spool_bytes_written_total", "counter", ("link",), "Bytes of the files of those segments."
)
SPOOL_ITEMS_WRITTEN = Metric(
    "wiretide_spool_items_written_total", "counter", ("link",), "Batches of partials and punctuations in them."
)
SPOOL_ROWS_WRITTEN = Metric("wiretide_spool_rows_written_total", "counter", ("link",), "Rows of partials in them.")
SPOOL_SEGMENTS_DROPPED = Metric(
    "wiretide_spool_segments_dropped_total",
    "counter",
    ("link", "cause"),
    "Segments that a full spool dropped before the reader had committed them.",
)
SPOOL_ITEMS_DROPPED = Metric(
    "wiretide_spool_items_dropped_total",
    "counter",
    ("link", "cause"),
    "Items of dropped segments (oldest; punctuation among them is repeated by the next segment), and batches of"
    " partials that found no room (shed).",
)
SPOOL_ROWS_DROPPED = Metric(
    "wiretide_spool_rows_dropped_total",
    "counter",
    ("link", "cause"),
    "Rows of partials that were in dropped segments (oldest), or found the spool full and were given up (shed).",
)
SPOOL_RETRIES = Metric(
    "wiretide_spool_retries_total",
    "counter",
    ("link", "cause"),
    "Times that a write to the spool, or a look at what the reader has committed, was put off: the disk was full "
    "(disk) or no file descriptor was free (descriptors).",
)
SPOOL_SEGMENTS = Metric("wiretide_spool_segments", "gauge", ("link",), "Segments that are on the disk.")
SPOOL_BYTES = Metric(
    "wiretide_spool_bytes",
    "gauge",
    ("link",),
    "Disk that the spool takes at most, in whole blocks, with what waits to be written.",
)
SPOOL_OLDEST_AGE = Metric(
    "wiretide_spool_oldest_uncommitted_age_seconds",
    "gauge",
    ("link",),
    "Time since the first item of the oldest segment that the reader has not committed; 0 where there is none.",
)

METRICS = (
    ROWS_ACCEPTED,
    ROWS_FILTERED,
    TABLE_EVICTIONS,
    TABLE_FLUSHED,
    TABLE_BYTES,
    TABLE_COLLISIONS,
    TABLE_SWEPT,
    TABLE_FORCED,
    TABLE_DIRECT,
    TABLE_RESIDENT,
    TABLE_PANES,
    TABLE_BURST,
    ROWS_FROM_THE_FUTURE,
    ROWS_FROM_THE_PAST,
    ROWS_AFTER_ARRIVAL,
    ROWS_BELOW_PROMISE,
    LULL_PROMISES,
    PROMISE_LAG,
    ROWS_NOT_SPREAD,
    WATCHLIST_ENTRIES,
    WATCHLIST_RELOADS,
    WATCHLIST_FAILED,
    FILTER_JOIN_KEYS,
    FILTER_JOIN_BYTES,
    FILTER_JOIN_EVICTIONS,
    SPOOL_SEGMENTS_WRITTEN,
    SPOOL_BYTES_WRITTEN,
    SPOOL_ITEMS_WRITTEN,
    SPOOL_ROWS_WRITTEN,
    SPOOL_SEGMENTS_DROPPED,
    SPOOL_ITEMS_DROPPED,
    SPOOL_ROWS_DROPPED,
    SPOOL_RETRIES,
    SPOOL_SEGMENTS,
    SPOOL_BYTES,
    SPOOL_OLDEST_AGE,
)
