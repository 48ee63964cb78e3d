"""The filter join `seen_within('30 seconds', srcIP = destIP AND destPort = srcPort, protocol = 17)`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from capture.lazy_dataclasses import field_names
from highlevel.plan.nodes import Leaf, Windowed
from highlevel.plan.plan import Plan
from lowlevel.durations import parse_duration
from lowlevel.expressions.tree import Binary, Expression, Literal, SeenWithin, columns_of, parts_of
from lowlevel.expressions.types import INTEGERS, Op, Type, same_values
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.tree import Word

SEEN_WITHIN = "seen_within"
USAGE = "seen_within('30 seconds', this = that AND …, condition of that)"
"""An example of a call."""

KEY_TYPES = (Type.ADDRESS, *INTEGERS, Type.MAC)
"""Types that a key may have."""

EXPECTED_MATCH = "columns or expressions on both sides of =: of this row on the left, of the earlier row on the right"


def seen_within(sql: str, name: Word, operands: Sequence[Operand]) -> SeenWithin:
    """Return the condition. Raises QueryError at the first wrong argument."""
    if len(operands) not in (2, 3):
        problem = f"{SEEN_WITHIN} with {len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(problem, sql, name.start, USAGE)
    duration = _duration(operands[0].comparable_with(Type.TEXT))
    for one, other in _pairs(operands[1]):
        for side in (one, other):
            if not any(columns_of(side)):
                operands[1].fail(f"{SEEN_WITHIN} of a constant", EXPECTED_MATCH)
        if one.type not in KEY_TYPES or not same_values(one.type, other.type):
            operands[1].fail(
                f"{SEEN_WITHIN} of values of type {one.type} and {other.type}", f"{' or '.join(KEY_TYPES)}"
            )
    condition = operands[2].bound if len(operands) == 3 else None
    if condition is not None and condition.type is not Type.BOOL:
        operands[2].fail(f"{SEEN_WITHIN} where {condition.type}", "a condition, for example srcPort = 53")
    for operand in operands[1:]:
        if any(isinstance(part, SeenWithin) for part in parts_of(operand.bound)):
            operand.fail(f"{SEEN_WITHIN} within {SEEN_WITHIN}", "two of them, joined by AND or OR")
    return SeenWithin(duration, operands[1].bound, condition)


def check_inputs(sql: str, plan: Plan) -> None:
    """Raise QueryError if a `seen_within` is not over rows of a link: only links store keys for it."""
    for node in plan.nodes:
        below = node.merges_partials if isinstance(node, Windowed) else isinstance(node, Leaf)
        if not below and _contains_seen_within(
            tuple(getattr(node, name) for name in field_names(type(node))), node.inputs
        ):
            at = max(0, sql.lower().find(SEEN_WITHIN))
            expected = "seen_within in a condition on one stream of links"
            raise QueryError(f"{SEEN_WITHIN} over pairs of a join, or over results of a query", sql, at, expected)


def _contains_seen_within(value: object, inputs: tuple[object, ...]) -> bool:
    """Return whether a tree contains a `seen_within`. The parts `inputs` are not searched."""
    if isinstance(value, SeenWithin):
        return True
    if isinstance(value, tuple):
        return any(_contains_seen_within(each, inputs) for each in value)
    if any(value is each for each in inputs):
        return False
    return any(_contains_seen_within(getattr(value, name), inputs) for name in field_names(type(value)))


def _duration(operand: Operand) -> int:
    bound = operand.bound
    if not isinstance(bound, Literal) or not isinstance(bound.value, str):
        operand.fail("got an argument that is not a duration", f"{USAGE}: a text like '30 seconds'")
    try:
        return parse_duration(bound.value)
    except ValueError as error:
        operand.fail(f"'{bound.value}' is not a duration: {error}", "a text like '30 seconds'")


def _pairs(operand: Operand) -> Iterator[tuple[Expression, Expression]]:
    """Yield the two sides of each equality."""
    waiting = [operand.bound]
    while waiting:
        each = waiting.pop()
        match each:
            case Binary(Op.AND, left, right):
                waiting += [right, left]
            case Binary(Op.EQ, left, right):
                yield left, right
            case _:
                operand.fail(f"{SEEN_WITHIN} of an expression that is not an equality", EXPECTED_MATCH)
