"""The columns of the stream `packets`, as one table.

A row of `packets` is a packet whose outermost network layer is IPv4 or IPv6 with readable addresses; every other
record of a capture is counted by cause (`capture.metrics`), never silently dropped. Names are GSQL's, so that the
papers' queries run as printed; they are matched without regard to case. A field that a packet lacks (the ports of a
later fragment, of ICMP, of a packet cut before them) is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """One column: `type` is `integer`, `address` or `text`; integers lie in 0..2**bits-1."""

    name: str
    type: str
    bits: int
    nullable: bool
    help: str


COLUMNS: dict[str, ColumnSpec] = {
    spec.name: spec
    for spec in (
        ColumnSpec("ts", "integer", 64, False, "capture time, nanoseconds since the epoch, UTC"),
        ColumnSpec("link", "text", 0, False, "name of the input the packet came from"),
        ColumnSpec("srcIP", "address", 128, False, "source address of the outermost IP header"),
        ColumnSpec("destIP", "address", 128, False, "destination address of the outermost IP header"),
        ColumnSpec("srcPort", "integer", 16, True, "TCP or UDP source port"),
        ColumnSpec("destPort", "integer", 16, True, "TCP or UDP destination port"),
        ColumnSpec(
            "protocol",
            "integer",
            8,
            False,
            "IP protocol number; for IPv6 that after hop-by-hop, routing, fragment and destination headers (AH is 51)",
        ),
        ColumnSpec("ip_version", "integer", 8, False, "4 or 6"),
        ColumnSpec("len", "integer", 32, False, "length of the frame on the wire, in bytes"),
        ColumnSpec("caplen", "integer", 32, False, "bytes of the frame that were captured"),
        ColumnSpec("ip_len", "integer", 32, False, "IPv4 total length, or IPv6 payload length + 40, in bytes"),
        ColumnSpec("ttl", "integer", 8, False, "IPv4 time to live, or IPv6 hop limit"),
        ColumnSpec("tos", "integer", 8, False, "IPv4 type of service, or IPv6 traffic class"),
        ColumnSpec("fragment_offset", "integer", 16, False, "offset of the fragment in bytes; 0 where not fragmented"),
        ColumnSpec("more_fragments", "integer", 1, False, "1 where further fragments follow, else 0"),
        ColumnSpec("tcp_flags", "integer", 8, True, "TCP flags CWR..FIN as one byte (SYN = 2, ACK = 16)"),
        ColumnSpec("icmp_type", "integer", 8, True, "ICMP or ICMPv6 type"),
        ColumnSpec("icmp_code", "integer", 8, True, "ICMP or ICMPv6 code"),
        ColumnSpec("vlan", "integer", 16, True, "VLAN id of the outermost 802.1Q or 802.1ad tag"),
    )
}
