"""Literals of queries: numbers, durations, times, IP addresses and prefixes, and MAC addresses."""

from __future__ import annotations

import re
import socket
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from math import isfinite

from lowlevel.durations import DURATION_LIMIT, exact_duration
from lowlevel.expressions.address_constants import WIDTH, Address, Prefix
from lowlevel.times import EXAMPLES, TimeError, parse_time
from queries.text.errors import QueryError
from queries.text.lexer import Kind
from queries.text.tree import Constant, Length

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
"""Range of the integers of queries."""

MAC_EXAMPLE = "a MAC address like '00:11:22:aa:bb:cc', '00-11-22-AA-BB-CC' or '0011.22aa.bbcc'"

_MAC_FORMS = r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|(?:[0-9a-f]{2}-){5}[0-9a-f]{2}|(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}"


class AddressError(ValueError):
    """A text is not an address or prefix. The message contains no position in the query."""


def number_literal(text: str, negative: bool = False) -> int | float | None:
    """Return a decimal or hexadecimal 64-bit integer, or a decimal fraction. Return None for a number out of range.

    `text` has no sign; `negative` makes the result negative.
    """
    value: int | float
    if text[:2].lower() == "0x":
        value = int(text, 16)
    elif text.isdecimal():
        digits = text.lstrip("0") or "0"
        value = int(digits) if len(digits) < 20 else INT64_MAX + 2  # int() raises an error for thousands of digits
    else:
        value = float(text)
    value = -value if negative else value
    return value if (isfinite(value) if isinstance(value, float) else INT64_MIN <= value <= INT64_MAX) else None


def duration_of(sql: str, length: Length) -> int:
    """Return a length of time in ns. Raises QueryError for 0, for a fraction of 1 ns, and for 146 years or more."""
    nanoseconds = exact_duration(length.number, length.unit)
    if not 0 < nanoseconds < DURATION_LIMIT:
        problem = f"got a duration of {length.number} {length.unit}"
        raise QueryError(problem, sql, length.start, "more than 0 and less than 146 years")
    if nanoseconds.denominator != 1:
        problem = f"{length.number} {length.unit} is not a whole number of nanoseconds"
        raise QueryError(problem, sql, length.start, "a multiple of 1 ns")
    return int(nanoseconds)


def origin_of(sql: str, value: Constant) -> int:
    """Return the value of ORIGIN in ns since the epoch. It is written as an integer, or as the text of a time."""
    if value.kind is Kind.NUMBER:
        origin = int(value.text[:25])
    else:
        try:
            origin = parse_time(value.text)
        except TimeError as error:
            expected = f"whole nanoseconds since the epoch, or {EXAMPLES}"
            raise QueryError(f"got ORIGIN: {error}", sql, value.start, expected) from None
    if abs(origin) >= DURATION_LIMIT:
        expected = f"less than {DURATION_LIMIT} ns from the epoch"
        raise QueryError(f"ORIGIN {value.text} is out of range", sql, value.start, expected)
    return -origin if value.negative else origin


def parse_address(text: str) -> Address:
    """Return an IPv4 or IPv6 address. Raises AddressError, also for zone indices, and for leading zeros in IPv4."""
    try:
        if ":" not in text:
            return Address(4, int(IPv4Address(text)))
        if "%" not in text:
            return Address(6, int(IPv6Address(text)))
    except AddressValueError as error:
        raise AddressError(f"'{text}' is not an address ({error})") from None
    raise AddressError(f"'{text}' names a zone, which is not part of an address")


def parse_prefix(text: str) -> Prefix:
    """Return `address/length` as a prefix, or an address as the prefix of its full length.

    Raises AddressError, also if host bits are set.
    """
    base, slash, digits = text.partition("/")
    address = parse_address(base)
    width = WIDTH[address.version]
    if slash and not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= width):
        raise AddressError(f"'{text}' has the prefix length '{digits}', IPv{address.version} has 0 to {width}")
    length = int(digits) if slash else width
    network = address.value >> (width - length) << (width - length)
    if network != address.value:
        meant = prefix_text(Prefix(address.version, network, length))
        raise AddressError(f"'{text}' has host bits set; its network is '{meant}'")
    return Prefix(address.version, address.value, length)


def address_text(address: Address) -> str:
    """Return the text of an address in results: RFC 5952; IPv4-mapped addresses have dots (`::ffff:10.0.0.1`)."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return socket.inet_ntop(family, address.value.to_bytes(WIDTH[address.version] // 8, "big"))


def prefix_text(prefix: Prefix) -> str:
    """Return the text of a prefix, always with its length."""
    return f"{address_text(Address(prefix.version, prefix.value))}/{prefix.length}"


def parse_mac(text: str) -> int | None:
    """Return a MAC address as a number of 48 bits, or None if the text is not a MAC address.

    >>> hex(parse_mac("0011.22aa.bbcc")), parse_mac("0:11:22:aa:bb:cc")
    ('0x1122aabbcc', None)
    """
    lower = text.lower()
    return int(re.sub(r"[:.-]", "", lower), 16) if re.fullmatch(_MAC_FORMS, lower) else None


def mac_text(number: int) -> str:
    """Return the text of a MAC address, as in results."""
    return number.to_bytes(6, "big").hex(":")
