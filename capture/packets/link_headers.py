"""States of the walk over the headers of a frame, and the steps over wide area and wireless link headers.

A state is the type of the next header. A state of 0..0xFFFF is an EtherType whose payload is next. Larger states are
listed below. A negative state ends the walk.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u16le, u32be, u32le
from capture.native import helper

NON_IP = -1
"""End of the walk: the frame contains no IP packet."""
UNSUPPORTED = -4
"""End of the walk: unknown link type. An end of the walk is -1 - i for the cause `fields.SKIP_CAUSES[i]`."""

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_MPLS = 0x8847
ETHERTYPE_MPLS_MULTICAST = 0x8848
ETHERTYPE_PPPOE = 0x8864
ETHERTYPE_FABRICPATH = 0x8903
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
LARGEST_LENGTH = 1500
"""Largest value of an Ethernet type field that is a length (IEEE 802.3). LLC then follows."""

(
    AT_IPV4, AT_IPV6, AT_VERSION, AT_ETHERNET, AT_LLC, AT_PPP, AT_MPLS, AT_CISCO_HDLC, AT_COOKED, AT_COOKED_2,
    AT_SWITCH_TAG, AT_DSA, AT_EDSA, AT_WLAN, AT_WLAN_PADDED, AT_FRAME_RELAY, AT_LANE, AT_ARCNET, AT_NFLOG, AT_IPOIB,
) = range(0x10000, 0x10014)  # fmt: skip
"""AT_VERSION: an IP header of version 4 or 6. AT_SWITCH_TAG: Ethernet with four bytes before its type."""


UNNUMBERED = 0x03
"""Control field of an unnumbered information frame."""
NLPID_SNAP, NLPID_IPV6, NLPID_IPV4, NLPID_PPP = 0x80, 0x8E, 0xCC, 0xCF
OUI_BRIDGED = 0x0080C2
OUI_ETHERTYPE = (0x000000, 0x0000F8)
"""Organisations whose protocol IDs are EtherTypes: RFC 1042, and IEEE 802.1H bridge tunnels."""


@helper
def after_snap(buf, offset, end, pad):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the organisation and protocol ID at `offset`.

    A bridged Ethernet frame (RFC 2684 §5.2, RFC 2427 §4.2) begins after `pad` bytes.
    """
    if offset + 5 > end:
        return NON_IP, offset
    organisation = u16be(buf, offset) << 8 | np.int64(buf[offset + 2])
    protocol = u16be(buf, offset + 3)
    if organisation in OUI_ETHERTYPE:
        return protocol, offset + 5
    if organisation == OUI_BRIDGED and protocol in (0x0001, 0x0007):
        return AT_ETHERNET, offset + 5 + pad
    return NON_IP, offset


