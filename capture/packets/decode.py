"""Decode one frame into one row. The decode kernels of all capture formats use `decode_frame`.

Only the requested columns are computed and written.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper, outlined
from capture.packets.candidates import list_candidate
from capture.packets.fields import (
    CANDIDATE_LIMIT_INDEX,
    CAPLEN,
    FIRST_INNER_ROW,
    FRAGMENT_FIELD_MASK,
    INTERFACE,
    LAYER_FIELD_COUNT,
    LEN,
    LINK_FIELD_MASK,
    NULL,
    OTHER_ROWS_INDEX,
    RECORD_AND_LINK_FIELD_MASK,
    TRANSPORT_FIELD_MASK,
    TS,
    TUNNEL_FIELD_MASK,
    TUNNEL_ID,
    TUNNELS,
    UNCOMMON_FIELD_MASK,
    VERSION,
    VLAN,
)
from capture.packets.ip_layer import header_status, upper_layer, write_addresses, write_link_fields, write_transport
from capture.packets.link_headers import ETHERTYPE_IPV4
from capture.packets.link_layers import outermost_layer
from capture.packets.network_layer import network_layer
from capture.packets.tunnels import MAX_TUNNELS, tunnel_inside


@helper
def decode_frame(  # type: ignore[no-untyped-def]
    buf, frame, end, wire, time, link, interface, mask, inner_mask, every_frame, out, capacity, row, counts
):
    """Decode the frame `buf[frame:end]` into column `row` of `out` (rows as in ROWS). Return the next row.

    * `wire`: length of the frame on the wire. `time`: ts in ns. `link`: link type. `interface`: its number.
    * `mask`: bit mask of the FIELDS to write.
    * `inner_mask`: bit mask of the LAYER_FIELDS to write for the innermost IP layer. If it is 0, `out` has no rows for
      the inner layer.
    * `every_frame`: if set, a frame without readable IP header is a row with version 0 and NULL in its IP fields.
    * `counts`: COUNTER_COUNT words, then room for candidates. Counts frames that become no row, by cause as in
      SKIP_CAUSES, and headers that are not IPv4. Candidates for the fallback decoder are appended.

    For an outermost IPv4 header the version and the upper halves of addresses are not written. The caller has filled
    them with 4 and 0.
    """
    kind, ip, vlan, _, _, _, _ = outermost_layer(buf, frame, end, link)
    cause = header_status(buf, kind, ip, end) if kind >= 0 else -1 - kind
    if cause or kind < 0:
        if not every_frame:
            counts[cause] += 1
            # An unconditional call would slow down all packets by 4 %, because it needs more registers.
            if kind < 0 and counts[CANDIDATE_LIMIT_INDEX]:
                list_candidate(buf, frame, end, wire, time, link, interface, row, cause, counts)
            return row
        if kind < 0:
            list_candidate(buf, frame, end, wire, time, link, interface, row, cause, counts)
        counts[OTHER_ROWS_INDEX] += 1
        return write_other_frame(buf, frame, end, wire, time, link, interface, mask, inner_mask, out, capacity, row)
    if kind != ETHERTYPE_IPV4:
        counts[OTHER_ROWS_INDEX] += 1
    wire_end = max(end, frame + wire)  # the wire length of some records is less than the captured length
    write_addresses(buf, kind, ip, wire_end, mask, out, capacity, np.int64(0), row)
    out[TS * capacity + row] = time
    if mask & (1 << LEN):
        out[LEN * capacity + row] = wire
    # Most queries end here. The tests below take as long as the decoding of the addresses.
    if not mask & UNCOMMON_FIELD_MASK | inner_mask:
        return row + 1
    if mask & RECORD_AND_LINK_FIELD_MASK:
        if mask & (1 << CAPLEN):
            out[CAPLEN * capacity + row] = end - frame
        if mask & (1 << INTERFACE):
            out[INTERFACE * capacity + row] = interface
        if mask & (1 << VLAN):
            out[VLAN * capacity + row] = vlan
        if mask & LINK_FIELD_MASK:
            write_outer_link(buf, frame, end, link, mask, out, capacity, row)
    if mask & (TRANSPORT_FIELD_MASK | FRAGMENT_FIELD_MASK):
        protocol, upper, fragment, more, identified, packet_end, _ = upper_layer(buf, kind, ip, end, wire_end)
        write_transport(
            buf, kind, protocol, upper, packet_end, fragment, more, identified, mask, out, capacity, np.int64(0), row
        )
    if mask & TUNNEL_FIELD_MASK | inner_mask:
        write_inner(buf, frame, end, wire_end, link, mask, inner_mask, out, capacity, row, counts)
    return row + 1


# The following helpers walk to the outermost header again. If the result of the first walk were passed to them, it
# would occupy registers for every packet. Only a few queries need the second walk.


@outlined
def write_outer_link(buf, frame, end, link, mask, out, capacity, row):  # type: ignore[no-untyped-def]
    """Write the fields of the frame's link layer into the outermost layer of the row."""
    _, _, vlan, mpls, ethertype, source, destination = outermost_layer(buf, frame, end, link)
    write_link_fields(buf, vlan, mpls, ethertype, source, destination, mask, out, capacity, np.int64(0), row)
    return np.int64(0)


