"""Converts expressions to GSQL text, with parentheses only if the precedence requires them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowlevel.durations import duration_text
from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.tree import (
    AtEnd,
    Binary,
    Call,
    Column,
    Conditional,
    Expression,
    Extreme,
    HashOf,
    InList,
    InPrefix,
    InWatchlist,
    IsNull,
    JoinedText,
    Literal,
    LongestPrefix,
    Masked,
    Mean,
    ParsedText,
    Present,
    ScalarCall,
    SeenWithin,
    SettingValue,
    TextOf,
    Unary,
    UserCall,
    Variance,
    WideSum,
)
from lowlevel.expressions.types import Op, Scalar, Type
from lowlevel.times import time_text
from lowlevel.watch.settings import Setting
from lowlevel.watch.watched_file import WatchedFile, Watchlist
from queries.text.expressions import BITWISE, FACTOR, NOT, RANGE, STRENGTHS, TERM
from queries.text.literals import address_text, mac_text, prefix_text

CAST_TYPE_NAMES: dict[Type, str] = {
    Type.INT: "INTEGER",
    Type.FLOAT: "DOUBLE",
    Type.BOOL: "BOOLEAN",
    Type.TIME: "TIMESTAMP",
    Type.ADDRESS: "ADDRESS",
    Type.MAC: "MAC",
}
"""Type names for casts of texts."""

_UNARY, _ATOM = FACTOR + 1, FACTOR + 2
"""Precedences above those of binary operators."""


def expression_text(expression: Expression) -> str:
    """Convert `expression` to text that compiles to an equal tree.

    `Present`, `WideSum`, `Mean`, `Variance` and `AtEnd` cannot be written in GSQL. Their texts are `(v if c > 0)`,
    `wide_sum(h, l)`, `mean(t, c)`, `var_pop(t, s, c)` and `at_end(v)`.

    >>> from lowlevel.expressions.types import Type
    >>> length = Column("len", Type.INT)
    >>> expression_text(Binary(Op.MUL, Binary(Op.ADD, length, Literal(4, Type.INT)), Literal(8, Type.INT)))
    '(len + 4) * 8'
    """
    return _print(expression)[0]


def _print(expression: Expression) -> tuple[str, int]:
    """Return the text and the precedence of its outermost operator."""
    match expression:
        case Column(name=name):
            return name, _ATOM
        case Literal():
            return _literal(expression)
        case Unary(Op.NOT, operand):
            return f"NOT {_within(operand, NOT)}", NOT
        case Unary(op, operand):
            sign = "-" if op is Op.NEG else op.value
            text = _within(operand, _UNARY)
            # `--` would begin a comment, and a sign before a number would become part of the number.
            blocked = op is Op.NEG and (text.startswith("-") or isinstance(operand, Literal))
            return (f"{sign}({text})" if blocked else sign + text), _UNARY
        case Binary(op, left, right):
            level = STRENGTHS[op]
            # NOT on the left of = would apply to the whole comparison.
            return f"{_within(left, level)} {op.value} {_within(right, level + 1)}", level
        case InList(operand, values):
            listed = ", ".join(_literal(value)[0] for value in values)
            return f"{_within(operand, BITWISE)} IN ({listed})", RANGE
        case InPrefix(operand, prefixes):
            listed = ", ".join(f"'{prefix_text(prefix)}'" for prefix in prefixes)
            return f"{_within(operand, BITWISE)} IN {f'({listed})' if len(prefixes) > 1 else listed}", RANGE
        case InWatchlist(operand, file, time) | LongestPrefix(operand, file, time):
            by_label = "mac_vendor" if operand.type is Type.MAC else "getlpmid"
            function = by_label if isinstance(expression, LongestPrefix) else "in_list"
            at = "" if time is None else f", {_print(time)[0]}"
            return f"{function}({_print(operand)[0]}, {_quoted(file.path)}{at})", _ATOM
        case SettingValue(file):
            return f"setting({', '.join(_setting(file))})", _ATOM
        case SeenWithin(duration, matches, condition):
            inside = [_print(part)[0] for part in (matches, condition) if part is not None]
            return f"seen_within('{duration_text(duration)}', {', '.join(inside)})", _ATOM
        case IsNull(operand):
            return f"{_within(operand, BITWISE)} IS NULL", RANGE
        case Call(function, operand, argument):
            inside = [_print(part)[0] for part in (operand, argument) if part is not None]
            return f"{function}({', '.join(inside)})", _ATOM
        case Conditional():
            return f"CASE {' '.join(_branches(expression))} END", _ATOM
        case Masked(operand, ipv4, ipv6):
            return f"mask({_print(operand)[0]}, {ipv4}, {ipv6})", _ATOM
        case ScalarCall(function, operand, argument, constants):
            return _scalar(function, _print(operand)[0], argument, constants)
        case TextOf(operand):
            return f"CAST({_print(operand)[0]} AS VARCHAR)", _ATOM
        case JoinedText(left, right):
            return (
                f"{_within(left, BITWISE if isinstance(left, JoinedText) else TERM)} || {_within(right, TERM)}",
                BITWISE,
            )
        case ParsedText(operand, kind):
            return f"CAST({_print(operand)[0]} AS {CAST_TYPE_NAMES[kind]})", _ATOM
        case UserCall(function, arguments):
            return f"{function.name}({', '.join(_print(argument)[0] for argument in arguments)})", _ATOM
        case HashOf(arguments, seed, is_uniform):
            inside = [*(_print(argument)[0] for argument in arguments), *([str(seed)] if seed else [])]
            return f"{'uniform' if is_uniform else 'hash'}({', '.join(inside)})", _ATOM
        case Extreme(left, right, largest):
            return f"{'greatest' if largest else 'least'}({_print(left)[0]}, {_print(right)[0]})", _ATOM
        case AtEnd(operand):
            return f"at_end({_print(operand)[0]})", _ATOM
        case Present(value, count):
            return f"({_print(value)[0]} if {_print(count)[0]} > 0)", _ATOM
        case WideSum(high, low):
            return f"wide_sum({_print(high)[0]}, {_print(low)[0]})", _ATOM
        case Mean(total, count):
            return f"mean({_print(total)[0]}, {_print(count)[0]})", _ATOM
        case Variance(total, squares, count, sample, root):
            name = ("stddev" if root else "var") + ("_samp" if sample else "_pop")
            return f"{name}({_print(total)[0]}, {_print(squares)[0]}, {_print(count)[0]})", _ATOM


def _setting(file: WatchedFile | Watchlist) -> Iterator[str]:
    """Yield the arguments of a call of `setting`."""
    setting = file.form
    assert isinstance(setting, Setting)
    yield from (_quoted(file.path), _quoted(setting.name))
    if setting.least is not None and setting.most is not None:
        yield from (str(setting.least), str(setting.most))


def _scalar(
    function: Scalar, operand: str, argument: Expression | None, constants: Sequence[Literal]
) -> tuple[str, int]:
    if function in (Scalar.INTEGER, Scalar.DOUBLE):
        return f"CAST({operand} AS {function.upper()})", _ATOM
    values = [_literal(constant)[0] for constant in constants]
    if function is Scalar.CONCAT:
        before, after = (constant.value for constant in constants)
        return " || ".join(part for part in (values[0] * bool(before), operand, values[1] * bool(after)) if part), TERM
    inside = [operand, *([] if argument is None else [_print(argument)[0]]), *values]
    return f"{function}({', '.join(inside)})", _ATOM


def _branches(expression: Expression) -> Iterator[str]:
    """Yield WHEN … THEN … for nested conditionals, and then ELSE unless it is NULL."""
    while isinstance(expression, Conditional):
        yield f"WHEN {_print(expression.condition)[0]} THEN {_print(expression.value)[0]}"
        expression = expression.otherwise
    if not isinstance(expression, Literal) or expression.value is not None:
        yield f"ELSE {_print(expression)[0]}"


def _within(expression: Expression, level: int) -> str:
    text, own = _print(expression)
    return text if own >= level else f"({text})"


def _literal(literal: Literal) -> tuple[str, int]:
    value = literal.value
    if value is None:
        return "NULL", _ATOM
    if isinstance(value, bool):
        return str(value).upper(), _ATOM
    if isinstance(value, Address):
        return f"'{address_text(value)}'", _ATOM
    if isinstance(value, bytes):
        return f"x'{value.hex()}'", _ATOM
    if isinstance(value, str):
        return _quoted(value), _ATOM
    if literal.type is Type.TIME:
        return f"TIMESTAMP '{time_text(int(value))}'", _ATOM
    if literal.type is Type.MAC:
        return f"'{mac_text(int(value))}'", _ATOM
    return repr(value), _ATOM if value >= 0 else _UNARY


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
