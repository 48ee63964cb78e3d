"""A comparison as text: a table and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from highlevel.compare.comparison import Comparison

MIN_ROWS_FOR_CPU = 10_000
"""Minimum number of rows for a verdict on CPU time. With fewer rows, calls for tiny batches take most of the time."""

Row = dict[str, Any]
"""The figures of one variant."""

HEADERS = (
    "variant", "rows/s of CPU", "rows held", "(mean)", "KB held", "(mean)", "latency s", "(most)", "call ms",
    "wrong %", "missing %", "count err %", "late rows",
)  # fmt: skip


def format_table(table: pa.Table) -> list[str]:
    """Return the lines of a table of figures (`highlevel.compare.figures`), one per variant."""
    cells = [HEADERS, *(_cells(row) for row in table.to_pylist())]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEADERS))]
    return [
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row["variant"],
        f"{row['rows_per_cpu_s']:,.0f}",
        f"{row['rows_held_most']:,}",
        f"{row['rows_held_mean']:,.0f}",
        f"{row['bytes_held_most'] / 1e3:,.0f}",
        f"{row['bytes_held_mean'] / 1e3:,.0f}",
        _format_number(row["latency_median_s"], 1, 2),
        _format_number(row["latency_most_s"], 1, 2),
        _format_number(row["call_median_s"], 1e3, 2),
        f"{row['wrong_percent']:.2f}",
        f"{row['missing_percent']:.2f}",
        f"{row['count_error_percent']:.3f}",
        f"{row['late_rows']:,}",
    )


def _format_number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def describe_input(comparison: Comparison) -> str:
    """Return a description of the input of all variants."""
    arrivals = comparison.arrivals
    links = len({source.link for source in arrivals.sources})
    return (
        f"{arrivals.rows:,} rows of {links} link{'s' * (links > 1)} over {len(arrivals.ticks):,} batches of "
        f"{arrivals.length / 1e9:g} s of arrival time; {comparison.exact.results:,} results, "
        "the same as the results of the inline engine"
    )


def verdict(table: pa.Table) -> list[str]:
    """Return sentences that compare the best variants without errors, and sentences about the errors of a slack."""
    rows = table.to_pylist()
    sentences = _compare_costs(rows, None, None, "With exact watermarks")
    slacks = sorted({row["promised_late_s"] for row in rows} - {None})
    sufficient = {in_order: [s for s in slacks if exact_variants(rows, s, in_order)] for in_order in (False, True)}
    if sufficient[False] and sufficient[True]:
        out_of_order, ordered = sufficient[False][0], sufficient[True][0]
        slack = f"With the smallest slack without errors, {out_of_order:g} s out of order and {ordered:g} s in order"
        sentences += _compare_costs(rows, out_of_order, ordered, slack)
    for in_order, slacks_without_errors in sufficient.items():
        order = "in order" if in_order else "out of order"
        with_errors = [row for row in rows if row["in_order"] is in_order and _error_percent(row)]
        if with_errors:
            worst = max(with_errors, key=_error_percent)
            smallest = (
                f"{slacks_without_errors[0]:g} s is the smallest with which a variant has no errors"
                if slacks_without_errors
                else "every measured slack causes errors"
            )
            errors = f"with {worst['variant']}, {_error_percent(worst):.1f} % of the results are wrong or missing"
            sentences.append(f"Slack {order}: {smallest}; {errors}.")
    return sentences


def exact_variants(rows: Sequence[Row], slack: float | None, in_order: bool) -> list[Row]:
    """Return the variants with this slack (None: exact watermarks) and without wrong or missing results."""
    return [
        row
        for row in rows
        if row["promised_late_s"] == slack and row["in_order"] is in_order and not _error_percent(row)
    ]


def _compare_costs(rows: Sequence[Row], slack: float | None, ordered_slack: float | None, condition: str) -> list[str]:
    """Return a sentence about the costs out of order with `slack`, and in order with `ordered_slack`."""
    out_of_order, ordered = (
        exact_variants(rows, slack, in_order=False),
        exact_variants(rows, ordered_slack, in_order=True),
    )
    if not (out_of_order and ordered):
        return []
    winners = []
    if out_of_order[0]["rows"] >= MIN_ROWS_FOR_CPU:
        cpu = {row["variant"]: 1 / row["rows_per_cpu_s"] for row in ordered}
        winners.append(_compare_cost("CPU time", 1 / out_of_order[0]["rows_per_cpu_s"], cpu))
    memory = {row["variant"]: row["bytes_held_most"] for row in ordered}
    winners.append(_compare_cost("memory", out_of_order[0]["bytes_held_most"], memory))
    latencies = {row["variant"]: row["latency_median_s"] for row in ordered if row["latency_median_s"] is not None}
    if latencies and out_of_order[0]["latency_median_s"] is not None:
        winners.append(_compare_cost("latency", out_of_order[0]["latency_median_s"], latencies))
    return [f"{condition}: {'; '.join(winners)}."]


def _compare_cost(resource: str, out_of_order: float, ordered: dict[str, float]) -> str:
    """Compare the cost `out_of_order` with the smallest of the costs in order, by variant.

    Costs that differ by less than a tenth count as equal.
    """
    name, smallest = min(ordered.items(), key=lambda pair: pair[1])
    if max(out_of_order, smallest) <= 1.1 * min(out_of_order, smallest):
        return f"{resource} is equal"
    winner, loser = ("out of order", f"with {name}") if out_of_order < smallest else (f"with {name}", "out of order")
    less, more = sorted((out_of_order, smallest))
    return f"{resource} is {more / less:.1f} times less {winner} than {loser}" if less else f"{resource} is 0 {winner}"


def _error_percent(row: Row) -> float:
    """Return the percentage of wrong or missing results."""
    return float(row["wrong_percent"] + row["missing_percent"])
