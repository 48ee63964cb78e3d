"""From the first byte of a frame to its outermost IP header, as one kernel helper.

What is followed: Ethernet with any depth of VLAN tags (802.1Q, 802.1ad, and the older 0x9100 and 0x9200), MPLS, PPPoE
sessions, LLC/SNAP, Cisco FabricPath; Linux cooked v1 and v2; raw IP; BSD null/loopback; PPP; Cisco HDLC; PPI around
any of these. What IP itself carries (tunnels) is inside the outermost IP header and not looked at. 802.11 and Frame
Relay are **not** supported.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u32le
from capture.native import helper

ETHERNET = 1
NULL = 0
RAW_BSD = 12
RAW_OPENBSD = 14
RAW = 101
IPV4 = 228
IPV6 = 229
PPP = 9
PPP_HDLC = 50
PPPOE = 51
CISCO_HDLC = 104
LOOP = 108
LINUX_SLL = 113
PPI = 192
LINUX_SLL2 = 276

LINK_TYPES: dict[int, str] = {
    NULL: "BSD null",
    ETHERNET: "Ethernet",
    PPP: "PPP",
    RAW_BSD: "raw IP",
    RAW_OPENBSD: "raw IP",
    PPP_HDLC: "PPP in HDLC framing",
    PPPOE: "PPPoE",
    RAW: "raw IP",
    CISCO_HDLC: "Cisco HDLC",
    LOOP: "BSD loopback",
    LINUX_SLL: "Linux cooked v1",
    PPI: "PPI",
    IPV4: "raw IPv4",
    IPV6: "raw IPv6",
    LINUX_SLL2: "Linux cooked v2",
}
"""Link types by their LINKTYPE_ number."""

NON_IP = -1
"""The end of the walk when a frame announces no IP packet."""
UNSUPPORTED = -4
"""The end of the walk when the link type is not known. A negative end is -1 - its cause in `fields.SKIPPED`."""

# States of the walk below: an EtherType is itself, and everything else lies above them.
AT_ETHERNET = 0x10000
AT_PPP = 0x10001
AT_LLC = 0x10002
AT_VERSION = 0x10003
AT_IPV4 = 0x10004
AT_IPV6 = 0x10005
AT_COOKED = 0x10006
AT_COOKED_2 = 0x10007
AT_CISCO_HDLC = 0x10008
AT_MPLS_IN_PPP = 0x10009
AT_MPLS = 0x8847
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD


def supported_link_types() -> str:
    """List the link types for an error message."""
    return ", ".join(f"{number} ({name})" for number, name in sorted(LINK_TYPES.items()))


@helper
def link_header(buf, at, end, link):  # type: ignore[no-untyped-def]
    """Return (state of the walk, offset) where the frame's own headers begin, or an end of the walk."""
    if link == ETHERNET:
        return np.int64(AT_ETHERNET), at
    if link == PPI:
        if at + 8 > end:
            return np.int64(NON_IP), at
        link = u32le(buf, at + 4)
        at += np.int64(buf[at + 2]) | np.int64(buf[at + 3]) << 8
        if link == PPI or at > end:
            return np.int64(NON_IP), at
        if link == ETHERNET:
            return np.int64(AT_ETHERNET), at
    if link in (RAW, RAW_BSD, RAW_OPENBSD):
        return np.int64(AT_VERSION), at
    if link == IPV4:
        return np.int64(AT_IPV4), at
    if link == IPV6:
        return np.int64(AT_IPV6), at
    if link in (PPP, PPP_HDLC):
        if at < end and buf[at] in (0x0F, 0x8F):  # an HDLC address that only Cisco's framing uses
            return np.int64(AT_CISCO_HDLC), at
        return np.int64(AT_PPP), at
    if link == CISCO_HDLC:
        return np.int64(AT_CISCO_HDLC), at
    if link == PPPOE:
        return np.int64(AT_PPP), at + 6
    if link in (NULL, LOOP):
        if at + 4 > end:
            return np.int64(NON_IP), at
        family = u32be(buf, at)
        if family > 0xFFFF and link == NULL:  # written by a host of the other byte order
            family = u32le(buf, at)
        if family == 2:
            return np.int64(AT_IPV4), at + 4
        if family in (10, 23, 24, 28, 30):  # AF_INET6 of Linux, Windows, NetBSD/OpenBSD, FreeBSD, macOS
            return np.int64(AT_IPV6), at + 4
        return np.int64(NON_IP), at
    if link == LINUX_SLL:
        return np.int64(AT_COOKED), at
    if link == LINUX_SLL2:
        return np.int64(AT_COOKED_2), at
    return np.int64(UNSUPPORTED), at


