"""Candidates for the fallback decoder: frames that the kernels cannot read and that dpkt may be able to read.

A candidate has a header that dpkt supports and the kernels do not. ARP, LLDP, spanning tree and other frames without IP
are excluded after one or two comparisons, so ordinary captures have no candidates.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be
from capture.native import helper, outlined
from capture.packets.fields import CANDIDATE_COUNT_INDEX, CANDIDATE_FIELDS, CANDIDATE_LIMIT_INDEX, COUNTER_COUNT
from capture.packets.link_headers import ETHERTYPE_MPLS, ETHERTYPE_MPLS_MULTICAST, LARGEST_LENGTH, VLAN_TAGS

LINK_TYPES: dict[int, str] = {
    6: "token_ring",
    10: "fddi",
    122: "ip_over_fibre_channel",
    138: "ip_over_ieee_1394",
    240: "netanalyzer",
    241: "netanalyzer_transparent",
    274: "ethernet_mpacket",
}
"""Link types that only the fallback decoder reads, by LINKTYPE_ number: the label of their metric."""

HEADERS = (*LINK_TYPES.values(), "cisco_isl", "ethernet_in_mpls", "bridged_ethernet", "ppp_ethertype")
"""Headers that only the fallback decoder reads: the headers of its link types, then headers after Ethernet."""

ISL, ETHERNET_IN_MPLS, BRIDGED_ETHERNET, PPP = range(len(LINK_TYPES), len(HEADERS))
"""Indices in HEADERS of the headers after Ethernet."""
ETHERTYPE_BRIDGED, ETHERTYPE_PPP = 0x6558, 0x880B
ISL_DESTINATIONS = (0x01000C00, 0x03000C00)
"""First four of the five bytes of ISL's multicast addresses. The fifth byte is 0."""
ETHERNET = 1
CANDIDATE_WORDS = len(CANDIDATE_FIELDS)


@helper
def fallback_header(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return the index in HEADERS of the header at the beginning of a frame without IP, or -1."""
    header = np.int64(-1)
    if link == ETHERNET:
        if frame + 18 > end:
            return header
        kind = u16be(buf, frame + 12)
        if kind <= LARGEST_LENGTH:
            if u32be(buf, frame) in ISL_DESTINATIONS and buf[frame + 4] == 0:
                header = np.int64(ISL)
            return header
        if kind in (ETHERTYPE_MPLS, ETHERTYPE_MPLS_MULTICAST):
            return np.int64(ETHERNET_IN_MPLS)
        offset = frame + 14
        while kind in VLAN_TAGS and offset + 4 <= end:
            kind = u16be(buf, offset + 2)
            offset += 4
        if kind == ETHERTYPE_BRIDGED:
            header = np.int64(BRIDGED_ETHERNET)
        elif kind == ETHERTYPE_PPP:
            header = np.int64(PPP)
    elif link == 6:
        header = np.int64(0)
    elif link == 10:
        header = np.int64(1)
    elif link == 122:
        header = np.int64(2)
    elif link == 138:
        header = np.int64(3)
    elif link == 240:
        header = np.int64(4)
    elif link == 241:
        header = np.int64(5)
    elif link == 274:
        header = np.int64(6)
    return header


@outlined
def list_candidate(buf, frame, end, wire, time, link, interface, row, cause, counts):  # type: ignore[no-untyped-def]
    """If a frame without IP header is a candidate and there is room, append it to the candidates in `counts`."""
    index = counts[CANDIDATE_COUNT_INDEX]
    if index < counts[CANDIDATE_LIMIT_INDEX]:
        header = fallback_header(buf, frame, end, link)
        if header >= 0:
            entry = COUNTER_COUNT + index * CANDIDATE_WORDS
            counts[entry] = frame
            counts[entry + 1] = end
            counts[entry + 2] = wire
            counts[entry + 3] = time
            counts[entry + 4] = interface
            counts[entry + 5] = row
            counts[entry + 6] = header
            counts[entry + 7] = cause
            counts[CANDIDATE_COUNT_INDEX] = index + 1
    return np.int64(0)
