"""Frame Relay, LLC and SNAP, and the NLPIDs that both use to name what they carry."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be
from capture.native import helper
from capture.packets.states import (
    AT_ETHERNET,
    AT_IPV4,
    AT_IPV6,
    AT_PPP,
    AT_VERSION,
    LARGEST_LENGTH,
    NON_IP,
)

UNNUMBERED = 0x03
"""The control field of an unnumbered information frame."""
NLPID_SNAP, NLPID_IPV6, NLPID_IPV4, NLPID_PPP = 0x80, 0x8E, 0xCC, 0xCF
OUI_BRIDGED = 0x0080C2
OUI_ETHERTYPE = (0x000000, 0x0000F8)
"""Organisations whose protocol ids are EtherTypes: RFC 1042, and IEEE 802.1H's bridge tunnels."""


@helper
def after_snap(buf, at, end, pad):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the organisation and protocol id at `at`.

    A bridged Ethernet frame (RFC 2684 §5.2, RFC 2427 §4.2) follows after `pad` bytes.
    """
    if at + 5 > end:
        return NON_IP, at
    organisation = u16be(buf, at) << 8 | np.int64(buf[at + 2])
    protocol = u16be(buf, at + 3)
    if organisation in OUI_ETHERTYPE:
        return protocol, at + 5
    if organisation == OUI_BRIDGED and protocol in (0x0001, 0x0007):
        return AT_ETHERNET, at + 5 + pad
    return NON_IP, at


@helper
def after_nlpid(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the network layer protocol id at `at` (RFC 2427, RFC 2364, RFC 1973)."""
    if at < end:
        if buf[at] == NLPID_IPV4:
            return AT_IPV4, at + 1
        if buf[at] == NLPID_IPV6:
            return AT_IPV6, at + 1
        if buf[at] == NLPID_PPP:
            return AT_PPP, at + 1
    return NON_IP, at


@helper
def after_llc(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the IEEE 802.2 header at `at`."""
    if at + 3 > end:
        return NON_IP, at
    points = u16be(buf, at)  # DSAP and SSAP
    if points == 0x0606:
        return AT_VERSION, at + 3
    if points == 0xAAAA and buf[at + 2] == UNNUMBERED:
        return after_snap(buf, at + 3, end, 2)
    if points == 0xFEFE and buf[at + 2] == UNNUMBERED:
        return after_nlpid(buf, at + 3, end)
    return NON_IP, at


@helper
def after_frame_relay(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset) behind the Q.922 address of two to four bytes and what names the payload.

    That is a control field and an NLPID (RFC 2427), or an EtherType alone (Cisco).
    """
    last = at + 1
    while last < end and last < at + 3 and not buf[last] & 1:
        last += 1
    if last + 3 > end or buf[at] & 1 or not buf[last] & 1:
        return NON_IP, at
    at = last + 1
    if buf[at] != UNNUMBERED:
        kind = u16be(buf, at)
        return (kind if kind > LARGEST_LENGTH else NON_IP), at + 2
    at += 1
    if buf[at] == 0:  # a byte that aligns what follows
        at += 1
    if at < end and buf[at] == NLPID_SNAP:
        return after_snap(buf, at + 1, end, 0)
    return after_nlpid(buf, at, end)
