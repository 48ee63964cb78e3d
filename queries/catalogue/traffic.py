"""Ready queries about the amount of traffic: talkers, protocols, sizes, rates."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import ROWS, WINDOW, Parameter, ParameterType

TRAFFIC = (
    ReadyQuery(
        "packets",
        "traffic",
        "packets",
        "Packets and bytes of all links together.",
        """\
SELECT count(*) AS packets, sum(len) AS bytes
FROM packets $window""",
        (WINDOW,),
    ),
    ReadyQuery(
        "links",
        "traffic",
        "packets",
        "Packets and bytes of each link.",
        """\
SELECT link, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY link""",
        (WINDOW,),
    ),
    ReadyQuery(
        "pairs",
        "traffic",
        "packets",
        "Packets and bytes of each source and destination.",
        """\
SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY srcIP, destIP""",
        (WINDOW,),
    ),
    ReadyQuery(
        "top-talkers",
        "traffic",
        "packets",
        "The sources that send most bytes.",
        """\
SELECT srcIP, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY srcIP
ORDER BY bytes DESC, srcIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "top-receivers",
        "traffic",
        "packets",
        "The destinations that receive most bytes.",
        """\
SELECT destIP, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY destIP
ORDER BY bytes DESC, destIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "sources",
        "traffic",
        "packets",
        "Packets of each source in a sliding window (Q1-1 of Li 2008).",
        """\
SELECT srcIP, count(*)
FROM packets [RANGE $range, SLIDE $slide]
GROUP BY srcIP""",
        (
            Parameter("range", ParameterType.DURATION, "10 minutes", "length of the windows"),
            Parameter("slide", ParameterType.DURATION, "1 minute", "time between the starts of two windows"),
        ),
    ),
    ReadyQuery(
        "heavy-hitters",
        "traffic",
        "packets",
        "The sources with a large share of the packets.",
        """\
SELECT srcIP, count(*) AS packets
FROM packets $window
GROUP BY srcIP
HAVING heavy($share)""",
        (
            Parameter("share", ParameterType.FLOAT, 0.05, "smallest share of the packets", minimum=0.0001, maximum=1),
            WINDOW,
        ),
    ),
    ReadyQuery(
        "protocols",
        "traffic",
        "packets",
        "Packets and bytes of each IP version and protocol.",
        """\
SELECT ip_version, protocol, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY ip_version, protocol""",
        (WINDOW,),
    ),
    ReadyQuery(
        "ports",
        "traffic",
        "packets",
        "The TCP and UDP destination ports that receive most bytes.",
        """\
SELECT protocol, destPort, count(*) AS packets, sum(len) AS bytes
FROM packets $window
WHERE destPort IS NOT NULL
GROUP BY protocol, destPort
ORDER BY bytes DESC, protocol, destPort LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "networks",
        "traffic",
        "packets",
        "The networks that send most bytes.",
        """\
SELECT mask(srcIP, $ipv4, $ipv6) AS network, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY network
ORDER BY bytes DESC, network LIMIT $n""",
        (
            Parameter("ipv4", ParameterType.INTEGER, 24, "prefix length of IPv4 networks", minimum=0, maximum=32),
            Parameter("ipv6", ParameterType.INTEGER, 64, "prefix length of IPv6 networks", minimum=0, maximum=128),
            ROWS,
            WINDOW,
        ),
    ),
    ReadyQuery(
        "network-traffic",
        "traffic",
        "packets",
        "Bytes that a network sends, receives and exchanges inside.",
        """\
SELECT direction, count(*) AS packets, sum(len) AS bytes
FROM packets $window
WHERE srcIP IN $network OR destIP IN $network
GROUP BY CASE WHEN NOT srcIP IN $network THEN 'received' WHEN destIP IN $network THEN 'inside'
         ELSE 'sent' END AS direction""",
        (Parameter("network", ParameterType.PREFIX, "10.0.0.0/8", "prefix of the network"), WINDOW),
    ),
    ReadyQuery(
        "peers",
        "traffic",
        "packets",
        "The hosts that exchange most bytes with a network or with one address.",
        """\
SELECT peer, count(*) AS packets, sum(len) AS bytes
FROM packets $window
WHERE srcIP IN $network OR destIP IN $network
GROUP BY CASE WHEN srcIP IN $network THEN destIP ELSE srcIP END AS peer
ORDER BY bytes DESC, peer LIMIT $n""",
        (
            Parameter("network", ParameterType.PREFIX, "10.0.0.0/8", "prefix of the network, or the address"),
            ROWS,
            WINDOW,
        ),
    ),
    ReadyQuery(
        "sizes",
        "traffic",
        "packets",
        "Packets by length, in classes of equal width.",
        """\
SELECT class * $step AS at_least, count(*) AS packets
FROM packets $window
GROUP BY len / $step AS class
ORDER BY at_least""",
        (Parameter("step", ParameterType.INTEGER, 100, "width of a class in bytes", minimum=1), WINDOW),
    ),
    ReadyQuery(
        "bandwidth",
        "traffic",
        "packets",
        "Bits per second of each link.",
        """\
SELECT link, sum(len) * 8 * 1000000000 / (window_end - window_start) AS bits_per_second
FROM packets [RANGE $window]
GROUP BY link""",
        (Parameter("window", ParameterType.DURATION, "1 minute", "length of the windows"),),
    ),
    ReadyQuery(
        "bursts",
        "traffic",
        "packets",
        "The short intervals with most bytes, and their rate.",
        """\
SELECT start, packets, bytes, bytes * 8 * 1000000000 / (until - start) AS bits_per_second
FROM (SELECT window_start AS start, window_end AS until, count(*) AS packets, sum(len) AS bytes
      FROM packets [RANGE $interval]) intervals
ORDER BY bytes DESC, start LIMIT $n""",
        (
            Parameter("interval", ParameterType.DURATION, "100ms", "length of the intervals"),
            Parameter("n", ParameterType.INTEGER, 10, "number of rows", minimum=1),
        ),
    ),
    ReadyQuery(
        "service-classes",
        "traffic",
        "packets",
        "Packets and bytes of each differentiated services code point (RFC 2474).",
        """\
SELECT dscp, count(*) AS packets, sum(len) AS bytes
FROM packets $window
GROUP BY tos / 4 AS dscp""",
        (WINDOW,),
    ),
)
