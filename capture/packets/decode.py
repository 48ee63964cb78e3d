"""One frame to one row: the helper that every decode kernel is made around, whatever container the frame comes from.

Only the columns asked for are computed and written.
"""

from __future__ import annotations

import numpy as np

from capture.native import helper
from capture.packets.fields import (
    BELOW,
    CAPLEN,
    FRAGMENT,
    FURTHER,
    INNER_ROWS,
    INTERFACE,
    LAYER_ROWS,
    LEN,
    NULL,
    OTHER_ROWS,
    TRANSPORT,
    TS,
    TUNNEL,
    TUNNEL_ID,
    TUNNELS,
    VERSION,
)
from capture.packets.ip_layer import (
    header_status,
    ip_length,
    upper_layer,
    write_addresses,
    write_below,
    write_upper,
)
from capture.packets.link_layers import ETHERTYPE_IPV4, link_header, network_layer
from capture.packets.tunnels import MAX_TUNNELS, tunnel_inside


@helper
def decode_frame(  # type: ignore[no-untyped-def]
    buf, frame, end, wire, time, link, interface, want, want_inner, every_frame, out, capacity, row, counts
):
    """Decode the frame `buf[frame:end]` into column `row` of `out` (its rows as in ROWS); return the next row.

    `wire` is the frame's length on the wire, `time` its ts in ns, `link` its link type, `interface` its number. `want`
    has a bit for each field of FIELDS to write, `want_inner` one for each of LAYER_FIELDS to write for the innermost
    IP layer: without any, `out` needs no rows for it. With `every_frame` a frame without a readable IP header is a row
    too, version 0 and NULL in its IP fields. `counts` (OTHER_ROWS + 1) grows where the frame is no row, by cause as in
    SKIPPED, and by the headers that are not IPv4. Of an outermost IPv4 header the version and the upper halves are not
    written: they stand there as 4 and 0 before.
    """
    state, at = link_header(buf, frame, end, link)
    kind, ip, vlan, mpls, ethertype, source, destination = network_layer(buf, at, end, state)
    cause = header_status(buf, kind, ip, end) if kind >= 0 else -1 - kind
    if kind < 0 or cause:
        if not every_frame:
            counts[cause] += 1
            return row
        counts[OTHER_ROWS] += 1
        write_nothing(want_inner, out, capacity, row)
        for first in (0, INNER_ROWS):
            mask = want_inner if first else want
            if mask & BELOW:
                write_below(buf, vlan, mpls, ethertype, source, destination, mask, out, capacity, first, row)
        want &= ~(TRANSPORT | FRAGMENT | BELOW | TUNNEL)
        want_inner = np.int64(0)
    else:
        write_addresses(buf, kind, ip, frame + wire, want, out, capacity, 0, row)
        if kind != ETHERTYPE_IPV4:
            counts[OTHER_ROWS] += 1
    out[TS * capacity + row] = time
    if want & (1 << LEN):
        out[LEN * capacity + row] = wire
    if not want & FURTHER and not want_inner:  # most queries; the tests below would cost as much as the addresses
        return row + 1
    if want & (1 << CAPLEN):
        out[CAPLEN * capacity + row] = end - frame
    if want & (1 << INTERFACE):
        out[INTERFACE * capacity + row] = interface
    if want & BELOW:
        write_below(buf, vlan, mpls, ethertype, source, destination, want, out, capacity, 0, row)
    if not want & (TRANSPORT | FRAGMENT | TUNNEL) and not want_inner:
        return row + 1
    length = ip_length(buf, kind, ip)
    wire_end = ip + length if length else frame + wire
    end = min(end, wire_end)  # what follows is padding of the link layer
    protocol, upper, fragment, more, identification = upper_layer(buf, kind, ip, end)
    write_upper(buf, protocol, upper, end, fragment, more, identification, want, out, capacity, 0, row)
    if not want & TUNNEL and not want_inner:
        return row + 1
    tunnels = np.int64(0)
    tunnel_id = np.int64(NULL)
    while tunnels < MAX_TUNNELS and fragment == 0:
        state, at, found = tunnel_inside(buf, protocol, upper, end)
        inside = network_layer(buf, at, end, state)
        if inside[0] < 0 or header_status(buf, inside[0], inside[1], end):
            break
        kind, ip, vlan, mpls, ethertype, source, destination = inside
        tunnels += 1
        tunnel_id = found
        length = ip_length(buf, kind, ip)
        if length:
            wire_end = ip + length
            end = min(end, wire_end)
        protocol, upper, fragment, more, identification = upper_layer(buf, kind, ip, end)
    if want & TUNNEL:
        out[TUNNELS * capacity + row] = tunnels
        out[TUNNEL_ID * capacity + row] = tunnel_id
    if want_inner:
        if kind != ETHERTYPE_IPV4:
            counts[OTHER_ROWS] += 1
        write_addresses(buf, kind, ip, wire_end, want_inner, out, capacity, INNER_ROWS, row)
        write_below(buf, vlan, mpls, ethertype, source, destination, want_inner, out, capacity, INNER_ROWS, row)
        write_upper(
            buf, protocol, upper, end, fragment, more, identification, want_inner, out, capacity, INNER_ROWS, row
        )
    return row + 1


@helper
def write_nothing(want_inner, out, capacity, row):  # type: ignore[no-untyped-def]
    """Write the row of a frame without a readable IP header: version 0, and NULL in every other field of a layer."""
    for first in (0, INNER_ROWS):
        if first == 0 or want_inner:
            for field in range(LAYER_ROWS):
                out[(first + field) * capacity + row] = NULL
            out[(first + VERSION) * capacity + row] = 0
    out[TUNNELS * capacity + row] = NULL
    out[TUNNEL_ID * capacity + row] = NULL
