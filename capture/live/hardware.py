"""Link types of interfaces by Linux hardware type (if_arp.h).

The link headers of some hardware types have no usable type field, or depend on the driver. Such interfaces are captured
without link header (`cooked`), and a Linux cooked header is inserted in its place.
"""

from __future__ import annotations

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass

ETHERNET, RAW_IP, COOKED = 1, 101, 113
"""Link types: LINKTYPE_ numbers."""

LOOPBACK = 772
"""Hardware type of loopback interfaces, which receive all packets they send."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A type of interface hardware, and the link type of its frames."""

    name: str
    link_type: int

    @property
    def cooked(self) -> bool:
        """True if the kernel omits the link header."""
        return self.link_type == COOKED


HARDWARE: dict[int, Hardware] = {
    1: Hardware("Ethernet", ETHERNET),
    32: Hardware("InfiniBand", COOKED),
    512: Hardware("PPP", COOKED),
    519: Hardware("raw IP", RAW_IP),
    768: Hardware("IPIP tunnel", COOKED),
    769: Hardware("IPv6 tunnel", COOKED),
    772: Hardware("loopback", ETHERNET),
    776: Hardware("SIT tunnel", COOKED),
    778: Hardware("GRE tunnel", COOKED),
    801: Hardware("IEEE 802.11", 105),
    802: Hardware("IEEE 802.11 with Prism header", 119),
    803: Hardware("IEEE 802.11 with radiotap header", 127),
    823: Hardware("GRE tunnel over IPv6", COOKED),
    65534: Hardware("none: tun, WireGuard", RAW_IP),
}
"""Hardware types by ARPHRD_ number."""


def hardware_of(number: int, name: str) -> Hardware:
    """Return the hardware type with a number. Raises InputError, which lists the supported types, if it is unknown."""
    if number not in HARDWARE:
        known = ", ".join(f"{known_number} ({hardware.name})" for known_number, hardware in HARDWARE.items())
        raise InputError(
            f"{name}: got an interface of hardware type {number}, which is not supported; supported: {known}"
        )
    return HARDWARE[number]
