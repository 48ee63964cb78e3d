"""Metrics of the low level.

For each query, `rows_accepted + rows_filtered` is the number of rows of its kind on the link. A pane is the part of a
window between two neighbouring window bounds; a partial is the partial aggregate of one group and one pane.
"""

from __future__ import annotations

from capture.metrics import Metric

# Metrics of a node, in addition to those of readers, tables and the spool. The number of records that arrived is
# `records_read + records_shed` (all causes), plus the records that the ring lost.


RECORDS_SHED = Metric(
    "wiretide_records_shed_total",
    "counter",
    ("link", "cause"),
    "Records that the node skipped: because its spool or its ring was filling (counts and sums are estimates that "
    "include them), or because its spool was full.",
)
SAMPLING_RATE = Metric(
    "wiretide_node_sampling_rate",
    "gauge",
    ("link",),
    "The node processes one block of records out of this number; 1 without load shedding.",
)
SAMPLING_REQUIRED = Metric(
    "wiretide_node_sampling_asked",
    "gauge",
    ("link", "cause"),
    "The sampling rate that the spool or the ring requires; the node uses the larger one.",
)
PARTIALS_WRITTEN = Metric(
    "wiretide_node_partials_total", "counter", ("query", "link"), "Partials that the node has written to the spool."
)
ITEMS_WAITING = Metric(
    "wiretide_node_waiting_items", "gauge", ("link",), "Batches of partials that wait for room in the spool."
)
NODE_WATERMARK = Metric(
    "wiretide_node_low_watermark_seconds",
    "gauge",
    ("query", "link"),
    "Watermark of the node for the query: no later row is older (seconds since the epoch, in the time of the capture).",
)
NODE_LAG = Metric(
    "wiretide_node_lag_seconds",
    "gauge",
    ("query", "link"),
    "Time of the newest record of the last block minus the query's watermark, in the time of the capture.",
)
LINK_STATE = Metric(
    "wiretide_node_links", "gauge", ("state",), "Links of the node by state: running, ended, stopped or failed."
)

NODE_METRICS = (
    RECORDS_SHED,
    SAMPLING_RATE,
    SAMPLING_REQUIRED,
    PARTIALS_WRITTEN,
    ITEMS_WAITING,
    NODE_WATERMARK,
    NODE_LAG,
    LINK_STATE,
)


ROWS_ACCEPTED = Metric(
    "wiretide_rows_accepted_total", "counter", ("query", "link"), "Rows that passed the query's predicate."
)
ROWS_FILTERED = Metric(
    "wiretide_rows_filtered_total", "counter", ("query", "link"), "Rows that failed the query's predicate."
)
TABLE_EVICTIONS = Metric(
    "wiretide_table_evictions_total",
    "counter",
    ("query", "link"),
    "Entries of low-level tables that a new entry replaced. The new entry is of another group, or of the same group in "
    "a later pane.",
)
TABLE_FLUSHED = Metric(
    "wiretide_table_flushed_total",
    "counter",
    ("query", "link"),
    "Entries of low-level tables that were sent to the high level because their pane was closed or the input ended.",
)
TABLE_BYTES = Metric(
    "wiretide_table_bytes",
    "gauge",
    ("query", "link"),
    "Memory of the low-level tables. If queries share a table, only the first of them counts it.",
)

TABLE_COLLISIONS = Metric(
    "wiretide_table_collisions_total",
    "counter",
    ("query", "link"),
    "Rows whose slot in the low-level table already contained another entry of an open pane. With flush policies "
    "other than iop_slow and iop_two_slot, only rows that began a new entry are counted.",
)
TABLE_SWEPT = Metric(
    "wiretide_table_swept_total",
    "counter",
    ("query", "link"),
    "Entries of old panes that were sent to the high level one by one, between packets (flush policies slow and "
    "paced).",
)
TABLE_FORCED = Metric(
    "wiretide_table_forced_total",
    "counter",
    ("query", "link"),
    "Entries that were sent to the high level together, because their pane was more than `disorder` panes old, or to "
    "keep partials in the order of panes.",
)
TABLE_DIRECT = Metric(
    "wiretide_table_direct_total",
    "counter",
    ("query", "link"),
    "Rows that became partials without a table entry, because their pane was too old or too far ahead. All rows are "
    "counted for queries that need single rows, such as windows of a number of rows.",
)
TABLE_RESIDENT = Metric(
    "wiretide_table_resident_entries", "gauge", ("query", "link"), "Entries in the low-level tables."
)
TABLE_PANES = Metric(
    "wiretide_table_open_panes", "gauge", ("query", "link"), "Largest number of open panes in a low-level table."
)
TABLE_BURST = Metric(
    "wiretide_table_largest_burst",
    "gauge",
    ("query", "link"),
    "Largest number of entries that left a low-level table at once: at a new watermark, or while at most 64 packets "
    "were processed together. Entries that leave while no packets arrive do not count.",
)

ROWS_FROM_THE_FUTURE = Metric(
    "wiretide_rows_from_the_future_total",
    "counter",
    ("link", "kind"),
    "Rows more than an hour (or clock_jump) newer than all accepted rows of their link, if too few other rows "
    "confirmed this time. The watermark ignores them.",
)

