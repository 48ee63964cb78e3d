"""Expressions over columns, as trees: queries are compiled to trees, and both levels evaluate them.

Trees are immutable data, so a plan can be pickled into a Spark task. Every class of expressions has a `type`, and
`nullable` is True if the value can be NULL. `lowlevel.expressions.evaluate` evaluates trees over numpy columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, ClassVar

from capture.lazy_dataclasses import dataclass, field_names
from lowlevel.expressions.address_constants import Address, Prefix
from lowlevel.expressions.types import (
    COMPARISON,
    FUNCTION_TYPES,
    INTEGER_FUNCTIONS,
    LOGICAL,
    NULLABLE_FUNCTIONS,
    PAYLOAD_NAMES,
    SAME_TYPE_FUNCTIONS,
    TEXT_FUNCTIONS,
    Function,
    Op,
    Scalar,
    Type,
)
from lowlevel.expressions.user_functions import UserFunction
from lowlevel.watch.watched_file import WatchedFile, Watchlist


@dataclass(frozen=True, slots=True)
class SeenWithin:
    """`seen_within(duration, this = that AND …, condition)`: whether an earlier row had the key of this row.

    * `duration`: the largest difference between the times of the two rows, in ns.
    * `matches`: equalities joined by AND. Left sides are expressions of this row, right sides of the earlier row.
    * `condition`: a condition on the earlier row, or None.

    The result is NULL if a left side is NULL. The filter join (`lowlevel.node.filter_join`) computes it as `column`.
    """

    duration: int
    matches: Expression
    condition: Expression | None = None
    type: ClassVar[Type] = Type.BOOL

    @property
    def nullable(self) -> bool:
        """True if a left side may be NULL."""
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
class WideSum:
    """A sum of integers, computed from the sums of their halves: `high` * 2**32 + `low`.

    Neither of these two sums overflows.

    An INT is NULL if it exceeds 64 bits. A FLOAT is rounded.
    """

    high: Expression
    low: Expression
    type: Type = Type.INT

    @property
    def nullable(self) -> bool:
        """Return whether the sum may be NULL."""
        return self.type is Type.INT


@dataclass(frozen=True, slots=True)
class Mean:
    """`total` / `count` as FLOAT, NULL if `count` is 0."""

    total: Expression
    count: Expression
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of `count` numbers, whose sum is `total` and whose sum of squares is `squares` (FLOAT).

    With `root` it is the standard deviation. The divisor is count - 1 with `sample`, else count. NULL if the divisor is
    0. If the numbers are much larger than their deviations, the result loses digits, because it is a difference of two
    large sums.
    """

    total: Expression
    squares: Expression
    count: Expression
    sample: bool
    root: bool
    type: ClassVar[Type] = Type.FLOAT
    nullable: ClassVar[bool] = True


# A pane is the part of a window between two neighbouring window bounds. A row of a flow can span several panes. With
# SPREAD it is divided among them: each pane receives a share of the row's counters.

SHARE_PREFIX = "share of "
"""Prefix of the names of columns with shares of counters."""

