"""From the first byte of a frame to its outermost IP header: the short ways that most frames take, and the long one."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be
from capture.native import helper, outlined
from capture.packets.fields import NULL
from capture.packets.link_layers import link_header
from capture.packets.network_layer import network_layer
from capture.packets.states import ETHERTYPE_IPV4, ETHERTYPE_IPV6, NON_IP, VLAN_TAGS

ETHERNET, RAW, COOKED, COOKED_2 = 1, 101, 113, 276


@helper
def outermost_layer(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return what `network_layer` does for the frame `buf[frame:end]` of any link type.

    Ethernet with or without VLAN tags, Linux cooked frames and raw IP are looked at here, inside the loop over the
    records. The rest must not be in their way.
    """
    kind = np.int64(NON_IP)
    at = frame
    vlan = np.int64(NULL)
    source = np.int64(NULL)
    destination = np.int64(NULL)
    if link == ETHERNET:
        if frame + 14 <= end:
            kind = u16be(buf, frame + 12)
            at = frame + 14
            source = frame + 6
            destination = frame
            while kind not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) and kind in VLAN_TAGS and at + 4 <= end:
                if vlan < 0:
                    vlan = u16be(buf, at) & 0xFFF
                kind = u16be(buf, at + 2)
                at += 4
    elif link == COOKED:
        if frame + 16 <= end:
            kind = u16be(buf, frame + 14)
            at = frame + 16
            source = frame + 6 if u16be(buf, frame + 4) == 6 else np.int64(NULL)
    elif link == COOKED_2:
        if frame + 20 <= end:
            kind = u16be(buf, frame)
            at = frame + 20
            source = frame + 12 if buf[frame + 11] == 6 else np.int64(NULL)
    elif link == RAW and frame < end:
        version = buf[frame] >> 4
        if version in (4, 6):
            return np.int64(ETHERTYPE_IPV4 if version == 4 else ETHERTYPE_IPV6), at, vlan, vlan, vlan, vlan, vlan
    if kind in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        return kind, at, vlan, np.int64(NULL), kind, source, destination
    return by_every_header(buf, frame, end, link)


@outlined
def by_every_header(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return the same, whatever the frame begins with."""
    state, at = link_header(buf, frame, end, link)
    return network_layer(buf, at, end, state)
