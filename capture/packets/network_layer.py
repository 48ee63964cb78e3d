"""The walk from a link type or a tunnel to the next IP header.

Supported headers:

* Ethernet with any number of VLAN tags (802.1Q, 802.1ad, and the older 0x9100 and 0x9200), MPLS, LLC/SNAP
* PPPoE sessions, PPP, Frame Relay, Cisco HDLC, Cisco FabricPath, tags of Broadcom and Marvell switches
* IEEE 802.11, ATM LAN emulation, ARCnet, IP over InfiniBand
* Linux cooked v1 and v2, nflog

**Not** supported: Ethernet in MPLS, IP in MACsec, and encrypted or compressed payloads.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u16le, u32be
from capture.native import helper, outlined
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
    AT_WLAN_PADDED,
    ETHERTYPE_FABRICPATH,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_MPLS,
    ETHERTYPE_MPLS_MULTICAST,
    ETHERTYPE_PPPOE,
    LARGEST_LENGTH,
    NON_IP,
    UNSUPPORTED,
    VLAN_TAGS,
    after_frame_relay,
    after_llc,
    after_wlan,
)


@outlined
def network_layer(buf, offset, end, state):  # type: ignore[no-untyped-def]
    """Walk from `state` at `offset` to the next IP header of the frame, which ends at `end`.

    Returns (EtherType of IP or an end of the walk, offset, VLAN ID of the outermost tag, label of the outermost MPLS
    entry, EtherType after the tags, offset of the source address, offset of the destination address). Missing values
    are -1. Every step moves forward, so the walk always ends.
    """
    vlan = np.int64(-1)
    mpls = np.int64(-1)
    ethertype = np.int64(-1)
    source = np.int64(-1)
    destination = np.int64(-1)
    while state >= 0:
        if ethertype < 0 and LARGEST_LENGTH < state <= 0xFFFF and state not in VLAN_TAGS:
            ethertype = state
        if state in (AT_IPV4, ETHERTYPE_IPV4):
            return ETHERTYPE_IPV4, offset, vlan, mpls, ethertype, source, destination
        if state in (AT_IPV6, ETHERTYPE_IPV6):
            return ETHERTYPE_IPV6, offset, vlan, mpls, ethertype, source, destination
        if state == AT_ETHERNET:
            if offset + 14 > end:
                break
            if source < 0:
                destination = offset
                source = offset + 6
            state = type_or_length(u16be(buf, offset + 12))
            offset += 14
        elif state in VLAN_TAGS:
            if offset + 4 > end:
                break
            if vlan < 0:
                vlan = u16be(buf, offset) & 0xFFF
            state = type_or_length(u16be(buf, offset + 2))
            offset += 4
        elif state in (AT_MPLS, ETHERTYPE_MPLS, ETHERTYPE_MPLS_MULTICAST):
            if mpls < 0 and offset + 4 <= end:
                mpls = u32be(buf, offset) >> 12
            while offset + 4 <= end and not buf[offset + 2] & 1:
                offset += 4
            offset += 4
            state = AT_VERSION
        elif state == AT_VERSION:
            if offset >= end:
                break
            version = buf[offset] >> 4
            if version not in (4, 6):
                break
            state = AT_IPV4 if version == 4 else AT_IPV6
        elif state == ETHERTYPE_PPPOE:  # version, code, session, length
            offset += 6
            state = AT_PPP
        elif state == AT_PPP:
            state, offset = after_ppp(buf, offset, end)
        elif state == AT_LLC:
            state, offset = after_llc(buf, offset, end)
        elif state == ETHERTYPE_FABRICPATH:  # a tag, then the original frame, which FabricPath switches encapsulate
            offset += 2
            source = np.int64(-1)
            destination = np.int64(-1)
            ethertype = np.int64(-1)
            state = AT_ETHERNET
        elif state == AT_CISCO_HDLC:  # address, control, EtherType
            if offset + 4 > end:
                break
            state = u16be(buf, offset + 2)
            offset += 4
        elif state == AT_COOKED:  # packet type, ARPHRD type, length of the address, address in eight bytes, protocol
            if offset + 16 > end:
                break
            if u16be(buf, offset + 4) == 6:
                source = offset + 6
            state = cooked_protocol(u16be(buf, offset + 14))
            offset += 16
        elif state == AT_COOKED_2:  # protocol, interface, ARPHRD type, packet type, length of the address, address
            if offset + 20 > end:
                break
            if buf[offset + 11] == 6:
                source = offset + 12
            state = cooked_protocol(u16be(buf, offset))
            offset += 20
        elif state in (AT_SWITCH_TAG, AT_DSA, AT_EDSA):
            type_offset = offset + (20 if state == AT_EDSA else 16)  # offset of the type
            if type_offset + 2 > end:
                break
            destination = offset
            source = offset + 6
            if state != AT_SWITCH_TAG and buf[type_offset - 4] & 0x20:  # the switch merged an 802.1Q tag into its own
                vlan = u16be(buf, type_offset - 2) & 0xFFF
            state = type_or_length(u16be(buf, type_offset))
            offset = type_offset + 2
        elif state in (AT_WLAN, AT_WLAN_PADDED):
            state, offset, source, destination = after_wlan(buf, offset, end, state == AT_WLAN_PADDED)
        elif state == AT_FRAME_RELAY:
            state, offset = after_frame_relay(buf, offset, end)
        elif state == AT_LANE:  # the ID of an emulation client, then Ethernet; 0xFF00 is a control frame
            if offset + 2 > end or u16be(buf, offset) == 0xFF00:
                break
            offset += 2
            state = AT_ETHERNET
        elif state == AT_ARCNET:
            state, offset = after_arcnet(buf, offset, end)
        elif state == AT_NFLOG:
            state, offset, source = after_nflog(buf, offset, end)
        elif state == AT_IPOIB:  # a global routing header of 40 bytes, EtherType, reserved
            if offset + 44 > end:
                break
            state = u16be(buf, offset + 40)
            offset += 44
        else:
            break
    return (UNSUPPORTED if state == UNSUPPORTED else NON_IP), offset, vlan, mpls, ethertype, source, destination


@helper
def type_or_length(number):  # type: ignore[no-untyped-def]
    """Map Ethernet's type field to a state. A small number is a length, and LLC follows (IEEE 802.3 §3.2.6)."""
    return np.int64(number if number > LARGEST_LENGTH else AT_LLC)


