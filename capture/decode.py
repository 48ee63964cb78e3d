"""Records to columns: the decode kernel and the buffers it fills.

Every column is one row of an int64 matrix, so that the kernel takes a single pointer and the evaluator and the table
meet one type. A NULL is -1: no header field is negative. An address is two columns, its upper and lower 64 bits as
unsigned numbers; the upper is 0 for IPv4. Only the columns asked for are computed and written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.bytes import u16be, u32be, u64be
from capture.link_layers import ETHERTYPE_IPV4, NON_IP, network_layer
from capture.native import helper, kernel, pointer
from capture.pcap import PcapFile
from capture.scan import Block, captured_length, record_time, wire_length

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


@helper
def ipv6_upper(buf, at, end):  # type: ignore[no-untyped-def]
    """Walk the extension headers (RFC 8200 §4) of the IPv6 header at `at`; the caller has its 40 bytes.

    Returns (protocol, offset of its header, fragment offset in bytes, more fragments). The walk stops at a header
    that is cut and at a later fragment, whose payload begins with no header.
    """
    protocol = np.int64(buf[at + 6])
    at += 40
    fragment = np.int64(0)
    more = np.int64(0)
    while protocol in (HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION) and at + 8 <= end:
        following = np.int64(buf[at])
        if protocol == FRAGMENT_HEADER:
            fragment = u16be(buf, at + 2) & 0xFFF8
            more = np.int64(buf[at + 3] & 1)
            at += 8
        else:
            at += (np.int64(buf[at + 1]) + 1) * 8
        protocol = following
        if fragment:
            break
    return protocol, at, fragment, more


@kernel("i64(u8*, i64, i64, i64, i64, i64, i64, i64, i64, i64*, i64, i64*)")
def decode_records(buf, at, records, big_endian, unit, header, length_order, link, want, out, capacity, counts):  # type: ignore[no-untyped-def]
    """Decode `records` records from `buf[at:]` into the matrix `out` (len(FIELDS) x capacity); return the rows written.

    `want` has a bit for each field to write. `counts` (4) grows by the records that became no row, by cause as in
    SKIPPED, and by the IPv6 packets. The caller has scanned the records: their headers and bytes are inside `buf`. Of
    an IPv4 packet the version and the upper halves are not written: they stand there as 4 and 0 before.
    """
    row = 0
    for _ in range(records):
        captured = captured_length(buf, at, big_endian, length_order)
        here = at
        frame = at + header
        end = frame + captured
        at = end
        kind, ip, vlan = network_layer(buf, frame, end, link)
        if kind == NON_IP:
            counts[0] += 1
            continue
        if kind == ETHERTYPE_IPV4:
            if ip + 20 > end:
                counts[1] += 1
                continue
            header_length = np.int64(buf[ip] & 15) * 4
            total = u16be(buf, ip + 2)
            # A total length of 0 is what segmentation offload leaves: the frame says how long the packet is.
            if buf[ip] >> 4 != 4 or header_length < 20 or (total < header_length and total != 0):
                counts[2] += 1
                continue
            if want & (1 << SRC_LOW):
                out[SRC_LOW * capacity + row] = u32be(buf, ip + 12)
            if want & (1 << DEST_LOW):
                out[DEST_LOW * capacity + row] = u32be(buf, ip + 16)
            if want & NETWORK:
                out[IP_LEN * capacity + row] = total or wire_length(buf, here, big_endian, length_order) - (ip - frame)
                out[TTL * capacity + row] = buf[ip + 8]
                out[TOS * capacity + row] = buf[ip + 1]
            protocol = np.int64(buf[ip + 9])
            fragment = (u16be(buf, ip + 6) & 0x1FFF) * 8
            more = np.int64(buf[ip + 6] >> 5 & 1)
            upper = ip + header_length
            if total and ip + total < end:
                end = ip + total  # what follows is padding of the link layer
        else:
            if ip + 40 > end:
                counts[1] += 1
                continue
            if buf[ip] >> 4 != 6:
                counts[2] += 1
                continue
            if want & (1 << SRC_LOW):
                out[SRC_HIGH * capacity + row] = np.int64(u64be(buf, ip + 8))
                out[SRC_LOW * capacity + row] = np.int64(u64be(buf, ip + 16))
            if want & (1 << DEST_LOW):
                out[DEST_HIGH * capacity + row] = np.int64(u64be(buf, ip + 24))
                out[DEST_LOW * capacity + row] = np.int64(u64be(buf, ip + 32))
            out[VERSION * capacity + row] = 6
            counts[IPV6_ROWS] += 1
            payload = u16be(buf, ip + 4)
            if want & NETWORK:
                out[IP_LEN * capacity + row] = payload + 40
                out[TTL * capacity + row] = buf[ip + 7]
                out[TOS * capacity + row] = u16be(buf, ip) >> 4 & 255
            if payload and ip + 40 + payload < end:
                end = ip + 40 + payload
            protocol = np.int64(buf[ip + 6])
            upper = ip + 40
            fragment = np.int64(0)
            more = np.int64(0)
            if want & (TRANSPORT | FRAGMENT):
                protocol, upper, fragment, more = ipv6_upper(buf, ip, end)
        out[TS * capacity + row] = record_time(buf, here, big_endian, unit)
        if want & (1 << LEN):
            out[LEN * capacity + row] = wire_length(buf, here, big_endian, length_order)
        if not want & FURTHER:  # most queries; the tests below would cost as much as the addresses
            row += 1
            continue
        if want & (1 << CAPLEN):
            out[CAPLEN * capacity + row] = captured
        if want & (1 << PROTOCOL):
            out[PROTOCOL * capacity + row] = protocol
        if want & FRAGMENT:
            out[FRAGMENT_OFFSET * capacity + row] = fragment
            out[MORE_FRAGMENTS * capacity + row] = more
        if want & (1 << VLAN):
            out[VLAN * capacity + row] = vlan
        if want & (1 << SRC_PORT | 1 << DEST_PORT):
            ports = fragment == 0 and protocol in (TCP, UDP) and upper + 4 <= end
            out[SRC_PORT * capacity + row] = u16be(buf, upper) if ports else NULL
            out[DEST_PORT * capacity + row] = u16be(buf, upper + 2) if ports else NULL
        if want & (1 << TCP_FLAGS):
            flags = fragment == 0 and protocol == TCP and upper + 14 <= end
            out[TCP_FLAGS * capacity + row] = np.int64(buf[upper + 13]) if flags else NULL
        if want & (1 << ICMP_TYPE | 1 << ICMP_CODE):
            icmp = fragment == 0 and protocol in (ICMP, ICMPV6) and upper + 2 <= end
            out[ICMP_TYPE * capacity + row] = np.int64(buf[upper]) if icmp else NULL
            out[ICMP_CODE * capacity + row] = np.int64(buf[upper + 1]) if icmp else NULL
        row += 1
    return row


@dataclass(frozen=True)
class Packets:
    """Decoded rows: the matrix's first `rows` columns hold them. Valid until the decoder's next call."""

    matrix: npt.NDArray[np.int64]
    rows: int
    only_ipv4: bool

    def field(self, name: str) -> npt.NDArray[np.int64]:
        """Return one physical column; NULL is -1. Addresses are bit patterns of unsigned numbers."""
        return self.matrix[FIELDS.index(name), : self.rows]


class Decoder:
    """Decodes blocks of one file into buffers of its own. Not thread safe.

    Memory is fixed: len(FIELDS) x capacity x 8 bytes, whatever the file's length.
    """

    def __init__(self, file: PcapFile, columns: Iterable[str], capacity: int) -> None:
        """Decode `columns` (names of the stream) of blocks with up to `capacity` records."""
        self.file = file
        self.matrix = np.zeros((len(FIELDS), capacity), np.int64)
        self.matrix[VERSION] = 4
        self.counts = np.zeros(len(SKIPPED) + 1, np.int64)
        self.skipped = self.counts[:IPV6_ROWS]
        self.only_ipv4 = True  # in the block decoded last
        wanted = {field for column in columns if column != "link" for field in PHYSICAL.get(column, (column,))}
        self.want = sum(1 << FIELDS.index(field) for field in wanted)
        self.data = pointer(file.data, "u8")
        self.out = pointer(self.matrix.reshape(-1), "i64")

    def decode(self, block: Block) -> Packets:
        """Decode one block. Records that hold no readable IP packet are counted in `skipped`.

        ValueError where the block has more records than the buffers have room for: the kernel would write behind them.
        """
        capacity = self.matrix.shape[1]
        if block.records > capacity:
            raise ValueError(
                f"got a block of {block.records} records, expected at most {capacity}: scan in smaller blocks"
            )
        if not self.only_ipv4:
            # The kernel writes these three for IPv6 alone: three stores fewer for nearly every packet.
            self.matrix[VERSION] = 4
            self.matrix[SRC_HIGH] = self.matrix[DEST_HIGH] = 0
        header = self.file.header
        before = int(self.counts[IPV6_ROWS])
        rows = decode_records(
            self.data, block.start, block.records, header.big_endian, 1 if header.nanoseconds else 1000,
            header.record_header, header.length_order, header.link_type, self.want, self.out, capacity,
            self.counts,
        )  # fmt: skip
        self.only_ipv4 = int(self.counts[IPV6_ROWS]) == before
        return Packets(self.matrix, rows, self.only_ipv4)
