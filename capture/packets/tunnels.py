"""What an IP packet carries another IP packet in: from the header behind IP to where the inside begins."""

from __future__ import annotations

import numpy as np

from capture.native import helper
from capture.packets.fields import NULL
from capture.packets.link_layers import AT_IPV4, AT_IPV6, NON_IP

MAX_TUNNELS = 8
"""Tunnels inside tunnels that are followed; what is further in is the innermost one's payload."""

IPV4_IN_IP, IPV6_IN_IP = 4, 41


@helper
def tunnel_inside(buf, protocol, upper, end):  # type: ignore[no-untyped-def]
    """Return (state of the walk, offset of the inside, tunnel id or NULL); NON_IP where `protocol` is no tunnel."""
    if protocol == IPV4_IN_IP:
        return np.int64(AT_IPV4), upper, np.int64(NULL)
    if protocol == IPV6_IN_IP:
        return np.int64(AT_IPV6), upper, np.int64(NULL)
    return np.int64(NON_IP), upper, np.int64(NULL)
