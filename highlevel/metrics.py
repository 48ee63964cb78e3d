"""Metrics of the high level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from capture.metrics import Metric, Samples
from capture.units import SECOND
from lowlevel.punctuation import BEGINNING, END

PARTIALS_RECEIVED = Metric(
    "wiretide_partials_received_total",
    "counter",
    ("query",),
    "Partials that reached the high level. For a query without aggregates at the low level: rows.",
)
LATE_PARTIALS = Metric(
    "wiretide_late_partials_total",
    "counter",
    ("query",),
    "Partials that arrived after their window was final, once for each such window, and late rows that an"
    " operator dropped.",
)
LATE_ROWS = Metric(
    "wiretide_late_rows_total",
    "counter",
    ("query",),
    "Rows left out of at least one window because it was final, or dropped by an operator. A query without"
    " count(*) counts them only if the watermark rule of an input has a slack.",
)
OUTSIDE_WINDOWS = Metric(
    "wiretide_partials_outside_windows_total",
    "counter",
    ("query",),
    "Partials that belong to no window: older than ORIGIN, or between windows if SLIDE is greater than RANGE. "
    "With LIFETIME: rows without a start, or with an end before it; with SLIDE also rows without an end, or in more "
    "than 10,000 windows.",
)
PARTIALS_BEYOND_CAP = Metric(
    "wiretide_partials_beyond_cap_total",
    "counter",
    ("query",),
    "Partials of groups that a query with RANGE ALL does not keep, because it has reached its CAP.",
)
ROWS_BEYOND_CAP = Metric(
    "wiretide_rows_beyond_cap_total",
    "counter",
    ("query",),
    "Rows of the partials beyond the cap, for queries with count(*).",
)
FILL_ROWS_LEFT_OUT = Metric(
    "wiretide_fill_rows_left_out_total",
    "counter",
    ("query",),
    "Rows that FILL did not add, because it adds at most 100,000 rows for successive windows without rows.",
)
FILL_GROUPS_FORGOTTEN = Metric(
    "wiretide_fill_groups_forgotten_total",
    "counter",
    ("query",),
    "Groups that FILL has forgotten, because it keeps at most the 10,000 groups with the latest rows.",
)
UNCLOSED_GROUPS_ENDED = Metric(
    "wiretide_running_groups_cut_total",
    "counter",
    ("query",),
    "Groups that ended before CLOSING WHEN was true, because more than 10,000 windows had no rows, or 100,000 rows"
    " were added for them.",
)
COPIES_REMOVED = Metric(
    "wiretide_copies_removed_total",
    "counter",
    ("query",),
    "Rows that DISTINCT ON removed, because a row with equal columns preceded them within the time after WITHIN.",
)
FLOW_RECORDS_MERGED = Metric(
    "wiretide_flow_records_merged_total",
    "counter",
    ("query",),
    "Records that MERGE added to an earlier record of the same flow. Only flows that are final are counted.",
)
WITHDRAWALS_UNMATCHED = Metric(
    "wiretide_withdrawals_unmatched_total",
    "counter",
    ("query",),
    "Rows that a source of CHANGES BY withdrew more often than it inserted them.",
)
ROWS_FORGOTTEN = Metric(
    "wiretide_rows_forgotten_total",
    "counter",
    ("query",),
    "Rows of DISTINCT ON and open flows of MERGE that were forgotten before WITHIN had passed, because 1,048,576 rows"
    " were stored. A later copy counts as a row, and a later record as another flow.",
)
SUMS_OVERFLOWED = Metric(
    "wiretide_sums_overflowed_total",
    "counter",
    ("query",),
    "Sums of integers in results that are NULL, because they exceed 64 bits.",
)
WINDOWS_CLOSED = Metric(
    "wiretide_windows_closed_total",
    "counter",
    ("query",),
    "Windows that became final and had at least one group, of all window operators of the query.",
)
RESULT_ROWS = Metric("wiretide_result_rows_total", "counter", ("query",), "Rows of results, after HAVING.")
CORRECTIONS = Metric(
    "wiretide_corrections_total",
    "counter",
    ("query",),
    "Rows of results that were withdrawn after they were returned (of a query with EMIT CHANGES).",
)
PARTIAL_MATCHES = Metric(
    "wiretide_partial_matches",
    "gauge",
    ("query",),
    "Runs of MATCH_RECOGNIZE or AUTOMATON that a later row may extend, and matches that a later row may replace.",
)
OLDEST_PARTIAL_MATCH = Metric(
    "wiretide_oldest_partial_match_seconds",
    "gauge",
    ("query",),
    "Time of the first row of the oldest partial match (seconds since the epoch, in the time of the capture). 0: no"
    " partial match.",
)
RUNS_REMOVED_EARLY = Metric(
    "wiretide_runs_removed_early_total",
    "counter",
    ("query",),
    "Runs of an automaton that were removed before the watermark of the query, because the watermarks of its links show"
    " that no later row needs them. No result is lost.",
)
ROWS_REMOVED_EARLY = Metric(
    "wiretide_rows_removed_early_total",
    "counter",
    ("query",),
    "Rows of an automaton that were removed from memory before the watermark of the query, because no later row needs"
    " them. No result is lost.",
)
DEADLINES_OUTSIDE = Metric(
    "wiretide_deadlines_outside_total",
    "counter",
    ("query",),
    "Runs of an automaton whose time after AT is at or after the end of WITHIN, so the arc did not apply.",
)
SKIP_ERRORS = Metric(
    "wiretide_skip_errors_total",
    "counter",
    ("query",),
    "Matches after which AFTER MATCH SKIP TO could not be obeyed: the variable has no row in the match, or its row is"
    " the first one. The next match began at the row after the first.",
)
WINDOWS_OPEN = Metric("wiretide_windows_open", "gauge", ("query",), "Windows that hold groups and are not final yet.")
STATE_BYTES = Metric(
    "wiretide_state_bytes", "gauge", ("query",), "Bytes of state: open windows, and rows and keys of other operators."
)
LOW_WATERMARK = Metric(
    "wiretide_low_watermark_seconds",
    "gauge",
    ("query", "link"),
    "Watermark of the link: no later packet is older (seconds since the epoch, in the time of the capture).",
)
PUNCTUATION_LAG = Metric(
    "wiretide_punctuation_lag_seconds",
    "gauge",
    ("query", "link"),
    "Difference between the newest packet time of all links of the query and the link's watermark.",
)
OPERATOR_ROWS_RECEIVED = Metric(
    "wiretide_operator_rows_received_total",
    "counter",
    ("query", "operator"),
    "Rows that reached an operator of a query with several operators. For windows directly over a link, its partials "
    "are counted.",
)
OPERATOR_RESULT_ROWS = Metric(
    "wiretide_operator_result_rows_total", "counter", ("query", "operator"), "Rows that the operator returned."
)
OPERATOR_LATE_ROWS = Metric(
    "wiretide_operator_late_rows_total",
    "counter",
    ("query", "operator"),
    "Rows that the operator dropped, or left out of a window, because they were below the watermark.",
)
OPERATOR_ROWS_HELD = Metric(
    "wiretide_operator_rows_held",
    "gauge",
    ("query", "operator"),
    "Stored by the operator: rows of both sides (joins), keys (DISTINCT), or open groups and times of rows (windows).",
)
OPERATOR_STATE_BYTES = Metric(
    "wiretide_operator_state_bytes", "gauge", ("query", "operator"), "Bytes of the state of the operator."
)
JOIN_ROWS_STORED = Metric(
    "wiretide_join_rows_stored_total",
    "counter",
    ("query", "operator"),
    "Rows that a join stored because a later row could match them.",
)
JOIN_PAIRS = Metric(
    "wiretide_join_pairs_total",
    "counter",
    ("query", "operator"),
    "Pairs of rows in each other's windows with equal keys, before the rest of the join's condition is evaluated.",
)

SPOOL_SEGMENTS_READ = Metric(
    "wiretide_spool_segments_read_total", "counter", ("link",), "Segments of the link's spool that were read."
)
SPOOL_SEGMENTS_LOST = Metric(
    "wiretide_spool_segments_lost_total",
    "counter",
    ("link", "cause"),
    "Segments of the link's spool that could not be read, by cause: missing (deleted, or dropped because the"
    " spool was full) or damaged.",
)
SPOOL_PARTIALS_READ = Metric(
    "wiretide_spool_partials_read_total",
    "counter",
    ("query", "link"),
    "Partials of the query that were read from the link's spool. wiretide_partials_received_total also counts them.",
)
SPOOL_PARTIALS_SAMPLED = Metric(
    "wiretide_spool_partials_sampled_total",
    "counter",
    ("query", "link"),
    "Partials from the link's spool that are estimates: the node sampled the packets because its spool or its"
    " ring was filling.",
)
SPOOL_PARTIALS_PASSED_OVER = Metric(
    "wiretide_spool_partials_passed_over_total",
    "counter",
    ("link",),
    "Partials in the link's spool that no query of this run reads: they belong to other queries, or to a query"
    " that had another name when the node was started.",
)
SPOOL_SEGMENTS_WITHOUT_QUERY = Metric(
    "wiretide_spool_segments_without_query_total",
    "counter",
    ("query", "link"),
    "Segments of the link's spool that were read, but whose node was started without the query.",
)
SPOOL_PARTIALS_LOST = Metric(
    "wiretide_spool_partials_lost_total",
    "counter",
    ("link",),
    "Lost partials, of all queries of the node. Lost segments are left out if the segments around them do not show"
    " how many partials they had.",
)
SPOOL_PARTIALS_SHED = Metric(
    "wiretide_spool_partials_shed",
    "gauge",
    ("link",),
    "Partials that the link's node has discarded because its spool was full. The newest segment that was read"
    " contains the value.",
)
SPOOL_NEWEST = Metric(
    "wiretide_spool_newest_segment_seconds",
    "gauge",
    ("link",),
    "Time at which the newest segment read from the link's spool was written, by the node's clock (seconds since"
    " the epoch).",
)

SPOOL_LATENESS = Metric(
    "wiretide_spool_link_lateness_seconds",
    "gauge",
    ("link",),
    "Lateness that 99 % of the late rows do not exceed, since the start of the link's node; 0 without late rows. The"
    " newest segment that was read contains the value.",
)

SPOOL_LINK_COUNTS: Mapping[str, Metric] = {
    field: Metric(
        f"wiretide_spool_link_{field}",
        "gauge",
        ("link",),
        f"{sentence}, counted since the start of the link's node. The newest segment that was read contains the value.",
    )
    for field, sentence in (
        ("records", "Complete records that were read"),
        ("bytes", "Bytes of complete records"),
        ("packets", "Records that became a row of the stream packets"),
        ("late", "Rows below the watermark of the link"),
        ("lulls", "Number of times that the clock advanced the watermark of the idle link"),
        ("dropped", "Packets that the system dropped because the ring of the interface was full"),
        ("shed", "Records that the node skipped because its spool or its ring was filling"),
    )
}
"""The counters of a link in a segment of its spool, by their field."""

SPARK_RESTARTS = Metric(
    "wiretide_spark_restarts_total",
    "counter",
    ("reason",),
    "Restarts of a query on Spark from its checkpoint, and repeated jobs of a finite query. Reasons: worker_start"
    " (a Python worker did not start in time), worker_end (a Python worker ended), executor_lost.",
)

SPARK_BATCHES = Metric(
    "wiretide_spark_batches_total", "counter", (), "Micro-batches of this process whose results are written."
)
SPARK_BATCH_SECONDS = Metric(
    "wiretide_spark_batch_seconds",
    "gauge",
    ("phase",),
    "Time of the newest micro-batch by phase: offsets (Spark asks for new data), plan, log (offsets are written),"
    " work (tasks and results), commit, and total.",
)
TOPIC_MESSAGES_READ = Metric(
    "wiretide_topic_messages_read_total", "counter", ("link",), "Messages that were read from the topic of the link."
)
TOPIC_MESSAGES_LOST = Metric(
    "wiretide_topic_messages_lost_total",
    "counter",
    ("link",),
    "Offsets of the topic of the link that its brokers deleted before they were read.",
)
TOPIC_MESSAGES_WRONG = Metric(
    "wiretide_topic_messages_wrong_total",
    "counter",
    ("link",),
    "Messages of the topic of the link that were left out, because they do not fit the schema.",
)
TOPIC_PARTITIONS_UNREAD = Metric(
    "wiretide_topic_partitions_unread",
    "gauge",
    ("link",),
    "Partitions that were added to the topic of the link after the first start of the run, which are not read.",
)
SPARK_BACKLOG = Metric(
    "wiretide_spark_backlog",
    "gauge",
    ("link", "unit"),
    "Data of the link that no finished micro-batch has read, in blocks of a capture, segments of a spool or"
    " messages of a topic.",
)
SPARK_EXECUTORS = Metric(
    "wiretide_spark_executors", "gauge", (), "Executors of the run. Absent for Spark on this machine."
)

QUERY_METRICS = (
    PARTIALS_RECEIVED,
    LATE_PARTIALS,
    LATE_ROWS,
    OUTSIDE_WINDOWS,
    PARTIALS_BEYOND_CAP,
    ROWS_BEYOND_CAP,
    SUMS_OVERFLOWED,
    WINDOWS_CLOSED,
    RESULT_ROWS,
    WINDOWS_OPEN,
    STATE_BYTES,
    LOW_WATERMARK,
    PUNCTUATION_LAG,
)
"""Metrics of a query's operators, on every engine."""

