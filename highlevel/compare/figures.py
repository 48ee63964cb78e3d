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
"""`promised_late_s` is NULL for exact watermarks.

A latency is NULL if no result was emitted before the end of the input.
"""


def figures(comparison: Comparison) -> pa.Table:
    """Return the figures of all variants, in their order."""
    return pa.Table.from_pylist([_row(each) for each in comparison.measured], SCHEMA)


def _row(each: Measurement) -> dict[str, object]:
    difference = each.difference
    of_results = 100 / max(1, difference.results)
    return {
        "variant": each.variant.name,
        "in_order": each.variant.ordered,
        "promised_late_s": None if each.variant.late is None else each.variant.late / 1e9,
        "rows": each.rows,
        "rows_per_cpu_s": each.rate,
        "rows_held_most": int(each.items.max()),
        "rows_held_mean": float(each.items.mean()),
        "bytes_held_most": int(each.bytes.max()),
        "bytes_held_mean": float(each.bytes.mean()),
        "latency_median_s": _known(each.latency),
        "latency_most_s": _known(each.latency_most),
        "call_median_s": _known(each.call),
        "results": difference.results,
        "wrong": difference.wrong,
        "missing": difference.missing,
        "wrong_percent": difference.wrong * of_results,
        "missing_percent": difference.missing * of_results,
        "count_error_percent": 100 * difference.count_error,
        "late_rows": each.late,
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
