"""Functions of IP addresses: networks, families, and ranges with a purpose (RFC 6890, RFC 4291, RFC 5771)."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.expressions.address_constants import WIDTH
from lowlevel.expressions.tree import Conditional, Expression, InPrefix, Literal, Masked
from lowlevel.expressions.types import Type
from queries.binding.comparisons import Operand
from queries.text.errors import QueryError
from queries.text.literals import parse_prefix
from queries.text.tree import Word

RANGES: dict[str, tuple[str, ...]] = {
    "is_private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "is_multicast": ("224.0.0.0/4", "ff00::/8"),
    "is_loopback": ("127.0.0.0/8", "::1/128"),
    "is_link_local": ("169.254.0.0/16", "fe80::/10"),
}
"""Tests of addresses by name, and the networks for which they are true."""

USAGES: dict[str, str] = {
    "mask": "mask(ip, 24), or mask(ip, 24, 64) for IPv4 and IPv6",
    "family": "family(ip)",
    **{name: f"{name}(ip)" for name in RANGES},
}
"""Functions by name, each with an example of its call."""


def address_function(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the call of a function of USAGES. Raises QueryError for wrong arguments."""
    function = name.text.lower()
    counts = (2, 3) if function == "mask" else (1,)
    if len(operands) not in counts:
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(f"{function} with {shown_count}", sql, name.start, USAGES[function])
    address = operands[0].as_address()
    if address.type is not Type.ADDRESS:
        address.fail(f"{function} over a value of type {address.type}", "an address, for example srcIP")
    if function in RANGES:
        return InPrefix(address.bound, tuple(parse_prefix(text) for text in RANGES[function]))
    if function == "family":
        return _family(address.bound)
    if len(operands) == 2:
        bits = _bits(operands[1], WIDTH[6])
        return Masked(address.bound, min(bits, WIDTH[4]), bits)
    return Masked(address.bound, _bits(operands[1], WIDTH[4]), _bits(operands[2], WIDTH[6]))


def _family(address: Expression) -> Expression:
    """Return 4 or 6, or NULL for NULL."""
    ipv4, ipv6 = (InPrefix(address, (parse_prefix(text),)) for text in ("0.0.0.0/0", "::/0"))
    otherwise: Expression = Literal(6, Type.INT)
    if address.nullable:
        otherwise = Conditional(ipv6, otherwise, Literal(None, Type.INT))
    return Conditional(ipv4, Literal(4, Type.INT), otherwise)


def _bits(operand: Operand, most: int) -> int:
    """Return the length of a prefix."""
    bound = operand.bound
    if not isinstance(bound, Literal) or bound.type is not Type.INT or not isinstance(bound.value, int):
        operand.fail("a length of a prefix that is no constant", f"an integer from 0 to {most}")
    if not 0 <= bound.value <= most:
        operand.fail(f"a prefix of {bound.value} bits", f"an integer from 0 to {most}")
    return bound.value
