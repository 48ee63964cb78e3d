"""Predicates about one value: whether it is in a list, in a network, or NULL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lowlevel.address_constants import Prefix
from lowlevel.types import Type

if TYPE_CHECKING:
    from lowlevel.expressions import Expression, Literal


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether the value of `operand` is one of several; NULL where it is."""

    operand: Expression
    type: ClassVar[Type] = Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class InList(Membership):
    """`operand IN (v1, v2, …)` over literals of the operand's type; none of them NULL."""

    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class InPrefix(Membership):
    """`address IN '10.0.0.0/8'`, or in any of several prefixes."""

    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`, which is never NULL itself."""

    operand: Expression
    type: ClassVar[Type] = Type.BOOL
    nullable: ClassVar[bool] = False
