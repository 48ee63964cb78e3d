"""Where the walk over a frame's headers stands: what the bytes ahead are.

A state of 0..0xFFFF is an EtherType whose payload is ahead. The others lie above, and below 0 the walk has ended.
"""

from __future__ import annotations

NON_IP = -1
"""The end of the walk where a frame announces no IP packet."""
UNSUPPORTED = -4
"""The end of the walk where the link type is not known. An end is -1 - its cause in `fields.SKIPPED`."""

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
ETHERTYPE_MPLS = 0x8847
ETHERTYPE_MPLS_MULTICAST = 0x8848
ETHERTYPE_PPPOE = 0x8864
ETHERTYPE_FABRICPATH = 0x8903
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
LARGEST_LENGTH = 1500
"""In place of an EtherType: the length of an IEEE 802.3 frame, and LLC is ahead."""

(
    AT_IPV4, AT_IPV6, AT_VERSION, AT_ETHERNET, AT_LLC, AT_PPP, AT_MPLS, AT_CISCO_HDLC, AT_COOKED, AT_COOKED_2,
    AT_SWITCH_TAG, AT_DSA, AT_EDSA, AT_WLAN, AT_WLAN_PADDED, AT_FRAME_RELAY, AT_LANE, AT_ARCNET, AT_NFLOG, AT_IPOIB,
) = range(0x10000, 0x10014)  # fmt: skip
"""AT_VERSION: an IP header of either version. AT_SWITCH_TAG: Ethernet with four bytes before its type."""
