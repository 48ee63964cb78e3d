"""Comparisons and IN: check the types of operands, and convert texts to addresses, MACs or times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.address_constants import Address
from lowlevel.expressions.assigned_numbers import ALIASES, names_of
from lowlevel.expressions.tree import Binary, Column, Expression, InList, InPrefix, Literal
from lowlevel.expressions.types import INTEGERS, Op, Scalar, Type, key_type, same_values
from lowlevel.times import EXAMPLES, TimeError, parse_time
from queries.text.errors import QueryError
from queries.text.literals import MAC_EXAMPLE, AddressError, parse_address, parse_mac, parse_prefix

_TEXTS = (Type.TEXT, Type.ADDRESS, Type.MAC, Type.BYTES)


@dataclass(frozen=True, slots=True)
class Operand:
    """A bound operand with its position.

    `quoted_name`: the name if the operand is a column name in double quotes, otherwise None.
    """

    sql: str
    start: int
    bound: Expression
    quoted_name: str | None = None

    @property
    def type(self) -> Type:
        """Type of the value."""
        return self.bound.type

    def comparable_with(self, other_type: Type) -> Operand:
        """Return the operand for a comparison with a value of type `other_type`.

        If values of type `other_type` are compared with texts, a column name in double quotes is a string, because
        papers write strings in this way.
        """
        if (
            self.quoted_name is not None
            and isinstance(self.bound, Column)
            and other_type in _TEXTS
            and self.type not in _TEXTS
        ):
            return replace(self, bound=Literal(self.quoted_name, Type.TEXT))
        return self

    def as_address(self) -> Operand:
        """Convert a string to an address; return other operands unchanged."""
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
        """Convert a string to a MAC address; return other operands unchanged."""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str):
            return self
        number = parse_mac(self.bound.value)
        if number is None:
            self.fail(f"'{self.bound.value}' is not a MAC address", MAC_EXAMPLE)
        return replace(self, bound=Literal(number, Type.MAC))

    def as_time(self) -> Operand:
        """Convert a string to a time; return other operands unchanged."""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str):
            return self
        return replace(self, bound=time_literal(self.sql, self.start, self.bound.value))

    def as_number_of(self, column: Operand) -> Operand:
        """Convert the name of a protocol or port to its number, if `column` contains protocols or ports.

        Other operands are returned unchanged.

        Raises QueryError for a name that is not in the IANA registries.
        """
        name = column.bound.name.rsplit(".")[-1].lower() if isinstance(column.bound, Column) else ""
        if not isinstance(self.bound, Literal) or not isinstance(self.bound.value, str) or column.type is not Type.INT:
            return self
        if name != "protocol" and not name.endswith("port"):
            return self
        text = self.bound.value
        registry = Scalar.PROTOCOL_NAME if name == "protocol" else Scalar.PORT_NAME
        names = {known: number for number, known in names_of(registry).items()} | ALIASES[registry]
        number = names.get(text.lower())
        if number is None:
            from difflib import get_close_matches

            problem = f"unknown {'protocol' if name == 'protocol' else 'port'} '{text}'"
            similar = get_close_matches(text.lower(), names, n=5, cutoff=0.5) or [*names][:5]
            raise QueryError(
                problem, self.sql, self.start, "a number, or the name of a service or protocol", similar, text
            )
        return replace(self, bound=Literal(number, Type.INT))

    def fail(self, problem: str, expected: str) -> NoReturn:
        """Raise QueryError at the position of the operand."""
        raise self.error(problem, expected)

    def error(self, problem: str, expected: str) -> QueryError:
        """Return an error at the position of the operand."""
        return QueryError(problem, self.sql, self.start, expected)


def compare(op: Op, left: Operand, right: Operand) -> Binary:
    """Return the comparison of numbers, addresses (by version, then value), MACs, times, or texts (only = and <>)."""
    left, right = left.comparable_with(right.type), right.comparable_with(left.type)
    if Type.ADDRESS in (left.type, right.type):
        left, right = left.as_address(), right.as_address()
    if Type.TEXT in (left.type, right.type):
        left, right = left.as_number_of(right), right.as_number_of(left)
    if Type.MAC in (left.type, right.type):
        left, right = left.as_mac(), right.as_mac()
    if Type.TIME in (left.type, right.type):
        left, right = left.as_time(), right.as_time()
    if Type.BYTES in (left.type, right.type):
        position = left if left.type is Type.BYTES else right
        position.fail(
            f"{op} over bytes", "starts_with(…, x'1603'), contains(…, 'text'), byte(…, n) or length(…) of them"
        )
    if key_type(left.type, right.type) is None:
        expected = f"a value of type {left.type}"
        if left.type is Type.BOOL:
            expected = "AND between two comparisons: 1 < x AND x < 5"
        if _is_time(left) or _is_time(right):
            expected = "a time column such as ts, compared with the text of a time"
        right.fail(f"{op} between {left.type} and {right.type}", expected)
    if left.type is Type.BOOL:
        left.fail(f"{op} between two conditions", "AND, OR and NOT to combine conditions")
    if left.type is Type.TEXT and op not in (Op.EQ, Op.NE):
        left.fail(f"{op} between texts", "=, <> or IN: texts have no order")
    return Binary(op, left.bound, right.bound)


def time_literal(sql: str, start: int, text: str) -> Literal:
    """Convert a text to a constant time. Raises QueryError at `start` if the text is not a time."""
    try:
        return Literal(parse_time(text), Type.TIME)
    except TimeError as error:
        raise QueryError(str(error), sql, start, EXAMPLES) from None


def _is_time(operand: Operand) -> bool:
    """Return whether an operand is a text that contains a time."""
    if not isinstance(operand.bound, Literal) or not isinstance(operand.bound.value, str):
        return False
    try:
        parse_time(operand.bound.value)
    except TimeError:
        return False
    return True


def member(operand: Operand, values: Sequence[Operand]) -> InList | InPrefix:
    """Return IN over constants of the operand's type. For an address they may be prefixes."""
    if operand.type in (Type.BOOL, Type.BYTES):
        what = "a condition" if operand.type is Type.BOOL else "bytes"
        operand.fail(f"IN over {what}", "a number, an address or a text before IN")
    values = [value.comparable_with(operand.type).as_number_of(operand) for value in values]
    constants = [(value, _constant(operand.type, value)) for value in values]
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


def _constant(value_type: Type, value: Operand) -> Literal:
    """Convert a value of an IN list to the type `value_type`. Addresses remain texts."""
    bound = value.bound
    if not isinstance(bound, Literal):
        value.fail("IN takes constants", "numbers, addresses or texts; OR for other expressions")
    if value_type is Type.FLOAT and bound.type in INTEGERS and isinstance(bound.value, int):
        return Literal(float(bound.value), Type.FLOAT)
    if value_type is Type.TIME and isinstance(bound.value, str):
        return time_literal(value.sql, value.start, bound.value)
    if value_type is Type.MAC and isinstance(bound.value, str):
        mac = value.as_mac().bound
        assert isinstance(mac, Literal)
        return mac
    if not same_values(bound.type, Type.TEXT if value_type is Type.ADDRESS else value_type):
        value.fail(f"IN over {value_type} got a value of type {bound.type}", f"constants of type {value_type}")
    return bound
