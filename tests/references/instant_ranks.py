"""Slow reference of ranks: rows are sorted at each instant, and equal neighbouring results are joined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from highlevel.plan.answer_nodes import RowFunctionKind

Ranked = tuple[int, Any, tuple]
"""A row that is true: start, end (None: never), values."""


def rank_of(function: RowFunctionKind | None, keys: Sequence[object], place: int) -> int | None:
    """Return the rank of the row at a place; `keys` are the keys of the sorted rows."""
    first = keys.index(keys[place])
    distinct = [key for number, key in enumerate(keys[: first + 1]) if number == 0 or key != keys[number - 1]]
    values = {
        RowFunctionKind.ROW_NUMBER: place + 1,
        RowFunctionKind.RANK: first + 1,
        RowFunctionKind.DENSE_RANK: len(distinct),
    }
    return None if function is None else values[function]


def ranked_rows(
    rows: Sequence[Ranked],
    key: Callable[[tuple], object],
    *,
    partition: Callable[[tuple], object] = lambda _: None,
    function: RowFunctionKind | None = None,
    limit: int | None = None,
    offset: int = 0,
) -> Counter[tuple]:
    """Return results as `start, end, *values`, with the rank as the last value if there is a function.

    `rows` have the order of their ranks. Rows with equal values that begin together are copies of one row.
    """
    times = sorted({time for start, end, _ in rows for time in (start, end) if time is not None})
    results: Counter[tuple] = Counter()
    running: dict[tuple, tuple[int, int]] = {}

    def end(row: tuple, at: int | None) -> None:
        since, copies = running.pop(row)
        _, values, rank = row
        results[(since, at, *values, *(() if function is None else (rank,)))] += copies

    for instant in times:
        parts: dict[object, list[Ranked]] = {}
        for start, stop, values in rows:
            if start <= instant and (stop is None or instant < stop):
                parts.setdefault(partition(values), []).append((start, stop, values))
        now: Counter[tuple] = Counter()
        for true in parts.values():
            keys = [key(values) for _, _, values in true]
            for place, (start, _, values) in enumerate(true):
                if place >= offset and (limit is None or place < offset + limit):
                    now[start, values, rank_of(function, keys, place)] += 1
        for row in [row for row, (_, copies) in running.items() if now[row] != copies]:
            end(row, instant)
        for row, copies in now.items():
            if copies:
                running.setdefault(row, (instant, copies))
    for row in list(running):
        end(row, None)
    return results
