"""The question that every engine and peer is asked."""

PAIRS = (
    "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM packets "
    "[RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP, destIP"
)
"""Packets and bytes of each address pair in each minute."""
