"""Rows of queries and of DuckDB over the same packets, in a form that can be compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from tests.conformance.traffic import Row


def open_database(rows: Sequence[Row]) -> duckdb.DuckDBPyConnection:
    """Return a database with the table `packets`."""
    connection = duckdb.connect()
    connection.execute("SET error_on_division_by_zero = false")  # NULL, as here
    connection.register("packets", pa.Table.from_pylist(list(rows)))
    return connection


def normal(value: Any) -> Any:
    """Return a value that Python compares with that of the other system: times as ns, conditions as 0 and 1."""
    if hasattr(value, "value"):  # a pandas Timestamp
        return value.value
    if isinstance(value, bool | Decimal):
        return int(value) if value == int(value) else float(value)
    return value


def in_order(row: tuple) -> list[tuple]:
    """Sort rows of all types. Floats are rounded, because sums of floats depend on the order of the rows."""
    return [
        ("", 0) if value is None else ("n", round(value, 6)) if isinstance(value, int | float) else ("t", value)
        for value in row
    ]


def normal_rows(rows: Sequence[Sequence[Any]], ordered: bool) -> list[tuple]:
    normalised = [tuple(map(normal, row)) for row in rows]
    return normalised if ordered else sorted(normalised, key=in_order)


def differences(found: list[tuple], expected: list[tuple]) -> list[tuple]:
    """Return the first rows that differ, with a tolerance for floats."""
    if len(found) != len(expected):
        return [(f"{len(found)} rows", f"{len(expected)} rows in DuckDB")]
    pairs = zip(found, expected, strict=True)
    return [(ours, theirs) for ours, theirs in pairs if not all(map(is_equal, ours, theirs))][:3]


def is_equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(ours) and math.isnan(theirs))
    return bool(ours == theirs)


def rows_of(table: pa.Table) -> list[tuple]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
