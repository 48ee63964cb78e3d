"""Functions of numbers and texts, casts, and names of assigned numbers: check the number and types of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from lowlevel.expressions.tree import (
    Binary,
    Conditional,
    Expression,
    JoinedText,
    Literal,
    ParsedText,
    ScalarCall,
    TextOf,
)
from lowlevel.expressions.types import NAME_FUNCTIONS, Op, Scalar, Type
from queries.binding.comparisons import Operand
from queries.binding.conditionals import as_number, is_known, is_null
from queries.text.errors import QueryError
from queries.text.tree import Word

USAGES: dict[str, str] = {
    "abs": "abs(x)",
    "sign": "sign(x)",
    "round": "round(x), or round(x, 2) with decimals",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
    "ceiling": "ceiling(x)",
    "sqrt": "sqrt(x)",
    "exp": "exp(x)",
    "ln": "ln(x)",
    "log2": "log2(x)",
    "log10": "log10(x)",
    "power": "power(x, y)",
    "pow": "pow(x, y)",
    "mod": "mod(x, y)",
    "lower": "lower(text)",
    "upper": "upper(text)",
    "trim": "trim(text)",
    "substring": "substring(text, start), or substring(text, start, length)",
    "substr": "substr(text, start, length)",
    "left": "left(text, length)",
    "replace": "replace(text, 'old', 'new')",
    "split_part": "split_part(text, '.', 1)",
    "concat": "concat(x, ':', y)",
    "protocol_name": "protocol_name(protocol)",
    "port_name": "port_name(destPort)",
}
"""Functions by name, each with an example of its call."""

SYNONYMS = {"ceiling": "ceil", "pow": "power", "substr": "substring"}

ARGUMENT_COUNTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("power", "mod", "left"), (2,)),
    **dict.fromkeys(("replace", "split_part"), (3,)),
    "round": (1, 2),
    "substring": (2, 3),
}
"""Valid numbers of arguments. Functions that are not listed have exactly one argument."""

CONSTANT_TYPES: dict[Scalar, tuple[Type, ...]] = {
    Scalar.SUBSTRING: (Type.INT, Type.INT),
    Scalar.REPLACE: (Type.TEXT, Type.TEXT),
    Scalar.SPLIT_PART: (Type.TEXT, Type.INT),
}
"""Types of the constants after the first argument."""

CAST_TYPES_BY_NAME: dict[str, Type] = {
    **dict.fromkeys(("integer", "int", "bigint", "int8", "int64", "long", "uint", "ullong", "llong"), Type.INT),
    **dict.fromkeys(("double", "float", "float8", "real", "decimal", "numeric"), Type.FLOAT),
    **dict.fromkeys(("boolean", "bool"), Type.BOOL),
    **dict.fromkeys(("varchar", "text", "string", "char"), Type.TEXT),
    **dict.fromkeys(("timestamp", "timestamptz", "datetime"), Type.TIME),
    **dict.fromkeys(("address", "ip", "inet"), Type.ADDRESS),
    **dict.fromkeys(("mac", "macaddr"), Type.MAC),
}
"""Types in casts by their SQL names."""

CAST_TYPE_NAMES = ("INTEGER", "DOUBLE", "BOOLEAN", "VARCHAR", "TIMESTAMP", "INET", "MAC")

MAX_DIGITS = 15
"""Largest number of decimals in round: a float has no more."""


def scalar_function(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the expression for a call of one of the functions in USAGES. Raises QueryError for wrong arguments."""
    function = SYNONYMS.get(name.text.lower(), name.text.lower())
    if function == "concat":
        return concatenation(operands, function)
    if len(operands) not in ARGUMENT_COUNTS.get(function, (1,)):
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(f"{function} with {shown_count}", sql, name.start, USAGES[name.text.lower()])
    subject = operands[0]
    if function == "left":
        length = _constant(function, operands[1], Type.INT)
        _check_length(operands[1], length)
        return ScalarCall(Scalar.SUBSTRING, _text(function, subject), None, (Literal(1, Type.INT), length))
    if function == "mod":
        return Binary(Op.MOD, *(_number(function, operand, (Type.INT,)) for operand in operands))
    scalar = Scalar(function)
    if scalar in NAME_FUNCTIONS:
        return ScalarCall(scalar, _number(function, subject, (Type.INT,)))
    if function in ("lower", "upper", "trim") or scalar in CONSTANT_TYPES:
        types = CONSTANT_TYPES.get(scalar, ())[: len(operands) - 1]
        constants = [_constant(function, each, kind) for each, kind in zip(operands[1:], types, strict=True)]
        if function == "substring" and len(constants) == 2:
            _check_length(operands[2], constants[1])
        return ScalarCall(scalar, _text(function, subject), None, tuple(constants))
    number = _number(function, subject)
    if scalar is Scalar.POWER:
        return ScalarCall(scalar, number, _number(function, operands[1]))
    if len(operands) == 1:
        return ScalarCall(scalar, number)
    digits = _constant(function, operands[1], Type.INT)
    if not isinstance(digits.value, int) or not 0 <= digits.value <= MAX_DIGITS:
        operands[1].fail(f"round to {digits.value!r} decimals", f"0 to {MAX_DIGITS}")
    return ScalarCall(scalar, number, None, (digits,))


