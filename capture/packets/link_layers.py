"""The supported link types, and for each the headers that the capturing system writes before the frame.

The LINKTYPE_ documents of tcpdump.org describe the layouts. PPI and PKTAP headers contain the link type of the next
header: any supported type except PPI and PKTAP.

`outermost_layer` walks from the first byte of a frame to its outermost IP header, with fast paths for most frames.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u16le, u32be, u32le
from capture.native import helper, outlined
from capture.packets.candidates import LINK_TYPES as FALLBACK_LINK_TYPES
from capture.packets.fields import NULL
from capture.packets.link_headers import (
    AT_ARCNET,
    AT_CISCO_HDLC,
    AT_COOKED,
    AT_COOKED_2,
    AT_DSA,
    AT_EDSA,
    AT_ETHERNET,
    AT_FRAME_RELAY,
    AT_IPOIB,
    AT_IPV4,
    AT_IPV6,
    AT_LANE,
    AT_LLC,
    AT_MPLS,
    AT_NFLOG,
    AT_PPP,
    AT_SWITCH_TAG,
    AT_VERSION,
    AT_WLAN,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    NON_IP,
    UNSUPPORTED,
    VLAN_TAGS,
    after_avs,
    after_prism,
    after_radiotap,
)
from capture.packets.network_layer import network_layer

LINK_TYPES: dict[int, str] = {
    0: "BSD null",
    1: "Ethernet",
    8: "SLIP",
    9: "PPP",
    12: "raw IP",
    14: "raw IP",
    50: "PPP in HDLC framing",
    51: "PPPoE",
    100: "ATM with LLC",
    101: "raw IP",
    104: "Cisco HDLC",
    105: "IEEE 802.11",
    106: "IP over ATM",
    107: "Frame Relay",
    108: "BSD loopback",
    109: "OpenBSD enc",
    113: "Linux cooked v1",
    117: "OpenBSD pflog",
    119: "IEEE 802.11 with Prism header",
    123: "SunATM",
    127: "IEEE 802.11 with radiotap header",
    129: "Linux ARCnet",
    149: "PKTAP",
    163: "IEEE 802.11 with AVS header",
    166: "PPP of pppd",
    178: "Juniper Ethernet",
    179: "Juniper PPP",
    180: "Juniper Frame Relay",
    181: "Juniper Cisco HDLC",
    192: "PPI",
    204: "PPP with direction",
    205: "Cisco HDLC with direction",
    206: "Frame Relay with direction",
    219: "MPLS",
    226: "Solaris IPNET",
    228: "raw IPv4",
    229: "raw IPv6",
    239: "nflog",
    242: "IP over InfiniBand",
    258: "PKTAP",
    276: "Linux cooked v2",
    281: "Broadcom switch tag",
    282: "Broadcom switch tag in front",
    284: "Marvell DSA",
    285: "Marvell EDSA",
}
"""Link types by their LINKTYPE_ number."""

ETHERNET, PPI, LOOP = 1, 192, 108
PKTAP = (149, 258)
"""Link types of PKTAP. 258 is the assigned number. Older versions of macOS wrote 149."""


def supported_link_types() -> str:
    """Return a list of the link types for an error message."""
    listed = (f"{number} ({name})" for number, name in sorted(LINK_TYPES.items()))
    fallback = (f"{number} ({name}, by dpkt)" for number, name in sorted(FALLBACK_LINK_TYPES.items()))
    return ", ".join((*listed, *fallback))


@helper
def link_header(buf, offset, end, link):  # type: ignore[no-untyped-def]
    """Return (state of the walk, offset) at the beginning of the frame itself, or an end of the walk."""
    if link == PPI:  # version, flags, length of the header, link type
        if offset + 8 > end:
            return NON_IP, offset
        link = u32le(buf, offset + 4)
        length = u16le(buf, offset + 2)
        offset += length
        if link == PPI or link in PKTAP or length < 8 or offset > end:
            return NON_IP, offset
    elif link in PKTAP:  # length of the header, type of the next one, link type
        if offset + 12 > end:
            return NON_IP, offset
        link = u32le(buf, offset + 8)
        length = u32le(buf, offset)
        offset += length
        if link == PPI or link in PKTAP or length < 12 or offset > end:
            return NON_IP, offset
    if link == ETHERNET:
        return AT_ETHERNET, offset
    if link in (12, 14, 101):
        return AT_VERSION, offset
    if link == 228:
        return AT_IPV4, offset
    if link == 229:
        return AT_IPV6, offset
    if link == 113:
        return AT_COOKED, offset
    if link == 276:
        return AT_COOKED_2, offset
    if link in (0, 108):
        return bsd_family(buf, offset, end, link)
    if link in (9, 50):
        if offset < end and buf[offset] in (0x0F, 0x8F):  # HDLC addresses that only Cisco's framing uses
            return AT_CISCO_HDLC, offset
        return AT_PPP, offset
    if link == 51:  # version, code, session, length
        return AT_PPP, offset + 6
    if link == 104:
        return AT_CISCO_HDLC, offset
    if link == 105:
        return AT_WLAN, offset
    if link == 127:
        return after_radiotap(buf, offset, end)
    if link == 119:
        return after_prism(buf, offset, end)
    if link == 163:
        return after_avs(buf, offset, end)
    if link == 107:
        return AT_FRAME_RELAY, offset
    if link == 100:
        return AT_LLC, offset
    if link == 106:  # RFC 2225: with LLC by default, without LLC if the endpoints have agreed on this
        llc = offset + 3 <= end and u16be(buf, offset) == 0xAAAA and buf[offset + 2] == 3
        return (AT_LLC if llc else AT_IPV4), offset
    if link == 123:  # direction and traffic, VPI, VCI
        lane = offset < end and buf[offset] & 15 == 1
        return (AT_LANE if lane else AT_LLC), offset + 4
    if link == 129:
        return AT_ARCNET, offset
    if link == 8:  # direction and the compressed header; the complete header follows
        return AT_VERSION, offset + 16
    if link == 166:  # direction instead of the HDLC address, control
        return AT_PPP, offset + 2
    if link == 204:
        return AT_PPP, offset + 1
    if link == 205:
        return AT_CISCO_HDLC, offset + 1
    if link == 206:
        return AT_FRAME_RELAY, offset + 1
    if link == 219:
        return AT_MPLS, offset
    if link in (178, 179, 180, 181):
        return juniper_header(buf, offset, end, link)
    if link == 109:
        return enc_header(buf, offset, end)
    if link == 117:
        return pflog_header(buf, offset, end)
    if link == 226:
        return ipnet_header(buf, offset, end)
    if link == 239:
        return AT_NFLOG, offset
    if link == 242:
        return AT_IPOIB, offset
    if link == 281:
        return AT_SWITCH_TAG, offset
    if link == 282:
        return AT_ETHERNET, offset + 4
    if link == 284:
        return AT_DSA, offset
    if link == 285:
        return AT_EDSA, offset
    return UNSUPPORTED, offset


@helper
def family_state(family):  # type: ignore[no-untyped-def]
    """Map an address family to a state: AF_INET, and AF_INET6 of Linux, Windows, NetBSD/OpenBSD, FreeBSD, macOS."""
    if family == 2:
        return AT_IPV4
    return np.int64(AT_IPV6 if family in (10, 23, 24, 28, 30) else NON_IP)


@helper
def bsd_family(buf, offset, end, link):  # type: ignore[no-untyped-def]
    """Read a four-byte address family: in network order for an OpenBSD loopback, else in the order of the host."""
    if offset + 4 > end:
        return NON_IP, offset
    family = u32be(buf, offset)
    if family > 0xFFFF and link != LOOP:
        family = u32le(buf, offset)
    return family_state(family), offset + 4


@helper
def enc_header(buf, offset, end):  # type: ignore[no-untyped-def]
    """Read an OpenBSD enc header of a packet before or after IPsec: address family in host order, SPI, flags."""
    if offset + 12 > end:
        return NON_IP, offset
    family = u32be(buf, offset)
    return family_state(u32le(buf, offset) if family > 0xFFFF else family), offset + 12


@helper
def pflog_header(buf, offset, end):  # type: ignore[no-untyped-def]
    """Read the header of a packet that pf has logged: its length, which is padded to four bytes, and address family."""
    if offset + 2 > end or buf[offset] < 4:
        return NON_IP, offset
    return family_state(np.int64(buf[offset + 1])), offset + (np.int64(buf[offset]) + 3 & ~3)


@helper
def ipnet_header(buf, offset, end):  # type: ignore[no-untyped-def]
    """Read an IPNET header: version, address family, hook, length, interfaces and zones. Solaris' AF_INET6 is 26."""
    if offset + 24 > end:
        return NON_IP, offset
    family = buf[offset + 1]
    return (AT_IPV4 if family == 2 else AT_IPV6 if family == 26 else NON_IP), offset + 24