@helper
def after_nlpid(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the network layer protocol ID at `offset` (RFC 2427, RFC 2364, RFC 1973)."""
    if offset < end:
        if buf[offset] == NLPID_IPV4:
            return AT_IPV4, offset + 1
        if buf[offset] == NLPID_IPV6:
            return AT_IPV6, offset + 1
        if buf[offset] == NLPID_PPP:
            return AT_PPP, offset + 1
    return NON_IP, offset


@helper
def after_llc(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the IEEE 802.2 header at `offset`."""
    if offset + 3 > end:
        return NON_IP, offset
    points = u16be(buf, offset)  # DSAP and SSAP
    if points == 0x0606:
        return AT_VERSION, offset + 3
    if points == 0xAAAA and buf[offset + 2] == UNNUMBERED:
        return after_snap(buf, offset + 3, end, 2)
    if points == 0xFEFE and buf[offset + 2] == UNNUMBERED:
        return after_nlpid(buf, offset + 3, end)
    return NON_IP, offset


@helper
def after_frame_relay(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the Q.922 address (two to four bytes) and the protocol ID.

    The protocol ID is a control field and an NLPID (RFC 2427), or only an EtherType (Cisco).
    """
    last = offset + 1
    while last < end and last < offset + 3 and not buf[last] & 1:
        last += 1
    if last + 3 > end or buf[offset] & 1 or not buf[last] & 1:
        return NON_IP, offset
    offset = last + 1
    if buf[offset] != UNNUMBERED:
        kind = u16be(buf, offset)
        return (kind if kind > LARGEST_LENGTH else NON_IP), offset + 2
    offset += 1
    if buf[offset] == 0:  # padding
        offset += 1
    if offset < end and buf[offset] == NLPID_SNAP:
        return after_snap(buf, offset + 1, end, 0)
    return after_nlpid(buf, offset, end)


# IEEE 802.11 frames, and the headers that a monitor interface writes before them.
#
# Supported: data frames with three or four addresses, QoS and HT control fields, the first subframe of an A-MSDU,
# radiotap, Prism and AVS headers, and the padding that some cards insert after the header (radiotap flag "datapad").
# Protected frames are not read: they are ciphertext, even if the card has decrypted them. Later fragments are not read,
# because they do not begin with a header. A frame check sequence follows the IP packet and is ignored. Mesh control
# fields are **not** supported.


PRISM_HEADER = 144
AVS_MAGIC = 0x80211000
"""First four bytes of an AVS header, with a zero in place of the version in the last four bits."""


@helper
def after_radiotap(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the radiotap header at `offset` (radiotap.org: its fields are aligned)."""
    if offset + 8 > end:
        return NON_IP, offset
    header_end = offset + u16le(buf, offset + 2)
    if header_end < offset + 8 or header_end > end:
        return NON_IP, offset
    present = u32le(buf, offset + 4)
    field = offset + 8
    more = present
    while more >> 31 and field + 4 <= header_end:
        more = u32le(buf, field)
        field += 4
    if present & 1:  # TSFT, eight bytes aligned to eight
        field = offset + (field - offset + 7 & ~7) + 8
    if present & 2 and field < header_end and buf[field] & 0x20:
        return AT_WLAN_PADDED, header_end
    return AT_WLAN, header_end


@helper
def after_prism(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the Prism header at `offset`, or after an AVS header in its place."""
    if offset + 8 > end:
        return NON_IP, offset
    if u32be(buf, offset) & 0xFFFFFFF0 == AVS_MAGIC:
        return after_avs(buf, offset, end)
    if offset + PRISM_HEADER > end:
        return NON_IP, offset
    return AT_WLAN, offset + PRISM_HEADER


@helper
def after_avs(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) after the AVS header at `offset`, whose second word is its length."""
    if offset + 8 > end:
        return NON_IP, offset
    length = u32be(buf, offset + 4)
    if length < 8 or offset + length > end:
        return NON_IP, offset
    return AT_WLAN, offset + length


@helper
def after_wlan(buf, offset, end, padded):  # type: ignore[no-untyped-def]
    """Return (state, offset, source address offset or -1, destination address offset or -1) after the 802.11 header."""
    absent = np.int64(-1)
    if offset + 24 > end or buf[offset] & 3 or buf[offset] & 12 not in (0, 8):  # another version, control or extension
        return NON_IP, offset, absent, absent
    control = np.int64(buf[offset])
    flags = np.int64(buf[offset + 1])
    both = flags & 3 == 3  # to and from the distribution system, between two access points
    header = np.int64(30 if both else 24)
    if offset + header > end:
        return NON_IP, offset, absent, absent
    destination = offset + 16 if flags & 1 else offset + 4
    source = offset + 24 if both else offset + 16 if flags & 2 else offset + 10
    data = control & 12 == 8 and not control & 0x40 and not flags & 0x40  # neither null nor protected
    if not data or buf[offset + 22] & 15:  # or a later fragment
        return NON_IP, offset, source, destination
    aggregated = False
    if control & 0x80:  # QoS control; HT control follows if the order bit is set
        if offset + header + 2 > end:
            return NON_IP, offset, source, destination
        aggregated = bool(buf[offset + header] & 0x80)
        header += 6 if flags & 0x80 else 2
    if padded:
        header = header + 3 & ~3
    offset += header
    if aggregated:  # destination, source and length of the first subframe
        if offset + 14 > end:
            return NON_IP, offset, source, destination
        return AT_LLC, offset + 14, offset + 6, offset
    return AT_LLC, offset, source, destination