CHANGES_METRICS = (CORRECTIONS,)
"""Metrics of queries with EMIT CHANGES, on every engine."""

FILL_METRICS = (FILL_ROWS_LEFT_OUT, FILL_GROUPS_FORGOTTEN)
"""Metrics of queries with FILL, on every engine."""

CLOSING_METRICS = (UNCLOSED_GROUPS_ENDED,)
"""Metrics of queries with CLOSING WHEN, on every engine."""

PATTERN_METRICS = (PARTIAL_MATCHES, OLDEST_PARTIAL_MATCH, SKIP_ERRORS)
"""Metrics of queries with MATCH_RECOGNIZE, on every engine."""

AUTOMATON_METRICS = (RUNS_REMOVED_EARLY, ROWS_REMOVED_EARLY, DEADLINES_OUTSIDE)
"""Metrics of queries with automata, on every engine."""

REVISION_METRICS = (COPIES_REMOVED, FLOW_RECORDS_MERGED, WITHDRAWALS_UNMATCHED, ROWS_FORGOTTEN)
"""Metrics of queries with DISTINCT ON, MERGE or CHANGES BY, on every engine."""

OPERATOR_METRICS = (
    OPERATOR_ROWS_RECEIVED,
    OPERATOR_RESULT_ROWS,
    OPERATOR_LATE_ROWS,
    OPERATOR_ROWS_HELD,
    OPERATOR_STATE_BYTES,
    JOIN_ROWS_STORED,
    JOIN_PAIRS,
)
"""Counters of each operator of a query with several operators."""

