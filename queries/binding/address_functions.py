"""Functions of IP addresses: networks, IP versions, and special-purpose ranges (RFC 6890, RFC 4291, RFC 5771)."""

from __future__ import annotations

from collections.abc import Sequence

from lowlevel.expressions.address_constants import WIDTH
from lowlevel.expressions.tree import (
    Binary,
    Conditional,
    Expression,
    InPrefix,
    JoinedText,
    Literal,
    Masked,
    ScalarCall,
    TextOf,
)
from lowlevel.expressions.types import Op, Scalar, Type
from queries.binding.comparisons import Operand
from queries.binding.conditionals import with_common_type
from queries.text.errors import QueryError
from queries.text.literals import parse_prefix
from queries.text.tree import Word

NETWORK_TESTS: dict[str, tuple[str, ...]] = {
    "is_private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
    "is_multicast": ("224.0.0.0/4", "ff00::/8"),
    "is_loopback": ("127.0.0.0/8", "::1/128"),
    "is_link_local": ("169.254.0.0/16", "fe80::/10"),
}
"""Functions that test an address, by name, each with the networks for which it is true."""

PAIR_TYPES = (Type.ADDRESS, Type.MAC, Type.INT)
"""Types of the arguments of `pair`."""

PAIR_SEPARATOR = " <-> "
"""The text between the values of a pair."""

USAGES: dict[str, str] = {
    "mask": "mask(ip, 24), or mask(ip, 24, 64) for IPv4 and IPv6",
    "network": "network(ip, 24), or network(ip, 24, 64) for IPv4 and IPv6",
    "pair": "pair(srcIP, destIP)",
    "family": "family(ip)",
    **{name: f"{name}(ip)" for name in NETWORK_TESTS},
}
"""Functions by name, each with an example of its call."""


def address_function(sql: str, name: Word, operands: Sequence[Operand]) -> Expression:
    """Return the expression for a call of one of the functions in USAGES. Raises QueryError for wrong arguments."""
    function = name.text.lower()
    counts = {"mask": (2, 3), "network": (2, 3), "pair": (2,)}.get(function, (1,))
    if len(operands) not in counts:
        shown_count = f"{len(operands)} argument{'' if len(operands) == 1 else 's'}"
        raise QueryError(f"{function} with {shown_count}", sql, name.start, USAGES[function])
    if function == "pair":
        return _pair(operands)
    address = operands[0].as_address()
    if address.type is not Type.ADDRESS:
        address.fail(f"{function} over a value of type {address.type}", "an address, for example srcIP")
    if function in NETWORK_TESTS:
        return InPrefix(address.bound, tuple(parse_prefix(text) for text in NETWORK_TESTS[function]))
    if function == "family":
        return _ip_version(address.bound)
    if len(operands) == 2:
        bits = _prefix_length(operands[1], WIDTH[6])
        masked = Masked(address.bound, min(bits, WIDTH[4]), bits)
    else:
        masked = Masked(address.bound, _prefix_length(operands[1], WIDTH[4]), _prefix_length(operands[2], WIDTH[6]))
    return masked if function == "mask" else _prefix_text(masked)


def _prefix_text(network: Masked) -> Expression:
    """Return a network as text: its first address, a slash and its length."""
    ipv4, ipv6 = (_surround("", TextOf(network), f"/{bits}") for bits in (network.ipv4, network.ipv6))
    if ipv4 == ipv6:
        return ipv4
    return Conditional(InPrefix(network, (parse_prefix("0.0.0.0/0"),)), ipv4, ipv6)


def _pair(operands: Sequence[Operand]) -> Expression:
    """Return two values as one text, the smaller value first, so that the text is the same in both directions."""
    one, other = with_common_type("pair", operands)
    for operand, bound in zip(operands, (one, other), strict=True):
        if bound.type not in PAIR_TYPES:
            operand.fail(f"pair over a value of type {bound.type}", " or ".join(PAIR_TYPES))
    is_ordered, is_reversed = Binary(Op.LE, one, other), Binary(Op.GT, one, other)
    nothing = Literal(None, one.type)

    def chosen(first: Expression, second: Expression) -> Expression:
        otherwise = Conditional(is_reversed, second, nothing) if one.nullable or other.nullable else second
        return Conditional(is_ordered, first, otherwise)

    return JoinedText(_surround("", TextOf(chosen(one, other)), PAIR_SEPARATOR), TextOf(chosen(other, one)))


def _surround(before: str, text: Expression, after: str) -> Expression:
    return ScalarCall(Scalar.CONCAT, text, None, (Literal(before, Type.TEXT), Literal(after, Type.TEXT)))


def _ip_version(address: Expression) -> Expression:
    """Return 4 or 6, or NULL for NULL."""
    ipv4, ipv6 = (InPrefix(address, (parse_prefix(text),)) for text in ("0.0.0.0/0", "::/0"))
    otherwise: Expression = Literal(6, Type.INT)
    if address.nullable:
        otherwise = Conditional(ipv6, otherwise, Literal(None, Type.INT))
    return Conditional(ipv4, Literal(4, Type.INT), otherwise)


def _prefix_length(operand: Operand, max_length: int) -> int:
    """Return the length of a prefix."""
    bound = operand.bound
    if not isinstance(bound, Literal) or bound.type is not Type.INT or not isinstance(bound.value, int):
        operand.fail("a length of a prefix that is not a constant", f"an integer from 0 to {max_length}")
    if not 0 <= bound.value <= max_length:
        operand.fail(f"a prefix of {bound.value} bits", f"an integer from 0 to {max_length}")
    return bound.value