ROWS_FROM_THE_PAST = Metric(
    "wiretide_rows_from_the_past_total",
    "counter",
    ("link", "kind"),
    "Rows older than the newest row of their link by more than an hour (or clock_jump), and by more than its watermark "
    "rule allows.",
)
ROWS_AFTER_ARRIVAL = Metric(
    "wiretide_rows_after_arrival_total",
    "counter",
    ("link", "kind"),
    "Rows dated later than the arrival of their datagram by more than an hour (or clock_jump): the clock of their "
    "exporter is ahead. The watermark follows the arrival.",
)
ROWS_BELOW_WATERMARK = Metric(
    "wiretide_rows_below_promise_total",
    "counter",
    ("link", "kind"),
    "Rows below the watermark of their link. They are late only if their windows were final.",
)
LATENESS = Metric(
    "wiretide_lateness_seconds",
    "histogram",
    ("link", "kind", "le"),
    "Late rows by lateness: how much older a row is than the newest row before it on its link. Rows from the past are "
    "left out. Links with exact watermarks are not measured.",
)
LULL_WATERMARKS = Metric(
    "wiretide_lull_promises_total",
    "counter",
    ("link", "kind"),
    "Number of times that the clock advanced the watermark of an idle link.",
)
WATERMARK_LAG = Metric(
    "wiretide_promise_lag_seconds",
    "gauge",
    ("link", "kind"),
    "Difference between the newest time of a link and its watermark. For an idle link with a lull, the newest time is "
    "the "
    "clock minus the lull.",
)

ROWS_NOT_SPREAD = Metric(
    "wiretide_rows_not_spread_total",
    "counter",
    ("query", "link"),
    "Rows that span more panes than SPREAD allows, so that they are counted only in their last pane.",
)

WATCHLIST_ENTRIES = Metric(
    "wiretide_watchlist_entries",
    "gauge",
    ("link", "file"),
    "Lines of a watchlist that a query of the link uses, or arcs of a file; 1 for a setting. The label link is empty "
    "if operators of the high level read the file.",
)
WATCHLIST_RELOADS = Metric(
    "wiretide_watchlist_reloads_total",
    "counter",
    ("link", "file"),
    "Number of times that a watchlist, a setting or a file of arcs was read again because its file had changed. The "
    "label link is empty if operators of the high level read the file, and for all files on Spark.",
)
WATCHLIST_FAILED = Metric(
    "wiretide_watchlist_failed_reloads_total",
    "counter",
    ("link", "file"),
    "Number of times that the changed file of a watchlist, a setting or arcs was invalid or missing; the old version "
    "stays in use. The label link is empty if operators of the high level read the file, and for all files on Spark.",
)

FILTER_JOIN_KEYS = Metric(
    "wiretide_filter_join_keys", "gauge", ("link", "kind"), "Keys that filter joins (seen_within) store."
)
FILTER_JOIN_BYTES = Metric(
    "wiretide_filter_join_bytes", "gauge", ("link", "kind"), "Memory of filter joins, fixed after their allocation."
)
FILTER_JOIN_EVICTIONS = Metric(
    "wiretide_filter_join_evictions_total",
    "counter",
    ("link", "kind", "cause"),
    "Keys that filter joins (seen_within) evicted. alive: later rows could need the key. over: only late rows could "
    "need it. If alive is 0, results for rows in order are exact.",
)

SPOOL_SEGMENTS_WRITTEN = Metric(
    "wiretide_spool_segments_written_total", "counter", ("link",), "Segments that were written and synced to the disk."
)
SPOOL_BYTES_WRITTEN = Metric(
    "wiretide_spool_bytes_written_total", "counter", ("link",), "Bytes of the written segments."
)
SPOOL_ITEMS_WRITTEN = Metric(
    "wiretide_spool_items_written_total",
    "counter",
    ("link",),
    "Batches of partials and punctuations in the written segments.",
)
SPOOL_ROWS_WRITTEN = Metric(
    "wiretide_spool_rows_written_total", "counter", ("link",), "Rows of partials in the written segments."
)
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
    "Dropped batches of partials and punctuations. oldest: they were in segments that a full spool dropped; the next "
    "segment repeats the punctuations. shed: batches of partials that were discarded because the spool was full.",
)
SPOOL_ROWS_DROPPED = Metric(
    "wiretide_spool_rows_dropped_total",
    "counter",
    ("link", "cause"),
    "Dropped rows of partials. oldest: they were in segments that a full spool dropped. shed: they were discarded "
    "because the spool was full.",
)
SPOOL_RETRIES = Metric(
    "wiretide_spool_retries_total",
    "counter",
    ("link", "cause"),
    "Number of times that a write to the spool, or a read of the reader's position, was delayed: the disk was full "
    "(disk) or no file descriptor was free (descriptors).",
)
SPOOL_SEGMENTS = Metric("wiretide_spool_segments", "gauge", ("link",), "Segments on the disk.")
SPOOL_BYTES = Metric(
    "wiretide_spool_bytes",
    "gauge",
    ("link",),
    "Upper bound of the disk space of the spool, in whole blocks, with the data that waits to be written.",
)
SPOOL_OLDEST_AGE = Metric(
    "wiretide_spool_oldest_uncommitted_age_seconds",
    "gauge",
    ("link",),
    "Time since the first item of the oldest uncommitted segment; 0 if there is none.",
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
    ROWS_BELOW_WATERMARK,
    LATENESS,
    LULL_WATERMARKS,
    WATERMARK_LAG,
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
