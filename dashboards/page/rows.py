"""Rows of results as JSON for the page."""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any

import pyarrow as pa

from highlevel.results.user_types import readable
from lowlevel.times import time_texts

MAX_EXACT_INTEGER = 2**53
"""Integers up to this size are exact in JavaScript. Larger integers become texts."""


def rows_of(table: pa.Table, times: Collection[str], value_columns: Collection[str] = ()) -> dict[str, Any]:
    """Return the names and the kinds of the columns, and the rows as lists.

    Kinds are `text`, `number` for `value_columns`, and `key` for other numbers, such as ports: the page prints
    them without separators of thousands.

    Times, addresses and MACs are texts, as in all results. NaN and infinities are texts too, because JSON does not have
    them.
    """
    plain = readable(table, ())
    columns, kinds = [], []
    for name, values in zip(plain.column_names, plain.columns, strict=True):
        if name in times:
            columns.append(time_texts(values.combine_chunks()).to_pylist())
            kinds.append("text")
            continue
        is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
        columns.append(
            [_to_json_number(value) for value in values.to_pylist()] if is_number else _to_json_texts(values)
        )
        kinds.append(("number" if name in value_columns else "key") if is_number else "text")
    rows = [list(row) for row in zip(*columns, strict=True)]
    return {"columns": plain.column_names, "kinds": kinds, "rows": rows}


def _to_json_number(value: int | float | None) -> int | float | str | None:
    if value is None:
        return None
    is_exact = abs(value) <= MAX_EXACT_INTEGER if isinstance(value, int) else isfinite(value)
    return value if is_exact else str(value)


def _to_json_texts(column: pa.ChunkedArray) -> list[str | bool | None]:
    if pa.types.is_boolean(column.type):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    return column.cast(pa.string()).to_pylist()
