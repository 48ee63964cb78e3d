"""Target `sql`: the text of a query. The result is a plan, or a `QueryError` with the position and the reason."""

from __future__ import annotations

import pickle

from queries.explain.plan import explain
from queries.gsql import compile_query
from queries.text.errors import QueryError
from tests.references.window_queries import QUERIES

TEXTS = (
    (
        "SELECT srcIP, destIP, count(*) AS packets, sum(len) FROM packets [RANGE 1 minute, SLIDE 10 seconds, WA ts] "
        "WHERE destPort IN (80, 443) AND protocol = 6 GROUP BY srcIP, destIP HAVING count(*) > 10"
    ),
    "SELECT ts / 60, avg(len), min(ttl), max(ttl) FROM A UNION B WHERE srcIP IN '10.0.0.0/8' GROUP BY ts / 60",
    "SELECT count(*) FROM M WHERE NOT (srcPort IS NULL OR tcp_flags & 18 = 2) AND destIP <> '2001:db8::1'",
    "SELECT link, sum(len) FROM m [RANGE 5, SLIDE 5, WA ts, ORIGIN 3] GROUP BY link",
    "SELECT vlan, count(destMAC) FROM frames GROUP BY vlan -- a comment",
    "SELECT exporter, sum(bytes) FROM flows [RANGE 1 hour, SLIDE 1 hour, WA ts] GROUP BY exporter",
    "SELECT srcIP, sum(len * sampling_rate) FROM samples GROUP BY srcIP",
    "SELECT CASE WHEN len > 100 THEN 'big' ELSE 'small' END, count(*) FROM x GROUP BY 1",
    "SELECT S.ts, A.ts - S.ts AS rtt FROM a S [RANGE 3 s], b A [RANGE 0 s] WHERE S.srcIP = A.destIP AND S.flag = SYN",
    "SELECT * FROM a UNION b AS x, c [RANGE TUMBLING 5 minutes, WA ts], WHERE x.len = c.len OR x.ttl = 1 AND c.ttl = 2",
    "SELECT a.len, b.ts FROM a [RANGE 1 s, BOUNDARY OPEN] FULL JOIN b [RANGE 2 s] ON a.len = b.len WHERE a.ttl > 1",
    "SELECT srcIP, lag(sum(len), 2) OVER (PARTITION BY 1, ttl ORDER BY count(*) DESC NULLS FIRST) FROM M GROUP BY 1",
    "SELECT DISTINCT len / 2 [RANGE 600, SLIDE 60, WA time] FROM M ORDER BY rank() OVER (ORDER BY len), 1 LIMIT 3",
    "WITH q AS (SELECT srcIP, count(*) AS n FROM M [RANGE 1 s] GROUP BY srcIP) SELECT sum(n) FROM q GROUP BY ts/60",
    "SELECT ts, srcIP FROM a EXCEPT (SELECT ts, destIP FROM b INTERSECT SELECT ts, destIP FROM c) ORDER BY 1 LIMIT 3",
    "SELECT len FROM a [RANGE 1 s] GROUP BY len UNION ALL SELECT ttl FROM b [RANGE 1 s] GROUP BY ttl ORDER BY len",
    "SELECT DISTINCT time, srcIP FROM (MERGE x.ts : y.time FROM a x, b y) m",
    (
        "SELECT * FROM M MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts MEASURES prev(first(U.len, 1), 2) AS p "
        "AFTER MATCH SKIP TO LAST U PATTERN (^ PERMUTE(A, B*) (A | C{1,2}?) $) WITHIN 3 s SUBSET U = (A, B) "
        "DEFINE A AS next(len) > 1)"
    ),
    "SELECT S.ts, A.ts, count(*) FROM a S [RANGE 1 s] ANTI JOIN b A [RANGE 1 s] ON S.len = A.len GROUP BY S.ts",
)

WORDS = (
    *(
        "SELECT ",
        " FROM ",
        " WHERE ",
        " GROUP BY ",
        " HAVING ",
        " UNION ",
        " INTERSECT ",
        " EXCEPT ",
        " AS ",
        " AND ",
        " OR ",
        "NOT ",
        " IS NULL",
    ),
    *(
        " IN (",
        " BETWEEN ",
        " LIKE ",
        "CASE WHEN ",
        " THEN ",
        " ELSE ",
        " END",
        "CAST(",
        " OVER (",
        "PARTITION BY ",
        "ORDER BY ",
        "rank()",
        "lag(",
        "count(*)",
        "sum(",
        "avg(",
        "min(",
    ),
    *(
        "[RANGE 1 minute, SLIDE 1 minute, WA ts]",
        "ORIGIN ",
        "SPREAD",
        "TRUE",
        "NULL",
        "0x1f",
        "x'1603'",
        "'10.0.0.0/8'",
    ),
    *("'2001:db8::1'", "'00:11:22:aa:bb:cc'", "srcIP", "inner.", "outer.", "len", "payload", "length(", "contains("),
    *(
        " JOIN ",
        " LEFT ",
        " ON ",
        "MERGE ",
        "WITH ",
        "DISTINCT ",
        "(SELECT ",
        " : ",
        " MATCH_RECOGNIZE (",
        "PATTERN (",
        "PERMUTE(",
        " SUBSET U = (A)",
        " DEFINE A AS ",
        "TUMBLING",
        "BOUNDARY",
        "S.ts",
        "SYN",
    ),
    *("starts_with(", "byte(", "packets", "frames", "flows", "samples", "link", "octetDeltaCount", "e9_7", "--", "/*"),
)
"""Tokens of queries, for a fuzzer without knowledge of the language."""


def check(data: bytes) -> None:
    """Compile a text; a plan can be sent to another process, and explained."""
    text = data.decode("utf-8", "replace")
    for layer in ("outer", "inner"):
        try:
            plan = compile_query(text, layer=layer)
        except QueryError as error:
            wrong = error
        else:
            assert pickle.loads(pickle.dumps(plan)) == plan
            assert explain(plan)
            continue
        assert 0 <= wrong.position <= len(text), wrong.position
        assert str(wrong).strip()


def seeds() -> dict[str, bytes]:
    """Queries of every kind, the clauses in every order that is allowed."""
    return {
        f"query-{number}": text.encode() for number, text in enumerate((*TEXTS, *(query.gsql for query in QUERIES)))
    }