ENDS_COLUMN = "the row ends"
"""Name of the column with True for the pane in which the row ends."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """`operand` for the pane in which a row ends, NULL for the other panes of the row."""

    operand: Expression
    nullable: ClassVar[bool] = True

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.operand.type


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether the value of `operand` is in a set; NULL if the operand is NULL."""

    operand: Expression
    type: ClassVar[Type] = Type.BOOL

    @property
    def nullable(self) -> bool:
        """True if the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class InList(Membership):
    """`operand IN (v1, v2, …)`: the literals have the operand's type and are not NULL."""

    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class InPrefix(Membership):
    """`address IN '10.0.0.0/8'`, also with several prefixes."""

    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`: TRUE or FALSE."""

    operand: Expression
    type: ClassVar[Type] = Type.BOOL
    nullable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class InWatchlist(Membership):
    """`in_list(operand, 'file')`: whether an address or an integer is in the list.

    With `time`, it must be in the list at this time.

    Plans contain a `WatchedFile`. Before the evaluation, the owner of the open files replaces it by a `Watchlist`.
    """

    file: WatchedFile | Watchlist
    time: Expression | None = None


@dataclass(frozen=True, slots=True)
class LongestPrefix:
    """`getlpmid(address, 'file')`: the label of the longest prefix in the file that contains the address, or NULL.

    With `time`, only prefixes that are true at this time are used. `mac_vendor(mac, 'file')` is the same for MAC
    addresses.
    """

    operand: Expression
    file: WatchedFile | Watchlist
    time: Expression | None = None
    type: ClassVar[Type] = Type.TEXT
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class SettingValue:
    """`setting('file', 'name')`: a constant in a file, which may change between batches. The file is as in InWatchlist.

    `type` is the type of the setting.
    """

    file: WatchedFile | Watchlist
    type: Type
    nullable: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Column:
    """A named input column. The values of an integer column are 0..2**bits-1; `bits` is 64 if unknown."""

    name: str
    type: Type
    nullable: bool = False
    bits: int = 64


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; NULL if `value` is None."""

    value: int | float | bool | str | bytes | Address | None
    type: Type

    @property
    def nullable(self) -> bool:
        """True if the value may be NULL."""
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
        """True if the value may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class Binary:
    """Two operands and an operator. The builder of the tree checks their types."""

    op: Op
    left: Expression
    right: Expression

    @property
    def type(self) -> Type:
        """Type of the result. A time ± an integer is a time; a difference of times is an integer."""
        if self.op in COMPARISON or self.op in LOGICAL:
            return Type.BOOL
        types = self.left.type, self.right.type
        if Type.FLOAT in types:
            return Type.FLOAT
        shifted_time = self.op in (Op.ADD, Op.SUB) and types == (Type.TIME, Type.INT)
        return Type.TIME if shifted_time or (self.op is Op.ADD and types == (Type.INT, Type.TIME)) else Type.INT

    @property
    def nullable(self) -> bool:
        """True if the value may be NULL. A division may return NULL, except by a constant other than 0."""
        never_zero = isinstance(self.right, Literal) and bool(self.right.value)
        may_divide_by_zero = self.op in (Op.DIV, Op.MOD) and not never_zero
        return self.left.nullable or self.right.nullable or may_divide_by_zero


@dataclass(frozen=True, slots=True)
class Call:
    """A function of BYTES or TEXT.

    * `length(x)`; `contains(x, y)` and `starts_with(x, y)` with a constant y of the type of x.
    * `byte(x, n)`: the byte at offset n of BYTES, NULL if x has no such byte.
    * `matches(x, y)`: whether x contains a match of the regular expression y, a TEXT.
    * `text(x)`, `hex(x)`: BYTES as text, with `.` for bytes that are not printable ASCII, or as hexadecimal digits.
    * `dns_name(x)`, `tls_server_name(x)`, `http_host(x)`: the name in a payload, NULL if there is none.
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
        """True if the value may be NULL: the operand is NULL, or it has no such byte or name."""
        return self.operand.nullable or self.function is Function.BYTE or self.function in PAYLOAD_NAMES


@dataclass(frozen=True, slots=True)
class Conditional:
    """`CASE WHEN condition THEN value ELSE otherwise END`. If the condition is NULL, the result is `otherwise`.

    `value` and `otherwise` are both evaluated for every row. A second WHEN is a Conditional in `otherwise`. Texts are
    constants, or values of one column: the IDs of texts must not change from batch to batch.
    """

    condition: Expression
    value: Expression
    otherwise: Expression

    @property
    def type(self) -> Type:
        """Type of the result: FLOAT if `value` or `otherwise` is FLOAT, INT for a time and an integer."""
        types = self.value.type, self.otherwise.type
        if types[0] is types[1]:
            return types[0]
        return Type.FLOAT if Type.FLOAT in types else Type.INT

    @property
    def nullable(self) -> bool:
        """True if a result may be NULL. In `CASE WHEN NOT a IS NULL THEN a …` the result `a` is never NULL."""
        never_null = self.condition == Unary(Op.NOT, IsNull(self.value))
        return self.otherwise.nullable or (self.value.nullable and not never_null)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The larger or smaller of two numbers.

    If one of them is NULL, the result is the other. NaN is larger than every number.
    """

    left: Expression
    right: Expression
    largest: bool

    @property
    def type(self) -> Type:
        """Type of the result: FLOAT if an operand is FLOAT, INT for a time and an integer."""
        types = self.left.type, self.right.type
        if types[0] is types[1]:
            return types[0]
        return Type.FLOAT if Type.FLOAT in types else Type.INT

    @property
    def nullable(self) -> bool:
        """True if both operands may be NULL."""
        return self.left.nullable and self.right.nullable


@dataclass(frozen=True, slots=True)
class Masked:
    """The network of an address, as its first address: the first `ipv4` or `ipv6` bits, and then zeros."""

    operand: Expression
    ipv4: int
    ipv6: int
    type: ClassVar[Type] = Type.ADDRESS

    @property
    def nullable(self) -> bool:
        """True if the address may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class ScalarCall:
    """A function of a number or a text, or a cast (`lowlevel.expressions.scalar_functions`).

    `argument`: the second number of `power`. `constants`: the other arguments of functions of texts and of `round`.
    """

    function: Scalar
    operand: Expression
    argument: Expression | None = None
    constants: tuple[Literal, ...] = ()

    @property
    def type(self) -> Type:
        """Type of the result."""
        if self.function in TEXT_FUNCTIONS:
            return Type.TEXT
        if self.function in SAME_TYPE_FUNCTIONS:
            return self.operand.type
        return Type.INT if self.function in INTEGER_FUNCTIONS else Type.FLOAT

    @property
    def nullable(self) -> bool:
        """True if the value may be NULL: an argument is NULL, or the function has no value for it."""
        return self.function in NULLABLE_FUNCTIONS or any(
            part.nullable for part in (self.operand, self.argument) if part is not None
        )


@dataclass(frozen=True, slots=True)
class TextOf:
    """A value as text, as results show it (`lowlevel.expressions.text_casts`)."""

    operand: Expression
    type: ClassVar = Type.TEXT

    @property
    def nullable(self) -> bool:
        """True if the text may be NULL."""
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class JoinedText:
    """The texts `left` and `right` as one text; NULL if one of them is NULL."""

    left: Expression
    right: Expression
    type: ClassVar = Type.TEXT

    @property
    def nullable(self) -> bool:
        """True if the text may be NULL."""
        return self.left.nullable or self.right.nullable


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The value of a text as `type`; NULL for a text that is not such a value (`lowlevel.expressions.text_casts`)."""

    operand: Expression
    type: Type
    nullable: ClassVar = True


@dataclass(frozen=True, slots=True)
class HashOf:
    """A hash of values: an integer of 63 bits, or with `is_uniform` a FLOAT in (0, 1] (`lowlevel.expressions.hashing`).

    `seed` selects one of many independent hashes.
    """

    arguments: tuple[Expression, ...]
    seed: int = 0
    is_uniform: bool = False
    nullable: ClassVar = False

    @property
    def type(self) -> Type:
        """Type of the result."""
        return Type.FLOAT if self.is_uniform else Type.INT


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of a function that a user has defined."""

    function: UserFunction
    arguments: tuple[Expression, ...]
    nullable: ClassVar = True

    @property
    def type(self) -> Type:
        """Type of the result."""
        return self.function.result


Expression = (
    Column
    | Literal
    | Unary
    | Binary
    | InList
    | InPrefix
    | InWatchlist
    | LongestPrefix
    | SettingValue
    | SeenWithin
    | IsNull
    | Present
    | WideSum
    | Mean
    | Variance
    | Call
    | AtEnd
    | Conditional
    | Extreme
    | Masked
    | ScalarCall
    | TextOf
    | JoinedText
    | ParsedText
    | UserCall
    | HashOf
)


def bits_of(expression: Expression) -> int:
    """Return the number of bits of an expression's integers (values 0..2**bits-1); 64 if unknown."""
    if isinstance(expression, Column):
        return expression.bits
    if isinstance(expression, Call):
        return 8 if expression.function is Function.BYTE else 32
    return 64


def width_of(expression: Expression) -> int:
    """Return a number of bits such that all integers of an expression are from -2**bits + 1 to 2**bits - 1, at most 64.

    >>> length = Column("len", Type.INT, bits=32)
    >>> width_of(Binary(Op.MUL, length, Literal(8, Type.INT))), width_of(Column("bytes", Type.INT))
    (36, 64)
    """
    match expression:
        case Literal(value=int() as value):
            return min(64, value.bit_length())
        case AtEnd(operand) | Unary(op=Op.NEG, operand=operand):
            return width_of(operand)
        case Conditional(value=left, otherwise=right) | Extreme(left, right):
            return max(width_of(left), width_of(right))
        case Binary(op=Op.ADD | Op.SUB, left=left, right=right):
            return min(64, max(width_of(left), width_of(right)) + 1)
        case Binary(op=Op.MUL, left=left, right=right):
            return min(64, width_of(left) + width_of(right))
        case Binary(op=Op.DIV, left=left):
            return width_of(left)
        case Binary(op=Op.MOD, left=left, right=right):
            return min(width_of(left), width_of(right))
        case _:
            return 1 if expression.type is Type.BOOL else bits_of(expression)


def computed_column(name: str, expression: Expression) -> Column:
    """Return a column with the type of an expression, for its values."""
    return Column(name, expression.type, expression.nullable, bits_of(expression))


def columns_of(expression: Expression) -> Iterator[Column]:
    """Yield every column of the tree, depth first, with repeats."""
    return (part for part in parts_of(expression) if isinstance(part, Column))


def integer_sums(expressions: Iterable[Expression]) -> tuple[WideSum, ...]:
    """Return the sums in expressions that are integers, which may exceed 64 bits. Each is returned once."""
    parts = (part for expression in expressions for part in parts_of(expression))
    return tuple(dict.fromkeys(part for part in parts if isinstance(part, WideSum) and part.type is Type.INT))


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yield every expression of the tree, depth first, with repeats, beginning with the tree itself."""
    yield expression
    if isinstance(expression, UserCall | HashOf):
        for argument in expression.arguments:
            yield from parts_of(argument)
        return
    for name in field_names(type(expression)):
        child = getattr(expression, name)
        if isinstance(child, Expression):
            yield from parts_of(child)


def calls_user(expression: Expression) -> bool:
    """Return whether an expression calls a user-defined function.

    Such functions are called only for rows that pass WHERE.
    """
    return any(isinstance(part, UserCall) for part in parts_of(expression))


def transform(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return a copy of the tree in which `change` has replaced parts.

    `change` receives each part, outer parts first, and returns its replacement. The parts of a replacement are not
    visited. If `change` returns None, the part stays and its children are visited.
    """
    replacement = change(expression)
    if replacement is not None:
        return replacement
    if isinstance(expression, UserCall | HashOf):
        arguments = tuple(transform(argument, change) for argument in expression.arguments)
        same = all(new is old for new, old in zip(arguments, expression.arguments, strict=True))
        return expression if same else replace(expression, arguments=arguments)
    children = {field.name: getattr(expression, field.name) for field in fields(expression)}
    copies: dict[str, Any] = {
        name: copy
        for name, child in children.items()
        if isinstance(child, Expression) and (copy := transform(child, change)) is not child
    }
    return replace(expression, **copies) if copies else expression
