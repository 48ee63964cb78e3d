"""Ready queries about attacks and suspicious hosts: scans, floods, amplification, entropy, beacons."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import ROWS, WINDOW, Parameter, ParameterType

SECURITY = (
    ReadyQuery(
        "horizontal-scans",
        "security",
        "packets",
        "The sources that request one TCP port from many hosts.",
        """\
SELECT srcIP, destPort, count(DISTINCT destIP) AS hosts, count(*) AS requests
FROM packets $window
WHERE flag = SYN
GROUP BY srcIP, destPort
HAVING hosts >= $hosts
ORDER BY hosts DESC, srcIP, destPort LIMIT $n""",
        (Parameter("hosts", ParameterType.INTEGER, 10, "smallest number of hosts", minimum=1), ROWS, WINDOW),
    ),
    ReadyQuery(
        "vertical-scans",
        "security",
        "packets",
        "The sources that request many TCP ports of one host.",
        """\
SELECT srcIP, destIP, count(DISTINCT destPort) AS ports, count(*) AS requests
FROM packets $window
WHERE flag = SYN
GROUP BY srcIP, destIP
HAVING ports >= $ports
ORDER BY ports DESC, srcIP, destIP LIMIT $n""",
        (Parameter("ports", ParameterType.INTEGER, 20, "smallest number of ports", minimum=1), ROWS, WINDOW),
    ),
    ReadyQuery(
        "slow-scans",
        "security",
        "packets",
        "The sources that request many TCP targets, but only few new ones in any minute.",
        """\
SELECT srcIP, sum(fresh) AS targets, count(*) AS active_minutes, max(fresh) AS most_in_a_minute
FROM (SELECT srcIP, minute, count(*) AS fresh
      FROM (SELECT srcIP, min(ts) / 60000000000 AS minute
            FROM packets $window
            WHERE flag = SYN
            GROUP BY srcIP, destIP, destPort) targets $window
      GROUP BY srcIP, minute) minutes $window
GROUP BY srcIP
HAVING targets >= $targets AND most_in_a_minute <= $limit
ORDER BY targets DESC, srcIP LIMIT $n""",
        (
            Parameter("targets", ParameterType.INTEGER, 20, "smallest number of targets (address and port)", minimum=1),
            Parameter("limit", ParameterType.INTEGER, 10, "largest number of new targets in a minute", minimum=1),
            ROWS,
            WINDOW,
        ),
    ),
    ReadyQuery(
        "odd-flags",
        "security",
        "packets",
        "TCP packets with flags that no connection has: none, SYN and FIN, SYN and RST, all.",
        """\
SELECT srcIP, destIP,
       CASE WHEN flag = 0 THEN 'none' WHEN flag & 41 = 41 THEN 'FIN PSH URG'
            WHEN flag & 3 = 3 THEN 'SYN FIN' ELSE 'SYN RST' END AS flags,
       count(*) AS packets
