"""The query that all engines and other tools answer."""

PAIRS = (
    "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM packets "
    "[RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP, destIP"
)
"""Packets and bytes of each address pair in each minute."""

MIXED = (
    PAIRS,
    *(
        f"SELECT {keys}, {select} FROM packets [RANGE 10 seconds] {where} GROUP BY {keys}"
        for where, select in (
            ("", "count(*) AS packets"),
            ("", "avg(len) AS mean"),
            ("WHERE protocol = 6", "sum(len) AS bytes"),
            ("WHERE len > 200", "max(len) AS longest, count(*) AS packets"),
        )
        for keys in ("srcIP", "destIP", "protocol", "destPort", "ttl")
    ),
)[:20]
"""Twenty queries with different keys, aggregates, windows and predicates."""
