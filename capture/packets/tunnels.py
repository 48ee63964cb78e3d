"""What an IP packet carries another IP packet in: from the header behind IP to where the inside begins.

    IP protocol   4, 41      IP in IP, RFC 2003, RFC 4213, RFC 2473
                  47         GRE, in gre.py
                  51         an authentication header (RFC 4302) is stepped over: it hides nothing
                  115        L2TPv3, RFC 3931
    UDP port      1701       L2TPv2 (RFC 2661) and L2TPv3, to or from
                  2152       GTP-U, 3GPP TS 29.281, to
                  3544       Teredo, RFC 4380, to or from
                  4789, 8472 VXLAN, RFC 7348; the second is what Linux chose before, to
                  4790       VXLAN-GPE, to
                  6081       Geneve, RFC 8926, to

"To" is the destination port: the source port of these is any number. What is enciphered (ESP, MPPE, DTLS) stays
closed. A tunnel whose inside is no readable IP packet is no tunnel here: the walk ends before it.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper
from capture.packets.fields import NULL, UDP
from capture.packets.gre import gre_inside
from capture.packets.l2tp import l2tp_2_inside, l2tp_3_inside
from capture.packets.states import (
    AT_ETHERNET,
    AT_IPV4,
    AT_IPV6,
    AT_MPLS,
    AT_PPP,
    AT_VERSION,
    LARGEST_LENGTH,
    NON_IP,
)

MAX_TUNNELS = 8
"""Tunnels inside tunnels that are followed; what is further in is the innermost one's payload."""

IPV4_IN_IP, IPV6_IN_IP, GRE, AUTHENTICATION, L2TP_3 = 4, 41, 47, 51, 115
PORT_L2TP, PORT_GTP, PORT_TEREDO, PORT_VXLAN_GPE, PORT_GENEVE = 1701, 2152, 3544, 4790, 6081
PORTS_VXLAN = (4789, 8472)
G_PDU = 255


@helper
def tunnel_inside(buf, protocol, upper, end):  # type: ignore[no-untyped-def]
    """Return (state of the walk, offset of the inside, tunnel id or NULL) for what begins at `upper`.

    The state is NON_IP where `protocol` is no tunnel that is followed; `end` is that of the packet's captured bytes.
    """
    while protocol == AUTHENTICATION and upper + 12 <= end:
        protocol = np.int64(buf[upper])
        upper += (np.int64(buf[upper + 1]) + 2) * 4
    if protocol == UDP:
        if upper + 16 > end:  # the shortest header of a tunnel has eight bytes
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
def udp_inside(buf, source, destination, at, end):  # type: ignore[no-untyped-def]
    """Return the same for what begins at `at`, behind a UDP header with these ports; 8 bytes at least are there."""
    if destination in PORTS_VXLAN:
        known = buf[at] & 0x08  # the flag that the VNI is valid: every VXLAN packet has it
        return (AT_ETHERNET if known else NON_IP), at + 8, u32be(buf, at + 4) >> 8
    if destination == PORT_VXLAN_GPE:
        return vxlan_gpe_inside(buf, at)
    if destination == PORT_GENEVE:  # version and length of the options in words, flags, EtherType, VNI
        state = u16be(buf, at + 2)
        if state == 0x6558:
            state = AT_ETHERNET
        if buf[at] >> 6 or state <= LARGEST_LENGTH:
            state = NON_IP
        return state, at + 8 + np.int64(buf[at] & 63) * 4, u32be(buf, at + 4) >> 8
    if destination == PORT_GTP:
        return gtp_inside(buf, at, end)
    if PORT_L2TP in (source, destination):
        version = buf[at + 1] & 15
        if version == 2:
            return l2tp_2_inside(buf, at, end)
        if version == 3 and not buf[at] & 0x80:  # a data message, whose first word is flags, version and reserved
            return l2tp_3_inside(buf, at + 4, end)
    if PORT_TEREDO in (source, destination):
        return teredo_inside(buf, at, end)
    return NON_IP, at, NULL


@helper
def vxlan_gpe_inside(buf, at):  # type: ignore[no-untyped-def]
    """Generic protocol extension of VXLAN: flags (version, I, P, B, O), reserved, next protocol, VNI."""
    flags = np.int64(buf[at])
    state = AT_ETHERNET
    if flags & 0x04:  # P: there is a next protocol
        following = buf[at + 3]
        if following == 1:
            state = AT_IPV4
        elif following == 2:
            state = AT_IPV6
        elif following == 5:
            state = AT_MPLS
        elif following != 3:
            state = NON_IP
    if flags & 0x31:  # another version, or a message of operations and maintenance
        state = NON_IP
    vni = u32be(buf, at + 4) >> 8 if flags & 0x08 else NULL
    return state, at + 8, vni


@helper
def gtp_inside(buf, at, end):  # type: ignore[no-untyped-def]
    """GTP-U: flags (version 1, protocol type, E, S, PN), message type, length, TEID, and a chain of extensions."""
    teid = u32be(buf, at + 4)
    flags = np.int64(buf[at])
    if flags >> 4 != 3 or buf[at + 1] != G_PDU:
        return NON_IP, at, teid
    at += 8
    if flags & 7:  # sequence number, N-PDU number, type of the first extension
        following = np.int64(buf[at + 3]) if flags & 4 and at + 4 <= end else np.int64(0)
        at += 4
        while following and at < end:
            length = np.int64(buf[at]) * 4
            if length == 0 or at + length > end:
                return NON_IP, at, teid
            at += length
            following = np.int64(buf[at - 1])
    if at >= end:
        return NON_IP, at, teid
    return np.int64(AT_VERSION if buf[at] >> 4 in (4, 6) else AT_PPP), at, teid


@helper
def teredo_inside(buf, at, end):  # type: ignore[no-untyped-def]
    """IPv6 behind an authentication and an origin indication, either of which may be missing (RFC 4380 §5.1.1)."""
    if buf[at] == 0 and buf[at + 1] == 1:  # lengths of client id and value, both, nonce (8), confirmation
        at += 13 + np.int64(buf[at + 2]) + np.int64(buf[at + 3])
    if at + 8 <= end and buf[at] == 0 and buf[at + 1] == 0:  # port and address, obfuscated
        at += 8
    ipv6 = at < end and buf[at] >> 4 == 6
    return (AT_IPV6 if ipv6 else NON_IP), at, NULL