FROM packets $window
WHERE flag = 0 OR flag & 41 = 41 OR flag & 3 = 3 OR flag & 6 = 6
GROUP BY srcIP, destIP, flags
ORDER BY packets DESC, srcIP, destIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "syn-floods",
        "security",
        "packets",
        "The addresses that receive many TCP connection requests (SYN without ACK).",
        """\
SELECT destIP, count(*) AS syns
FROM packets $window
WHERE tcp_flags & 18 = 2
GROUP BY destIP
HAVING syns >= $syns""",
        (Parameter("syns", ParameterType.INTEGER, 100, "smallest number of requests", minimum=1), WINDOW),
    ),
    ReadyQuery(
        "floods",
        "security",
        "packets",
        "The addresses that receive many packets of one protocol in a short interval.",
        """\
SELECT destIP, protocol, count(*) AS packets, sum(len) AS bytes, count(DISTINCT srcIP) AS sources
FROM packets [RANGE $interval]
GROUP BY destIP, protocol
HAVING packets >= $packets""",
        (
            Parameter("interval", ParameterType.DURATION, "1s", "length of the intervals"),
            Parameter("packets", ParameterType.INTEGER, 1000, "smallest number of packets in an interval", minimum=1),
        ),
    ),
    ReadyQuery(
        "amplification",
        "security",
        "packets",
        "The addresses that receive many more bytes from UDP services than they send.",
        """\
SELECT client, port, sum(CASE WHEN answer = 1 THEN len ELSE 0 END) AS received,
       sum(CASE WHEN answer = 0 THEN len ELSE 0 END) AS sent, count(DISTINCT server) AS servers
FROM (SELECT ts, len, srcIP AS server, destIP AS client, srcPort AS port, 1 AS answer
      FROM packets
      WHERE protocol = 17 AND srcPort IN (17, 19, 53, 111, 123, 137, 161, 389, 1900, 11211))
     UNION
     (SELECT ts, len, destIP AS server, srcIP AS client, destPort AS port, 0 AS answer
      FROM packets
      WHERE protocol = 17 AND destPort IN (17, 19, 53, 111, 123, 137, 161, 389, 1900, 11211))
     $window
GROUP BY client, port
HAVING received >= $bytes AND received >= $ratio * sent
ORDER BY received DESC, client, port LIMIT $n""",
        (
            Parameter("ratio", ParameterType.FLOAT, 5, "smallest ratio of received and sent bytes", minimum=0),
            Parameter("bytes", ParameterType.INTEGER, 10000, "smallest number of received bytes", minimum=0),
            ROWS,
            WINDOW,
        ),
    ),
    ReadyQuery(
        "entropy",
        "security",
        "packets",
        "The entropy of addresses and ports in bits, which is 0 if all are equal.",
        """\
SELECT count(*) AS packets, entropy(srcIP) AS srcIP_bits, entropy(destIP) AS destIP_bits,
       entropy(srcPort) AS srcPort_bits, entropy(destPort) AS destPort_bits
FROM packets $window""",
        (WINDOW,),
    ),
    ReadyQuery(
        "port-entropy",
        "security",
        "packets",
        "The entropy of the ports in connection requests to each address, in bits.",
        """\
SELECT destIP, count(*) AS requests, entropy(srcPort) AS srcPort_bits,
       entropy(destPort) AS destPort_bits
FROM packets $window
WHERE flag = SYN
GROUP BY destIP
ORDER BY requests DESC, destIP LIMIT $n""",
        (ROWS, WINDOW),
    ),
    ReadyQuery(
        "new-hosts",
        "security",
        "packets",
        "The first packet of each source that sent nothing for a given time.",
        """\
SELECT ts, srcIP, destIP, protocol, destPort
FROM packets
WHERE NOT seen_within('$silence', srcIP = srcIP)""",
        (Parameter("silence", ParameterType.DURATION, "10 minutes", "shortest time without a packet"),),
    ),
    ReadyQuery(
        "beacons",
        "security",
        "packets",
        "The TCP connections that a host opens again after the same time, or after a multiple of it.",
        """\
SELECT srcIP, destIP, destPort, gap * $accuracy AS seconds, count(*) AS times
FROM (SELECT A.srcIP, A.destIP, A.destPort,
             ((B.ts - A.ts) / 1000000 + 500 * $accuracy) / (1000 * $accuracy) AS gap
      FROM packets A [RANGE $longest], packets B [RANGE 0 s]
      WHERE A.flag = SYN AND B.flag = SYN AND A.srcIP = B.srcIP AND A.destIP = B.destIP
        AND A.destPort = B.destPort AND A.srcPort <> B.srcPort
        AND B.ts - A.ts >= $shortest * 1000000000) pairs
GROUP BY srcIP, destIP, destPort, gap
HAVING times >= $times
ORDER BY times DESC, srcIP, destIP, destPort LIMIT $n""",
        (
            Parameter("shortest", ParameterType.INTEGER, 30, "shortest time in seconds", minimum=1),
            Parameter("longest", ParameterType.DURATION, "10 minutes", "longest time"),
            Parameter("accuracy", ParameterType.INTEGER, 1, "accuracy of the time in seconds", minimum=1),
            Parameter("times", ParameterType.INTEGER, 5, "smallest number of equal times", minimum=1),
            Parameter("n", ParameterType.INTEGER, 10, "number of rows", minimum=1),
        ),
    ),
    ReadyQuery(
        "brute-force",
        "security",
        "packets",
        "The sources that open many connections to one service of a host, such as SSH.",
        """\
SELECT srcIP, destIP, count(*) AS connections
FROM packets $window
WHERE flag = SYN AND destPort = $port
GROUP BY srcIP, destIP
HAVING connections >= $connections
ORDER BY connections DESC, srcIP, destIP LIMIT $n""",
        (
            Parameter("port", ParameterType.INTEGER, 22, "TCP port of the service", minimum=0, maximum=65535),
            Parameter("connections", ParameterType.INTEGER, 10, "smallest number of connections", minimum=1),
            ROWS,
            WINDOW,
        ),
    ),
)
