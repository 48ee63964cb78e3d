"""Which rows a WHERE or HAVING keeps: those for which its condition is TRUE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from lowlevel.evaluate import evaluate
from lowlevel.expressions import Binary, Expression, columns_of
from lowlevel.interval_tests import interval_test
from lowlevel.operations import Op
from lowlevel.types import Type
from lowlevel.vectors import AnyVector, BytesVector, Columns, Mask, Vector


class Condition:
    """A condition, made ready to be tested block after block. Queries that have the same may ask the same object.

    Of conditions joined by AND, those that look into byte strings are evaluated last, and look only into those of rows
    that the others let pass: a search costs more than all else. Interval tests are made in one pass each.
    """

    def __init__(self, expression: Expression) -> None:
        """Take a BOOL expression."""
        self._last: tuple[Columns, Mask] | None = None  # what was asked last, for whoever asks it again
        parts = list(_conjuncts(expression))
        self._searches = [part for part in parts if _looks_into_bytes(part)]
        tests = [(part, interval_test(part)) for part in parts if not _looks_into_bytes(part)]
        self._tests = [test for _, test in tests if test is not None]
        self._others = [part for part, test in tests if test is None]

    def true_rows(self, columns: Columns, rows: int) -> Mask:
        """Return where it is TRUE (neither FALSE nor NULL), as one bool per row, which is not to be changed."""
        if self._last is not None and self._last[0] is columns:
            return self._last[1]
        passed = np.ones(rows, np.bool_)
        for test in self._tests:
            if not test.narrow(columns, passed):
                passed = passed & _true(test.expression, columns, rows)
        for other in self._others:
            passed = passed & _true(other, columns, rows)
        for search in self._searches:
            passed = passed & _true(search, _Passed(columns, passed), rows)
        self._last = columns, passed
        return passed


def _true(condition: Expression, columns: Columns, rows: int) -> Mask:
    chosen = _truth(condition, columns)
    return np.ascontiguousarray(chosen if chosen.ndim else np.broadcast_to(chosen, rows))


def _truth(condition: Expression, columns: Columns) -> Mask:
    """Return where a condition is TRUE. AND and OR need not tell FALSE from NULL, which is most of their work."""
    if isinstance(condition, Binary) and condition.op is Op.AND:
        return _truth(condition.left, columns) & _truth(condition.right, columns)
    if isinstance(condition, Binary) and condition.op is Op.OR:
        return _truth(condition.left, columns) | _truth(condition.right, columns)
    vector = evaluate(condition, columns)
    assert isinstance(vector, Vector)
    chosen: Mask = vector.data if vector.valid is None else vector.data & vector.valid
    return chosen


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
