"""Tunnels (IP packets inside IP packets): find the inner packet from the upper-layer header of the outer packet.

    IP protocol   4, 41      IP in IP, RFC 2003, RFC 4213, RFC 2473
                  47         GRE
                  51         an authentication header (RFC 4302), which is skipped
                  115        L2TPv3, RFC 3931
    UDP port      1701       L2TPv2 (RFC 2661) and L2TPv3, to or from
                  2152       GTP-U, 3GPP TS 29.281, to
                  3544       Teredo, RFC 4380, to or from
                  4789, 8472 VXLAN, RFC 7348, to; 8472 is the older default of Linux
                  4790       VXLAN-GPE, to
                  6081       Geneve, RFC 8926, to

"To": the port is the destination port, and the source port is arbitrary. "To or from": either port. Encrypted tunnels
(ESP, MPPE, DTLS) are not followed. A tunnel counts only if it contains a readable IP packet.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper
from capture.packets.fields import NULL, UDP
from capture.packets.ip_layer import READABLE, header_status, ip_length
from capture.packets.link_headers import (
    AT_ETHERNET,
    AT_IPV4,
    AT_IPV6,
    AT_MPLS,
    AT_PPP,
    AT_VERSION,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    LARGEST_LENGTH,
    NON_IP,
    VLAN_TAGS,
)

# Generic Routing Encapsulation: RFC 2784 and RFC 2890 (version 0), PPTP in RFC 2637 (version 1), and Cisco ERSPAN.
#
#     flags and version   C checksum  R routing (RFC 1701)  K key  S sequence number  ...  A acknowledgment  version (3)
#     protocol            an EtherType; 0x6558 Ethernet, 0x880B PPP, 0x88BE ERSPAN I and II, 0x22EB ERSPAN III
#
# ERSPAN I has no GRE sequence number and no header. ERSPAN II has a header of 8 bytes. ERSPAN III has 12 bytes, and 8
# more if its last bit is set. The tunnel ID is the GRE key, the PPTP call ID or the ERSPAN session ID.


CHECKSUM, ROUTING, KEY, SEQUENCE, ACKNOWLEDGMENT, VERSION_BITS = 0x8000, 0x4000, 0x2000, 0x1000, 0x0080, 0x0007
"""Bits of the first two bytes of a GRE header."""

BRIDGED, PPP, ERSPAN, ERSPAN_III = 0x6558, 0x880B, 0x88BE, 0x22EB
"""EtherTypes of payloads of GRE."""


@helper
def gre_inside(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the payload, tunnel ID or NULL) for the GRE header at `offset`, or NON_IP."""
    tunnel = NULL
    if offset + 4 > end:
        return NON_IP, offset, tunnel
    flags = u16be(buf, offset)
    protocol = u16be(buf, offset + 2)
    version = flags & VERSION_BITS
    offset += 4
    if flags & (CHECKSUM | ROUTING):
        offset += 4
    if flags & KEY:
        if offset + 4 <= end:
            tunnel = u32be(buf, offset)
        offset += 4
    if flags & SEQUENCE:
        offset += 4
    if version == 1:
        if flags & ACKNOWLEDGMENT:
            offset += 4
        carries = protocol == PPP and flags & KEY and flags & SEQUENCE  # a payload always has a sequence number
        return (AT_PPP if carries else NON_IP), offset, tunnel & 0xFFFF
    if flags & ROUTING:
        offset = after_routing(buf, offset, end)
    if version or offset >= end:
        return NON_IP, offset, tunnel
    if protocol == BRIDGED:
        return AT_ETHERNET, offset, tunnel
    if protocol == PPP:
        return AT_PPP, offset, tunnel
    if protocol == ERSPAN and not flags & SEQUENCE:
        return AT_ETHERNET, offset, tunnel
    if protocol == ERSPAN:
        return erspan_inside(buf, offset, end, 1, 8)
    if protocol == ERSPAN_III:
        return erspan_inside(buf, offset, end, 2, 12)
    return (protocol if protocol > LARGEST_LENGTH else NON_IP), offset, tunnel


