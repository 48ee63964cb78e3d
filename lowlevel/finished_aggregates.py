"""What aggregates are once their sub-aggregates are known. Over no value they are NULL, as SQL has it, not 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lowlevel.types import Type

if TYPE_CHECKING:
    from lowlevel.expressions import Expression


@dataclass(frozen=True, slots=True)
class Present:
    """`value` where `count` > 0, else NULL."""

    value: Expression
    count: Expression
    nullable: ClassVar[bool] = True

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.value.type


@dataclass(frozen=True, slots=True)
class Mean:
    """`total` / `count` as FLOAT, NULL where `count` is 0."""

    total: Expression
    count: Expression
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Variance:
    """Variance of `count` numbers of sum `total` and sum of squares `squares` (FLOAT), or its square `root`.

    Of a `sample` it is divided by count - 1. NULL where it would be divided by 0. The two sums are large and their
    difference small where numbers are far from 0 beside how far they are apart: digits are lost then.
    """

    total: Expression
    squares: Expression
    count: Expression
    sample: bool
    root: bool
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True
