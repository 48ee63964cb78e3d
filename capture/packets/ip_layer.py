"""Decode one IP header into one layer of a row, for the outermost and the innermost header."""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u48be, u64be
from capture.native import helper, outlined
from capture.packets.fields import (
    DEST_HIGH,
    DEST_LOW,
    DEST_MAC,
    DEST_PORT,
    DESTINATION_OPTIONS,
    ETHERTYPE,
    FRAGMENT_FIELD_MASK,
    FRAGMENT_HEADER,
    FRAGMENT_OFFSET,
    HOP_BY_HOP,
    ICMP,
    ICMP_CODE,
    ICMP_TYPE,
    ICMPV6,
    IP_ID,
    IP_LEN,
    LINK_FIELD_MASK,
    MORE_FRAGMENTS,
    MPLS,
    NETWORK_FIELD_MASK,
    NULL,
    PAYLOAD_LENGTH,
    PAYLOAD_OFFSET,
    PROTOCOL,
    RARE_FIELD_MASK,
    ROUTING,
    SRC_HIGH,
    SRC_LOW,
    SRC_MAC,
    SRC_PORT,
    TCP,
    TCP_ACK,
    TCP_FLAGS,
    TCP_SEQ,
    TCP_WINDOW,
    TOS,
    TTL,
    UDP,
    VERSION,
    VLAN,
)
from capture.packets.link_headers import ETHERTYPE_IPV4

READABLE, TRUNCATED, MALFORMED = 0, 1, 2
"""Results of `header_status`. TRUNCATED and MALFORMED are also the indices of their causes in SKIP_CAUSES."""


@helper
def header_status(buf, ethertype, ip, end):  # type: ignore[no-untyped-def]
    """Return whether the IP header at `ip`, announced by `ethertype`, is READABLE, TRUNCATED or MALFORMED."""
    if ethertype == ETHERTYPE_IPV4:
        if ip + 20 > end:
            return TRUNCATED
        header_length = np.int64(buf[ip] & 15) * 4
        total = u16be(buf, ip + 2)
        # With segmentation offload, the total length is 0. The frame then determines the length of the packet.
        if buf[ip] >> 4 != 4 or header_length < 20 or (total < header_length and total != 0):
            return MALFORMED
        return READABLE
    if ip + 40 > end:
        return TRUNCATED
    return READABLE if buf[ip] >> 4 == 6 else MALFORMED


@helper
def ip_length(buf, ethertype, ip):  # type: ignore[no-untyped-def]
    """Return the packet length in the IP header; 0 if it is not set (segmentation offload, jumbograms)."""
    if ethertype == ETHERTYPE_IPV4:
        return u16be(buf, ip + 2)
    payload = u16be(buf, ip + 4)
    return payload + 40 if payload else np.int64(0)


@helper
def upper_layer(buf, ethertype, ip, end, wire_end):  # type: ignore[no-untyped-def]
    """Walk from the readable IP header at `ip` to the upper-layer header.

    `end`: end of the captured bytes. `wire_end`: end of the packet on the wire if the IP header has no length. IPv6
    extension headers (RFC 8200 §4) are followed. The walk stops at a truncated header, and at a later fragment, whose
    payload does not begin with a header.

    Returns (protocol, offset of its header, fragment offset in bytes, more fragments, offset of the identification or
    NULL, captured end of the packet, end of the packet on the wire).
    """
    length = ip_length(buf, ethertype, ip)
    if length:
        wire_end = ip + length
        end = min(end, wire_end)  # bytes after the IP packet are padding of the link layer
    if ethertype == ETHERTYPE_IPV4:
        fragment_offset = (u16be(buf, ip + 6) & 0x1FFF) * 8
        more_fragments = np.int64(buf[ip + 6] >> 5 & 1)
        upper = ip + np.int64(buf[ip] & 15) * 4
        return np.int64(buf[ip + 9]), upper, fragment_offset, more_fragments, ip + 4, end, wire_end
    protocol = np.int64(buf[ip + 6])
    offset = ip + 40
    fragment_offset = np.int64(0)
    more_fragments = np.int64(0)
    identification_offset = np.int64(NULL)
    while protocol in (HOP_BY_HOP, ROUTING, FRAGMENT_HEADER, DESTINATION_OPTIONS) and offset + 8 <= end:
        following = np.int64(buf[offset])
        if protocol == FRAGMENT_HEADER:
            fragment_offset = u16be(buf, offset + 2) & 0xFFF8
            more_fragments = np.int64(buf[offset + 3] & 1)
            identification_offset = offset + 4
            offset += 8
        else:
            offset += (np.int64(buf[offset + 1]) + 1) * 8
        protocol = following
        if fragment_offset:
            break
    return protocol, offset, fragment_offset, more_fragments, identification_offset, end, wire_end


