"""A comparison for people: a table, and who wins where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from highlevel.compare.comparison import Comparison

HEADERS = (
    "variant", "rows/s of CPU", "rows held", "(mean)", "KB held", "(mean)", "latency s", "(most)", "call ms",
    "wrong %", "missing %", "count err %", "late rows",
)  # fmt: skip


def lines(table: pa.Table) -> list[str]:
    """Write figures (`highlevel.compare.figures`) as a table with a line for each variant."""
    cells = [HEADERS, *(_cells(row) for row in table.to_pylist())]
    widths = [max(len(row[place]) for row in cells) for place in range(len(HEADERS))]
    return [
        "  ".join(cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
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
    """Say what went through all variants."""
    arrivals = comparison.arrivals
    ticks = arrivals.ticks
    length = int(ticks[1] - ticks[0]) if len(ticks) > 1 else 0
    links = len({source.link for source in arrivals.sources})
    return (
        f"{arrivals.rows:,} rows of {links} link{'s' * (links > 1)} over {len(ticks):,} batches of "
        f"{length / 1e9:g} s of arrival time; {comparison.exact.results:,} results, as the inline engine has them"
    )


def verdict(table: pa.Table) -> Sequence[str]:
    """Say who wins where, of the variants that are exact, and what less waiting costs."""
    rows = table.to_pylist()
    exact = [row for row in rows if not (row["wrong"] or row["missing"])]
    free, ordered = rows[0], [row for row in exact if row["in_order"]]
    if not ordered:
        return ["No variant in order is exact."]
    fast = max(ordered, key=lambda row: row["rows_per_cpu_s"])
    small = min(ordered, key=lambda row: row["bytes_held_most"])
    told = [
        _compared("CPU time", fast["rows_per_cpu_s"] / free["rows_per_cpu_s"], fast["variant"]),
        _compared("Memory at most", free["bytes_held_most"] / max(1, small["bytes_held_most"]), small["variant"]),
    ]
    waits = [row for row in ordered if row["latency_median_s"] is not None]
    if waits and free["latency_median_s"] is not None:
        soon = min(waits, key=lambda row: row["latency_median_s"])
        told.append(_waiting(free["latency_median_s"], soon["latency_median_s"], soon["variant"]))
    lossy = [row for row in rows if row["wrong"] or row["missing"]]
    if lossy:
        best, worst = min(lossy, key=_off), max(lossy, key=_off)
        told.append(
            f"Too little slack costs results: {_off(best):.1f} % are wrong or missing with {best['variant']}, "
            f"{_off(worst):.1f} % with {worst['variant']}."
        )
    return told


def _off(row: dict[str, Any]) -> float:
    """Percent of the results that are wrong or missing."""
    return float(row["wrong_percent"] + row["missing_percent"])


def _compared(what: str, ratio: float, other: str) -> str:
    """Say who takes less, of two exact variants; `ratio` is what out of order takes for what the other does."""
    if 0.95 <= ratio <= 1.05:
        return f"{what}: out of order and the best in order ({other}) take the same."
    if ratio < 1:
        return f"{what}: out of order wins, with {1 / ratio:.1f} times less than {other}."
    return f"{what}: in order wins, {other} with {ratio:.1f} times less than out of order."


def _waiting(free: float, ordered: float, other: str) -> str:
    if abs(free - ordered) < 0.01:
        return f"Latency: the same ({free:.2f} s in the median) out of order and in order, by exact promises."
    winner = "out of order" if free < ordered else "in order"
    return f"Latency: {winner} wins, {free:.2f} s in the median out of order, {ordered:.2f} s with {other}."
