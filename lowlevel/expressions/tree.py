"""Expressions over columns: the tree that queries compile to and both levels evaluate.

The tree is immutable data, so a plan can be pickled into a Spark task. Nodes know their type and whether they can be
NULL. `lowlevel.expressions.evaluate` evaluates them over numpy columns. All classes of nodes are in this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.types import COMPARISON, FUNCTION_TYPES, LOGICAL, Function, Op, Type
from lowlevel.watch.watched_file import WatchedFile, Watchlist


@dataclass(frozen=True, slots=True)
class SeenWithin:
    """`seen_within(duration, this = that AND …, condition)`: whether an earlier row had the key of this row.

    `matches`: equalities joined by AND; their left sides are of this row, their right sides of the earlier row.
    `condition` (or None) is about the earlier row, which is at most `duration` ns older. The filter join
    (`lowlevel.node.filter_join`) computes the result as a separate `column`. NULL if a left side is NULL.
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
        """Name of the column with the result."""
        return repr(self)


@dataclass(frozen=True, slots=True)
class Present:
    """`value` if `count` > 0, else NULL."""

    value: Expression
    count: Expression
    nullable: ClassVar[bool] = True

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.value.type


@dataclass(frozen=True, slots=True)
class Mean:
    """`total` / `count` as FLOAT, NULL if `count` is 0."""

    total: Expression
    count: Expression
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Variance:
    """Variance of `count` numbers of sum `total` and sum of squares `squares` (FLOAT), or its square `root`.

    The divisor is count - 1 for a `sample`. NULL if the divisor is 0. If the numbers are much larger than their
    distances, the result is a small difference of two large sums and loses digits.
    """

    total: Expression
    squares: Expression
    count: Expression
    sample: bool
    root: bool
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True


SHARE = "share of "
"""Prefix of the name of a column with shares: the part of a row's counter that belongs to one pane."""

ENDS = "the row ends"
"""Name of the column that tells whether the row ends in this pane."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """`operand` in the pane in which a row ends, NULL in its other panes."""

    operand: Expression
    nullable: ClassVar[bool] = True

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.operand.type


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether the value of `operand` is in a set; NULL for a NULL."""

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


@dataclass(frozen=True, slots=True)
class InWatchlist(Membership):
    """`in_list(operand, 'file')`: whether an address or an integer is in the list.

    Plans contain a `WatchedFile`; the owner of the open files replaces it before the evaluation.
    """

    file: WatchedFile | Watchlist


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """`getlpmid(address, 'file')`: the label of the longest prefix in a file that the address is in, NULL without."""

    operand: Expression
    file: WatchedFile | Watchlist
    type: ClassVar[Type] = Type.TEXT
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Column:
    """A named input column. The values of an integer column are 0..2**bits-1; `bits` is 64 if unknown."""

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
    """Two operands and an operator. The builder of the tree checks their types."""

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
        """Whether the value may be NULL: also after a division, unless the divisor is a constant other than 0."""
        by_constant = isinstance(self.right, Literal) and bool(self.right.value)
        divides = self.op in (Op.DIV, Op.MOD) and not by_constant
        return self.left.nullable or self.right.nullable or divides


@dataclass(frozen=True, slots=True)
class Call:
    """A function of BYTES or TEXT: `length(x)`, `contains(x, y)` and `starts_with(x, y)` with a constant y of x's type.

    `byte(x, n)` is the byte at offset n of BYTES, NULL if x has no such byte. `matches(x, y)` tests whether x contains
    a match of the regular expression y, a TEXT.
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
        """Whether the value may be NULL: for a NULL, and beyond the end of a byte string."""
        return self.operand.nullable or self.function is Function.BYTE


@dataclass(frozen=True, slots=True)
class Conditional:
    """`CASE WHEN condition THEN value ELSE otherwise END`: `otherwise` also if the condition is NULL.

    Both are computed for every row. Several WHEN are nested in `otherwise`. Texts are constants, or values of one
    column: the IDs of texts must not change from batch to batch.
    """

    condition: Expression
    value: Expression
    otherwise: Expression

    @property
    def type(self) -> Type:
        """Type of both results: FLOAT if one is, INT for a time and an integer."""
        types = self.value.type, self.otherwise.type
        if types[0] is types[1]:
            return types[0]
        return Type.FLOAT if Type.FLOAT in types else Type.INT

    @property
    def nullable(self) -> bool:
        """Whether a result may be NULL. `CASE WHEN NOT a IS NULL THEN a …` never returns the NULL of a."""
        tested = self.condition == Unary(Op.NOT, IsNull(self.value))
        return self.otherwise.nullable or (self.value.nullable and not tested)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The larger or smaller of two numbers; the other one if one is NULL. NaN is larger than every number."""

    left: Expression
    right: Expression
    largest: bool

    @property
    def type(self) -> Type:
        """Type of both: FLOAT if one is, INT for a time and an integer."""
        types = self.left.type, self.right.type
        if types[0] is types[1]:
            return types[0]
        return Type.FLOAT if Type.FLOAT in types else Type.INT

    @property
    def nullable(self) -> bool:
        """Whether both may be NULL."""
        return self.left.nullable and self.right.nullable


@dataclass(frozen=True, slots=True)
class Masked:
    """The first address of the network of an address: its first `ipv4` or `ipv6` bits, and then zeros."""

    operand: Expression
    ipv4: int
    ipv6: int
    type: ClassVar[Type] = Type.ADDRESS

    @property
    def nullable(self) -> bool:
        """Whether the address may be NULL."""
        return self.operand.nullable


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
    | Conditional
    | Extreme
    | Masked
)


def bits_of(expression: Expression) -> int:
    """Return the bits of the integers of an expression (values 0..2**bits-1); 64 if unknown."""
    if isinstance(expression, Column):
        return expression.bits
    if isinstance(expression, Call):
        return 8 if expression.function is Function.BYTE else 32
    return 64


def computed_column(name: str, expression: Expression) -> Column:
    """Return a column with the values of an expression."""
    return Column(name, expression.type, expression.nullable, bits_of(expression))


def columns_of(expression: Expression) -> Iterator[Column]:
    """Yield every column of the tree, depth first, with repeats."""
    return (part for part in parts_of(expression) if isinstance(part, Column))


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield every expression of the tree, depth first, with repeats, beginning with the tree itself."""
    yield expression
    for field in fields(expression):
        child = getattr(expression, field.name)
        if isinstance(child, Expression):
            yield from parts_of(child)


def transform(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return a copy of the tree in which `change` has replaced parts.

    `change` receives each part, the outer ones first. It returns the part's replacement, which is not visited, or None
    to keep the part and visit its children.
    """
    changed = change(expression)
    if changed is not None:
        return changed
    children = {field.name: getattr(expression, field.name) for field in fields(expression)}
    copies: dict[str, Any] = {
        name: copy
        for name, child in children.items()
        if isinstance(child, Expression) and (copy := transform(child, change)) is not child
    }
    return replace(expression, **copies) if copies else expression
