"""docs/guide/operation.md lists every counter that deserves an alarm. A new counter is listed there, or named here."""

import re
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs" / "guide"
COUNTER = re.compile(r"^\| `(wiretide_\w+)` \| counter \|", re.MULTILINE)

NORMAL = {
    f"wiretide_{name}_total"
    for name in (
        *("alerts_excluded_rows", "alerts_messages", "alerts_silenced", "bytes_read", "collector_bytes"),
        *(
            "collector_datagrams",
            "collector_files_deleted",
            "collector_files",
            "collector_uninspected",
            "copies_removed",
            "corrections",
        ),
        *(
            "collector_written_bytes",
            "filter_join_evictions",
            "flow_datagrams",
            "flow_option_records",
            "flow_records",
            "flow_records_merged",
        ),
        *("flow_sequence_events", "flow_sessions_forgotten", "flow_sets_kept", "flow_templates", "flow_times_guessed"),
        *("flow_units_recovered", "followed_files", "http_connections", "http_requests_rejected"),
        *("interface_received", "interface_truncated", "join_pairs", "join_rows_stored", "lull_promises"),
        *("node_partials", "operator_result_rows", "operator_rows_received", "packets_decoded", "page_events_skipped"),
        *("page_exports", "page_queries", "page_rows_cut", "page_streams_refused", "page_windows_deleted"),
        *("partials_outside_windows", "partials_received", "records_decoded_by_fallback", "records_read"),
        *("records_refused_by_fallback", "records_skipped", "result_rows", "rows_accepted", "rows_filtered"),
        *(
            "rows_not_spread",
            "rows_removed_early",
            "runs_removed_early",
            "sflow_datagrams",
            "sflow_samples",
            "sflow_sequences",
            "sink_rows",
            "spark_batches",
        ),
        *("spool_bytes_written", "spool_items_written", "spool_partials_passed_over", "spool_partials_read"),
        *("spool_rows_written", "spool_segments_read", "spool_segments_written", "table_collisions", "table_direct"),
        *(
            "table_evictions",
            "table_flushed",
            "table_forced",
            "table_swept",
            "topic_messages_read",
            "watchlist_reloads",
        ),
        "windows_closed",
    )
}
"""Counters that grow in normal operation, or that the users of a page cause."""


def test_every_counter_is_an_alarm_or_normal() -> None:
    counters = set(COUNTER.findall((PAGES / "metrics.md").read_text("utf-8")))
    section = (PAGES / "operation.md").read_text("utf-8").partition("## Alarms")[2].partition("\n## ")[0]
    alarms = {name for name in re.findall(r"wiretide_\w+", section) if name in counters}
    assert len(alarms) > 30
    assert alarms & NORMAL == set()
    assert alarms | NORMAL == counters
