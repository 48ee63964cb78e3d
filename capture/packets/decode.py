"""One frame to one row: the helper that every decode kernel is made around, whatever container the frame comes from.

Only the columns asked for are computed and written.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be
from capture.native import helper, outlined
from capture.packets.fields import (
    ASIDE,
    CAPLEN,
    FURTHER,
    INNER_ROWS,
    INTERFACE,
    LAYER_ROWS,
    LEN,
    NULL,
    OTHER_ROWS,
    TS,
    TUNNEL,
    TUNNEL_ID,
    TUNNELS,
    VERSION,
)
from capture.packets.ip_layer import (
    header_status,
    upper_layer,
    write_addresses,
    write_below,
    write_upper,
)
from capture.packets.link_layers import ETHERNET, link_header
from capture.packets.network_layer import network_layer
from capture.packets.states import ETHERTYPE_IPV4, ETHERTYPE_IPV6
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
    if link == ETHERNET and frame + 14 <= end and u16be(buf, frame + 12) in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        kind = u16be(buf, frame + 12)  # most frames; the rest must not be in their way
        ip = frame + 14
        vlan = np.int64(NULL)
        mpls = np.int64(NULL)
        ethertype = kind
        source = frame + 6
        destination = frame
    else:
        kind, ip, vlan, mpls, ethertype, source, destination = outermost_layer(buf, frame, end, link)
    cause = header_status(buf, kind, ip, end) if kind >= 0 else -1 - kind
    if cause or kind < 0:
        if not every_frame:
            counts[cause] += 1
            return row
        counts[OTHER_ROWS] += 1
        return write_other_frame(
            buf, frame, end, wire, time, interface, vlan, mpls, ethertype, source, destination, want, want_inner, out,
            capacity, row,
        )  # fmt: skip
    if kind != ETHERTYPE_IPV4:
        counts[OTHER_ROWS] += 1
    outer = np.int64(0)
    wire_end = max(end, frame + wire)  # some records say that less was on the wire than they hold
    write_addresses(buf, kind, ip, wire_end, want, out, capacity, outer, row)
    out[TS * capacity + row] = time
    if want & (1 << LEN):
        out[LEN * capacity + row] = wire
    if not want & FURTHER and not want_inner:  # most queries; the tests below would cost as much as the addresses
        return row + 1
    if want & ASIDE:
        if want & (1 << CAPLEN):
            out[CAPLEN * capacity + row] = end - frame
        if want & (1 << INTERFACE):
            out[INTERFACE * capacity + row] = interface
        write_below(buf, vlan, mpls, ethertype, source, destination, want, out, capacity, outer, row)
    protocol, upper, fragment, more, identification, end, wire_end = upper_layer(buf, kind, ip, end, wire_end)
    write_upper(buf, protocol, upper, end, fragment, more, identification, want, out, capacity, outer, row)
    if want & TUNNEL or want_inner:
        write_inner(
            buf, kind, ip, end, wire_end, vlan, mpls, ethertype, source, destination, protocol, upper, fragment, more,
            identification, want, want_inner, out, capacity, row, counts,
        )  # fmt: skip
    return row + 1


@outlined
def write_other_frame(  # type: ignore[no-untyped-def]
    buf, frame, end, wire, time, interface, vlan, mpls, ethertype, source, destination, want, want_inner, out, capacity,
    row,
):  # fmt: skip
    """Write the row of a frame that holds no readable IP header; return the next row."""
    write_nothing(want_inner, out, capacity, row)
    write_below(buf, vlan, mpls, ethertype, source, destination, want, out, capacity, np.int64(0), row)
    if want_inner:
        first = np.int64(INNER_ROWS)
        write_below(buf, vlan, mpls, ethertype, source, destination, want_inner, out, capacity, first, row)
    out[TS * capacity + row] = time
    out[LEN * capacity + row] = wire
    out[CAPLEN * capacity + row] = end - frame
    out[INTERFACE * capacity + row] = interface
    return row + 1


@outlined
def outermost_layer(buf, frame, end, link):  # type: ignore[no-untyped-def]
    """Return what `network_layer` does for a frame of any link type."""
    state, at = link_header(buf, frame, end, link)
    return network_layer(buf, at, end, state)


@outlined
def write_inner(  # type: ignore[no-untyped-def]
    buf, kind, ip, end, wire_end, vlan, mpls, ethertype, source, destination, protocol, upper, fragment, more,
    identification, want, want_inner, out, capacity, row, counts,
):  # fmt: skip
    """Walk through the tunnels of the readable packet at `ip`, and write the innermost layer as the outer one is.

    The outer layer is described as `network_layer` and `upper_layer` do. A tunnel counts where a readable IP header
    is in it.
    """
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
        protocol, upper, fragment, more, identification, end, wire_end = upper_layer(buf, kind, ip, end, wire_end)
    if want & TUNNEL:
        out[TUNNELS * capacity + row] = tunnels
        out[TUNNEL_ID * capacity + row] = tunnel_id
    if want_inner:
        first = np.int64(INNER_ROWS)
        if kind != ETHERTYPE_IPV4:
            counts[OTHER_ROWS] += 1
        write_addresses(buf, kind, ip, wire_end, want_inner, out, capacity, first, row)
        write_below(buf, vlan, mpls, ethertype, source, destination, want_inner, out, capacity, first, row)
        write_upper(buf, protocol, upper, end, fragment, more, identification, want_inner, out, capacity, first, row)
    return np.int64(0)


@helper
def write_nothing(want_inner, out, capacity, row):  # type: ignore[no-untyped-def]
    """Write the row of a frame without a readable IP header: version 0, and NULL in every other field of a layer."""
    for first in (np.int64(0), np.int64(INNER_ROWS)):
        if first == 0 or want_inner:
            for field in range(LAYER_ROWS):
                out[(first + field) * capacity + row] = NULL
            out[(first + VERSION) * capacity + row] = 0
    out[TUNNELS * capacity + row] = NULL
    out[TUNNEL_ID * capacity + row] = NULL
