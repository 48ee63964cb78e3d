"""Sub- and super-aggregates: how an aggregate is split between the two levels, in one table.

A *bounded* aggregate F is computed as F(X) = S{L(Xi)} over any partition {Xi} of X (Li 2008, §6.2.2): the low level
keeps L in its fixed-size table and may evict it at any time, the high level merges with S. Merging is associative and
commutative, so neither eviction nor arrival order can change a result. The one exception is a sum of FLOAT: each
addition rounds, so its last bits depend on the order of merging, and with it on the engine, the size of the table and
where a run was restarted.

    SQL          low level keeps (L)              high level merges by   and finishes as
    count(*)     count                            sum                    count
    count(x)     count of non-NULL x              sum                    count
    sum(x)       sum of x, count of x             sum, sum               sum, NULL where count is 0
    min(x)       min of x, count of x             min, sum               min, NULL where count is 0
    max(x)       max of x, count of x             max, sum               max, NULL where count is 0
    avg(x)       sum of x, count of x             sum, sum               sum / count, NULL where count is 0

The count of x is kept only where x can be NULL; otherwise a group that exists has at least one value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lowlevel.expressions import Expression, Type

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1


class Kind(StrEnum):
    """The sub-aggregates the low-level table can keep."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


MERGE: dict[Kind, str] = {Kind.COUNT: "sum", Kind.SUM: "sum", Kind.MIN: "min", Kind.MAX: "max"}
"""How two partials of a sub-aggregate merge: the name of Arrow's aggregate, which every engine merges by."""


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
        """INT for counts and over integers, FLOAT over floats."""
        if self.kind is Kind.COUNT or self.argument is None:
            return Type.INT
        return self.argument.type
