"""Queries for all engines, each twice: in GSQL, and over packets in Spark's SQL with the windows by definition.

The second form knows nothing of panes, partials, tables or merging: a packet is joined with every window whose extent
holds its time, and grouped.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60_000_000_000


@dataclass(frozen=True)
class WindowQuery:
    """`gsql` contains the window, `select` the SELECT list, and `rest` the clauses after FROM, over columns of packets.

    `kept` is the condition for the comparison of groups, over the columns of the list. `total` is not a result column.
    """

    name: str
    gsql: str
    range: int
    slide: int
    select: str
    rest: str
    kept: str = ""

    def definition(self) -> str:
        """SQL text over the view `packets`; wids that can hold a time are listed, the definition picks among them."""
        extent = f"wid >= 0 AND (wid + 1) * {self.slide}L - {self.range}L <= ts AND ts < (wid + 1) * {self.slide}L"
        candidates = f"explode(sequence(ts div {self.slide} - 1, (ts + {self.range}) div {self.slide} + 1)) AS wid"
        bounds = f"(wid + 1) * {self.slide}L - {self.range}L AS window_start, (wid + 1) * {self.slide}L AS window_end"
        found = f"SELECT {bounds}, {self.select} FROM (SELECT *, {candidates} FROM packets) WHERE {extent} {self.rest}"
        return f"SELECT * EXCEPT (total) FROM ({found}) WHERE {self.kept}" if self.kept else found


@dataclass(frozen=True)
class SessionQuery:
    """Sessions: a row begins one where the row before it, of its `groups`, is the gap or more older."""

    name: str
    gsql: str
    gap: int
    groups: str
    select: str

    def definition(self) -> str:
        """SQL text over the view `packets`. Rows with equal times belong to one session in any order."""
        before = f"ts - lag(ts) OVER (PARTITION BY {self.groups} ORDER BY ts)"
        begins = f"SELECT *, CASE WHEN {before} < {self.gap}L THEN 0 ELSE 1 END AS begins FROM packets"
        number = f"sum(begins) OVER (PARTITION BY {self.groups} ORDER BY ts)"
        bounds = f"min(ts) AS window_start, max(ts) + {self.gap}L AS window_end"
        rows = f"SELECT *, {number} AS session FROM ({begins})"
        return f"SELECT {bounds}, {self.select} FROM ({rows}) GROUP BY {self.groups}, session"


@dataclass(frozen=True)
class LandmarkQuery:
    """All since the epoch, for each slide that has rows."""

    name: str
    gsql: str
    slide: int
    groups: str
    select: str

    def definition(self) -> str:
        """SQL text over the view `packets`: a packet is joined with every window that ends after it."""
        windows = f"SELECT DISTINCT (ts div {self.slide}L + 1) * {self.slide}L AS window_end FROM packets"
        joined = f"FROM packets JOIN ({windows}) ON ts < window_end"
        return f"SELECT 0L AS window_start, window_end, {self.select} {joined} GROUP BY window_end, {self.groups}"


QUERIES = (
    WindowQuery(
        "pairs",
        "SELECT srcIP, destIP, count(*) AS packets, sum(len) AS bytes FROM packets "
        "[RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP, destIP",
        MINUTE,
        MINUTE,
        "srcIP, destIP, count(*) AS packets, sum(len) AS bytes",
        "GROUP BY wid, srcIP, destIP",
    ),
    WindowQuery(
        "ports",
        "SELECT destPort, count(*) AS packets, avg(len) AS mean, max(srcPort) AS highest, sum(len) / count(*) AS size "
        "FROM packets [RANGE 5 minutes, SLIDE 1 minute, WA ts] WHERE srcIP IN '10.0.0.0/8' OR ip_version = 6 "
        "GROUP BY destPort HAVING count(*) > 2",
        5 * MINUTE,
        MINUTE,
        "destPort, count(*) AS packets, avg(len) AS mean, max(srcPort) AS highest, sum(len) div count(*) AS size",
        "AND (substring(srcIP, 1, 1) = X'0A' AND ip_version = 4 OR ip_version = 6) "
        "GROUP BY wid, destPort HAVING count(*) > 2",
    ),
    WindowQuery(
        "gaps",
        "SELECT link, count(srcPort) AS ports, min(ts) AS earliest FROM packets "
        "[RANGE 30 seconds, SLIDE 50 seconds, WA ts] GROUP BY link",
        MINUTE // 2,
        MINUTE * 5 // 6,
        "link, count(srcPort) AS ports, min(ts) AS earliest",
        "GROUP BY wid, link",
    ),
    WindowQuery(
        "all",
        "SELECT count(*) AS packets, sum(caplen) AS bytes FROM packets [RANGE 90 seconds, SLIDE 20 seconds, WA ts]",
        MINUTE * 3 // 2,
        MINUTE // 3,
        "count(*) AS packets, sum(caplen) AS bytes",
        "GROUP BY wid",
    ),
    SessionQuery(
        "talks",
        "SELECT srcIP, destIP, srcPort, destPort, protocol, count(*) AS packets, sum(len) AS bytes FROM packets "
        "[SESSION 30 seconds, WA ts] GROUP BY srcIP, destIP, srcPort, destPort, protocol",
        MINUTE // 2,
        "srcIP, destIP, srcPort, destPort, protocol",
        "srcIP, destIP, srcPort, destPort, protocol, count(*) AS packets, sum(len) AS bytes",
    ),
    LandmarkQuery(
        "since",
        "SELECT protocol, destPort, count(*) AS packets, sum(len) AS bytes, min(ts) AS earliest FROM packets "
        "[RANGE ALL, SLIDE 5 minutes, WA ts] GROUP BY protocol, destPort",
        5 * MINUTE,
        "protocol, destPort",
        "protocol, destPort, count(*) AS packets, sum(len) AS bytes, min(ts) AS earliest",
    ),
    WindowQuery(
        "heavy",
        "SELECT srcIP, count(*) AS packets FROM packets [RANGE 10 minutes, SLIDE 1 minute, WA ts] "
        "GROUP BY srcIP HAVING heavy(0.15) AND packets > 2",
        10 * MINUTE,
        MINUTE,
        "srcIP, count(*) AS packets, sum(count(*)) OVER (PARTITION BY wid) AS total",
        "GROUP BY wid, srcIP",
        "packets * 100 >= 15 * total AND packets > 2",
    ),
    WindowQuery(  # of so few values that sketches hold them all
        "sketches",
        # A sketch of few values is exact. A sketch of many values is within its error (test_sketches).
        "SELECT srcIP, count(*) AS packets, approx_count_distinct(protocol) AS protocols FROM packets "
        "[RANGE 3 minutes, SLIDE 1 minute, WA ts] GROUP BY srcIP",
        3 * MINUTE,
        MINUTE,
        "srcIP, count(*) AS packets, count(DISTINCT protocol) AS protocols",
        "GROUP BY wid, srcIP",
    ),
    WindowQuery(
        "details",
        "SELECT srcIP, count(*) AS packets, count(DISTINCT destPort) AS ports, count_distinct(destIP) AS hosts, "
        "quantile(len, 0.9) AS long, median(srcPort) AS middle FROM packets "
        "[RANGE 2 minutes, SLIDE 1 minute, WA ts] GROUP BY srcIP HAVING count_distinct(destIP) > 1",
        2 * MINUTE,
        MINUTE,
        "srcIP, count(*) AS packets, count(DISTINCT destPort) AS ports, count(DISTINCT destIP) AS hosts, "
        "percentile(len, 0.9) AS long, percentile(srcPort, 0.5) AS middle",
        "GROUP BY wid, srcIP HAVING count(DISTINCT destIP) > 1",
    ),
)
