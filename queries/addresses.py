"""Address literals: `'10.0.0.1'`, `'2001:db8::1'`, and prefixes `'10.0.0.0/8'`."""

from __future__ import annotations

import socket
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from lowlevel.expressions.address_constants import WIDTH, Address, Prefix


class AddressError(ValueError):
    """Text that is no address or prefix; the message says what is wrong, without its place in the query."""


def parse_address(text: str) -> Address:
    """Read an IPv4 or IPv6 address in text; no zone index, no leading zeros in IPv4."""
    try:
        if ":" not in text:
            return Address(4, int(IPv4Address(text)))
        if "%" not in text:
            return Address(6, int(IPv6Address(text)))
    except AddressValueError as error:
        raise AddressError(f"'{text}' is not an address ({error})") from None
    raise AddressError(f"'{text}' names a zone, which is not part of an address")


def parse_prefix(text: str) -> Prefix:
    """Read `address/length`, or an address alone as the prefix of its full length. No host bits may be set."""
    base, slash, digits = text.partition("/")
    address = parse_address(base)
    width = WIDTH[address.version]
    if slash and not (digits.isascii() and digits.isdigit() and len(digits) <= 3 and int(digits) <= width):
        raise AddressError(f"'{text}' has the prefix length '{digits}', IPv{address.version} has 0 to {width}")
    length = int(digits) if slash else width
    network = address.value >> (width - length) << (width - length)
    if network != address.value:
        meant = prefix_text(Prefix(address.version, network, length))
        raise AddressError(f"'{text}' has host bits set, the network meant is '{meant}'")
    return Prefix(address.version, address.value, length)


def address_text(address: Address) -> str:
    """Text of an address, as results spell it: RFC 5952, mapped ones with dots (`::ffff:10.0.0.1`)."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    return socket.inet_ntop(family, address.value.to_bytes(WIDTH[address.version] // 8, "big"))


def prefix_text(prefix: Prefix) -> str:
    """Text of a prefix, with its length also where it is a single address."""
    return f"{address_text(Address(prefix.version, prefix.value))}/{prefix.length}"
