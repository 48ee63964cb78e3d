"""The Layer Two Tunneling Protocol: PPP in version 2 (RFC 2661 §3.1), anything in version 3 (RFC 3931 §4.1).

A data message of version 3 does not say how long its cookie is (0, 4 or 8 bytes), whether the default sublayer of 4
bytes follows, nor what it carries: the ends agreed on it before. So an inside is believed only where one IP packet is
possible: behind the session id and 0, 4, 8 or 12 bytes, with or without an Ethernet header, one that ends exactly with
the message. Of several Ethernet headers that lead to it, each a VLAN tag shorter, the longest is taken.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper
from capture.packets.fields import NULL
from capture.packets.ip_layer import READABLE, header_status, ip_length
from capture.packets.states import (
    AT_ETHERNET,
    AT_PPP,
    AT_VERSION,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    NON_IP,
    VLAN_TAGS,
)

TYPE, LENGTH, SEQUENCE, OFFSET = 0x8000, 0x4000, 0x0800, 0x0200
SHORTEST_FRAME = 60
"""What Ethernet pads a frame to, without its check sequence."""


@helper
def l2tp_2_inside(buf, at, end):  # type: ignore[no-untyped-def]
    """Return (state, offset of the inside, session id): flags, length, tunnel and session id, numbers, padding."""
    flags = u16be(buf, at)
    at += 4 if flags & LENGTH else 2
    session = u16be(buf, at + 2) if at + 4 <= end else NULL
    at += 8 if flags & SEQUENCE else 4
    if flags & OFFSET:
        at += 2 + (u16be(buf, at) if at + 2 <= end else 0)
    return (NON_IP if flags & TYPE else AT_PPP), at, session


@helper
def l2tp_3_inside(buf, at, end):  # type: ignore[no-untyped-def]
    """Return the same for the session id at `at`, where a single reading is possible; id 0 is a control message."""
    state = NON_IP
    inside = at
    found = NULL
    session = u32be(buf, at) if at + 4 <= end else np.int64(0)
    for skipped in range(4, 20, 4):
        frame = at + skipped
        ip = frame
        for kind in (AT_VERSION, AT_ETHERNET):
            if kind == AT_ETHERNET:
                ip = behind_ethernet(buf, frame, end)
            if ip != found and fills(buf, frame, ip, end):
                if found != NULL or session == 0:
                    return NON_IP, at, session
                state = kind
                inside = frame
                found = ip
    return state, inside, session


@helper
def behind_ethernet(buf, frame, end):  # type: ignore[no-untyped-def]
    """Offset of the IP header behind an Ethernet header and VLAN tags; `end` where they announce none."""
    at = frame + 12
    while at + 6 <= end and u16be(buf, at) in VLAN_TAGS:
        at += 4
    return at + 2 if at + 2 <= end and u16be(buf, at) in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) else end


@helper
def fills(buf, frame, ip, end):  # type: ignore[no-untyped-def]
    """Say whether an IP packet at `ip` ends with the message, or with a frame that Ethernet has padded."""
    if ip >= end or buf[ip] >> 4 not in (4, 6):
        return False
    kind = ETHERTYPE_IPV4 if buf[ip] >> 4 == 4 else ETHERTYPE_IPV6
    if header_status(buf, kind, ip, end) != READABLE:
        return False
    behind = ip + ip_length(buf, kind, ip)
    return behind == end or (frame < ip and behind < end and end - frame == SHORTEST_FRAME)
