"""One frame to one row: the helper that every decode kernel is made around, whatever container the frame comes from.

Only the columns asked for are computed and written.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u64be
from capture.native import helper
from capture.packets.fields import (
    CAPLEN,
    DEST_HIGH,
    DEST_LOW,
    DEST_PORT,
    DESTINATION,
    FRAGMENT,
    FRAGMENT_HEADER,
    FRAGMENT_OFFSET,
    FURTHER,
    HOP_BY_HOP,
    ICMP,
    ICMP_CODE,
    ICMP_TYPE,
    ICMPV6,
    IP_LEN,
    IPV6_ROWS,
    LEN,
    MORE_FRAGMENTS,
    NETWORK,
    NULL,
    PROTOCOL,
    ROUTING,
    SRC_HIGH,
    SRC_LOW,
    SRC_PORT,
    TCP,
    TCP_FLAGS,
    TOS,
    TRANSPORT,
    TS,
    TTL,
    UDP,
    VERSION,
    VLAN,
)
from capture.packets.link_layers import ETHERTYPE_IPV4, NON_IP, network_layer


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


@helper
def decode_frame(buf, frame, end, wire, time, link, want, out, capacity, row, counts):  # type: ignore[no-untyped-def]
    """Decode the frame `buf[frame:end]` into column `row` of `out` (len(FIELDS) x capacity); return the next row.

    `wire` is the frame's length on the wire, `time` its ts in ns, `link` its link type. `want` has a bit for each field
    to write. `counts` (len(SKIPPED) + 1) grows where the frame is no row, by cause as in SKIPPED, and by the IPv6
    packets. Of an IPv4 packet the version and the upper halves are not written: they stand there as 4 and 0 before.
    """
    captured = end - frame
    kind, ip, vlan = network_layer(buf, frame, end, link)
    if kind == NON_IP:
        counts[0] += 1
        return row
    if kind == ETHERTYPE_IPV4:
        if ip + 20 > end:
            counts[1] += 1
            return row
        header_length = np.int64(buf[ip] & 15) * 4
        total = u16be(buf, ip + 2)
        # A total length of 0 is what segmentation offload leaves: the frame says how long the packet is.
        if buf[ip] >> 4 != 4 or header_length < 20 or (total < header_length and total != 0):
            counts[2] += 1
            return row
        if want & (1 << SRC_LOW):
            out[SRC_LOW * capacity + row] = u32be(buf, ip + 12)
        if want & (1 << DEST_LOW):
            out[DEST_LOW * capacity + row] = u32be(buf, ip + 16)
        if want & NETWORK:
            out[IP_LEN * capacity + row] = total or wire - (ip - frame)
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
            return row
        if buf[ip] >> 4 != 6:
            counts[2] += 1
            return row
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
    out[TS * capacity + row] = time
    if want & (1 << LEN):
        out[LEN * capacity + row] = wire
    if not want & FURTHER:  # most queries; the tests below would cost as much as the addresses
        return row + 1
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
    return row + 1
