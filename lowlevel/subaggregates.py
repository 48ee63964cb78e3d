"""The sub-aggregates that the low level computes, and how the high level merges them (super-aggregates).

A *bounded* aggregate F is computed as F(X) = S{L(Xi)} over any partition {Xi} of X (Li 2008, §6.2.2). The low level
stores L, the sub-aggregates, in a table of fixed size, and may evict them at any time. The high level merges them with
S. Merging is associative and commutative, so evictions and the order of arrival do not change a result. The only
exception is a sum of FLOAT: additions round, so the last bits depend on the engine, the table size and restarts.

    SQL          low level stores (L)             high level merges by   and returns
    count(*)     count                            sum                    count
    count(x)     count of non-NULL x              sum                    count
    sum(x)       sum of x, count of x             sum, sum               sum, NULL where count is 0
    sum(x)       upper and lower sum of x, count  sum, sum, sum          sum, NULL where count is 0 or beyond 64 bits
    min(x)       min of x, count of x             min, sum               min, NULL where count is 0
    max(x)       max of x, count of x             max, sum               max, NULL where count is 0
    avg(x)       sum of x, count of x             sum, sum               sum / count, NULL where count is 0
    variance(x)  count of x, sum of x, sum of x*x sum, sum, sum          (sum of x*x - sum*sum/count) / count
    stddev(x)    the same                         sum, sum, sum          square root of the variance
    bit_and(x)   x1 & x2 & …, count of x          bit_and, sum           bit_and, NULL where count is 0
    bit_or(x)    x1 | x2 | …, count of x          bit_or, sum            bit_or, NULL where count is 0
    bit_xor(x)   x1 ^ x2 ^ …, count of x          bit_xor, sum           bit_xor, NULL where count is 0
    first(x)     least ts, its x, count of x      least ts with its x    x, NULL where count is 0
    last(x)      greatest ts, its x, count of x   greatest ts with its x x, NULL where count is 0

The sum of integers that may have more than 32 bits is stored as two sums: of the upper halves (x >> 32) and of the
lower halves (the lower 32 bits). So no addition overflows. The sum in avg(x) is stored in the same way.

The count of x is stored only if x can be NULL; otherwise each group has at least one value. `first` and `last` order
values by ts, and values of equal ts by value (the smallest value is first). They do not use the order of arrival,
because then the merge would not be commutative. `first` and `last` need two neighbouring words: a time and a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import Expression
from lowlevel.expressions.types import Type

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


class Kind(StrEnum):
    """The sub-aggregates that a low-level table can store."""

    COUNT = "count"
    SUM = "sum"
    UPPER_SUM = "upper_sum"
    LOWER_SUM = "lower_sum"
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
    Kind.UPPER_SUM: "sum",
    Kind.LOWER_SUM: "sum",
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
"""The function that merges two values of a sub-aggregate (`highlevel.groups.merging`)."""

TIME_OF: dict[Kind, Kind] = {Kind.FIRST: Kind.EARLIEST, Kind.LAST: Kind.LATEST}
"""The sub-aggregate in the word before a first or last value: the time of the value."""


@dataclass(frozen=True, slots=True)
class SubAggregate:
    """One word of a table entry.

    `argument` is None for `count(*)`. The word is an int64 for INT arguments and a float64 for FLOAT arguments. A sum
    of INT beyond 2**63-1 would overflow. So it adds at most 32 bits of an argument, and 2**31 such numbers fit.
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
        """The type of the aggregate: TIME if `min`, `max`, `first` or `last` selects a time."""
        selects_value = self.kind in (Kind.MIN, Kind.MAX, Kind.FIRST, Kind.LAST)
        return (
            Type.TIME if selects_value and self.argument is not None and self.argument.type is Type.TIME else self.type
        )


def count_of_rows(subaggregates: Iterable[SubAggregate]) -> str | None:
    """Return the name of a sub-aggregate that counts all rows; None if there is none."""
    return next((sub.name for sub in subaggregates if sub.kind is Kind.COUNT and sub.argument is None), None)
