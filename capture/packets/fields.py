"""The physical columns into which frames are decoded: their order, their encoding, and NULL.

Each column is one row of an int64 matrix. So a kernel needs only one pointer, and code that evaluates expressions or
aggregates groups handles only int64. NULL is -1, because no header field is negative. An address takes two columns, its
upper and its lower 64 bits. They are bit patterns of unsigned integers, so they can be negative in the matrix, and they
are NULL if the IP version of the layer is 0. The upper bits are 0 for IPv4. A MAC address is a 48-bit integer. A
payload is stored in two columns: its offset and its length in the data of the capture.

The matrix contains the fields of the outermost IP layer, then the fields of the record. If a query requests the inner
layer, the fields of the inner layer follow in the same order. So both layers use the same bit masks and code.
"""

from __future__ import annotations

NULL = -1
"""Value of a field that a packet does not contain."""

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

INNER_PREFIX = "inner."
"""Prefix of the names of inner columns."""

INNER_FIELDS = tuple(INNER_PREFIX + name for name in LAYER_FIELDS)
"""The matrix rows after FIELDS, if the matrix has them."""

ROWS = {name: row for row, name in enumerate(FIELDS + INNER_FIELDS)}
"""Matrix row by column name."""

(
    VERSION, SRC_HIGH, SRC_LOW, DEST_HIGH, DEST_LOW, PROTOCOL, SRC_PORT, DEST_PORT, IP_LEN, TTL, TOS, IP_ID,
    FRAGMENT_OFFSET, MORE_FRAGMENTS, TCP_FLAGS, TCP_SEQ, TCP_ACK, TCP_WINDOW, ICMP_TYPE, ICMP_CODE, VLAN, MPLS,
    ETHERTYPE, SRC_MAC, DEST_MAC, PAYLOAD_OFFSET, PAYLOAD_LENGTH,
    TS, LEN, CAPLEN, INTERFACE, TUNNELS, TUNNEL_ID,
) = range(len(FIELDS))  # fmt: skip

LAYER_FIELD_COUNT = len(LAYER_FIELDS)
"""Number of fields of an IP layer."""

FIRST_INNER_ROW = len(FIELDS)
"""First matrix row of the inner layer: field f is in row FIRST_INNER_ROW + f."""

_COMPOSED: dict[str, tuple[str, ...]] = {
    "srcIP": ("ip_version", "src_high", "src_low"),
    "destIP": ("ip_version", "dest_high", "dest_low"),
    "srcMAC": ("src_mac",),
    "destMAC": ("dest_mac",),
    "payload": ("payload_offset", "payload_length"),
}
PHYSICAL_COLUMNS: dict[str, tuple[str, ...]] = _COMPOSED | {
    INNER_PREFIX + name: tuple(INNER_PREFIX + part for part in parts) for name, parts in _COMPOSED.items()
}
"""The columns of queries (`srcIP`, `payload`, ...) that have several physical columns, or one with another name: the
names of these physical columns."""

SKIP_CAUSES = ("non_ip", "ip_header_cut", "ip_header_malformed", "unsupported_link_type")
"""Causes for which a record of the capture does not become a row. non_ip: no header announces an IP packet.
ip_header_cut: the IP addresses were not captured. ip_header_malformed: the IP header is invalid. unsupported_link_type:
the link type is unknown."""

OTHER_ROWS_INDEX = len(SKIP_CAUSES)
"""Index in the array of counters of a decoding kernel. The counters of SKIP_CAUSES come first. This counter is the
number of IP headers that are not IPv4, plus the number of rows without IP header. If it is 0, all rows are IPv4."""

CANDIDATE_COUNT_INDEX, CANDIDATE_LIMIT_INDEX = OTHER_ROWS_INDEX + 1, OTHER_ROWS_INDEX + 2
"""Further indices in the array of counters: how many frames the kernel has listed as candidates for the fallback
decoder, and how many it may list. If it may list 0, it lists none."""

COUNTER_COUNT = CANDIDATE_LIMIT_INDEX + 1
"""Number of counters at the start of the array of counters. After them, the array contains the listed candidates, each
with len(CANDIDATE_FIELDS) words."""

CANDIDATE_FIELDS = ("start", "end", "wire", "ts", "interface", "row", "header", "cause")
"""The words of one candidate, a frame for the fallback decoder, in this order. start, end: offsets of the frame in the
data. wire: length on the wire. ts: time in ns. row: number of rows before it. header: index in `candidates.HEADERS`.
cause: index in SKIP_CAUSES."""

RARE_FIELD_MASK = (
    1 << IP_ID | 1 << TCP_SEQ | 1 << TCP_ACK | 1 << TCP_WINDOW | 1 << ICMP_TYPE | 1 << ICMP_CODE | 1 << PAYLOAD_OFFSET
    | 1 << PAYLOAD_LENGTH
)  # fmt: skip
TRANSPORT_FIELD_MASK = 1 << PROTOCOL | 1 << SRC_PORT | 1 << DEST_PORT | 1 << TCP_FLAGS | RARE_FIELD_MASK
FRAGMENT_FIELD_MASK = 1 << FRAGMENT_OFFSET | 1 << MORE_FRAGMENTS
NETWORK_FIELD_MASK = 1 << IP_LEN | 1 << TTL | 1 << TOS
LINK_FIELD_MASK = 1 << MPLS | 1 << ETHERTYPE | 1 << SRC_MAC | 1 << DEST_MAC
TUNNEL_FIELD_MASK = 1 << TUNNELS | 1 << TUNNEL_ID
RECORD_AND_LINK_FIELD_MASK = LINK_FIELD_MASK | 1 << VLAN | 1 << CAPLEN | 1 << INTERFACE
UNCOMMON_FIELD_MASK = TRANSPORT_FIELD_MASK | FRAGMENT_FIELD_MASK | TUNNEL_FIELD_MASK | RECORD_AND_LINK_FIELD_MASK
"""Bit masks of fields that kernels test together. UNCOMMON_FIELD_MASK: all FIELDS except the IP version, the addresses,
IP_LEN, TTL, TOS, TS and LEN."""

TCP, UDP, ICMP, ICMPV6 = 6, 17, 1, 58
HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION_OPTIONS = 0, 43, 44, 60
"""Protocol numbers of transport protocols, and next header numbers of IPv6 extension headers (IANA)."""
