"""The physical columns that frames are decoded into: their order, their bits, and how a NULL looks.

Every column is one row of an int64 matrix, so that a kernel takes a single pointer and the evaluator and the table
meet one type. A NULL is -1: no header field is negative. An address is two columns, its upper and lower 64 bits as
unsigned numbers; the upper is 0 for IPv4. A MAC address is a 48-bit number, a payload its offset and length in the
capture's data.

The fields of an IP layer come first, those of the record behind them, and then, where a query asks for the inner
layer, the first group once more: one bit mask and one piece of code serve both layers.
"""

from __future__ import annotations

NULL = -1
"""A field that a packet lacks."""

LAYER_FIELDS = (
    "ip_version", "src_high", "src_low", "dest_high", "dest_low", "protocol", "srcPort", "destPort", "ip_len", "ttl",
    "tos", "ip_id", "fragment_offset", "more_fragments", "tcp_flags", "tcp_seq", "tcp_ack", "tcp_window", "icmp_type",
    "icmp_code", "vlan", "mpls", "ethertype", "src_mac", "dest_mac", "payload_offset", "payload_length",
)  # fmt: skip
"""What an IP header, the headers below it, and those of the link before it say."""

RECORD_FIELDS = ("ts", "len", "caplen", "interface", "tunnels", "tunnel_id")
"""What a record has once, however many layers there are in it."""

FIELDS = LAYER_FIELDS + RECORD_FIELDS
"""Physical columns in the order of the matrix's rows: those of the outermost IP layer and the record's."""

INNER = "inner."
"""What a column's name begins with where the innermost IP header is meant."""

INNER_FIELDS = tuple(INNER + name for name in LAYER_FIELDS)
"""The rows behind those of FIELDS, in a matrix that has them."""

ROWS = {name: row for row, name in enumerate(FIELDS + INNER_FIELDS)}
"""Row of the matrix by name."""

(
    VERSION, SRC_HIGH, SRC_LOW, DEST_HIGH, DEST_LOW, PROTOCOL, SRC_PORT, DEST_PORT, IP_LEN, TTL, TOS, IP_ID,
    FRAGMENT_OFFSET, MORE_FRAGMENTS, TCP_FLAGS, TCP_SEQ, TCP_ACK, TCP_WINDOW, ICMP_TYPE, ICMP_CODE, VLAN, MPLS,
    ETHERTYPE, SRC_MAC, DEST_MAC, PAYLOAD_OFFSET, PAYLOAD_LENGTH,
    TS, LEN, CAPLEN, INTERFACE, TUNNELS, TUNNEL_ID,
) = range(len(FIELDS))  # fmt: skip

LAYER_ROWS = len(LAYER_FIELDS)
"""Fields of an IP layer."""

INNER_ROWS = len(FIELDS)
"""First row of the inner layer: field f of it is in row INNER_ROWS + f."""

_COMPOSED: dict[str, tuple[str, ...]] = {
    "srcIP": ("ip_version", "src_high", "src_low"),
    "destIP": ("ip_version", "dest_high", "dest_low"),
    "srcMAC": ("src_mac",),
    "destMAC": ("dest_mac",),
    "payload": ("payload_offset", "payload_length"),
}
PHYSICAL: dict[str, tuple[str, ...]] = _COMPOSED | {
    INNER + name: tuple(INNER + part for part in parts) for name, parts in _COMPOSED.items()
}
"""Columns of a stream that do not have the name of their one physical column."""

SKIPPED = ("non_ip", "ip_header_cut", "ip_header_malformed", "unsupported_link_type")
"""Why a record is no row: it announces no IP packet; its addresses were not captured; its header contradicts itself;
its link type is not known."""

OTHER_ROWS = len(SKIPPED)
"""Where the kernel counts the IP headers that are not IPv4 and the rows without one, after the causes."""

CANDIDATES, CANDIDATE_ROOM = OTHER_ROWS + 1, OTHER_ROWS + 2
"""Where the kernel counts the candidates for the fall-back decoder, and how many it may list; 0 turns the list off."""

COUNTS = CANDIDATE_ROOM + 1
"""Length of an array of counts. The listed candidates follow, each as CANDIDATE_FIELDS."""

CANDIDATE_FIELDS = ("start", "end", "wire", "ts", "interface", "row", "header", "cause")
"""Offsets of a frame in the data, its length on the wire, its time, its interface, the number of rows before it, its
number in `candidates.HEADERS`, and its cause in SKIPPED."""

SELDOM = (
    1 << IP_ID | 1 << TCP_SEQ | 1 << TCP_ACK | 1 << TCP_WINDOW | 1 << ICMP_TYPE | 1 << ICMP_CODE | 1 << PAYLOAD_OFFSET
    | 1 << PAYLOAD_LENGTH
)  # fmt: skip
TRANSPORT = 1 << PROTOCOL | 1 << SRC_PORT | 1 << DEST_PORT | 1 << TCP_FLAGS | SELDOM
FRAGMENT = 1 << FRAGMENT_OFFSET | 1 << MORE_FRAGMENTS
NETWORK = 1 << IP_LEN | 1 << TTL | 1 << TOS
BELOW = 1 << MPLS | 1 << ETHERTYPE | 1 << SRC_MAC | 1 << DEST_MAC
TUNNEL = 1 << TUNNELS | 1 << TUNNEL_ID
ASIDE = BELOW | 1 << VLAN | 1 << CAPLEN | 1 << INTERFACE
FURTHER = TRANSPORT | FRAGMENT | TUNNEL | ASIDE
TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION = 0, 43, 44, 60
