"""Functions for random queries, as a user writes them into a file: in all forms, with and without NULL.

Each has a plain Python reference in `REFERENCES`, with None for NULL, for DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np

import wiretide


@wiretide.function
def by_row(a: int, b: int) -> int | None:
    return None if a % 7 == 3 else a * 3 - b % 5


@wiretide.function(columns=True)
def by_column(a: int, b: int) -> int:
    assert isinstance(a, np.ndarray)
    assert len(a) == len(b) > 0  # type: ignore[arg-type]
    return np.ma.masked_where(a % 7 == 3, a * 3 - b % 5)  # type: ignore[no-any-return, no-untyped-call]


@wiretide.function(compiled=True)
def by_machine(a: int, b: int) -> int:
    return a - 2 * b if a > b else b ^ 5


@wiretide.function
def or_minus_one(a: int | None, b: int | None) -> int:
    return -1 if a is None else a if b is None else b


@wiretide.function(columns=True)
def count_null(a: int | None, text: str | None) -> int:
    nulls = np.ma.getmaskarray(a).astype(int)  # type: ignore[no-untyped-call]
    return nulls + np.array([each is None for each in text])  # type: ignore[no-any-return, union-attr]


@wiretide.function
def is_odd(a: int) -> bool:
    return a % 2 == 1


@wiretide.function
def tagged(a: int, text: str) -> str | None:
    return None if a % 11 == 2 else f"{text[:3]} {a % 4}"


@wiretide.function(columns=True)
def last_digit(address: str) -> str:
    return np.array([each[-1] for each in address])  # type: ignore[return-value]


def of_known(function: Callable[..., object]) -> Callable[..., object]:
    """Return a function that is NULL if an argument is NULL."""

    @wraps(function)  # DuckDB counts the parameters
    def known(*values: object) -> object:
        return None if None in values else function(*values)

    return known


REFERENCES: dict[str, tuple[Callable[..., object], list[str], str]] = {
    "by_row": (of_known(by_row), ["BIGINT", "BIGINT"], "BIGINT"),
    "by_column": (of_known(by_row), ["BIGINT", "BIGINT"], "BIGINT"),
    "by_machine": (of_known(by_machine), ["BIGINT", "BIGINT"], "BIGINT"),
    "or_minus_one": (or_minus_one, ["BIGINT", "BIGINT"], "BIGINT"),
    "count_null": (lambda a, text: (a is None) + (text is None), ["BIGINT", "VARCHAR"], "BIGINT"),
    "is_odd": (of_known(is_odd), ["BIGINT"], "BOOLEAN"),
    "tagged": (of_known(tagged), ["BIGINT", "VARCHAR"], "VARCHAR"),
    "last_digit": (of_known(lambda address: address[-1]), ["VARCHAR"], "VARCHAR"),
}
"""Per name in SQL: the reference, the types of its parameters, and the type of its result, in DuckDB."""
