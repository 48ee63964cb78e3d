"""The physical columns into which frames are decoded: their order, their encoding, and NULL.

Each column is one row of an int64 matrix. So a kernel takes a single pointer, and the expression evaluator and the
tables handle one type. NULL is -1, because no header field is negative. An address is stored in two columns, its upper
and lower 64 bits as unsigned integers. The upper bits are 0 for IPv4. A MAC address is a 48-bit integer. A payload is
stored in two columns: its offset and its length in the data of the capture.

The matrix contains the fields of the outermost IP layer, then the fields of the record. If a query requests the inner
layer, the fields of the inner layer follow in the same order. So both layers use the same bit masks and code.
"""

from __future__ import annotations

NULL = -1
"""Value of a field that a packet lacks."""

LAYER_FIELDS = (
    "ip_version", "src_high", "src_low", "dest_high", "dest_low", "protocol", "srcPort", "destPort", "ip_len", "ttl",
    "tos", "ip_id", "fragment_offset", "more_fragments", "tcp_flags", "tcp_seq", "tcp_ack", "tcp_window", "icmp_type",
    "icmp_code", "vlan", "mpls", "ethertype", "src_mac", "dest_mac", "payload_offset", "payload_length",
)  # fmt: skip
"""Fields of an IP header, of the transport header after it, and of the link layer before it."""

RECORD_FIELDS = ("ts", "len", "caplen", "interface", "tunnels", "tunnel_id")
"""Fields of the record. They exist once, for any number of layers."""

FIELDS = LAYER_FIELDS + RECORD_FIELDS
"""Physical columns in the order of the matrix rows: the outermost IP layer, then the record."""

INNER = "inner."
"""Prefix of the names of inner columns."""

INNER_FIELDS = tuple(INNER + name for name in LAYER_FIELDS)
"""The matrix rows after FIELDS, if the matrix has them."""

ROWS = {name: row for row, name in enumerate(FIELDS + INNER_FIELDS)}
"""Matrix row by column name."""

(
    VERSION, SRC_HIGH, SRC_LOW, DEST_HIGH, DEST_LOW, PROTOCOL, SRC_PORT, DEST_PORT, IP_LEN, TTL, TOS, IP_ID,
    FRAGMENT_OFFSET, MORE_FRAGMENTS, TCP_FLAGS, TCP_SEQ, TCP_ACK, TCP_WINDOW, ICMP_TYPE, ICMP_CODE, VLAN, MPLS,
    ETHERTYPE, SRC_MAC, DEST_MAC, PAYLOAD_OFFSET, PAYLOAD_LENGTH,
    TS, LEN, CAPLEN, INTERFACE, TUNNELS, TUNNEL_ID,
) = range(len(FIELDS))  # fmt: skip

LAYER_ROWS = len(LAYER_FIELDS)
"""Number of fields of an IP layer."""

INNER_ROWS = len(FIELDS)
"""First matrix row of the inner layer: field f is in row INNER_ROWS + f."""

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
"""Physical columns of each stream column that has several physical columns, or one with another name."""

SKIPPED = ("non_ip", "ip_header_cut", "ip_header_malformed", "unsupported_link_type")
"""Causes for which a record is no row. non_ip: no header announces an IP packet. ip_header_cut: the IP addresses were
not captured. ip_header_malformed: the IP header is invalid. unsupported_link_type: the link type is unknown."""

OTHER_ROWS = len(SKIPPED)
"""Word of the counts, after the causes: IP headers that are not IPv4, and rows without IP header."""

CANDIDATES, CANDIDATE_ROOM = OTHER_ROWS + 1, OTHER_ROWS + 2
"""Words of the counts: number of listed candidates for the fallback decoder, and maximum number (0: no list)."""

COUNTS = CANDIDATE_ROOM + 1
"""Number of words of the counts. The listed candidates follow, CANDIDATE_FIELDS words each."""

CANDIDATE_FIELDS = ("start", "end", "wire", "ts", "interface", "row", "header", "cause")
"""Words of a candidate. start, end: offsets of the frame in the data. wire: length on the wire. ts: time in ns. row:
number of rows before it. header: index in `candidates.HEADERS`. cause: index in SKIPPED."""

RARE_FIELDS = (
    1 << IP_ID | 1 << TCP_SEQ | 1 << TCP_ACK | 1 << TCP_WINDOW | 1 << ICMP_TYPE | 1 << ICMP_CODE | 1 << PAYLOAD_OFFSET
    | 1 << PAYLOAD_LENGTH
)  # fmt: skip
TRANSPORT_FIELDS = 1 << PROTOCOL | 1 << SRC_PORT | 1 << DEST_PORT | 1 << TCP_FLAGS | RARE_FIELDS
FRAGMENT_FIELDS = 1 << FRAGMENT_OFFSET | 1 << MORE_FRAGMENTS
NETWORK_FIELDS = 1 << IP_LEN | 1 << TTL | 1 << TOS
LINK_FIELDS = 1 << MPLS | 1 << ETHERTYPE | 1 << SRC_MAC | 1 << DEST_MAC
TUNNEL_FIELDS = 1 << TUNNELS | 1 << TUNNEL_ID
RECORD_AND_LINK_FIELDS = LINK_FIELDS | 1 << VLAN | 1 << CAPLEN | 1 << INTERFACE
OTHER_FIELDS = TRANSPORT_FIELDS | FRAGMENT_FIELDS | TUNNEL_FIELDS | RECORD_AND_LINK_FIELDS
"""Bit masks of fields that kernels test together. OTHER_FIELDS: all fields except those that most queries need."""

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION = 0, 43, 44, 60
