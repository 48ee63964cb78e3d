"""Expressions over columns: the tree that queries compile to and both levels evaluate.

The tree is plain immutable data, so that a plan can be pickled into a Spark task. It knows types and NULL-ability
but not how it is evaluated: `lowlevel.evaluate` does that over numpy columns.

Here are columns, constants, operators and functions, what all expressions are together, and what walks over them. What
serves one purpose is a file of its own: predicates about a value, look-ups in files, filter joins, aggregates that are
finished, rows that are spread over panes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from lowlevel.address_constants import Address
from lowlevel.filter_join.seen_within import SeenWithin
from lowlevel.finished_aggregates import Mean, Present, Variance
from lowlevel.operations import COMPARISON, FUNCTION_TYPES, LOGICAL, Function, Op
from lowlevel.piece_expressions import AtEnd
from lowlevel.predicates import InList, InPrefix, IsNull
from lowlevel.types import Type
from lowlevel.watch.expressions import InWatchlist, LongestPrefix


@dataclass(frozen=True, slots=True)
class Column:
    """A named input column. `bits` is the width an integer column needs (0..2**bits-1), 64 when unknown."""

    name: str
    type: Type
    nullable: bool = False
    bits: int = 64


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; `value` None is NULL of that type."""

    value: int | float | bool | str | bytes | Address | None
    type: Type

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class Unary:
    """NOT, minus or bitwise complement of one operand."""

    op: Op
    operand: Expression

    @property
    def type(self) -> Type:
        """Type of the result."""
        if self.op is Op.NOT:
            return Type.BOOL
        return Type.INT if self.operand.type is Type.TIME else self.operand.type

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and an operator, checked for types by whoever builds the tree."""

    op: Op
    left: Expression
    right: Expression

    @property
    def type(self) -> Type:
        """Type of the result: FLOAT if an operand is. A time ± an integer is a time, a difference of times is not."""
        if self.op in COMPARISON or self.op in LOGICAL:
            return Type.BOOL
        types = self.left.type, self.right.type
        if Type.FLOAT in types:
            return Type.FLOAT
        later = self.op in (Op.ADD, Op.SUB) and types == (Type.TIME, Type.INT)
        return Type.TIME if later or (self.op is Op.ADD and types == (Type.INT, Type.TIME)) else Type.INT

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL; division makes a NULL of its own, unless by a constant other than 0."""
        by_constant = isinstance(self.right, Literal) and bool(self.right.value)
        divides = self.op in (Op.DIV, Op.MOD) and not by_constant
        return self.left.nullable or self.right.nullable or divides


@dataclass(frozen=True, slots=True)
class Call:
    """A function of BYTES or TEXT: `length(x)`, `contains(x, y)` and `starts_with(x, y)` with a constant y of x's type.

    `byte(x, n)` is the byte at offset n of BYTES, NULL where x has no such byte.
    """

    function: Function
    operand: Expression
    argument: Expression | None = None

    @property
    def type(self) -> Type:
        """Type of the result."""
        return FUNCTION_TYPES[self.function]

    @property
    def nullable(self) -> bool:
        """NULL of NULL, and beyond the end."""
        return self.operand.nullable or self.function is Function.BYTE


Expression = (
    Column
    | Literal
    | Unary
    | Binary
    | InList
    | InPrefix
    | InWatchlist
    | LongestPrefix
    | SeenWithin
    | IsNull
    | Present
    | Mean
    | Variance
    | Call
    | AtEnd
)


def bits_of(expression: Expression) -> int:
    """Return how many bits the integers of an expression need, 0..2**bits-1; 64 where that is not known."""
    if isinstance(expression, Column):
        return expression.bits
    if isinstance(expression, Call):
        return 8 if expression.function is Function.BYTE else 32
    return 64


def computed_column(name: str, expression: Expression) -> Column:
    """Return the column called `name` that the values of an expression make."""
    return Column(name, expression.type, expression.nullable, bits_of(expression))


def columns_of(expression: Expression) -> Iterator[Column]:
    """Every column of the tree, depth first, repeats included."""
    return (part for part in parts_of(expression) if isinstance(part, Column))


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Every expression in the tree, itself first, depth first, repeats included."""
    yield expression
    for field in fields(expression):
        child = getattr(expression, field.name)
        if isinstance(child, Expression):
            yield from parts_of(child)