@helper
def after_ppp(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the PPP protocol field (RFC 1661 §2), with or without an HDLC address before it."""
    if offset + 2 <= end and buf[offset] == 0xFF and buf[offset + 1] == 0x03:
        offset += 2
    if offset + 2 > end:
        return NON_IP, offset
    protocol = u16be(buf, offset)
    offset += 2
    if buf[offset - 2] & 1:  # compressed to one byte
        protocol >>= 8
        offset -= 1
    if protocol == 0x21:
        return AT_IPV4, offset
    if protocol == 0x57:
        return AT_IPV6, offset
    return np.int64(AT_MPLS if protocol in (0x281, 0x283) else NON_IP), offset


@helper
def cooked_protocol(protocol):  # type: ignore[no-untyped-def]
    """Map the protocol field of a Linux cooked header to a state.

    The field is an EtherType, or a small number: 4 means LLC.
    """
    if protocol > LARGEST_LENGTH:
        return protocol
    return AT_LLC if protocol == 4 else NON_IP


@helper
def after_arcnet(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after source, destination, offset, and the type of RFC 1201 or the older RFC 1051."""
    if offset + 5 <= end:
        if buf[offset + 4] == 240:  # RFC 1051: only the type
            return AT_IPV4, offset + 5
        if buf[offset + 4] == 212:  # RFC 1201: followed by a split flag and a sequence number
            return AT_IPV4, offset + 8
        if buf[offset + 4] == 196:
            return AT_IPV6, offset + 8
    return NON_IP, offset


@helper
def after_nflog(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the payload attribute, offset of the source address or -1) of an nflog header.

    Length and type of an attribute are in the byte order of the host, which is not recorded. The byte order in which
    the first length is smaller is used.
    """
    source = np.int64(-1)
    if offset + 8 > end or buf[offset] not in (2, 10):
        return NON_IP, offset, source
    state = AT_IPV4 if buf[offset] == 2 else AT_IPV6
    offset += 4
    big_endian = u16be(buf, offset) < u16le(buf, offset)
    while offset + 4 <= end:
        length = u16be(buf, offset) if big_endian else u16le(buf, offset)
        kind = u16be(buf, offset + 2) if big_endian else u16le(buf, offset + 2)
        if length < 4:
            break
        if kind == 9:  # NFULA_PAYLOAD
            return state, offset + 4, source
        if kind == 8 and offset + 14 <= end and u16be(buf, offset + 4) == 6:  # NFULA_HWADDR
            source = offset + 8
        offset += length + 3 & ~3
    return NON_IP, offset, source
