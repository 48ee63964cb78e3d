"""Ready queries about attacks and suspicious hosts: scans, floods, amplification, entropy, beacons."""

from __future__ import annotations

from queries.catalogue.parameters import WINDOW, Parameter, ParameterType
from queries.catalogue.ready_query import ReadyQuery

SECURITY = (
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
)