@helper
def network_layer(buf, at, end, state):  # type: ignore[no-untyped-def]
    """Walk from `state` at `at` to the next IP header.

    Returns (EtherType of IP or an end of the walk, offset, VLAN id of the outermost tag, label of the outermost MPLS
    entry, EtherType behind the tags, offsets of the source and of the destination address); what is not there is -1.
    Every step moves forward, so the walk ends with the frame.
    """
    vlan = np.int64(-1)
    mpls = np.int64(-1)
    ethertype = np.int64(-1)
    source = np.int64(-1)
    destination = np.int64(-1)
    while True:
        if ethertype < 0 and 1500 < state <= 0xFFFF and state not in VLAN_TAGS:
            ethertype = state
        if state in (AT_IPV4, ETHERTYPE_IPV4):
            return np.int64(ETHERTYPE_IPV4), at, vlan, mpls, ethertype, source, destination
        if state in (AT_IPV6, ETHERTYPE_IPV6):
            return np.int64(ETHERTYPE_IPV6), at, vlan, mpls, ethertype, source, destination
        if state == AT_ETHERNET:
            if at + 14 > end:
                break
            if source < 0:
                destination = at
                source = at + 6
            state = u16be(buf, at + 12)
            at += 14
            if state <= 1500:
                state = np.int64(AT_LLC)
        elif state in VLAN_TAGS:
            if at + 4 > end:
                break
            if vlan < 0:
                vlan = u16be(buf, at) & 0xFFF
            state = u16be(buf, at + 2)
            at += 4
            if state <= 1500:
                state = np.int64(AT_LLC)
        elif state in (AT_MPLS, 0x8848, AT_MPLS_IN_PPP):
            if mpls < 0 and at + 4 <= end:
                mpls = u32be(buf, at) >> 12
            while at + 4 <= end and not buf[at + 2] & 1:
                at += 4
            at += 4
            state = np.int64(AT_VERSION)
        elif state == AT_VERSION:
            if at >= end:
                break
            version = buf[at] >> 4
            if version == 4:
                state = np.int64(AT_IPV4)
            elif version == 6:
                state = np.int64(AT_IPV6)
            else:
                break
        elif state == 0x8864:  # PPPoE session stage
            at += 6
            state = np.int64(AT_PPP)
        elif state == AT_PPP:
            if at + 2 <= end and buf[at] == 0xFF and buf[at + 1] == 0x03:
                at += 2
            if at + 2 > end:
                break
            if buf[at] & 1:  # protocol field compressed to one byte
                protocol = np.int64(buf[at])
                at += 1
            else:
                protocol = u16be(buf, at)
                at += 2
            if protocol == 0x21:
                state = np.int64(AT_IPV4)
            elif protocol == 0x57:
                state = np.int64(AT_IPV6)
            elif protocol in (0x281, 0x283):
                state = np.int64(AT_MPLS_IN_PPP)
            else:
                break
        elif state == AT_LLC:
            if at + 3 > end:
                break
            if buf[at] == 0x06 and buf[at + 1] == 0x06:
                at += 3
                state = np.int64(AT_VERSION)
            elif at + 8 <= end and buf[at] == 0xAA and buf[at + 1] == 0xAA and u32be(buf, at + 2) == 0x03000000:
                state = u16be(buf, at + 6)
                at += 8
            else:
                break
        elif state == 0x8903:  # Cisco FabricPath: a tag, then a whole Ethernet frame
            at += 2
            state = np.int64(AT_ETHERNET)
        elif state == AT_CISCO_HDLC:  # address, control, EtherType
            if at + 4 > end:
                break
            state = u16be(buf, at + 2)
            at += 4
        elif state == AT_COOKED:  # packet type, ARPHRD type, length of the address, address (8), protocol
            if at + 16 > end:
                break
            if u16be(buf, at + 4) == 6:
                source = at + 6
            state = u16be(buf, at + 14)
            at += 16
            if state == 4:
                state = np.int64(AT_LLC)
        elif state == AT_COOKED_2:  # protocol, reserved, interface (4), ARPHRD type, packet type, length, address (8)
            if at + 20 > end:
                break
            if buf[at + 11] == 6:
                source = at + 12
            state = u16be(buf, at)
            at += 20
            if state == 4:
                state = np.int64(AT_LLC)
        else:
            break
    return state if state == UNSUPPORTED else np.int64(NON_IP), at, vlan, mpls, ethertype, source, destination
