"""The figures of a comparison as a table: a row for each variant."""

from __future__ import annotations

import math

import pyarrow as pa

from highlevel.compare.comparison import Comparison, Measurement

SCHEMA = pa.schema(
    [
        ("variant", pa.string()),
        ("in_order", pa.bool_()),
        ("promised_late_s", pa.float64()),
        ("rows", pa.int64()),
        ("rows_per_cpu_s", pa.float64()),
        ("rows_held_most", pa.int64()),
        ("rows_held_mean", pa.float64()),
        ("bytes_held_most", pa.int64()),
        ("bytes_held_mean", pa.float64()),
        ("latency_median_s", pa.float64()),
        ("latency_most_s", pa.float64()),
        ("call_median_s", pa.float64()),
        ("results", pa.int64()),
        ("wrong", pa.int64()),
        ("missing", pa.int64()),
        ("wrong_percent", pa.float64()),
        ("missing_percent", pa.float64()),
        ("count_error_percent", pa.float64()),
        ("late_rows", pa.int64()),
    ]
)
"""`promised_late_s`: seconds by which watermarks are below the newest time; NULL for exact watermarks.

A latency is NULL if no result was emitted before the end of the input.
"""


def figures(comparison: Comparison) -> pa.Table:
    """Return the figures of all variants, in their order."""
    return pa.Table.from_pylist([_row(measurement) for measurement in comparison.measured], SCHEMA)


def _row(measurement: Measurement) -> dict[str, object]:
    difference = measurement.difference
    percent_per_row = 100 / max(1, difference.results)
    return {
        "variant": measurement.variant.name,
        "in_order": measurement.variant.is_ordered,
        "promised_late_s": None
        if measurement.variant.watermark_delay is None
        else measurement.variant.watermark_delay / 1e9,
        "rows": measurement.rows,
        "rows_per_cpu_s": measurement.rate,
        "rows_held_most": int(measurement.stored_items.max()),
        "rows_held_mean": float(measurement.stored_items.mean()),
        "bytes_held_most": int(measurement.stored_bytes.max()),
        "bytes_held_mean": float(measurement.stored_bytes.mean()),
        "latency_median_s": _null_if_nan(measurement.median_latency),
        "latency_most_s": _null_if_nan(measurement.max_latency),
        "call_median_s": _null_if_nan(measurement.call_seconds),
        "results": difference.results,
        "wrong": difference.wrong,
        "missing": difference.missing,
        "wrong_percent": difference.wrong * percent_per_row,
        "missing_percent": difference.missing * percent_per_row,
        "count_error_percent": 100 * difference.count_error,
        "late_rows": measurement.late,
    }


def _null_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
