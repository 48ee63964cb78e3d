"""Functions of times, in UTC: date_trunc and extract are converted to arithmetic over nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence

from capture.units import SECOND
from lowlevel.expressions.tree import Binary, Expression, Literal
from lowlevel.expressions.types import Op, Type
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.tree import Word

DAY = 86_400 * SECOND

MONDAY_TO_EPOCH = 3 * DAY
"""Nanoseconds from the previous Monday to the epoch, which was a Thursday."""

UNIT_LENGTHS: dict[str, int] = {
    "microsecond": 10**3,
    "millisecond": 10**6,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": DAY,
    "week": 7 * DAY,
}
"""Lengths of the units of date_trunc, ns. A week begins on Monday."""

REMAINDER_FIELDS: dict[str, tuple[int, int]] = {
    "second": (SECOND, 60),
    "minute": (60 * SECOND, 60),
    "hour": (3_600 * SECOND, 24),
}
"""Fields of extract that are remainders: the length of the unit in ns, and its number in the next larger unit.
"""

EXTRACT_FIELDS = ("epoch", *REMAINDER_FIELDS, "dow", "isodow")
"""All fields of extract. `dow` is 0 to 6 from Sunday, `isodow` 1 to 7 from Monday."""

USAGES: dict[str, str] = {
    "date_trunc": "date_trunc('minute', ts)",
    "extract": "extract(hour FROM ts)",
}
"""Functions by name, each with an example of its call."""


def time_function(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return an expression that computes date_trunc or extract. Raises QueryError for wrong arguments."""
    function = name.text.lower()
    if len(operands) != 2:
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(f"{function} with {shown_count}", sql, name.start, USAGES[function])
    choices = tuple(UNIT_LENGTHS) if function == "date_trunc" else EXTRACT_FIELDS
    unit, time = _choice(operands[0], function, choices), operands[1].as_time()
    if time.type is not Type.TIME:
        time.fail(f"{function} over a value of type {time.type}", "a time, for example ts")
    if function == "date_trunc":
        shifted = Binary(Op.ADD, time.bound, _integer(MONDAY_TO_EPOCH)) if unit == "week" else time.bound
        return Binary(Op.SUB, time.bound, _remainder(shifted, UNIT_LENGTHS[unit]))
    if unit == "epoch":
        return _quotient(time.bound, SECOND)
    if unit in REMAINDER_FIELDS:
        length, count = REMAINDER_FIELDS[unit]
        return _remainder(_quotient(time.bound, length), count)
    first, begin = (0, MONDAY_TO_EPOCH + DAY) if unit == "dow" else (1, MONDAY_TO_EPOCH)
    weekday = _remainder(_quotient(Binary(Op.ADD, time.bound, _integer(begin)), DAY), 7)
    return Binary(Op.ADD, weekday, _integer(first)) if first else weekday


def _choice(operand: Operand, function: str, choices: Sequence[str]) -> str:
    """Return the unit or field that a text names."""
    bound = operand.bound
    text = operand.quoted_name or (bound.value if isinstance(bound, Literal) else None)
    if not isinstance(text, str) or text.lower() not in choices:
        unit = f"'{text}'" if isinstance(text, str) else "a value that is not a text"
        raise QueryError(f"{function} got {unit}", operand.sql, operand.start, "a unit of time", choices, str(text))
    return text.lower()


def _integer(value: int) -> Literal:
    return Literal(value, Type.INT)


def _remainder(value: Expression, divisor: int) -> Expression:
    """Return the remainder of a division that rounds down. It is 0 or more even for times before 1970."""
    signed = Binary(Op.MOD, value, _integer(divisor))
    return Binary(Op.MOD, Binary(Op.ADD, signed, _integer(divisor)), _integer(divisor))


def _quotient(value: Expression, divisor: int) -> Expression:
    """Return the quotient of a division that rounds down."""
    return Binary(Op.DIV, Binary(Op.SUB, value, _remainder(value, divisor)), _integer(divisor))