def concatenation(operands: Sequence[Operand], function: str = "||") -> Expression:
    """Return values joined as texts. With `||` the result is NULL if a value is NULL; `concat` leaves out NULL."""
    parts: list[Expression] = []
    if function == "||" and all(operand.type not in (Type.TEXT, Type.BYTES) for operand in operands):
        operands[0].fail(
            f"|| over a value of type {operands[0].type}", "a text among the values; OR between conditions"
        )
    for operand in operands:
        text = _as_text(function, operand)
        if function == "concat" and text.nullable:
            text = Conditional(is_known(operand.bound), text, Literal("", Type.TEXT))
        before = parts[-1] if parts else None
        if isinstance(text, Literal) and isinstance(before, Literal):
            parts[-1] = Literal(str(before.value) + str(text.value), Type.TEXT)
        else:
            parts.append(text)
    columns = [part for part in parts if not isinstance(part, Literal)]
    if len(columns) > 1:
        return reduce(JoinedText, parts)
    if not columns:
        return parts[0]
    empty = Literal("", Type.TEXT)
    before = parts[0] if isinstance(parts[0], Literal) else empty
    after = parts[-1] if isinstance(parts[-1], Literal) else empty
    return ScalarCall(Scalar.CONCAT, columns[0], None, (before, after))


def _as_text(function: str, operand: Operand) -> Expression:
    """Convert a value to text. Raises QueryError for bytes."""
    bound = operand.bound
    match operand.type:
        case Type.TEXT:
            return bound
        case Type.BYTES:
            operand.fail(f"{function} over bytes", "text(…) or hex(…) of them")
        case Type.BOOL:
            words = Conditional(bound, Literal("true", Type.TEXT), Literal("false", Type.TEXT))
            return Conditional(is_known(bound), words, Literal(None, Type.TEXT)) if bound.nullable else words
    return TextOf(bound)


def cast(subject: Operand, word: Word, *, is_try: bool = False) -> Expression:
    """Convert a value to the type that `word` names. Raises QueryError for an unknown type and an impossible cast.

    A constant that cannot be converted is an error, or NULL with `is_try` (TRY_CAST).
    """
    text = word.text
    wanted = CAST_TYPES_BY_NAME.get(text.lower())
    if wanted is None:
        raise QueryError(f"unknown type '{text}'", subject.sql, word.start, "a type", CAST_TYPE_NAMES, text.upper())
    if is_null(subject):
        return Literal(None, wanted)
    convert = {Type.TIME: Operand.as_time, Type.ADDRESS: Operand.as_address, Type.MAC: Operand.as_mac}
    subject = convert[wanted](subject) if wanted in convert and not is_try else subject
    bound = subject.bound
    if subject.type is wanted:
        return bound
    match subject.type, wanted:
        case Type.INT, Type.FLOAT:
            return ScalarCall(Scalar.DOUBLE, bound)
        case Type.FLOAT, Type.INT:
            return ScalarCall(Scalar.INTEGER, bound)
        case Type.BOOL, Type.INT:
            return as_number(bound)
        case Type.BOOL, Type.FLOAT:
            return ScalarCall(Scalar.DOUBLE, as_number(bound))
        case ((Type.INT | Type.FLOAT), Type.BOOL):
            return Binary(Op.NE, bound, Literal(0, Type.INT))
        case _, Type.TEXT:
            return _as_text(f"CAST to {text.upper()}", subject)
        case Type.TEXT, _:
            return ParsedText(bound, wanted)
        case Type.TIME, (Type.INT | Type.FLOAT):
            expected = "extract(epoch FROM ts) for seconds, or ts - TIMESTAMP '1970-01-01' for nanoseconds"
        case _:
            expected = f"a value of type {wanted}"
    raise subject.error(f"CAST of {subject.type} to {text.upper()}", expected)


def _number(function: str, operand: Operand, types: Sequence[Type] = (Type.INT, Type.FLOAT)) -> Expression:
    if operand.type not in types:
        hint = "; a difference of times is an integer" if operand.type is Type.TIME else ""
        operand.fail(f"{function} over a value of type {operand.type}", " or ".join(types) + hint)
    return operand.bound


def _text(function: str, operand: Operand) -> Expression:
    operand = operand.comparable_with(Type.TEXT)
    if operand.type is not Type.TEXT:
        expected = "a text, for example link" + ("; OR between conditions" if function == "||" else "")
        operand.fail(f"{function} over a value of type {operand.type}", expected)
    return operand.bound


def _check_length(operand: Operand, length: Literal) -> None:
    if isinstance(length.value, int) and length.value < 0:
        operand.fail(f"a length of {length.value} characters", "0 or more")


def _constant(function: str, operand: Operand, kind: Type) -> Literal:
    operand = operand.comparable_with(kind)
    bound = operand.bound
    if not isinstance(bound, Literal) or bound.type is not kind or bound.value is None:
        operand.fail(f"got an argument of {function} that is not a constant {kind}", USAGES[function])
    return bound