@helper
def juniper_header(buf, offset, end, link):  # type: ignore[no-untyped-def]
    """Read a Juniper header: magic number, flags, optional extensions. A flag marks a missing link header."""
    if offset + 6 > end or u32be(buf, offset) >> 8 != 0x4D4743:
        return NON_IP, offset
    flags = np.int64(buf[offset + 3])
    offset += 6 + u16be(buf, offset + 4) if flags & 0x80 else 4
    if flags & 2:  # no link header: a protocol number of four bytes instead
        return AT_VERSION, offset + 4
    if link == 178:
        return AT_ETHERNET, offset
    if link == 179:
        return AT_PPP, offset
    return (AT_FRAME_RELAY if link == 180 else AT_CISCO_HDLC), offset


ETHERNET_LINK, RAW, COOKED, COOKED_2 = 1, 101, 113, 276
"""Link types for which `outermost_layer` has a fast path."""


@helper
def outermost_layer(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return the result of `network_layer` for the frame `buf[frame:end]` of link type `link`.

    Ethernet with or without VLAN tags, Linux cooked frames and raw IP are handled here, inside the loop over the
    records. The full walk is not inlined, so that it does not slow them down.
    """
    kind = np.int64(NON_IP)
    offset = frame
    vlan = np.int64(NULL)
    source = np.int64(NULL)
    destination = np.int64(NULL)
    if link == ETHERNET_LINK:
        if frame + 14 <= end:
            kind = u16be(buf, frame + 12)
            offset = frame + 14
            source = frame + 6
            destination = frame
            while kind not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) and kind in VLAN_TAGS and offset + 4 <= end:
                if vlan < 0:
                    vlan = u16be(buf, offset) & 0xFFF
                kind = u16be(buf, offset + 2)
                offset += 4
    elif link == COOKED:
        if frame + 16 <= end:
            kind = u16be(buf, frame + 14)
            offset = frame + 16
            source = frame + 6 if u16be(buf, frame + 4) == 6 else np.int64(NULL)
    elif link == COOKED_2:
        if frame + 20 <= end:
            kind = u16be(buf, frame)
            offset = frame + 20
            source = frame + 12 if buf[frame + 11] == 6 else np.int64(NULL)
    elif link == RAW and frame < end:
        version = buf[frame] >> 4
        if version in (4, 6):
            return np.int64(ETHERTYPE_IPV4 if version == 4 else ETHERTYPE_IPV6), offset, vlan, vlan, vlan, vlan, vlan
    if kind in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        return kind, offset, vlan, np.int64(NULL), kind, source, destination
    return walk_all_headers(buf, frame, end, link)


@outlined
def walk_all_headers(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return the same result with the full walk, for any first header."""
    state, offset = link_header(buf, frame, end, link)
    return network_layer(buf, offset, end, state)
