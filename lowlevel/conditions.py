"""Which rows a WHERE or HAVING keeps: those for which its condition is TRUE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

import numpy as np

from lowlevel.evaluate import evaluate
from lowlevel.expressions import Binary, Expression, Op, Type, columns_of
from lowlevel.vectors import AnyVector, BytesVector, Columns, Mask, Vector


def true_rows(condition: Expression, columns: Columns, rows: int) -> Mask:
    """Return where a condition is TRUE (neither FALSE nor NULL), as one bool per row.

    Of conditions joined by AND, those that look into byte strings are evaluated last, and look only into those of rows
    that the others let pass: a search costs more than all else.
    """
    parts = list(_conjuncts(condition))
    searches = [part for part in parts if _looks_into_bytes(part)]
    others = [part for part in parts if part not in searches]
    if not searches or not others:
        return _true(condition, columns, rows)
    passed = _true(reduce(lambda one, other: Binary(Op.AND, one, other), others), columns, rows)
    for search in searches:
        passed = passed & _true(search, _Passed(columns, passed), rows)
    return passed


def _true(condition: Expression, columns: Columns, rows: int) -> Mask:
    vector = evaluate(condition, columns)
    assert isinstance(vector, Vector)
    chosen = vector.data if vector.valid is None else vector.data & vector.valid
    return np.ascontiguousarray(np.broadcast_to(chosen, rows))


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if isinstance(condition, Binary) and condition.op is Op.AND:
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    else:
        yield condition


def _looks_into_bytes(expression: Expression) -> bool:
    return any(column.type is Type.BYTES for column in columns_of(expression))


class _Passed(Mapping[str, AnyVector]):
    """Columns whose byte strings are empty where a row has not passed: what is said of it does not matter any more."""

    def __init__(self, columns: Columns, passed: Mask) -> None:
        self._columns = columns
        self._passed = passed

    def __getitem__(self, name: str) -> AnyVector:
        vector = self._columns[name]
        if isinstance(vector, BytesVector):
            return replace(vector, length=np.where(self._passed, vector.length, 0))
        return vector

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)
