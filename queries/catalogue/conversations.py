"""Ready queries about conversations: pairs of hosts, handshakes, answers, losses."""

from __future__ import annotations

from queries.catalogue.parameters import ROWS, WINDOW, Parameter, ParameterType
from queries.catalogue.ready_query import ReadyQuery

CONVERSATIONS = (
    ReadyQuery(
        "top-conversations",
        "conversations",
        "packets",
        "The pairs of hosts that exchange most bytes, with both directions in one row.",
        """\
SELECT least(srcIP, destIP) AS a, greatest(srcIP, destIP) AS b, count(*) AS packets,
       sum(len) AS bytes, sum(len) FILTER (WHERE srcIP <= destIP) AS bytes_from_a
FROM packets $window
GROUP BY a, b
ORDER BY bytes DESC, a, b LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "elephants",
        "conversations",
        "packets",
        "The flows (equal addresses, ports and protocol) with at least a given number of bytes.",
        """\
SELECT srcIP, srcPort, destIP, destPort, protocol, count(*) AS packets, sum(len) AS bytes,
       (max(ts) - min(ts)) / 1000000 AS milliseconds
FROM packets $window
GROUP BY srcIP, srcPort, destIP, destPort, protocol
HAVING bytes >= $bytes
ORDER BY bytes DESC LIMIT $n""",
        (
            Parameter("bytes", ParameterType.INTEGER, 1000000, "smallest number of bytes of a flow", minimum=0),
            ROWS,
            WINDOW,
        ),
    ),
    ReadyQuery(
        "handshake-latency",
        "conversations",
        "packets",
        "The time from SYN to SYN-ACK for each TCP server, in microseconds.",
        """\
SELECT server, count(*) AS handshakes, min(us) AS min_us, median(us) AS median_us,
       quantile(us, 0.95) AS p95_us, max(us) AS max_us
FROM (SELECT S.ts, S.destIP AS server, (A.ts - S.ts) / 1000 AS us
      FROM packets S [RANGE $timeout], packets A [RANGE 0 s]
      WHERE S.flag = SYN AND A.flag = SYN_ACK AND S.srcIP = A.destIP AND S.destIP = A.srcIP
        AND S.srcPort = A.destPort AND S.destPort = A.srcPort) handshakes $window
GROUP BY server
ORDER BY median_us DESC, server LIMIT $n""",
        (Parameter("timeout", ParameterType.DURATION, "3s", "longest time of a handshake"), ROWS, WINDOW),
    ),
)
