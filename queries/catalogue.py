"""Ready-made queries by name, each with a window whose length can be chosen."""

from __future__ import annotations

from dataclasses import dataclass

from queries.text.lexer import RESERVED


@dataclass(frozen=True, slots=True)
class ReadyQuery:
    """One query of the catalogue. `body` contains `{streams}` and `{window}`; `panes` is its RANGE in slides."""

    name: str
    help: str
    body: str
    panes: int = 1

    def sql(self, *streams: str, every: str = "1 minute") -> str:
        """Return the query over the union of `streams`, its window sliding by `every` (a number and a unit of time).

        >>> print(CATALOGUE["packets"].sql("Main1", "Main2", every="10 seconds"))
        SELECT count(*) [RANGE 10 seconds, SLIDE 10 seconds, WA ts] FROM Main1 UNION Main2
        """
        number, _, unit = every.partition(" ")
        if not (number.isascii() and number.isdecimal()) or not unit or not streams:
            raise ValueError(
                f"got {every!r} over {streams}, expected whole units like '10 seconds' and a stream at least"
            )
        window = f"[RANGE {int(number) * self.panes} {unit}, SLIDE {every}, WA ts]"
        return self.body.format(streams=" UNION ".join(_quoted(stream) for stream in streams), window=window)


def _quoted(stream: str) -> str:
    if stream.isidentifier() and stream.upper() not in RESERVED:
        return stream
    return '"' + stream.replace('"', '""') + '"'


CATALOGUE: dict[str, ReadyQuery] = {
    query.name: query
    for query in (
        ReadyQuery(
            "links",
            "packets and bytes of each link",
            "SELECT link, count(*) AS packets, sum(len) AS bytes FROM {streams} {window} GROUP BY link",
        ),
        ReadyQuery(
            "talkers",
            "packets and bytes of each pair of addresses",
            "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM {streams} {window} "
            "GROUP BY srcIP, destIP",
        ),
        ReadyQuery(
            "sources",
            "packets of each source over ten slides, updated every slide (Q1-1 of the thesis)",
            "SELECT srcIP, count(*) {window} FROM {streams} GROUP BY srcIP",
            panes=10,
        ),
        ReadyQuery(
            "heavy_hitters",
            "sources of at least 5 % of the packets of ten slides, updated every slide (Q6-4 of the thesis)",
            "SELECT srcIP, count(*) AS packets {window} FROM {streams} GROUP BY srcIP HAVING heavy(0.05)",
            panes=10,
        ),
        ReadyQuery(
            "scanners",
            "the ten sources that reach the most addresses, and how evenly they try ports (entropy in bits)",
            "SELECT srcIP, count(DISTINCT destIP) AS hosts, entropy(destPort) AS port_bits, count(*) AS packets "
            "FROM {streams} {window} GROUP BY srcIP HAVING top(10, hosts)",
        ),
        ReadyQuery(
            "packets",
            "packets of all links together (Q1-2 of the thesis)",
            "SELECT count(*) {window} FROM {streams}",
        ),
        ReadyQuery(
            "syn_targets",
            "addresses that get at least 100 TCP connection requests (SYN without ACK) in a window",
            "SELECT destIP, count(*) AS syns FROM {streams} {window} "
            "WHERE protocol = 6 AND tcp_flags & 18 = 2 GROUP BY destIP HAVING syns >= 100",
        ),
        ReadyQuery(
            "ports",
            "packets and bytes to each TCP and UDP port",
            "SELECT protocol, destPort, count(*) AS packets, sum(len) AS bytes FROM {streams} {window} "
            "WHERE destPort IS NOT NULL GROUP BY protocol, destPort",
        ),
        ReadyQuery(
            "protocols",
            "packets and bytes of each IP version and protocol",
            "SELECT ip_version, protocol, count(*) AS packets, sum(len) AS bytes FROM {streams} {window} "
            "GROUP BY ip_version, protocol",
        ),
        ReadyQuery(
            "sizes",
            "packets by length in steps of 100 bytes",
            "SELECT size * 100 AS at_least, count(*) AS packets FROM {streams} {window} GROUP BY len / 100 AS size",
        ),
        ReadyQuery(
            "fragments",
            "fragments of IP packets by source, and the bytes they carry",
            "SELECT srcIP, count(*) AS fragments, sum(ip_len) AS bytes FROM {streams} {window} "
            "WHERE more_fragments = 1 OR fragment_offset > 0 GROUP BY srcIP",
        ),
    )
}
"""The queries by name. `ReadyQuery.sql` returns their text."""