SPOOL_METRICS = (
    SPOOL_SEGMENTS_READ,
    SPOOL_SEGMENTS_LOST,
    SPOOL_PARTIALS_READ,
    SPOOL_PARTIALS_SAMPLED,
    SPOOL_PARTIALS_PASSED_OVER,
    SPOOL_SEGMENTS_WITHOUT_QUERY,
    SPOOL_PARTIALS_LOST,
    SPOOL_PARTIALS_SHED,
    SPOOL_NEWEST,
    SPOOL_LATENESS,
    *SPOOL_LINK_COUNTS.values(),
)
"""Metrics of spool readers."""

TOPIC_METRICS = (TOPIC_MESSAGES_READ, TOPIC_MESSAGES_LOST, TOPIC_MESSAGES_WRONG, TOPIC_PARTITIONS_UNREAD)
"""Metrics of topics of Kafka."""

SPARK_METRICS = (SPARK_RESTARTS, SPARK_BATCHES, SPARK_BATCH_SECONDS, SPARK_BACKLOG, SPARK_EXECUTORS)
"""Metrics of the engines on Spark."""

METRICS = (
    *QUERY_METRICS,
    *CHANGES_METRICS,
    *FILL_METRICS,
    *CLOSING_METRICS,
    *PATTERN_METRICS,
    *AUTOMATON_METRICS,
    *REVISION_METRICS,
    *OPERATOR_METRICS,
    *SPOOL_METRICS,
    *TOPIC_METRICS,
    *SPARK_METRICS,
)


def set_progress(samples: Samples, query: str, bounds: Iterable[tuple[str, int]], newest: int) -> None:
    """Set the gauges of the watermark of each link.

    `bounds`: pairs (link, ns); the smallest bound of a link is its watermark. A link without a bound, or at its end,
    gets no gauges. `newest`: the largest time of all links, ns.
    """
    lows: dict[str, int] = {}
    for link, bound in bounds:
        lows[link] = min(bound, lows.get(link, END))
    for link, low in lows.items():
        samples.pop((LOW_WATERMARK.name, (query, link)), None)
        samples.pop((PUNCTUATION_LAG.name, (query, link)), None)
        if low not in (BEGINNING, END):
            samples.set(LOW_WATERMARK, low / SECOND, query, link)
            samples.set(PUNCTUATION_LAG, max(0, newest - low) / SECOND, query, link)
