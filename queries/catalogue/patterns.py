"""Ready queries about the order of events: row patterns and automata (Chandramouli, Goldstein and Maier, 2010)."""

from __future__ import annotations

from queries.catalogue.ready_query import ReadyQuery
from queries.text.parameters import Parameter, ParameterType

WITHIN = Parameter("within", ParameterType.DURATION, "1 hour", "longest time from the first event to the last")

PATTERNS = (
    ReadyQuery(
        "call-backs",
        "patterns",
        "packets",
        "The hosts that are scanned, then get a large packet, and then connect to the scanner.",
        """\
SELECT attacker, victim, probes, bytes, port, match_start, match_end
FROM (SELECT ts, time/60 AS minute, srcIP, destIP, destPort, len, flag, pair(srcIP, destIP) AS hosts
      FROM packets WHERE protocol = 6 AND srcIP <> destIP AND (flag = SYN OR len >= $bytes))
MATCH_RECOGNIZE (
    PARTITION BY hosts ORDER BY ts
    MEASURES F.srcIP AS attacker, F.destIP AS victim, count(P.*) AS probes,
             E.len AS bytes, C.destPort AS port
    PATTERN (F S{$probes,} O*? E O*? C) WITHIN $within
    SUBSET P = (F, S)
    DEFINE F AS flag = SYN
                AND (prev(flag) IS NULL OR prev(flag) <> SYN OR prev(srcIP) <> srcIP
                     OR prev(minute) <> minute),
           S AS flag = SYN AND srcIP = F.srcIP,
           E AS len >= $bytes AND srcIP = F.srcIP,
           C AS flag = SYN AND srcIP = F.destIP)""",
        (
            Parameter("probes", ParameterType.INTEGER, 4, "smallest number of requests after the first one", 0, 1000),
            Parameter("bytes", ParameterType.INTEGER, 1000, "smallest length of the large packet", 1),
            WITHIN,
        ),
    ),
    ReadyQuery(
        "guessed-passwords",
        "patterns",
        "packets",
        "The clients that open several short sessions with a server, and then a long one.",
        """\
SELECT client, server, guesses, seconds, match_start, match_end
FROM (SELECT window_end, srcIP AS client, destIP AS server,
             (max(ts) - min(ts)) / 1000000000.0 AS seconds
      FROM packets [SESSION $gap]
      WHERE protocol = 6 AND destPort = $port
      GROUP BY srcIP, destIP, srcPort)
MATCH_RECOGNIZE (
    PARTITION BY client, server ORDER BY window_end
    MEASURES count(F.*) AS guesses, L.seconds AS seconds
    PATTERN (F{$guesses,} L) WITHIN $within
    DEFINE F AS seconds < $short, L AS seconds >= $long)""",
        (
            Parameter("guesses", ParameterType.INTEGER, 5, "smallest number of short sessions", 1, 1000),
            Parameter("port", ParameterType.INTEGER, 22, "TCP port of the service", 0, 65535),
            Parameter("short", ParameterType.FLOAT, 5, "a short session lasts less than these seconds", 0),
            Parameter("long", ParameterType.FLOAT, 20, "a long session lasts at least these seconds", 0),
            Parameter("gap", ParameterType.DURATION, "10s", "a session ends after this time without a packet"),
            WITHIN,
        ),
    ),
    ReadyQuery(
        "pulses",
        "patterns",
        "packets",
        "The links whose load drops sharply, and then falls and returns again and again.",
        """\
SELECT link, drop_to, pulses, match_start, match_end
FROM (SELECT window_end, link, sum(len) AS load FROM packets [RANGE $interval] GROUP BY link)
MATCH_RECOGNIZE (
    PARTITION BY link ORDER BY window_end
    MEASURES 1.0 * D.load / A.load AS drop_to, count(U.*) AS pulses
    PATTERN (A D (V U){$pulses,}) WITHIN $within
    DEFINE A AS load >= $bytes,
           D AS load <= $drop * A.load,
           V AS load <= (1 - $change) * D.load,
           U AS load > (1 - $change) * D.load AND load < (1 + $change) * D.load)""",
        (
            Parameter("pulses", ParameterType.INTEGER, 3, "smallest number of pulses", 1, 1000),
            Parameter("interval", ParameterType.DURATION, "1s", "length of the intervals of the load"),
            Parameter("bytes", ParameterType.INTEGER, 100000, "smallest load before the drop, in bytes", 0),
            Parameter("drop", ParameterType.FLOAT, 0.5, "the load drops to at most this share", 0, 1),
            Parameter("change", ParameterType.FLOAT, 0.2, "a pulse changes the load by at least this share", 0, 1),
            WITHIN,
        ),
    ),
    ReadyQuery(
        "exfiltration",
        "patterns",
        "packets",
        "The hosts that read from a service and then send as many bytes to other networks.",
        """\
SELECT host, bytes_read, bytes_sent, match_start, match_end
FROM (SELECT window_end, host, sum(received) AS received, sum(sent) AS sent
      FROM (SELECT ts, CASE WHEN srcPort = $port THEN destIP ELSE srcIP END AS host,
                   CASE WHEN srcPort = $port THEN len ELSE 0 END AS received,
                   CASE WHEN srcPort = $port THEN 0 ELSE len END AS sent
            FROM packets
            WHERE (srcPort = $port AND destIP IN $network)
               OR (srcIP IN $network AND destIP NOT IN $network)) [RANGE 1 second]
      GROUP BY host)
MATCH_RECOGNIZE (
    PARTITION BY host ORDER BY window_end
    MEASURES sum(received) AS bytes_read, sum(sent) AS bytes_sent
    PATTERN (R O*? S) WITHIN $within
    DEFINE R AS received > 0,
           S AS sent > 0 AND sum(received) >= $bytes AND sum(sent) >= $share * sum(received))""",
        (
            Parameter("port", ParameterType.INTEGER, 5432, "port of the service that is read", 0, 65535),
            Parameter("network", ParameterType.PREFIX, "10.0.0.0/8", "the own network"),
            Parameter("bytes", ParameterType.INTEGER, 100000, "smallest number of bytes that are read", 1),
            Parameter("share", ParameterType.FLOAT, 0.9, "smallest ratio of sent and read bytes", 0),
            WITHIN,
        ),
    ),
    ReadyQuery(
        "beaconing",
        "patterns",
        "packets",
        "The hosts that connect to a server at equal intervals, with their mean in seconds.",
        """\
SELECT srcIP, destIP, destPort, contacts, seconds, match_start
FROM (SELECT ts, srcIP, destIP, destPort FROM packets WHERE flag = SYN)
MATCH_RECOGNIZE (
    PARTITION BY srcIP, destIP, destPort ORDER BY ts
    MEASURES count(*) AS contacts, (ts - A.ts) / 1000000000.0 / (count(*) - 1) AS seconds
    PATTERN (A B C{$contacts,})
    DEFINE B AS ts - A.ts >= $shortest * 1000000000,
           C AS abs((ts - prev(ts)) * (count(*) - 2) - (prev(ts) - A.ts))
                <= $jitter * (prev(ts) - A.ts))""",
        (
            Parameter("contacts", ParameterType.INTEGER, 5, "smallest number of contacts after the second", 1, 1000),
            Parameter("shortest", ParameterType.FLOAT, 5, "shortest interval in seconds", 0),
            Parameter("jitter", ParameterType.FLOAT, 0.2, "largest deviation, as share of the mean interval", 0),
        ),
    ),
    ReadyQuery(
        "lost-contacts",
        "patterns",
        "packets",
        "The missing contacts in sequences at equal intervals, and the times at which they were expected.",
        """\
SELECT srcIP, destIP, destPort, contacts, seconds, before + silence / 2 AS expected_at
FROM (SELECT ts, srcIP, destIP, destPort FROM packets WHERE flag = SYN)
MATCH_RECOGNIZE (
    PARTITION BY srcIP, destIP, destPort ORDER BY ts
    MEASURES count(*) - 1 AS contacts, prev(ts) AS before, ts - prev(ts) AS silence,
             (prev(ts) - A.ts) / 1000000000.0 / (count(*) - 2) AS seconds
    AFTER MATCH SKIP TO LAST M
    PATTERN (A B C{$contacts,} M)
    DEFINE B AS ts - A.ts >= $shortest * 1000000000,
           C AS abs((ts - prev(ts)) * (count(*) - 2) - (prev(ts) - A.ts))
                <= $jitter * (prev(ts) - A.ts),
           M AS abs((ts - prev(ts)) * (count(*) - 2) - 2 * (prev(ts) - A.ts))
                <= $jitter * (prev(ts) - A.ts))""",
        (
            Parameter("contacts", ParameterType.INTEGER, 2, "smallest number of contacts after the second", 1, 1000),
            Parameter("shortest", ParameterType.FLOAT, 5, "shortest interval in seconds", 0),
            Parameter("jitter", ParameterType.FLOAT, 0.2, "largest deviation, as share of the mean interval", 0),
        ),
    ),
    ReadyQuery(
        "silent-servers",
        "patterns",
        "packets",
        "The TCP services that answered and then leave several requests without an answer.",
        """\
SELECT server, port, requests, match_start, match_end
FROM (SELECT ts, flag, CASE WHEN flag = SYN THEN destIP ELSE srcIP END AS server,
             CASE WHEN flag = SYN THEN destPort ELSE srcPort END AS port
      FROM packets WHERE flag = SYN OR flag = SYN_ACK)
MATCH_RECOGNIZE (
    PARTITION BY server, port ORDER BY ts
    MEASURES count(S.*) + 1 AS requests
    PATTERN (A S+? E) WITHIN $within
    DEFINE A AS flag = SYN_ACK,
           S AS flag = SYN,
           E AS flag = SYN AND count(S.*) >= $requests - 1
                AND ts - first(S.ts) >= $silence * 1000000000)""",
        (
            Parameter("requests", ParameterType.INTEGER, 5, "smallest number of requests", 2),
            Parameter("silence", ParameterType.FLOAT, 3, "shortest time without an answer, in seconds", 0),
            WITHIN,
        ),
    ),
    ReadyQuery(
        "indicators",
        "patterns",
        "packets",
        "The connections to addresses in a file of arcs; an arc with FROM also finds earlier connections.",
        """\
SELECT host, server, port, indicator, match_end
FROM (SELECT ts, srcIP AS host, destIP AS server, destPort AS port FROM packets WHERE flag = SYN)
AUTOMATON (
    PARTITION BY host, server, port ORDER BY ts
    REGISTER indicator STRING
    START idle FINAL contact
    ARCS FROM $file
    WITHIN $remember)
WITH CONSISTENCY (WAIT 0, REMEMBER $remember) EMIT CHANGES""",
        (
            Parameter("file", ParameterType.TEXT, "indicators.arcs", "file with an arc for each address"),
            Parameter(
                "remember", ParameterType.DURATION, "24 hours", "how far an indicator with FROM looks into the past"
            ),
        ),
    ),
    ReadyQuery(
        "likely-guesses",
        "patterns",
        "packets",
        "The clients that probably guessed a password, with the probability of the most likely sequence.",
        """\
SELECT client, server, max(guesses) AS guesses, max(probability) AS probability, match_end
FROM (SELECT window_end, client, server, 1 / (1 + exp((seconds - $middle) / $scale)) AS failed
      FROM (SELECT window_end, srcIP AS client, destIP AS server,
                   (max(ts) - min(ts)) / 1000000000.0 AS seconds
            FROM packets [SESSION $gap]
            WHERE protocol = 6 AND destPort = $port
            GROUP BY srcIP, destIP, srcPort))
AUTOMATON (
    PARTITION BY client, server ORDER BY window_end
    REGISTER guesses INT DEFAULT 0, probability FLOAT DEFAULT 1
    START idle FINAL inside
    ARC idle TO guessing WHEN failed >= $threshold SET guesses = 1, probability = failed
    ARC guessing TO guessing WHEN probability * failed >= $threshold
        SET guesses = guesses + 1, probability = probability * failed
    ARC guessing TO inside WHEN guesses >= $guesses AND probability * (1 - failed) >= $threshold
        SET probability = probability * (1 - failed)
    WITHIN $within)
GROUP BY client, server, match_end""",
        (
            Parameter("guesses", ParameterType.INTEGER, 5, "smallest number of failed sessions", 1, 1000),
            Parameter("port", ParameterType.INTEGER, 22, "TCP port of the service", 0, 65535),
            Parameter(
                "middle", ParameterType.FLOAT, 10, "a session of these seconds has failed with probability 0.5", 0
            ),
            Parameter("scale", ParameterType.FLOAT, 2, "seconds from probability 0.5 to 0.27, and to 0.73", 0.001),
            Parameter("threshold", ParameterType.FLOAT, 0.5, "smallest probability of a sequence", 0.001, 1),
            Parameter("gap", ParameterType.DURATION, "10s", "a session ends after this time without a packet"),
            WITHIN,
        ),
    ),
)
