"""Expressions over columns: the tree that queries compile to and both levels evaluate.

The tree is plain immutable data, so that a plan can be pickled into a Spark task. It knows types and NULL-ability
but not how it is evaluated: `lowlevel.evaluate` does that over numpy columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from lowlevel.watch.watched_file import WatchedFile


class Type(StrEnum):
    """The types of GSQL values; times are INT nanoseconds, a MAC is 48 bits, BYTES are for predicates alone."""

    INT = "integer"
    FLOAT = "float"
    BOOL = "boolean"
    ADDRESS = "address"
    TEXT = "text"
    MAC = "mac"
    BYTES = "bytes"


class Op(StrEnum):
    """Operators by their SQL spelling. `/` on two integers divides towards zero; by zero it is NULL."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    BIT_AND = "&"
    BIT_OR = "|"
    BIT_XOR = "^"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "AND"
    OR = "OR"
    NOT = "NOT"
    NEG = "NEG"
    BIT_NOT = "~"


class Function(StrEnum):
    """Functions of bytes and texts by their SQL names."""

    LENGTH = "length"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    BYTE = "byte"


FUNCTION_TYPES: dict[Function, Type] = {
    Function.LENGTH: Type.INT,
    Function.CONTAINS: Type.BOOL,
    Function.STARTS_WITH: Type.BOOL,
    Function.BYTE: Type.INT,
}

ARITHMETIC = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.MOD})
BITWISE = frozenset({Op.BIT_AND, Op.BIT_OR, Op.BIT_XOR, Op.SHIFT_LEFT, Op.SHIFT_RIGHT})
COMPARISON = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE})
LOGICAL = frozenset({Op.AND, Op.OR})


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address literal: version 4 or 6 and its value as one integer."""

    version: int
    value: int


@dataclass(frozen=True, slots=True)
class Prefix:
    """A network: every address of `version` whose first `length` bits are those of `value`."""

    version: int
    value: int
    length: int


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
        return Type.BOOL if self.op is Op.NOT else self.operand.type

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
        """Type of the result: FLOAT as soon as one operand is."""
        if self.op in COMPARISON or self.op in LOGICAL:
            return Type.BOOL
        return Type.FLOAT if Type.FLOAT in (self.left.type, self.right.type) else Type.INT

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL; division makes a NULL of its own, unless by a constant other than 0."""
        by_constant = isinstance(self.right, Literal) and bool(self.right.value)
        divides = self.op in (Op.DIV, Op.MOD) and not by_constant
        return self.left.nullable or self.right.nullable or divides


@dataclass(frozen=True, slots=True)
class InList:
    """`operand IN (v1, v2, …)` over literals of the operand's type; none of them NULL."""

    operand: Expression
    values: tuple[Literal, ...]

    @property
    def type(self) -> Type:
        """Always BOOL."""
        return Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class InPrefix:
    """`address IN '10.0.0.0/8'`, or in any of several prefixes."""

    operand: Expression
    prefixes: tuple[Prefix, ...]

    @property
    def type(self) -> Type:
        """Always BOOL."""
        return Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class InWatchlist:
    """`in_list(operand, 'file')`: whether an address or an integer is in a list that is read again when it changes."""

    operand: Expression
    file: WatchedFile

    @property
    def type(self) -> Type:
        """Always BOOL."""
        return Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """`getlpmid(address, 'file')`: the label of the longest prefix in a file that the address is in, NULL without."""

    operand: Expression
    file: WatchedFile

    @property
    def type(self) -> Type:
        """Always TEXT."""
        return Type.TEXT

    @property
    def nullable(self) -> bool:
        """NULL for an address in no prefix."""
        return True


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

    @property
    def type(self) -> Type:
        """Always BOOL."""
        return Type.BOOL

    @property
    def nullable(self) -> bool:
        """Whether a part of the key may be NULL."""
        return self.matches.nullable

    @property
    def column(self) -> str:
        """Name of the column that says of each row whether it has."""
        return repr(self)


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Expression

    @property
    def type(self) -> Type:
        """Always BOOL."""
        return Type.BOOL

    @property
    def nullable(self) -> bool:
        """Never NULL itself."""
        return False


@dataclass(frozen=True, slots=True)
class Present:
    """`value` where `count` > 0, else NULL: what an aggregate over no value is (SQL: NULL, not 0)."""

    value: Expression
    count: Expression

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.value.type

    @property
    def nullable(self) -> bool:
        """NULL is the point of it."""
        return True


@dataclass(frozen=True, slots=True)
class Mean:
    """`total` / `count` as FLOAT, NULL where `count` is 0."""

    total: Expression
    count: Expression

    @property
    def type(self) -> Type:
        """Always FLOAT."""
        return Type.FLOAT

    @property
    def nullable(self) -> bool:
        """NULL over no value."""
        return True


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

    @property
    def type(self) -> Type:
        """Always FLOAT."""
        return Type.FLOAT

    @property
    def nullable(self) -> bool:
        """NULL over no value."""
        return True


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


SHARE = "share of "
"""What the name of a column begins with where not a row's value is meant but what a pane has of it, of rows that are
spread over panes."""

ENDS = "the row ends"
"""The column that says which pane a row that is spread over panes ends in."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """`operand` in the pane where a row that is spread over panes ends, NULL in the others."""

    operand: Expression

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.operand.type

    @property
    def nullable(self) -> bool:
        """NULL is the point of it."""
        return True


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
