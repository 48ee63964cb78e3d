"""Link types of interfaces: what their frames begin with, by the hardware type that Linux gives them (if_arp.h).

Where frames begin with nothing that says what follows, or differently from driver to driver, the kernel is asked for
them without their link header (`cooked`), and the header of Linux cooked captures is put in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from capture.errors import InputError

ETHERNET, RAW_IP, COOKED = 1, 101, 113
"""Link types, LINKTYPE_ numbers as everywhere in this folder."""

LOOPBACK = 772
"""Hardware type whose interface sends every packet to itself, so that it passes twice."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A kind of interface, its link type, and whether its frames are taken without their link header."""

    name: str
    link_type: int

    @property
    def cooked(self) -> bool:
        """Whether the kernel leaves the link header away."""
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
"""By ARPHRD_ number."""


def hardware_of(number: int, name: str) -> Hardware:
    """Return what is known of a hardware type; InputError, with the list, where an interface `name` has another."""
    if number not in HARDWARE:
        known = ", ".join(f"{each} ({hardware.name})" for each, hardware in HARDWARE.items())
        raise InputError(
            f"{name}: got an interface of hardware type {number}, which is not supported; supported: {known}"
        )
    return HARDWARE[number]
