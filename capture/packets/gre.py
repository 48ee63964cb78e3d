"""Generic routing encapsulation: RFC 2784 and RFC 2890 (version 0), PPTP's RFC 2637 (version 1), and Cisco's ERSPAN.

    flags and version   C checksum  R routing (RFC 1701)  K key  S sequence number  ...  A acknowledgment  version (3)
    protocol            an EtherType; 0x6558 Ethernet, 0x880B PPP, 0x88BE ERSPAN I and II, 0x22EB ERSPAN III

ERSPAN I has neither a sequence number in GRE nor a header of its own; II has 8 bytes, III has 12, and 8 more where its
last bit says so. The id of a tunnel is the key, PPTP's call, ERSPAN's session.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper
from capture.packets.fields import NULL
from capture.packets.states import AT_ETHERNET, AT_PPP, AT_VERSION, LARGEST_LENGTH, NON_IP

CHECKSUM, ROUTING, KEY, SEQUENCE, ACKNOWLEDGMENT, VERSION_BITS = 0x8000, 0x4000, 0x2000, 0x1000, 0x0080, 0x0007
BRIDGED, PPP, ERSPAN, ERSPAN_III = 0x6558, 0x880B, 0x88BE, 0x22EB


@helper
def gre_inside(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the inside, tunnel id or NULL) for the header at `at`; NON_IP where nothing is in it."""
    tunnel = NULL
    if at + 4 > end:
        return NON_IP, at, tunnel
    flags = u16be(buf, at)
    protocol = u16be(buf, at + 2)
    version = flags & VERSION_BITS
    at += 4
    if flags & (CHECKSUM | ROUTING):
        at += 4
    if flags & KEY:
        if at + 4 <= end:
            tunnel = u32be(buf, at)
        at += 4
    if flags & SEQUENCE:
        at += 4
    if version == 1:
        if flags & ACKNOWLEDGMENT:
            at += 4
        carries = protocol == PPP and flags & KEY and flags & SEQUENCE  # no number, no payload
        return (AT_PPP if carries else NON_IP), at, tunnel & 0xFFFF
    if flags & ROUTING:
        at = after_routing(buf, at, end)
    if version or at >= end:
        return NON_IP, at, tunnel
    if protocol == BRIDGED:
        return AT_ETHERNET, at, tunnel
    if protocol == PPP:
        return AT_PPP, at, tunnel
    if protocol == ERSPAN and not flags & SEQUENCE:
        return AT_ETHERNET, at, tunnel
    if protocol == ERSPAN:
        return erspan_inside(buf, at, end, 1, 8)
    if protocol == ERSPAN_III:
        return erspan_inside(buf, at, end, 2, 12)
    return (protocol if protocol > LARGEST_LENGTH else NON_IP), at, tunnel


@helper
def after_routing(buf, at, end):  # type: ignore[no-untyped-def]
    """Offset behind the source route entries at `at`: family, offset, length, address; one of zeros is the last."""
    while at + 4 <= end:
        family = u16be(buf, at)
        length = np.int64(buf[at + 3])
        at += 4 + length
        if family == 0 and length == 0:
            return at
    return end


@helper
def erspan_inside(buf, at, end, version, header):  # type: ignore[no-untyped-def]
    """Version, VLAN, class, session id, ...; version III says whether Ethernet (0) or an IP packet (2) follows."""
    if at + header > end or buf[at] >> 4 != version:
        return NON_IP, at, NULL
    session = u16be(buf, at + 2) & 0x03FF
    state = AT_ETHERNET
    if version == 2:
        kind = buf[at + 10] >> 2 & 31
        if kind:
            state = AT_VERSION if kind == 2 else NON_IP
        if buf[at + 11] & 1:  # a subheader of the platform
            header += 8
    return state, at + header, session
