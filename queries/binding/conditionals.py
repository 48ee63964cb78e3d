"""CASE, COALESCE, NULLIF, GREATEST, LEAST, bucket and FILTER become conditionals, whose results get a common type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

from lowlevel.expressions.computed_texts import find_computed_text
from lowlevel.expressions.tree import (
    Binary,
    Conditional,
    Expression,
    Extreme,
    IsNull,
    Literal,
    Unary,
)
from lowlevel.expressions.types import NUMBERS, Op, Type, key_type
from queries.binding.comparisons import Operand, compare
from queries.text.errors import QueryError
from queries.text.tree import Word

USAGES: dict[str, str] = {
    "coalesce": "coalesce(x, y, …)",
    "nullif": "nullif(x, y)",
    "greatest": "greatest(x, y, …)",
    "least": "least(x, y, …)",
    "bucket": "bucket(len, 64, 512, 1518)",
}
"""Functions by name, each with an example of its call."""

MAX_ARGUMENTS = 20
"""Maximum number of arguments of coalesce, greatest, least and bucket."""


def case(function: str, conditions: Sequence[Expression], results: Sequence[Operand]) -> Expression:
    """Return a conditional that returns the first result whose condition is true.

    The last result has no condition. `function` is the name of the function, for messages.
    """
    *values, otherwise = with_common_type(function, results)
    pairs = zip(reversed(conditions), reversed(values), strict=True)
    return reduce(lambda rest, pair: Conditional(pair[0], pair[1], rest), pairs, otherwise)


def conditional_function(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the expression for a call of one of the functions in USAGES. Raises QueryError for wrong arguments."""
    function = name.text.lower()
    fewest, most = (2, 2) if function == "nullif" else (2, MAX_ARGUMENTS)
    if not fewest <= len(operands) <= most:
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        limit = "" if function == "nullif" else f" with at most {MAX_ARGUMENTS} arguments"
        raise QueryError(f"{function} with {shown_count}", sql, name.start, USAGES[function] + limit)
    if function == "nullif":
        test = compare(Op.EQ, *operands)
        return Conditional(test, Literal(None, operands[0].type), operands[0].bound)
    if function == "coalesce":
        values = with_common_type(function, operands)
        return reduce(lambda rest, value: Conditional(is_known(value), value, rest), reversed(values[:-1]), values[-1])
    if function == "bucket":
        return _bucket(operands)
    if any(operand.type is Type.ADDRESS for operand in operands):
        if len(operands) > 2:
            operands[2].fail(f"{function} over {len(operands)} addresses", "two addresses")
        return _extreme_address(function, with_common_type(function, operands))
    for operand in operands:
        if operand.type not in NUMBERS:
            operand.fail(f"{function} over a value of type {operand.type}", " or ".join((*NUMBERS, Type.ADDRESS)))
    return reduce(lambda one, other: Extreme(one, other, function == "greatest"), (each.bound for each in operands))


def _bucket(operands: Sequence[Operand]) -> Expression:
    """Return the smallest bound that is at least the first operand; NULL if all bounds are smaller."""
    number, *bounds = operands
    if number.type not in NUMBERS:
        number.fail(f"bucket over a value of type {number.type}", " or ".join(NUMBERS))
    before = None
    for bound in bounds:
        value = bound.bound.value if isinstance(bound.bound, Literal) else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            bound.fail("a bound of bucket that is not a constant number", USAGES["bucket"])
        elif before is not None and not value > before:
            bound.fail(f"the bound {value} after {before}", f"bounds in ascending order, such as {USAGES['bucket']}")
        before = value
    values = with_common_type("bucket", bounds)
    nothing: Expression = Literal(None, values[0].type)
    return reduce(
        lambda rest, pair: Conditional(compare(Op.LE, number, pair[0]), pair[1], rest),
        reversed(list(zip(bounds, values, strict=True))),
        nothing,
    )


def _extreme_address(function: str, addresses: Sequence[Expression]) -> Expression:
    """Return the larger or smaller of two addresses. `least(srcIP, destIP)` is equal in both directions."""
    first, second = addresses
    wins: Expression = Binary(Op.GE if function == "greatest" else Op.LE, first, second)
    if second.nullable:
        wins = Binary(Op.OR, IsNull(second), wins)
    return Conditional(wins, first, second)


def is_known(value: Expression) -> Expression:
    """Return the condition `value IS NOT NULL`."""
    return Unary(Op.NOT, IsNull(value))


def as_number(condition: Expression) -> Expression:
    """Return 1 for TRUE, 0 for FALSE, and NULL for NULL."""
    number = Conditional(condition, Literal(1, Type.INT), Literal(0, Type.INT))
    return Conditional(is_known(condition), number, Literal(None, Type.INT)) if condition.nullable else number


def filter_argument(condition: Expression, argument: Expression) -> Expression:
    """Return the argument of an aggregate with FILTER: NULL in rows for which the condition is not true."""
    return Conditional(condition, argument, Literal(None, argument.type))


def with_common_type(function: str, operands: Sequence[Operand], *, same_row: bool = True) -> list[Expression]:
    """Convert results to one type. Texts become addresses, MACs or times if another result has such a type.

    Raises QueryError at the first result of another type, and if `same_row` for texts of more than one column.
    """
    known = [operand for operand in operands if not is_null(operand)]
    if not known:
        operands[0].fail(f"{function} over NULL only", "a value")
    conversions: dict[Type, Callable[[Operand], Operand]] = {
        Type.ADDRESS: Operand.as_address,
        Type.MAC: Operand.as_mac,
        Type.TIME: Operand.as_time,
    }
    for kind, convert in conversions.items():
        if any(operand.type is kind for operand in known):
            known = [convert(operand.comparable_with(kind)) for operand in known]
    wanted = known[0].type
    for operand in known:
        if operand.type is Type.BYTES:
            operand.fail(f"{function} over bytes", "length(…), byte(…, n), contains(…, 'text') of them")
        if operand.type is not wanted and key_type(operand.type, wanted) is None:
            operand.fail(f"{function} over {wanted} and {operand.type}", f"a value of type {wanted}")
    if same_row:
        _check_texts(function, known)
    types = {operand.type for operand in known}
    common = wanted if len(types) == 1 else Type.FLOAT if Type.FLOAT in types else Type.INT
    converted = iter(known)
    return [Literal(None, common) if is_null(operand) else next(converted).bound for operand in operands]


def _check_texts(function: str, operands: Sequence[Operand]) -> None:
    """Raise QueryError for texts of several columns: the IDs that represent these texts could change between batches.

    Texts that are computed from values are allowed, because no code relies on their IDs.
    """
    sources: set[Expression] = set()
    for operand in operands:
        if operand.type is Type.TEXT:
            sources.update(_text_sources(operand.bound))
        if len(sources) > 1 and not any(map(find_computed_text, sources)):
            operand.fail(f"{function} over texts of two columns", "texts of one column, and constants")


def _text_sources(expression: Expression) -> Iterator[Expression]:
    """Yield the parts of a text, or of a conditional of texts, that are not constants."""
    match expression:
        case Conditional(_, value, otherwise):
            yield from _text_sources(value)
            yield from _text_sources(otherwise)
        case Literal():
            return
        case _:
            yield expression


def is_null(operand: Operand) -> bool:
    """Return whether an operand is the constant NULL, which can have any type."""
    return isinstance(operand.bound, Literal) and operand.bound.value is None


def null_operand(sql: str, start: int) -> Operand:
    """Return the operand for NULL as a result of CASE."""
    return Operand(sql, start, Literal(None, Type.INT))
