"""The metrics of alerts."""

from __future__ import annotations

from capture.metrics import Metric

FIRING = Metric("wiretide_alerts_firing", "gauge", ("rule", "severity"), "Alerts of a rule that are firing.")
GROUPS = Metric(
    "wiretide_alerts_groups",
    "gauge",
    ("rule",),
    "Groups of a rule in memory: pending, firing, or watched for absence.",
)
DROPPED_GROUPS = Metric(
    "wiretide_alerts_dropped_groups_total",
    "counter",
    ("rule",),
    "Groups that satisfied the condition in a window, but were ignored, because the rule already had 10,000 groups.",
)
EXCLUDED = Metric(
    "wiretide_alerts_excluded_rows_total", "counter", ("rule",), "Matching rows that an exclusion removed."
)
LATE = Metric(
    "wiretide_alerts_late_rows_total",
    "counter",
    ("rule",),
    "Rows of a query with LATE EMIT that a rule ignored, because it had already evaluated their window.",
)
SILENCED = Metric(
    "wiretide_alerts_silenced_total", "counter", ("rule",), "Alerts that began while a silence covered them."
)
WAITING = Metric("wiretide_alerts_waiting_messages", "gauge", ("receiver",), "Messages that wait for a receiver.")
MESSAGES = Metric(
    "wiretide_alerts_messages_total",
    "counter",
    ("receiver", "result"),
    "Messages by result: sent (an Alertmanager receives firing alerts again each minute), failed (sent again later), "
    "refused (by the receiver, for ever), or dropped (too many waited).",
)

METRICS = (FIRING, GROUPS, DROPPED_GROUPS, EXCLUDED, LATE, SILENCED, WAITING, MESSAGES)
