"""Sub- and super-aggregates: how an aggregate is split between the two levels, in one table.

A *bounded* aggregate F is computed as F(X) = S{L(Xi)} over any partition {Xi} of X (Li 2008, §6.2.2): the low level
keeps L in its fixed-size table and may evict it at any time, the high level merges with S. Merging is associative and
commutative, so neither eviction nor arrival order can change a result. The only exception is a sum of FLOAT. Additions
round, so its last bits depend on the order of merging: on the engine, the table size and restarts.

    SQL          low level keeps (L)              high level merges by   and finishes as
    count(*)     count                            sum                    count
    count(x)     count of non-NULL x              sum                    count
    sum(x)       sum of x, count of x             sum, sum               sum, NULL where count is 0
    min(x)       min of x, count of x             min, sum               min, NULL where count is 0
    max(x)       max of x, count of x             max, sum               max, NULL where count is 0
    avg(x)       sum of x, count of x             sum, sum               sum / count, NULL where count is 0
    variance(x)  count of x, sum of x, sum of x*x sum, sum, sum          (sum of x*x - sum*sum/count) / count
    stddev(x)    the same                         sum, sum, sum          square root of the variance
    bit_and(x)   x1 & x2 & …, count of x          bit_and, sum           as it is, NULL where count is 0
    bit_or(x)    x1 | x2 | …, count of x          bit_or, sum            as it is, NULL where count is 0
    bit_xor(x)   x1 ^ x2 ^ …, count of x          bit_xor, sum           as it is, NULL where count is 0
    first(x)     least ts, its x, count of x      least ts with its x    x, NULL where count is 0
    last(x)      greatest ts, its x, count of x   greatest ts with its x x, NULL where count is 0

The count of x is stored only if x can be NULL; otherwise each group has at least one value. First and last are by ts,
and by value for equal ts (the smallest value is first). The order of arrival is not used, because such a merge would
not be commutative. They are stored in two neighbouring words, a time and a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


class Kind(StrEnum):
    """The sub-aggregates the low-level table can keep."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    EARLIEST = "earliest"
    FIRST = "first"
    LATEST = "latest"
    LAST = "last"


MERGE: dict[Kind, str] = {
    Kind.COUNT: "sum",
    Kind.SUM: "sum",
    Kind.MIN: "min",
    Kind.MAX: "max",
    Kind.BIT_AND: "bit_and",
    Kind.BIT_OR: "bit_or",
    Kind.BIT_XOR: "bit_xor",
    Kind.EARLIEST: "min",
    Kind.FIRST: "first",
    Kind.LATEST: "max",
    Kind.LAST: "last",
}
"""How two partials of a sub-aggregate merge (`highlevel.groups.merging`)."""

TIME_OF: dict[Kind, Kind] = {Kind.FIRST: Kind.EARLIEST, Kind.LAST: Kind.LATEST}
"""The sub-aggregate in the word before a value: its time, if the argument is not NULL."""


@dataclass(frozen=True, slots=True)
class SubAggregate:
    """One word of a table entry.

    `argument` is None for `count(*)`. INT arguments give int64 (sums wrap silently only beyond 2**63-1), FLOAT give
    float64.
    """

    name: str
    kind: Kind
    argument: Expression | None = None

    @property
    def type(self) -> Type:
        """The type of the word: INT for counts, integers and times, FLOAT for floats."""
        if self.kind in (Kind.COUNT, Kind.EARLIEST, Kind.LATEST) or self.argument is None:
            return Type.INT
        return Type.INT if self.argument.type is Type.TIME else self.argument.type

    @property
    def result_type(self) -> Type:
        """The type of the aggregate: a smallest, largest, first or last time is a time."""
        picks = self.kind in (Kind.MIN, Kind.MAX, Kind.FIRST, Kind.LAST)
        return Type.TIME if picks and self.argument is not None and self.argument.type is Type.TIME else self.type


def count_of_rows(subaggregates: Iterable[SubAggregate]) -> str | None:
    """Return the name of a sub-aggregate that counts all rows; None if there is none."""
    return next((sub.name for sub in subaggregates if sub.kind is Kind.COUNT and sub.argument is None), None)
