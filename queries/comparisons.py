"""Comparisons and IN: what may be compared with what, and text that becomes an address where it meets one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.tree import Binary, Column, Expression, InList, InPrefix, Literal
from lowlevel.expressions.types import INTEGERS, Op, Type, key_type, same_values
from lowlevel.times import EXAMPLES, TimeError, parse_time
from queries.addresses import AddressError, parse_address, parse_prefix
from queries.errors import QueryError
from queries.macs import EXAMPLE, parse_mac
from queries.tokens import Kind, Token

_TEXTS = (Type.TEXT, Type.ADDRESS, Type.MAC, Type.BYTES)


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a comparison: its first token, what it is bound to, and whether it is a name on its own."""

    sql: str
    token: Token
    bound: Expression
    is_name: bool

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.bound.type

    def meeting(self, other: Type) -> Operand:
        """Take a column's name in double quotes for a string where it meets what texts stand for: papers print it."""
        quoted = self.is_name and self.token.kind is Kind.QUOTED and isinstance(self.bound, Column)
        if quoted and other in _TEXTS and self.type not in _TEXTS:
            return replace(self, bound=Literal(self.token.text, Type.TEXT))
        return self

    def as_address(self) -> Operand:
        """Read a string as an address; leave anything else as it is."""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str):
            return self
        text = self.bound.value
        try:
            return replace(self, bound=Literal(parse_address(text), Type.ADDRESS))
        except AddressError as error:
            if "/" in text:
                self.fail(f"'{text}' is not one address", "IN to compare with a prefix")
            self.fail(str(error), "an address like '10.0.0.1' or '2001:db8::1'")

    def as_mac(self) -> Operand:
        """Read a string as a MAC address; leave anything else as it is."""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str):
            return self
        number = parse_mac(self.bound.value)
        if number is None:
            self.fail(f"'{self.bound.value}' is not a MAC address", EXAMPLE)
        return replace(self, bound=Literal(number, Type.MAC))

    def as_time(self) -> Operand:
        """Read a string as a time; leave anything else as it is."""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str):
            return self
        return replace(self, bound=_time_literal(self.sql, self.token, self.bound.value))

    def fail(self, problem: str, expected: str) -> NoReturn:
        """Refuse the operand at its place."""
        raise self.error(problem, expected)

    def error(self, problem: str, expected: str) -> QueryError:
        """Return the error at the operand's place."""
        return QueryError(problem, self.sql, self.token.start, expected)


def compare(op: Op, left: Operand, right: Operand) -> Binary:
    """Compare numbers, addresses (by version, then value), MACs, or texts (for equality) with their like."""
    left, right = left.meeting(right.type), right.meeting(left.type)
    if Type.ADDRESS in (left.type, right.type):
        left, right = left.as_address(), right.as_address()
    if Type.MAC in (left.type, right.type):
        left, right = left.as_mac(), right.as_mac()
    if Type.TIME in (left.type, right.type):
        left, right = left.as_time(), right.as_time()
    if Type.BYTES in (left.type, right.type):
        place = left if left.type is Type.BYTES else right
        place.fail(f"{op} over bytes", "starts_with(…, x'1603'), contains(…, 'text'), byte(…, n) or length(…) of them")
    if key_type(left.type, right.type) is None:
        expected = f"a value of type {left.type}"
        if _is_time(left) or _is_time(right):
            expected = "a time such as ts beside a text that is a time"
        right.fail(f"{op} between {left.type} and {right.type}", expected)
    if left.type is Type.BOOL:
        left.fail(f"{op} between two conditions", "AND, OR and NOT to combine conditions")
    if left.type is Type.TEXT and op not in (Op.EQ, Op.NE):
        left.fail(f"{op} between texts", "=, <> or IN: texts have no order")
    return Binary(op, left.bound, right.bound)


def time_literal(sql: str, token: Token) -> Literal:
    """Return the constant of `TIMESTAMP '…'`; QueryError at its place if the text is no time."""
    return _time_literal(sql, token, token.text)


def _time_literal(sql: str, token: Token, text: str) -> Literal:
    try:
        return Literal(parse_time(text), Type.TIME)
    except TimeError as error:
        raise QueryError(str(error), sql, token.start, EXAMPLES) from None


def _is_time(operand: Operand) -> bool:
    """Whether an operand is a text that could be compared with a time."""
    if not isinstance(operand.bound, Literal) or not isinstance(operand.bound.value, str):
        return False
    try:
        parse_time(operand.bound.value)
    except TimeError:
        return False
    return True


def member(operand: Operand, values: Sequence[Operand]) -> InList | InPrefix:
    """IN over constants of the operand's type; over an address, also over prefixes."""
    if operand.type in (Type.BOOL, Type.BYTES):
        what = "a condition" if operand.type is Type.BOOL else "bytes"
        operand.fail(f"IN over {what}", "a number, an address or a text before IN")
    constants = [(value, _constant(operand.type, value.meeting(operand.type))) for value in values]
    if operand.type is not Type.ADDRESS:
        return InList(operand.bound, tuple(constant for _, constant in constants))
    prefixes = []
    for value, constant in constants:
        try:
            prefixes.append(parse_prefix(str(constant.value)))
        except AddressError as error:
            value.fail(str(error), "addresses and prefixes like '10.0.0.1', '10.0.0.0/8' or '2001:db8::/32'")
    if any("/" in str(constant.value) for _, constant in constants):
        return InPrefix(operand.bound, tuple(prefixes))
    addresses = (Address(prefix.version, prefix.value) for prefix in prefixes)
    return InList(operand.bound, tuple(Literal(address, Type.ADDRESS) for address in addresses))


def _constant(wanted: Type, value: Operand) -> Literal:
    """Return a value of an IN list, an integer made a decimal where those are wanted; an address is still text."""
    bound = value.bound
    if not isinstance(bound, Literal):
        value.fail("IN takes constants", "numbers, addresses or texts; OR for anything else")
    if wanted is Type.FLOAT and bound.type in INTEGERS and isinstance(bound.value, int):
        return Literal(float(bound.value), Type.FLOAT)
    if wanted is Type.TIME and isinstance(bound.value, str):
        return _time_literal(value.sql, value.token, bound.value)
    if wanted is Type.MAC and isinstance(bound.value, str):
        mac = value.as_mac().bound
        assert isinstance(mac, Literal)
        return mac
    if not same_values(bound.type, Type.TEXT if wanted is Type.ADDRESS else wanted):
        value.fail(f"IN over {wanted} got a value of type {bound.type}", f"constants of type {wanted}")
    return bound
