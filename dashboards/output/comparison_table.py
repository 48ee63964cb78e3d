"""A comparison as text: a table and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from highlevel.compare.comparison import Comparison

ENOUGH_ROWS = 10_000
"""Smallest number of rows for a verdict on CPU time; below it, calls for tiny batches take most of the time."""

Row = dict[str, Any]
"""The figures of one variant."""

HEADERS = (
    "variant", "rows/s of CPU", "rows held", "(mean)", "KB held", "(mean)", "latency s", "(most)", "call ms",
    "wrong %", "missing %", "count err %", "late rows",
)  # fmt: skip


def lines(table: pa.Table) -> list[str]:
    """Return figures (`highlevel.compare.figures`) as a table with a line for each variant."""
    cells = [HEADERS, *(_cells(row) for row in table.to_pylist())]
    widths = [max(len(row[place]) for row in cells) for place in range(len(HEADERS))]
    return [
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
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
        _number(row["latency_median_s"], 1, 2),
        _number(row["latency_most_s"], 1, 2),
        _number(row["call_median_s"], 1e3, 2),
        f"{row['wrong_percent']:.2f}",
        f"{row['missing_percent']:.2f}",
        f"{row['count_error_percent']:.3f}",
        f"{row['late_rows']:,}",
    )


def _number(value: float | None, factor: float, digits: int) -> str:
    return "-" if value is None else f"{value * factor:,.{digits}f}"


def about(comparison: Comparison) -> str:
    """Return a description of the input of all variants."""
    arrivals = comparison.arrivals
    links = len({source.link for source in arrivals.sources})
    return (
        f"{arrivals.rows:,} rows of {links} link{'s' * (links > 1)} over {len(arrivals.ticks):,} batches of "
        f"{arrivals.length / 1e9:g} s of arrival time; {comparison.exact.results:,} results, "
        "as the inline engine has them"
    )


def verdict(table: pa.Table) -> list[str]:
    """Return the verdict: the best exact variants by the same watermarks, and the errors of too little disorder."""
    rows = table.to_pylist()
    told = _by_promises(rows, (None, None), "With exact promises")
    slacks = sorted({row["promised_late_s"] for row in rows} - {None})
    enough = {in_order: [s for s in slacks if _best(rows, s, in_order)] for in_order in (False, True)}
    if enough[False] and enough[True]:
        free, ordered = enough[False][0], enough[True][0]
        by = f"With the least slack that is enough, {free:g} s out of order and {ordered:g} s in order"
        told += _by_promises(rows, (free, ordered), by)
    for in_order, found in enough.items():
        where = "in order" if in_order else "out of order"
        lossy = [row for row in rows if row["in_order"] is in_order and _off(row)]
        if lossy:
            worst = max(lossy, key=_off)
            least = f"{found[0]:g} s is enough for some" if found else "none that was tried is enough"
            told.append(f"Slack {where}: {least}; {worst['variant']} has {_off(worst):.1f} % wrong or missing.")
    return told


def _best(rows: Sequence[Row], late: float | None, in_order: bool) -> list[Row]:
    """Return the variants with these watermarks and without losses."""
    return [row for row in rows if row["promised_late_s"] == late and row["in_order"] is in_order and not _off(row)]


def _by_promises(rows: Sequence[Row], late: tuple[float | None, float | None], when: str) -> list[str]:
    free, ordered = _best(rows, late[0], in_order=False), _best(rows, late[1], in_order=True)
    if not (free and ordered):
        return []
    told = []
    if free[0]["rows"] >= ENOUGH_ROWS:
        taken = {row["variant"]: 1 / row["rows_per_cpu_s"] for row in ordered}
        told.append(_winner("CPU time", 1 / free[0]["rows_per_cpu_s"], taken))
    held = {row["variant"]: row["bytes_held_most"] for row in ordered}
    told.append(_winner("memory", free[0]["bytes_held_most"], held))
    waits = {row["variant"]: row["latency_median_s"] for row in ordered if row["latency_median_s"] is not None}
    if waits and free[0]["latency_median_s"] is not None:
        told.append(_winner("latency", free[0]["latency_median_s"], waits))
    return [f"{when}: {'; '.join(told)}."]


def _winner(what: str, free: float, ordered: dict[str, float]) -> str:
    """Return which variant needs less of a resource, or that they differ by less than a tenth."""
    name, least = min(ordered.items(), key=lambda pair: pair[1])
    if max(free, least) <= 1.1 * min(free, least):
        return f"{what} is the same"
    if free < least:
        by = f"{least / free:.1f} times less" if free > 0 else "none"
        return f"{what} is out of order's, {by} than {name}"
    by = f"{free / least:.1f} times less" if least > 0 else "none"
    return f"{what} is in order's, {by} with {name}"


def _off(row: Row) -> float:
    """Return the percentage of wrong or missing results."""
    return float(row["wrong_percent"] + row["missing_percent"])
