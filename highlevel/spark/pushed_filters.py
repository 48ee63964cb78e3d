"""Filters that Spark pushes into the data source `wiretide`: comparisons of a column with constants.

A pushed filter becomes a condition of the low level, so rows that fail it are not converted and not sent to Spark. A
classic pcap skips blocks outside the pushed times without decoding them. Filters that are not pushed remain in Spark.

A timestamp of Spark is a time rounded down to microseconds. So `ts > 5 µs` is `ts >= 6 000 ns`, and `ts <= 5 µs` is
`ts <= 5 999 ns`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from capture.files.blocks import Block
from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.columns import ChosenRows, Columns
from lowlevel.expressions.predicate import Condition, conjuncts, interval_test
from lowlevel.expressions.tree import Binary, Column, Expression, InList, Literal
from lowlevel.expressions.types import Op, Type
from lowlevel.rows.readers import Rows
from lowlevel.subaggregates import INT_MAX, INT_MIN

COMPARISONS: dict[type[Filter], Op] = {
    EqualTo: Op.EQ,
    GreaterThan: Op.GT,
    GreaterThanOrEqual: Op.GE,
    LessThan: Op.LT,
    LessThanOrEqual: Op.LE,
}

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def convert_filter(filter_: Any, columns: Sequence[Column]) -> Expression | None:
    """Return the condition that is equal to a filter over `columns`, or None if the filter must remain in Spark."""
    name = ".".join(getattr(filter_, "attribute", ()))
    column = next((column for column in columns if column.name == name), None)
    if column is None:
        return None
    if isinstance(filter_, In):
        literals = [make_literal(column, value) for value in filter_.value]
        if column.type is Type.TIME or not literals or any(literal is None for literal in literals):
            return None
        return InList(column, tuple(literal for literal in literals if literal is not None))
    op = COMPARISONS.get(type(filter_))
    if op is None:
        return None
    if column.type is Type.TIME and isinstance(filter_.value, datetime):
        return compare_time(column, op, filter_.value)
    literal = make_literal(column, filter_.value)
    if literal is None or (column.type is Type.ADDRESS and op is not Op.EQ):
        return None  # Spark orders addresses as texts
    return Binary(op, column, literal)


def make_literal(column: Column, value: object) -> Literal | None:
    """Return a constant of the type of a column, or None if the comparison is not supported.

    An address is supported only in the form that DataFrames contain: another text is never equal to it.
    """
    if column.type in (Type.INT, Type.TIME) and type(value) is int and INT_MIN < value < INT_MAX:
        return Literal(value, column.type)
    if column.type is Type.ADDRESS and isinstance(value, str):
        for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            try:
                data = socket.inet_pton(family, value)
            except OSError:
                continue
            if socket.inet_ntop(family, data) == value:
                return Literal(Address(version, int.from_bytes(data)), Type.ADDRESS)
    return None


def compare_time(column: Column, op: Op, value: datetime) -> Expression | None:
    """Return the comparison of a time in ns with a timestamp of Spark. None without a time zone.

    >>> column = Column("ts", Type.TIME, False)
    >>> compare_time(column, Op.GT, EPOCH + timedelta(microseconds=5)).right.value
    6000
    """
    if value.tzinfo is None:
        return None
    least = (value - EPOCH) // timedelta(microseconds=1) * 1000
    most = least + 999
    if not INT_MIN < least <= most < INT_MAX:
        return None

    def compare(op: Op, time: int) -> Expression:
        return Binary(op, column, Literal(time, Type.TIME))

    match op:
        case Op.EQ:
            return Binary(Op.AND, compare(Op.GE, least), compare(Op.LE, most))
        case Op.GT:
            return compare(Op.GE, most + 1)
        case Op.LE:
            return compare(Op.LE, most)
    return compare(op, least)


@dataclass(frozen=True)
class ChosenBatch:
    """The rows of a batch that pass, as `Rows`."""

    count: int
    earliest: int
    columns: Columns
    arrivals: None = None
    exports: None = None


class PushedFilters:
    """The conditions of one task. Rows must pass all of them."""

    def __init__(self, conditions: Sequence[Expression]) -> None:
        """Prepare BOOL expressions, possibly none."""
        self._condition = None
        self.least, self.most = INT_MIN, INT_MAX
        if conditions:
            whole = reduce(lambda left, right: Binary(Op.AND, left, right), conditions)
            self._condition = Condition(whole)
            for test in filter(None, map(interval_test, conjuncts(whole))):
                if test.column == "ts" and not test.outside and test.bits == -1:
                    self.least, self.most = max(self.least, test.least), min(self.most, test.most)

    def excludes(self, block: Block) -> bool:
        """Return whether the times of a block show that none of its rows pass."""
        return block.max_ts < self.least or block.min_ts > self.most

    def select(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows that pass, if there are any."""
        if rows.count == 0:
            return
        if self._condition is None:
            yield rows
            return
        chosen = np.flatnonzero(self._condition.true_rows(rows.columns, rows.count))
        if len(chosen) == rows.count:
            yield rows
        elif len(chosen):
            yield ChosenBatch(len(chosen), rows.earliest, ChosenRows(rows.columns, chosen))