@outlined
def write_other_frame(buf, frame, end, wire, time, link, interface, mask, inner_mask, out, capacity, row):  # type: ignore[no-untyped-def]
    """Write the row of a frame without readable IP header. Return the next row."""
    write_nulls(inner_mask, out, capacity, row)
    _, _, vlan, mpls, ethertype, source, destination = outermost_layer(buf, frame, end, link)
    write_link_fields(buf, vlan, mpls, ethertype, source, destination, mask, out, capacity, np.int64(0), row)
    if inner_mask:
        first = np.int64(FIRST_INNER_ROW)
        write_link_fields(buf, vlan, mpls, ethertype, source, destination, inner_mask, out, capacity, first, row)
    out[TS * capacity + row] = time
    out[LEN * capacity + row] = wire
    out[CAPLEN * capacity + row] = end - frame
    out[INTERFACE * capacity + row] = interface
    return row + 1


@outlined
def write_inner(buf, frame, end, wire_end, link, mask, inner_mask, out, capacity, row, counts):  # type: ignore[no-untyped-def]
    """Walk through the tunnels of a frame with a readable packet, and write the innermost layer.

    A tunnel is counted only if it contains a readable IP header.
    """
    kind, ip, vlan, mpls, ethertype, source, destination = outermost_layer(buf, frame, end, link)
    protocol, upper, fragment, more, identified, end, wire_end = upper_layer(buf, kind, ip, end, wire_end)
    tunnels = np.int64(0)
    tunnel_id = np.int64(NULL)
    while tunnels < MAX_TUNNELS and fragment == 0:
        state, offset, inner_tunnel_id = tunnel_inside(buf, protocol, upper, end)
        if state < 0:
            break
        inside = network_layer(buf, offset, end, state)
        if inside[0] < 0 or header_status(buf, inside[0], inside[1], end):
            break
        kind, ip, vlan, mpls, ethertype, source, destination = inside
        tunnels += 1
        tunnel_id = inner_tunnel_id
        protocol, upper, fragment, more, identified, end, wire_end = upper_layer(buf, kind, ip, end, wire_end)
    if mask & TUNNEL_FIELD_MASK:
        out[TUNNELS * capacity + row] = tunnels
        out[TUNNEL_ID * capacity + row] = tunnel_id
    if inner_mask:
        first = np.int64(FIRST_INNER_ROW)
        if kind != ETHERTYPE_IPV4:
            counts[OTHER_ROWS_INDEX] += 1
        write_addresses(buf, kind, ip, wire_end, inner_mask, out, capacity, first, row)
        write_link_fields(buf, vlan, mpls, ethertype, source, destination, inner_mask, out, capacity, first, row)
        write_transport(
            buf, kind, protocol, upper, end, fragment, more, identified, inner_mask, out, capacity, first, row
        )
    return np.int64(0)


@helper
def write_nulls(inner_mask, out, capacity, row):  # type: ignore[no-untyped-def]
    """Write NULL to all fields of the layers of a row, and version 0: the row of a frame without readable IP header."""
    for first in (np.int64(0), np.int64(FIRST_INNER_ROW)):
        if first == 0 or inner_mask:
            for field in range(LAYER_FIELD_COUNT):
                out[(first + field) * capacity + row] = NULL
            out[(first + VERSION) * capacity + row] = 0
    out[TUNNELS * capacity + row] = NULL
    out[TUNNEL_ID * capacity + row] = NULL
