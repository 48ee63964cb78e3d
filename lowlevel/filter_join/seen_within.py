"""The predicate that only a filter join can tell: whether a matching row came shortly before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lowlevel.types import Type

if TYPE_CHECKING:
    from lowlevel.expressions import Expression


@dataclass(frozen=True, slots=True)
class SeenWithin:
    """`seen_within(duration, this = that AND …, condition)`: whether a row that came before had the key of this one.

    `matches` are equalities joined by AND, whose left sides are of this row and whose right sides of the one before;
    `condition`, where there is one, is about that row, which is at most `duration` (ns) older than this. It is told by
    whoever sees all rows (`lowlevel.filter_join`), as a `column` of its own. NULL where a left side is.
    """

    duration: int
    matches: Expression
    condition: Expression | None = None
    type: ClassVar[Type] = Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether a part of the key may be NULL."""
        return self.matches.nullable

    @property
    def column(self) -> str:
        """Name of the column that says of each row whether it has."""
        return repr(self)