@helper
def after_routing(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return the end of the source route at `offset`: entries (family, offset, length, address), last one zero."""
    while offset + 4 <= end:
        family = u16be(buf, offset)
        length = np.int64(buf[offset + 3])
        offset += 4 + length
        if family == 0 and length == 0:
            return offset
    return end


@helper
def erspan_inside(buf, offset, end, version, header):  # type: ignore[no-untyped-def]
    """Read an ERSPAN II or III header. In version III a type field distinguishes Ethernet (0) and IP (2)."""
    if offset + header > end or buf[offset] >> 4 != version:
        return NON_IP, offset, NULL
    session = u16be(buf, offset + 2) & 0x03FF
    state = AT_ETHERNET
    if version == 2:
        kind = buf[offset + 10] >> 2 & 31
        if kind:
            state = AT_VERSION if kind == 2 else NON_IP
        if buf[offset + 11] & 1:  # a platform-specific subheader follows
            header += 8
    return state, offset + header, session


# The Layer Two Tunneling Protocol: PPP in version 2 (RFC 2661 §3.1), anything in version 3 (RFC 3931 §4.1).
#
# A data message of version 3 does not contain the length of its cookie (0, 4 or 8 bytes), the presence of the default
# sublayer (4 bytes), or the type of the payload. The endpoints agree on them before. So a payload is accepted only if
# exactly one reading is possible. A reading is an IP packet, with or without an Ethernet header, that starts 0, 4, 8 or
# 12 bytes after the session ID and ends exactly with the message. If several Ethernet headers, with more or
# fewer VLAN tags, lead to the same packet, the longest header is used.


TYPE, LENGTH, L2TP_SEQUENCE, OFFSET = 0x8000, 0x4000, 0x0800, 0x0200
"""Bits of the first two bytes of an L2TP header."""
SHORTEST_FRAME = 60
"""Minimum length of a padded Ethernet frame, without its check sequence."""


@helper
def l2tp_2_inside(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the payload, session ID). Fields: flags, length, tunnel, session, Ns, Nr, padding."""
    flags = u16be(buf, offset)
    offset += 4 if flags & LENGTH else 2
    session = u16be(buf, offset + 2) if offset + 4 <= end else NULL
    offset += 8 if flags & L2TP_SEQUENCE else 4
    if flags & OFFSET:
        offset += 2 + (u16be(buf, offset) if offset + 2 <= end else 0)
    return (NON_IP if flags & TYPE else AT_PPP), offset, session


@helper
def l2tp_3_inside(buf, offset, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the payload, session ID) for the session ID at `offset`. ID 0 is a control message."""
    state = NON_IP
    inside = offset
    payload_ip = NULL
    session = u32be(buf, offset) if offset + 4 <= end else np.int64(0)
    for skipped in range(4, 20, 4):
        frame = offset + skipped
        ip = frame
        for kind in (AT_VERSION, AT_ETHERNET):
            if kind == AT_ETHERNET:
                ip = ip_after_ethernet(buf, frame, end)
            if ip != payload_ip and packet_fills_message(buf, frame, ip, end):
                if payload_ip != NULL or session == 0:
                    return NON_IP, offset, session
                state = kind
                inside = frame
                payload_ip = ip
    return state, inside, session


@helper
def ip_after_ethernet(buf, frame, end):  # type: ignore[no-untyped-def]
    """Return the offset of the IP header after an Ethernet header and VLAN tags; `end` if they announce no IP."""
    offset = frame + 12
    while offset + 6 <= end and u16be(buf, offset) in VLAN_TAGS:
        offset += 4
    return offset + 2 if offset + 2 <= end and u16be(buf, offset) in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) else end


@helper
def packet_fills_message(buf, frame, ip, end):  # type: ignore[no-untyped-def]
    """Return whether an IP packet at `ip` ends with the message, or with an Ethernet frame that has been padded."""
    if ip >= end or buf[ip] >> 4 not in (4, 6):
        return False
    kind = ETHERTYPE_IPV4 if buf[ip] >> 4 == 4 else ETHERTYPE_IPV6
    if header_status(buf, kind, ip, end) != READABLE:
        return False
    packet_end = ip + ip_length(buf, kind, ip)
    return packet_end == end or (frame < ip and packet_end < end and end - frame == SHORTEST_FRAME)


MAX_TUNNELS = 8
"""Maximum number of nested tunnels. Packets inside the innermost of these tunnels are its payload."""

IPV4_IN_IP, IPV6_IN_IP, GRE, AUTHENTICATION, L2TP_3 = 4, 41, 47, 51, 115
PORT_L2TP, PORT_GTP, PORT_TEREDO, PORT_VXLAN_GPE, PORT_GENEVE = 1701, 2152, 3544, 4790, 6081
PORTS_VXLAN = (4789, 8472)
"""UDP ports of tunnels."""

G_PDU = 255
"""GTP-U message type of a packet of a user."""


@helper
def tunnel_inside(buf, protocol, upper, end):  # type: ignore[no-untyped-def]
    """Return (state of the walk, offset of the payload, tunnel ID or NULL) for the upper-layer header at `upper`.

    The state is NON_IP if `protocol` is not a supported tunnel. `end`: end of the packet's captured bytes.
    """
    while protocol == AUTHENTICATION and upper + 12 <= end:
        protocol = np.int64(buf[upper])
        upper += (np.int64(buf[upper + 1]) + 2) * 4
    if protocol == UDP:
        if upper + 16 > end:  # UDP header and the shortest tunnel header, eight bytes each
            return NON_IP, upper, NULL
        return udp_inside(buf, u16be(buf, upper), u16be(buf, upper + 2), upper + 8, end)
    if protocol == IPV4_IN_IP:
        return AT_IPV4, upper, NULL
    if protocol == IPV6_IN_IP:
        return AT_IPV6, upper, NULL
    if protocol == GRE:
        return gre_inside(buf, upper, end)
    if protocol == L2TP_3:
        return l2tp_3_inside(buf, upper, end)
    return NON_IP, upper, NULL


@helper
def udp_inside(buf, source, destination, offset, end):  # type: ignore[no-untyped-def]
    """Return the result of `tunnel_inside` for the bytes at `offset`, after a UDP header. At least 8 are available."""
    if destination in PORTS_VXLAN:
        known = buf[offset] & 0x08  # the flag of a valid VNI, which every VXLAN packet has
        return (AT_ETHERNET if known else NON_IP), offset + 8, u32be(buf, offset + 4) >> 8
    if destination == PORT_VXLAN_GPE:
        return vxlan_gpe_inside(buf, offset)
    if destination == PORT_GENEVE:  # version and length of the options in words, flags, EtherType, VNI
        state = u16be(buf, offset + 2)
        if state == 0x6558:
            state = AT_ETHERNET
        if buf[offset] >> 6 or state <= LARGEST_LENGTH:
            state = NON_IP
        return state, offset + 8 + np.int64(buf[offset] & 63) * 4, u32be(buf, offset + 4) >> 8
    if destination == PORT_GTP:
        return gtp_inside(buf, offset, end)
    if PORT_L2TP in (source, destination):
        version = buf[offset + 1] & 15
        if version == 2:
            return l2tp_2_inside(buf, offset, end)
        if (
            version == 3 and not buf[offset] & 0x80
        ):  # a data message; its first word is flags, version and reserved bits
            return l2tp_3_inside(buf, offset + 4, end)
    if PORT_TEREDO in (source, destination):
        return teredo_inside(buf, offset, end)
    return NON_IP, offset, NULL


@helper
def vxlan_gpe_inside(buf, offset):  # type: ignore[no-untyped-def]
    """Read a VXLAN-GPE header: flags (version, I, P, B, O), reserved, next protocol, VNI."""
    flags = np.int64(buf[offset])
    state = AT_ETHERNET
    if flags & 0x04:  # P: the next protocol is valid
        following = buf[offset + 3]
        if following == 1:
            state = AT_IPV4
        elif following == 2:
            state = AT_IPV6
        elif following == 5:
            state = AT_MPLS
        elif following != 3:
            state = NON_IP
    if flags & 0x31:  # another version, or an OAM message
        state = NON_IP
    vni = u32be(buf, offset + 4) >> 8 if flags & 0x08 else NULL
    return state, offset + 8, vni


@helper
def gtp_inside(buf, offset, end):  # type: ignore[no-untyped-def]
    """Read a GTP-U header: flags (version 1, protocol type, E, S, PN), message type, length, TEID, extensions."""
    teid = u32be(buf, offset + 4)
    flags = np.int64(buf[offset])
    if flags >> 4 != 3 or buf[offset + 1] != G_PDU:
        return NON_IP, offset, teid
    offset += 8
    if flags & 7:  # sequence number, N-PDU number, type of the first extension
        following = np.int64(buf[offset + 3]) if flags & 4 and offset + 4 <= end else np.int64(0)
        offset += 4
        while following and offset < end:
            length = np.int64(buf[offset]) * 4
            if length == 0 or offset + length > end:
                return NON_IP, offset, teid
            offset += length
            following = np.int64(buf[offset - 1])
    if offset >= end:
        return NON_IP, offset, teid
    return np.int64(AT_VERSION if buf[offset] >> 4 in (4, 6) else AT_PPP), offset, teid


@helper
def teredo_inside(buf, offset, end):  # type: ignore[no-untyped-def]
    """Read Teredo: IPv6 after optional authentication and origin indications (RFC 4380 §5.1.1)."""
    if buf[offset] == 0 and buf[offset + 1] == 1:  # lengths of client ID and value, both, nonce (8), confirmation
        offset += 13 + np.int64(buf[offset + 2]) + np.int64(buf[offset + 3])
    if offset + 8 <= end and buf[offset] == 0 and buf[offset + 1] == 0:  # obfuscated port and address
        offset += 8
    ipv6 = offset < end and buf[offset] >> 4 == 6
    return (AT_IPV6 if ipv6 else NON_IP), offset, NULL