@helper
def write_addresses(buf, ethertype, ip, wire_end, mask, out, capacity, first_field, row):  # type: ignore[no-untyped-def]
    """Write the fields at fixed offsets of the readable IP header at `ip`.

    `out`: the matrix of fields x `capacity` rows. `first_field`: index of the first field of the layer in this matrix.
    `wire_end`: end of the packet on the wire if its header has no length. For IPv4 in the outermost layer, the version
    and the upper halves of addresses are not written, because the caller has filled them with 4 and 0.
    """
    if ethertype == ETHERTYPE_IPV4:
        if first_field:
            out[(first_field + VERSION) * capacity + row] = 4
            out[(first_field + SRC_HIGH) * capacity + row] = 0
            out[(first_field + DEST_HIGH) * capacity + row] = 0
        if mask & (1 << SRC_LOW):
            out[(first_field + SRC_LOW) * capacity + row] = u32be(buf, ip + 12)
        if mask & (1 << DEST_LOW):
            out[(first_field + DEST_LOW) * capacity + row] = u32be(buf, ip + 16)
        if mask & NETWORK_FIELD_MASK:
            out[(first_field + IP_LEN) * capacity + row] = u16be(buf, ip + 2) or wire_end - ip
            out[(first_field + TTL) * capacity + row] = buf[ip + 8]
            out[(first_field + TOS) * capacity + row] = buf[ip + 1]
        return
    out[(first_field + VERSION) * capacity + row] = 6
    if mask & (1 << SRC_LOW):
        out[(first_field + SRC_HIGH) * capacity + row] = np.int64(u64be(buf, ip + 8))
        out[(first_field + SRC_LOW) * capacity + row] = np.int64(u64be(buf, ip + 16))
    if mask & (1 << DEST_LOW):
        out[(first_field + DEST_HIGH) * capacity + row] = np.int64(u64be(buf, ip + 24))
        out[(first_field + DEST_LOW) * capacity + row] = np.int64(u64be(buf, ip + 32))
    if mask & NETWORK_FIELD_MASK:
        out[(first_field + IP_LEN) * capacity + row] = u16be(buf, ip + 4) + 40
        out[(first_field + TTL) * capacity + row] = buf[ip + 7]
        out[(first_field + TOS) * capacity + row] = u16be(buf, ip) >> 4 & 255


@helper
def write_link_fields(buf, vlan, mpls, ethertype, source, destination, mask, out, capacity, first_field, row):  # type: ignore[no-untyped-def]
    """Write the link layer fields. `source` and `destination` are offsets of 48-bit addresses, or NULL."""
    if mask & (1 << VLAN):
        out[(first_field + VLAN) * capacity + row] = vlan
    if not mask & LINK_FIELD_MASK:
        return
    if mask & (1 << MPLS):
        out[(first_field + MPLS) * capacity + row] = mpls
    if mask & (1 << ETHERTYPE):
        out[(first_field + ETHERTYPE) * capacity + row] = ethertype
    if mask & (1 << SRC_MAC):
        out[(first_field + SRC_MAC) * capacity + row] = u48be(buf, source) if source >= 0 else NULL
    if mask & (1 << DEST_MAC):
        out[(first_field + DEST_MAC) * capacity + row] = u48be(buf, destination) if destination >= 0 else NULL


