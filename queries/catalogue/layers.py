"""Ready queries about IP and the layers below: fragments, multicast, VLANs, tunnels."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import ROWS, WINDOW, Parameter, ParameterType

LAYERS = (
    ReadyQuery(
        "fragments",
        "layers",
        "packets",
        "Fragments of IP packets for each source.",
        """\
SELECT srcIP, count(*) AS fragments, sum(ip_len) AS bytes,
       count(*) FILTER (WHERE fragment_offset = 0) AS packets
FROM packets $window
WHERE more_fragments = 1 OR fragment_offset > 0
GROUP BY srcIP
ORDER BY fragments DESC, srcIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "multicast",
        "layers",
        "packets",
        "Packets and bytes to each multicast group, and its senders.",
        """\
SELECT destIP, count(*) AS packets, sum(len) AS bytes, count(DISTINCT srcIP) AS senders
FROM packets $window
WHERE is_multicast(destIP)
GROUP BY destIP
ORDER BY packets DESC, destIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "vlans",
        "layers",
        "frames",
        "Frames and bytes of each VLAN; NULL: frames without a tag.",
        """\
SELECT vlan, count(*) AS frames, sum(len) AS bytes
FROM frames $window
GROUP BY vlan""",
        (WINDOW,),
    ),
    ReadyQuery(
        "ethertypes",
        "layers",
        "frames",
        "Frames that are not IP, by EtherType; 2054 is ARP.",
        """\
SELECT ethertype, count(*) AS frames, sum(len) AS bytes, count(DISTINCT srcMAC) AS stations
FROM frames $window
WHERE ip_version IS NULL
GROUP BY ethertype""",
        (WINDOW,),
    ),
    ReadyQuery(
        "stations",
        "layers",
        "frames",
        "The MAC addresses that send most bytes.",
        """\
SELECT srcMAC, count(*) AS frames, sum(len) AS bytes
FROM frames $window
WHERE srcMAC IS NOT NULL
GROUP BY srcMAC
ORDER BY bytes DESC, srcMAC LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "address-conflicts",
        "layers",
        "packets",
        "Source addresses that several MAC addresses use; for a router this is normal.",
        """\
SELECT srcIP, count(DISTINCT srcMAC) AS stations, count(*) AS packets
FROM packets $window
GROUP BY srcIP
HAVING stations >= $stations
ORDER BY stations DESC, srcIP LIMIT $n""",
        (Parameter("stations", ParameterType.INTEGER, 2, "smallest number of MAC addresses", minimum=1), ROWS, WINDOW),
    ),
    ReadyQuery(
        "icmp-types",
        "layers",
        "packets",
        "ICMP and ICMPv6 packets by type and code; 3 of ICMP is an unreachable destination.",
        """\
SELECT protocol, icmp_type, icmp_code, count(*) AS packets, count(DISTINCT srcIP) AS sources
FROM packets $window
WHERE icmp_type IS NOT NULL
GROUP BY protocol, icmp_type, icmp_code""",
        (WINDOW,),
    ),
    ReadyQuery(
        "hop-limits",
        "layers",
        "packets",
        "Sources whose packets arrive with different TTLs or hop limits.",
        """\
SELECT srcIP, min(ttl) AS min_ttl, max(ttl) AS max_ttl, count(DISTINCT ttl) AS values,
       count(*) AS packets
FROM packets $window
GROUP BY srcIP
HAVING values >= $values
ORDER BY values DESC, srcIP LIMIT $n""",
        (Parameter("values", ParameterType.INTEGER, 2, "smallest number of different values", minimum=1), ROWS, WINDOW),
    ),
    ReadyQuery(
        "tunnels",
        "layers",
        "packets",
        "Packets in tunnels, by outer protocol and port, and the addresses inside.",
        """\
SELECT protocol, destPort, count(*) AS packets, sum(len) AS bytes,
       count(DISTINCT tunnel_id) AS tunnel_ids, count(DISTINCT inner.srcIP) AS inner_sources
FROM packets $window
WHERE tunnels > 0
GROUP BY protocol, destPort
ORDER BY packets DESC, protocol, destPort LIMIT $n""",
        (ROWS, WINDOW),
    ),
)
