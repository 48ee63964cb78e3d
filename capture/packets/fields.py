"""The physical columns that frames are decoded into: their order, their bits, and how a NULL looks.

Every column is one row of an int64 matrix, so that a kernel takes a single pointer and the evaluator and the table
meet one type. A NULL is -1: no header field is negative. An address is two columns, its upper and lower 64 bits as
unsigned numbers; the upper is 0 for IPv4.
"""

from __future__ import annotations

NULL = -1
"""A field that a packet lacks."""

FIELDS = (
    "ts", "ip_version", "src_high", "src_low", "dest_high", "dest_low", "len", "caplen", "protocol", "srcPort",
    "destPort", "ip_len", "ttl", "tos", "fragment_offset", "more_fragments", "tcp_flags", "icmp_type", "icmp_code",
    "vlan",
)  # fmt: skip
"""Physical columns in the order of the matrix's rows."""

(
    TS, VERSION, SRC_HIGH, SRC_LOW, DEST_HIGH, DEST_LOW, LEN, CAPLEN, PROTOCOL, SRC_PORT, DEST_PORT,
    IP_LEN, TTL, TOS, FRAGMENT_OFFSET, MORE_FRAGMENTS, TCP_FLAGS, ICMP_TYPE, ICMP_CODE, VLAN,
) = range(len(FIELDS))  # fmt: skip

PHYSICAL: dict[str, tuple[str, ...]] = {
    "srcIP": ("ip_version", "src_high", "src_low"),
    "destIP": ("ip_version", "dest_high", "dest_low"),
}
"""Columns of the stream that are made of several physical ones."""

SKIPPED = ("non_ip", "ip_header_cut", "ip_header_malformed")
"""Why a record is no row: it announces no IP packet; its addresses were not captured; its header contradicts itself."""

IPV6_ROWS = len(SKIPPED)
"""Where the kernel counts the IPv6 packets, after the causes."""

TRANSPORT = 1 << PROTOCOL | 1 << SRC_PORT | 1 << DEST_PORT | 1 << TCP_FLAGS | 1 << ICMP_TYPE | 1 << ICMP_CODE
FRAGMENT = 1 << FRAGMENT_OFFSET | 1 << MORE_FRAGMENTS
NETWORK = 1 << IP_LEN | 1 << TTL | 1 << TOS
FURTHER = TRANSPORT | FRAGMENT | 1 << CAPLEN | 1 << VLAN
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION = 0, 43, 44, 60
