"""The columns of the streams `packets` and `frames`, as one table.

A row of `packets` is a packet whose outermost network layer is IPv4 or IPv6 with readable addresses. Records without
such a packet are counted by cause (`capture.metrics`). In `frames`, each record of a capture is a row. Its IP columns
are NULL if the record contains no such packet. The columns have the names of GSQL (Gigascope's SQL); case does not
matter. A field that a packet does not contain is NULL. For example, an ICMP packet, a later fragment, or a truncated
packet has no ports.

A column of an IP layer exists twice: `ttl` is in the outermost IP header, `inner.ttl` in the innermost IP header that
is reached through supported tunnels. Without a tunnel both are equal.
"""

from __future__ import annotations

from dataclasses import replace

from capture.lazy_dataclasses import dataclass
from capture.packets.fields import INNER_PREFIX


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column. `type`: `integer` (range 0..2**bits-1), `time`, `address`, `text`, `mac` or `bytes`.

    `is_layered`: a field of an IP layer, so there is a second column for the inner layer. All other columns
    are fields of the record.
    """

    name: str
    type: str
    bits: int
    nullable: bool
    help: str
    is_layered: bool = True


COLUMNS: dict[str, ColumnSpec] = {
    spec.name: spec
    for spec in (
        ColumnSpec("ts", "time", 64, False, "capture time, nanoseconds since the epoch, UTC", False),
        ColumnSpec("link", "text", 0, False, "name of the input that contains the packet", False),
        ColumnSpec("interface", "text", 0, False, "name of the capture's interface, or its number", False),
        ColumnSpec("srcIP", "address", 128, False, "source address of the outermost IP header"),
        ColumnSpec("destIP", "address", 128, False, "destination address of the outermost IP header"),
        ColumnSpec("srcPort", "integer", 16, True, "TCP or UDP source port"),
        ColumnSpec("destPort", "integer", 16, True, "TCP or UDP destination port"),
        ColumnSpec(
            "protocol",
            "integer",
            8,
            False,
            "IP protocol number; IPv6: after hop-by-hop, routing, fragment and destination headers (AH is 51)",
        ),
        ColumnSpec("ip_version", "integer", 8, False, "4 or 6"),
        ColumnSpec("len", "integer", 32, False, "length of the frame on the wire, in bytes", False),
        ColumnSpec("caplen", "integer", 32, False, "bytes of the frame that were captured", False),
        ColumnSpec("ip_len", "integer", 32, False, "IPv4 total length, or IPv6 payload length + 40, in bytes"),
        ColumnSpec("ttl", "integer", 8, False, "IPv4 time to live, or IPv6 hop limit"),
        ColumnSpec("tos", "integer", 8, False, "IPv4 type of service, or IPv6 traffic class"),
        ColumnSpec("ip_id", "integer", 32, True, "IPv4 identification, or that of an IPv6 fragment header"),
        ColumnSpec("fragment_offset", "integer", 16, False, "offset of the fragment in bytes; 0 if not fragmented"),
        ColumnSpec("more_fragments", "integer", 1, False, "1 if more fragments follow, else 0"),
        ColumnSpec("tcp_flags", "integer", 8, True, "TCP flags CWR..FIN as one byte (SYN = 2, ACK = 16)"),
        ColumnSpec("tcp_seq", "integer", 32, True, "TCP sequence number, as in the header"),
        ColumnSpec("tcp_ack", "integer", 32, True, "TCP acknowledgment number, as in the header"),
        ColumnSpec("tcp_window", "integer", 16, True, "TCP window, as in the header (not scaled)"),
        ColumnSpec("icmp_type", "integer", 8, True, "ICMP or ICMPv6 type"),
        ColumnSpec("icmp_code", "integer", 8, True, "ICMP or ICMPv6 code"),
        ColumnSpec("vlan", "integer", 16, True, "VLAN ID of the outermost 802.1Q or 802.1ad tag"),
        ColumnSpec("mpls", "integer", 32, True, "label of the outermost MPLS stack entry"),
        ColumnSpec("ethertype", "integer", 16, True, "EtherType after the VLAN tags, if the link or header has one"),
        ColumnSpec("srcMAC", "mac", 48, True, "source address of the link layer, if it has 48 bits"),
        ColumnSpec("destMAC", "mac", 48, True, "destination address of the link layer, if it has 48 bits"),
        ColumnSpec(
            "payload", "bytes", 0, True, "captured bytes after the TCP, UDP or ICMP header, else after the IP headers"
        ),
        ColumnSpec("tunnels", "integer", 8, False, "tunnels between the outermost and the innermost IP header", False),
        ColumnSpec(
            "tunnel_id",
            "integer",
            32,
            True,
            "VXLAN or Geneve VNI, GTP TEID, GRE key, ERSPAN or L2TP session, PPTP call of the innermost tunnel",
            False,
        ),
    )
}
"""Columns of the record and of the outermost IP layer."""

INNER_COLUMNS: dict[str, ColumnSpec] = {
    INNER_PREFIX + name: replace(
        spec,
        name=INNER_PREFIX + name,
        help=spec.help.replace("outermost", "innermost")
        if "outermost" in spec.help
        else f"{spec.help} (of the innermost IP layer)",
    )
    for name, spec in COLUMNS.items()
    if spec.is_layered
}
"""Columns of the innermost IP layer."""

NEVER_NULL = ("ts", "link", "interface", "len", "caplen")
"""Columns that are never NULL in `frames`."""

PACKET_COLUMNS = COLUMNS | INNER_COLUMNS
"""All columns of the stream `packets`."""

FRAME_COLUMNS = {name: replace(spec, nullable=name not in NEVER_NULL) for name, spec in PACKET_COLUMNS.items()}
"""All columns of the stream `frames`, the same as in `packets`. Other columns than NEVER_NULL may be NULL."""
