"""Ready queries about conversations: pairs of hosts, handshakes, answers, losses."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import ROWS, WINDOW, Parameter, ParameterType

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
        "The time from SYN to SYN-ACK for each TCP server, in milliseconds.",
        """\
SELECT server, count(*) AS handshakes, min(ms) AS min_ms, median(ms) AS median_ms,
       quantile(ms, 0.95) AS p95_ms, max(ms) AS max_ms
FROM (SELECT S.ts, S.destIP AS server, (A.ts - S.ts) / 1000000.0 AS ms
      FROM packets S [RANGE $timeout], packets A [RANGE 0 s]
      WHERE S.flag = SYN AND A.flag = SYN_ACK AND S.srcIP = A.destIP AND S.destIP = A.srcIP
        AND S.srcPort = A.destPort AND S.destPort = A.srcPort) handshakes $window
GROUP BY server
ORDER BY median_ms DESC, server LIMIT $n""",
        (Parameter("timeout", ParameterType.DURATION, "3s", "longest time of a handshake"), ROWS, WINDOW),
    ),
    ReadyQuery(
        "unanswered",
        "conversations",
        "packets",
        "The TCP servers that leave most connection requests (SYN) without an answer.",
        """\
SELECT server, port, count(*) AS unanswered
FROM (SELECT S.ts, S.destIP AS server, S.destPort AS port
      FROM packets S [RANGE $timeout] ANTI JOIN packets A [RANGE 0 s]
      ON S.srcIP = A.destIP AND S.destIP = A.srcIP AND S.srcPort = A.destPort
         AND S.destPort = A.srcPort AND A.protocol = 6
      WHERE S.flag = SYN) requests $window
GROUP BY server, port
ORDER BY unanswered DESC, server, port LIMIT $n""",
        (Parameter("timeout", ParameterType.DURATION, "3s", "longest time between request and answer"), ROWS, WINDOW),
    ),
    ReadyQuery(
        "refused",
        "conversations",
        "packets",
        "The TCP servers that refuse most connection requests (RST after SYN).",
        """\
SELECT server, port, count(*) AS refused
FROM (SELECT S.ts, S.destIP AS server, S.destPort AS port
      FROM packets S [RANGE $timeout] SEMI JOIN packets R [RANGE 0 s]
      ON S.srcIP = R.destIP AND S.destIP = R.srcIP AND S.srcPort = R.destPort
         AND S.destPort = R.srcPort AND R.flag = RST_ACK
      WHERE S.flag = SYN) requests $window
GROUP BY server, port
ORDER BY refused DESC, server, port LIMIT $n""",
        (Parameter("timeout", ParameterType.DURATION, "3s", "longest time between request and answer"), ROWS, WINDOW),
    ),
    ReadyQuery(
        "resets",
        "conversations",
        "packets",
        "The hosts that reset most TCP connections.",
        """\
SELECT srcIP, count(*) AS resets, count(DISTINCT destIP) AS peers
FROM packets $window
WHERE tcp_flags & 4 = 4
GROUP BY srcIP
ORDER BY resets DESC, srcIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "retransmissions",
        "conversations",
        "packets",
        "The directions of TCP traffic with most repeated segments.",
        """\
SELECT srcIP, destIP, sum(seen - 1) AS repeated, sum(seen) AS segments
FROM (SELECT srcIP, destIP, count(*) AS seen
      FROM packets $window
      WHERE protocol = 6 AND length(payload) > 0
      GROUP BY srcIP, destIP, srcPort, destPort, tcp_seq) sequences $window
GROUP BY srcIP, destIP
HAVING repeated > 0
ORDER BY repeated DESC, srcIP, destIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "dns-latency",
        "conversations",
        "packets",
        "The time from question to answer for each DNS server, in milliseconds.",
        """\
WITH dns AS (SELECT ts, srcIP, destIP, srcPort, destPort,
                    byte(payload, 0) * 256 + byte(payload, 1) AS id
             FROM packets WHERE protocol = 17 AND (srcPort = 53 OR destPort = 53))
SELECT server, count(*) AS answers, median(ms) AS median_ms, max(ms) AS max_ms
FROM (SELECT Q.ts, Q.destIP AS server, (A.ts - Q.ts) / 1000000.0 AS ms
      FROM dns Q [RANGE $timeout], dns A [RANGE 0 s]
      WHERE Q.destPort = 53 AND A.srcPort = 53 AND Q.id = A.id AND Q.srcIP = A.destIP
        AND Q.destIP = A.srcIP AND Q.srcPort = A.destPort) answers $window
GROUP BY server
ORDER BY median_ms DESC, server LIMIT $n""",
        (Parameter("timeout", ParameterType.DURATION, "2s", "longest time between question and answer"), ROWS, WINDOW),
    ),
    ReadyQuery(
        "dns-results",
        "conversations",
        "packets",
        "Answers of each DNS server by result: 0 no error, 2 server failure, 3 no such name.",
        """\
SELECT srcIP AS server, rcode, count(*) AS answers
FROM packets $window
WHERE srcPort = 53 AND protocol = 17 AND byte(payload, 2) >= 128
GROUP BY server, byte(payload, 3) & 15 AS rcode
ORDER BY answers DESC, server, rcode LIMIT $n""",
        (ROWS, WINDOW),
    ),
)
