"""Plans of graphs that the stream engine runs step by step."""

from queries.gsql import compile_query

PAIR = "FROM Main1 S [RANGE 3 s, WA ts], Main2 A [RANGE 2 s, WA ts] WHERE S.srcIP = A.srcIP"

OVERLAPS = "Main1 [LIFETIME 3 s] S JOIN Main2 [LIFETIME 2 s] A ON S.srcIP = A.srcIP"

QUERIES = {
    "rows": "SELECT ts, srcIP, len FROM Main1 WHERE len > 40",
    "distinct": "SELECT DISTINCT ts/60 AS minute, srcIP FROM packets",
    "pairs": f"SELECT S.ts, A.ts - S.ts AS apart, S.srcIP, A.len {PAIR}",
    "without": PAIR.replace("FROM Main1", "SELECT S.ts, S.srcIP, A.ts AS other FROM Main1")
    .replace(", Main2", " LEFT JOIN Main2")
    .replace("WHERE", "ON"),
    "by the key": f"SELECT S.srcIP, count(*) AS n [RANGE 20 s, SLIDE 10 s, WA S.ts] {PAIR} GROUP BY S.srcIP",
    "by another": "SELECT A.len, count(*) AS n, sum(S.len) AS s [RANGE 20 s, SLIDE 10 s, WA A.ts] "
    f"{PAIR} GROUP BY A.len",
    "by nothing": f"SELECT count(*) AS n [RANGE 1 minute, SLIDE 1 minute, WA S.ts] {PAIR}",
    "by both times": f"SELECT S.ts/10 AS s, A.ts/10 AS a, count(*) AS n {PAIR} GROUP BY S.ts/10, A.ts/10",
    "of itself": "SELECT count(*) AS n FROM packets a, packets b [RANGE TUMBLING 1 s, WA ts] WHERE a.srcIP = b.destIP",
    "rolled up": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP) "
    "SELECT n, count(*) AS sources FROM t [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY n",
    "three times": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 9 s, SLIDE 9 s, WA ts] GROUP BY srcIP)"
    ", u AS (SELECT n, count(*) AS m FROM t [RANGE 18 s, SLIDE 18 s, WA ts] GROUP BY n) "
    "SELECT m, max(n) AS most FROM u [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY m",
    "with a leaf": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 1 s, SLIDE 1 s, WA ts] GROUP BY srcIP) "
    "SELECT t.n, p.len, p.ts FROM t [RANGE 1 s, WA ts], Main1 p [RANGE 1 s, WA ts] WHERE t.n = p.ttl",
    "first of windows": "SELECT srcIP, count(*) AS n, sum(len) AS s FROM packets [RANGE 10 s, SLIDE 5 s, WA ts] "
    "GROUP BY srcIP ORDER BY n DESC, max(len) LIMIT 3 OFFSET 1",
    "cases": "SELECT CASE WHEN len > 60 THEN 'long' WHEN ttl > 9 THEN link ELSE NULL END AS kind, count(*) AS n, "
    "sum(len) FILTER (WHERE protocol <> 17) AS s FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY kind",
    "sorted rows": "SELECT ts, srcIP, len FROM packets ORDER BY ts, len DESC",
    "first by time": "SELECT ts, srcIP, len FROM packets WHERE len > 50 ORDER BY ts, len LIMIT 7 OFFSET 2",
    "first of all": "SELECT ts, srcIP, len FROM packets WHERE len > 50 ORDER BY len DESC, ts LIMIT 7",
    "shares of windows": "SELECT srcIP, sum(len) * 100 / sum(sum(len)) OVER () AS share, "
    "row_number() OVER (PARTITION BY link ORDER BY count(*) DESC, srcIP) AS r FROM packets "
    "[RANGE 10 s, SLIDE 5 s, WA ts] GROUP BY srcIP, link",
    "changes": "WITH t AS (SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP) "
    "SELECT window_end, srcIP, n - lag(n) OVER (PARTITION BY srcIP ORDER BY window_end) AS change FROM t",
    "rolling means": "SELECT srcIP, avg(count(*)) OVER (PARTITION BY srcIP ORDER BY window_end ROWS 2 PRECEDING) AS m, "
    "sum(sum(len)) OVER (ORDER BY window_end RANGE 20 s PRECEDING) AS s FROM packets [RANGE 10 s] GROUP BY srcIP",
    "grouping sets": "SELECT srcIP, protocol, count(*) AS n, grouping(protocol) AS g FROM packets [RANGE 10 s] "
    "GROUP BY ROLLUP (srcIP, protocol)",
    "filled": "SELECT srcIP, count(*) AS n, sum(len) AS s, rank() OVER (ORDER BY count(*)) AS r FROM packets "
    "[RANGE 4 s, SLIDE 2 s] WHERE len > 50 GROUP BY srcIP FILL 0 ORDER BY n DESC, srcIP LIMIT 4",
    "filled, rolled up": "SELECT g, avg(n) AS a FROM (SELECT destIP, protocol AS g, count(*) AS n FROM packets "
    "[RANGE 1 s] GROUP BY destIP, protocol FILL PREVIOUS) [RANGE 10 s] GROUP BY g",
    "running": "SELECT srcIP, count(*) AS n, moving_sum(len, 3) AS m, running_sum(1) AS r FROM packets "
    "[RANGE 4 s, SLIDE 2 s] WHERE len > 50 GROUP BY srcIP HAVING m > 60 CLOSING WHEN moving_sum(len, 3) = 0",
    "supergroups": "SELECT minute, srcIP, sum(len) AS bytes, count$(*) AS total FROM packets "
    "GROUP BY time/60 AS minute, srcIP SUPERGROUP minute HAVING sum(len) * 10 > sum$(len)",
    "in both directions, all": "SELECT srcIP, link FROM packets [RANGE 10 s, WA ts] GROUP BY srcIP, link "
    "INTERSECT ALL SELECT destIP, link FROM packets [RANGE 10 s, WA ts] GROUP BY destIP, link",
    "distinct groups": "SELECT DISTINCT srcIP, len / 50 AS size [RANGE 10 s, WA ts] FROM packets",
    "largest": "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] GROUP BY srcIP HAVING top(2, sum(len))",
    "union of groups": "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, WA ts] GROUP BY srcIP UNION "
    "SELECT destIP, count(*) FROM packets [RANGE 10 s, WA ts] GROUP BY destIP ORDER BY n DESC LIMIT 5",
    "in both directions": "SELECT srcIP, link FROM packets [RANGE 10 s, WA ts] GROUP BY srcIP, link INTERSECT "
    "SELECT destIP, link FROM packets [RANGE 10 s, WA ts] GROUP BY destIP, link",
    "on one link": "SELECT ts, srcIP, len FROM Main1 EXCEPT SELECT ts, srcIP, len FROM Main2",
    "without copies": "SELECT srcIP, count(*) AS n FROM packets DISTINCT ON (srcIP, len) WITHIN 2 s [RANGE 10 s] "
    "GROUP BY srcIP",
    "lifetimes": "SELECT srcIP, count(*) AS n, max(len) AS m, count(DISTINCT destIP) AS d FROM packets "
    "[LIFETIME 5 s] WHERE len > 40 GROUP BY srcIP HAVING n > 1",
    "first of lifetimes": "SELECT srcIP, count(*) AS n, rank() OVER (ORDER BY max(len)) AS r FROM packets "
    "[LIFETIME 5 s] WHERE len > 40 GROUP BY srcIP ORDER BY n DESC LIMIT 2",
    "lifetimes in windows": "SELECT srcIP, count(*) AS n, sum(len) AS s FROM packets [LIFETIME 5 s, SLIDE 3 s] "
    "GROUP BY srcIP ORDER BY n DESC LIMIT 3",
    "lifetimes of first copies": "SELECT srcIP, count(*) AS n FROM packets DISTINCT ON (srcIP, len) WITHIN 2 s "
    "[LIFETIME 4 s] GROUP BY srcIP",
    "overlaps": f"SELECT window_start, window_end, S.srcIP, S.len, A.ts FROM {OVERLAPS} AND S.len > A.len",
    "groups of overlaps": f"SELECT S.len, count(*) AS n, sum(A.len) AS s FROM {OVERLAPS} GROUP BY S.len",
    "without overlap": f"SELECT window_start, window_end, S.srcIP, S.len FROM {OVERLAPS.replace('JOIN', 'ANTI JOIN')}",
    "overlaps or none": f"SELECT S.len, count(*) AS n, sum(A.len) AS s FROM {OVERLAPS.replace('JOIN', 'FULL JOIN')} "
    "AND S.len > A.len GROUP BY S.len",
    "no graph": "SELECT srcIP, count(*) AS n FROM packets [RANGE 10 s, SLIDE 10 s, WA ts] GROUP BY srcIP",
}


PLANS = [compile_query(sql, name) for name, sql in QUERIES.items()]