@helper
def write_transport(  # type: ignore[no-untyped-def]
    buf,
    ethertype,
    protocol,
    upper,
    end,
    fragment_offset,
    more_fragments,
    identification_offset,
    mask,
    out,
    capacity,
    first_field,
    row,
):
    """Write the results of `upper_layer`, and the fields of the upper-layer header that end at or before `end`."""
    if mask & (1 << PROTOCOL):
        out[(first_field + PROTOCOL) * capacity + row] = protocol
    if mask & FRAGMENT_FIELD_MASK:
        out[(first_field + FRAGMENT_OFFSET) * capacity + row] = fragment_offset
        out[(first_field + MORE_FRAGMENTS) * capacity + row] = more_fragments
    left = end - upper if fragment_offset == 0 else np.int64(-1)  # available bytes of the header of `protocol`
    if mask & (1 << SRC_PORT | 1 << DEST_PORT):
        ports = protocol in (TCP, UDP) and left >= 4
        out[(first_field + SRC_PORT) * capacity + row] = u16be(buf, upper) if ports else NULL
        out[(first_field + DEST_PORT) * capacity + row] = u16be(buf, upper + 2) if ports else NULL
    if mask & (1 << TCP_FLAGS):
        flags = protocol == TCP and left >= 14
        out[(first_field + TCP_FLAGS) * capacity + row] = np.int64(buf[upper + 13]) if flags else NULL
    if mask & RARE_FIELD_MASK:
        write_rare_fields(
            buf,
            ethertype,
            protocol,
            upper,
            end,
            fragment_offset,
            identification_offset,
            mask,
            out,
            capacity,
            first_field,
            row,
        )


@outlined
def write_rare_fields(  # type: ignore[no-untyped-def]
    buf, ethertype, protocol, upper, end, fragment_offset, identification_offset, mask, out, capacity, first_field, row
):
    """Write the rarely requested fields. Not inlined, so that other queries do not test for each of these fields."""
    left = end - upper if fragment_offset == 0 else np.int64(-1)
    if mask & (1 << IP_ID):
        identification = np.int64(NULL)
        if identification_offset >= 0:
            identification = (
                u16be(buf, identification_offset) if ethertype == ETHERTYPE_IPV4 else u32be(buf, identification_offset)
            )
        out[(first_field + IP_ID) * capacity + row] = identification
    if mask & (1 << TCP_SEQ | 1 << TCP_ACK | 1 << TCP_WINDOW):
        bytes_of_tcp = left if protocol == TCP else np.int64(-1)
        out[(first_field + TCP_SEQ) * capacity + row] = u32be(buf, upper + 4) if bytes_of_tcp >= 8 else NULL
        out[(first_field + TCP_ACK) * capacity + row] = u32be(buf, upper + 8) if bytes_of_tcp >= 12 else NULL
        out[(first_field + TCP_WINDOW) * capacity + row] = u16be(buf, upper + 14) if bytes_of_tcp >= 16 else NULL
    if mask & (1 << ICMP_TYPE | 1 << ICMP_CODE):
        bytes_of_icmp = left if protocol in (ICMP, ICMPV6) else np.int64(-1)
        out[(first_field + ICMP_TYPE) * capacity + row] = np.int64(buf[upper]) if bytes_of_icmp >= 1 else NULL
        out[(first_field + ICMP_CODE) * capacity + row] = np.int64(buf[upper + 1]) if bytes_of_icmp >= 2 else NULL
    if mask & (1 << PAYLOAD_OFFSET | 1 << PAYLOAD_LENGTH):
        offset = upper
        if fragment_offset == 0:
            offset = payload_start(buf, protocol, upper, end)
        whole = upper <= offset <= end
        out[(first_field + PAYLOAD_OFFSET) * capacity + row] = offset if whole else NULL
        out[(first_field + PAYLOAD_LENGTH) * capacity + row] = end - offset if whole else NULL
    return np.int64(0)


@helper
def payload_start(buf, protocol, upper, end):  # type: ignore[no-untyped-def]
    """Return the offset after the TCP, UDP or ICMP header at `upper` (may be > `end`); NULL for a bad TCP length."""
    if protocol == TCP:
        if upper + 13 > end:
            return end + 1
        length = np.int64(buf[upper + 12] >> 4) * 4
        return upper + length if length >= 20 else np.int64(NULL)
    if protocol in (UDP, ICMP, ICMPV6):
        return upper + 8
    return upper
