"""EMIT CHANGES of queries with sub-queries, joins, set operations, LIMIT, FILL and OVER, from packets to changes.

Each query reads a random capture with late packets. The tests detect changes that do not add up to the ordinary answer,
a row that is withdrawn more often than it was returned, a final row that changes later, and state that a restart loses.
"""

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from highlevel.inline.engine import InlineRun, Input
from tests.harness.recorded_runs import RecordedRun, disordered_capture, rows_in

SENT = "SELECT srcIP, count(*) AS n, sum(len) AS bytes FROM packets [RANGE 5 seconds] GROUP BY srcIP"
RECEIVED = "SELECT destIP, count(*) AS n FROM packets [RANGE 5 seconds] GROUP BY destIP"
LONG = "packets [RANGE 2 seconds] WHERE len > 400"
BOTH = f"({SENT}) a [RANGE 0 s, WA window_end] %s ({RECEIVED}) b [RANGE 0 s, WA window_end] ON a.srcIP = b.destIP"
SAME_END = f"(SELECT %s FROM ({RECEIVED}) b WHERE b.window_end = a.window_end%s)"
ANSWERED = "packets p [RANGE 2 seconds] %s packets q [RANGE 0 s] ON q.srcIP = p.destIP AND q.destIP = p.srcIP"
COPIES = "packets DISTINCT ON (srcIP, len) WITHIN 1 second"
OVERLAPS = "packets [LIFETIME 2 seconds] p JOIN packets [LIFETIME 3 seconds] q ON p.srcIP = q.destIP"
PATTERN = "packets MATCH_RECOGNIZE (PARTITION BY srcIP ORDER BY ts"
COUNTS = f"SELECT window_end, n FROM ({SENT}) %s SELECT window_end, n FROM ({RECEIVED})"

QUERIES = {
    "filter": f"SELECT window_end, srcIP, n FROM ({SENT}) WHERE n > 3",
    "projection to equal rows": f"SELECT window_end, n > 3 AS busy FROM ({SENT})",
    "UNION ALL": COUNTS % "UNION ALL",
    "UNION": COUNTS % "UNION",
    "INTERSECT": COUNTS % "INTERSECT",
    "EXCEPT": COUNTS % "EXCEPT",
    "EXCEPT ALL": COUNTS % "EXCEPT ALL",
    "DISTINCT": f"SELECT DISTINCT window_end, n FROM ({SENT})",
    "coarser windows": "SELECT srcIP, count(*) AS k, sum(n) AS n, avg(n) AS a, min(n) AS low, max(n) AS high "
    f"FROM ({SENT}) [RANGE 20 seconds] GROUP BY srcIP",
    "sliding windows": f"SELECT max(n) AS high, avg(bytes) AS a FROM ({SENT}) [RANGE 20 seconds, SLIDE 10 seconds]",
    "three levels": f"SELECT max(high) AS m FROM (SELECT srcIP, max(n) AS high FROM ({SENT}) [RANGE 10 seconds] "
    "GROUP BY srcIP) [RANGE 30 seconds]",
    "groups of windows": f"SELECT window_end, count(*) AS hosts, max(n) AS high FROM ({SENT}) GROUP BY window_end",
    "JOIN": f"SELECT a.window_end, a.srcIP, a.n AS sent, b.n AS received FROM {BOTH % 'JOIN'}",
    "LEFT JOIN": f"SELECT a.window_end, a.srcIP, a.n AS sent, b.n AS c FROM {BOTH % 'LEFT JOIN'} AND a.n < b.n",
    "EXISTS": f"SELECT window_end, srcIP, n FROM ({SENT}) a WHERE EXISTS {SAME_END % ('1', ' AND b.destIP = a.srcIP')}",
    "NOT EXISTS": f"SELECT window_end, srcIP, n FROM ({SENT}) a "
    f"WHERE NOT EXISTS {SAME_END % ('1', ' AND b.destIP = a.srcIP AND b.n > 3')}",
    "IN": f"SELECT window_end, srcIP, n FROM ({SENT}) a WHERE n IN {SAME_END % ('n', '')}",
    "NOT IN": f"SELECT window_end, srcIP, n FROM ({SENT}) a WHERE n NOT IN {SAME_END % ('n', '')}",
    "value of a sub-query": f"SELECT window_end, srcIP FROM ({SENT}) a WHERE n > {SAME_END % ('avg(n)', '')}",
    "LIMIT": f"{SENT} ORDER BY n DESC LIMIT 2",
    "LIMIT of a sub-query": f"SELECT window_end, srcIP FROM ({SENT} ORDER BY n DESC LIMIT 2)",
    "HAVING top": "SELECT srcIP FROM packets [RANGE 5 seconds] GROUP BY srcIP HAVING top(2, count(*))",
    "FILL 0": f"SELECT srcIP, count(*) AS n FROM {LONG} GROUP BY srcIP FILL 0",
    "FILL PREVIOUS": f"SELECT srcIP, count(*) AS n FROM {LONG} GROUP BY srcIP FILL PREVIOUS",
    "CLOSING WHEN": f"SELECT srcIP, count(*) AS n, running_sum(len) AS s FROM {LONG} GROUP BY srcIP "
    "CLOSING WHEN count(*) = 0",
    "OVER": "SELECT srcIP, sum(len) * 100.0 / sum(sum(len)) OVER () AS share, rank() OVER (ORDER BY count(*)) AS r "
    "FROM packets [RANGE 5 seconds] GROUP BY srcIP",
    "OVER of several windows": "SELECT srcIP, lag(count(*)) OVER (PARTITION BY srcIP ORDER BY window_end) AS before "
    "FROM packets [RANGE 5 seconds] GROUP BY srcIP",
    "ROLLUP": "SELECT srcIP, count(*) AS n FROM packets [RANGE 5 seconds] GROUP BY ROLLUP (srcIP)",
    "packets without an answer": f"SELECT p.ts, p.srcIP, p.destIP FROM {ANSWERED % 'ANTI JOIN'}",
    "packets with an answer or without": f"SELECT p.ts, p.srcIP, q.len FROM {ANSWERED % 'LEFT JOIN'}",
    "number of packets without an answer": f"SELECT count(*) AS n FROM (SELECT p.ts, p.srcIP FROM "
    f"{ANSWERED % 'ANTI JOIN'}) [RANGE 10 seconds]",
    "LIFETIME": "SELECT srcIP, count(*) AS n, max(len) AS m FROM packets [LIFETIME 3 seconds] GROUP BY srcIP",
    "LIFETIME with SLIDE": "SELECT count(DISTINCT srcIP) AS hosts, avg(len) AS a FROM packets "
    "[LIFETIME 10 seconds, SLIDE 2 seconds] HAVING count(*) > 20",
    "LIFETIME of first copies": f"SELECT srcIP, count(*) AS n FROM {COPIES} [LIFETIME 3 seconds] GROUP BY srcIP",
    "LIFETIME of first copies with SLIDE": f"SELECT count(*) AS n FROM {COPIES} [LIFETIME 5 seconds, SLIDE 2 seconds]",
    "LIFETIME of groups": f"SELECT n, count(*) AS hosts FROM ({SENT}) [LIFETIME 8 seconds, WA window_end] GROUP BY n",
    "overlaps": f"SELECT window_start, window_end, p.srcIP, p.len, q.len AS other FROM {OVERLAPS} AND p.len >= q.len",
    "overlaps of first copies": f"SELECT p.len, count(*) AS n, sum(q.len) AS s FROM {COPIES} [LIFETIME 2 seconds] p "
    f"JOIN {COPIES} [LIFETIME 3 seconds] q ON p.srcIP = q.destIP GROUP BY p.len",
    "overlaps in windows": f"SELECT count(*) AS n [RANGE 10 seconds, WA window_start] FROM {OVERLAPS}",
    "overlaps or none": f"SELECT window_start, window_end, p.srcIP, p.len, q.len AS other FROM "
    f"{OVERLAPS.replace('JOIN', 'LEFT JOIN')} AND p.len >= q.len",
    "times of overlaps": f"SELECT count(*) AS n, sum(len) AS s FROM {OVERLAPS.replace('JOIN', 'SEMI JOIN')}",
    "busiest instant": "SELECT max(n) AS most FROM (SELECT count(*) AS n FROM packets [LIFETIME 2 seconds]) "
    "[RANGE 10 seconds]",
    "two outer joins": "SELECT p.ts, p.srcIP, q.len, r.len AS other FROM packets p [RANGE 2 seconds] "
    "LEFT JOIN packets q [RANGE 0 s] ON q.srcIP = p.destIP AND q.len > 400 "
    "LEFT JOIN packets r [RANGE 0 s] ON r.destIP = p.srcIP AND r.len > 400",
    "FULL JOIN of windows": f"SELECT a.window_end, a.srcIP, b.n FROM ({SENT}) a FULL JOIN ({RECEIVED}) b "
    "[RANGE TUMBLING 20 seconds] ON a.srcIP = b.destIP AND a.n = b.n",
    "packets with windows": f"SELECT p.ts, p.srcIP, w.n FROM packets p [RANGE 0 s] JOIN ({SENT}) w "
    "[RANGE 5 seconds, WA ts] ON w.srcIP = p.srcIP",
    "row pattern": f"SELECT srcIP, n, s, match_start, match_end FROM {PATTERN} MEASURES count(*) AS n, sum(B.len) AS s "
    "PATTERN (A B+ C) WITHIN 9 seconds DEFINE B AS len < 100, C AS len > A.len)",
    "row pattern with matches that overlap": f"SELECT srcIP, destIP, before, match_start FROM {PATTERN} MEASURES "
    "first(destIP) AS destIP, prev(len) AS before AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{1,2}? C) "
    "DEFINE B AS destIP <> A.destIP, C AS C.destIP = A.destIP)",
    "rows of matches": f"SELECT srcIP, ts, c, n, total, len FROM {PATTERN} MEASURES classifier() AS c, count(*) AS n, "
    "FINAL sum(len) AS total ALL ROWS PER MATCH PATTERN (A {- B+ -} C) WITHIN 9 seconds "
    "DEFINE B AS len < 100, C AS len > A.len)",
    "rows in no match": f"SELECT srcIP, ts, n, len FROM {PATTERN} MEASURES count(*) AS n "
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A B*) WITHIN 3 seconds DEFINE A AS len > 90, B AS len < A.len)",
    "matches of no row": f"SELECT srcIP, match_start, n, s FROM {PATTERN} MEASURES count(*) AS n, sum(len) AS s "
    "PATTERN (B*) WITHIN 9 seconds DEFINE B AS len >= prev(len))",
    "row pattern with later rows": f"SELECT srcIP, match_start, n, p, s FROM {PATTERN} MEASURES next(len, 2) AS n, "
    "prev(len, 2) AS p, sum(U.len) AS s PATTERN (^ A | PERMUTE(A, B) C $) SUBSET U = (A, C) "
    "DEFINE B AS next(len) > 90)",
    "groups of matches": f"SELECT srcIP, count(*) AS k, sum(n) AS n FROM {PATTERN} MEASURES count(*) AS n "
    "PATTERN (A B+) WITHIN 5 seconds DEFINE B AS len >= prev(len)) AS m [RANGE 20 seconds, WA match_end] "
    "GROUP BY srcIP",
    "groups of minutes": f"SELECT time/20 AS t, max(n) AS m FROM ({SENT}) GROUP BY time/20",
    "groups of rows": "SELECT srcIP, count(*) AS n FROM (SELECT ts, srcIP FROM packets WHERE len > 20) "
    "[RANGE 10 seconds] GROUP BY srcIP",
}

CLAUSES = (
    "",
    "WITH CONSISTENCY (WAIT 2 seconds, REMEMBER 8 seconds)",
    "WITH CONSISTENCY (REMEMBER 6 seconds)",
    "WITH CONSISTENCY (EARLY 1 second)",
    "WITH STRONG CONSISTENCY",
)


@pytest.mark.drawn
@pytest.mark.parametrize("name", QUERIES)
def test_changes_add_up_to_the_ordinary_answer_also_after_a_restart(name: str, tmp_path: Path) -> None:
    random = Random(f"changing query {name}")
    path, sql = disordered_capture(tmp_path / "a.pcap", random, packets=150), QUERIES[name]
    exact = Counter(row for items in RecordedRun(sql, path).steps() for row in rows_in(items))
    clauses = random.choice(
        [each for each in CLAUSES if "EARLY" not in each or not ("p.ts" in sql or "LIFETIME" in sql)]
    )
    for stated in ("", clauses):
        run = RecordedRun(f"{sql} {stated} EMIT CHANGES", path)
        total: Counter[tuple] = Counter()
        for *row, weight, _ in (row for items in run.steps() for row in rows_in(items)):
            total[tuple(row)] += weight
            assert total[tuple(row)] >= 0, (stated, "a row was withdrawn that had not been returned")
        assert +total == exact, stated
    final = InlineRun([run.run().plans[0].with_final_rows()], [Input("a", path)])
    assert Counter(tuple(row.values()) for _, batch in final.results() for row in batch.to_pylist()) == exact
    steps = [Counter(rows_in(items)) for items in run.steps()]
    restart = random.randrange(len(steps))
    assert [Counter(rows_in(items)) for items in run.steps(restart)] == steps, (clauses, restart)


def test_late_packets_withdraw_matches_and_return_others(tmp_path: Path) -> None:
    path = disordered_capture(tmp_path / "a.pcap", Random("late packets of matches"), packets=150)
    run = RecordedRun(f"{QUERIES['row pattern']} EMIT CHANGES", path)
    steps = [rows_in(items) for items in run.steps()]
    returned, total = set(), Counter()
    for rows in steps:
        returned |= {tuple(row[:-2]) for row in rows if row[-2] > 0}
        total.update({tuple(row[:-2]): 0 for row in rows})
        for *row, weight, _ in rows:
            total[tuple(row)] += weight
    withdrawn = {row for row in returned if total[row] == 0}
    assert withdrawn
    assert len(+total) > 3
    assert sum(any(row[-2] for row in rows) for rows in steps) > 3, "changes in one batch only"


@pytest.mark.parametrize(
    "name",
    ["LIFETIME", "LIFETIME with SLIDE", "UNION ALL", "LEFT JOIN", "LIMIT", "FILL 0", "OVER", "OVER of several windows"],
)
def test_no_row_changes_after_it_is_final(name: str, tmp_path: Path) -> None:
    random = Random(f"final rows of {name}")
    path = disordered_capture(tmp_path / "a.pcap", random, packets=150)
    run = RecordedRun(f"{QUERIES[name]} WITH CONSISTENCY (WAIT 4 seconds, REMEMBER 6 seconds) EMIT CHANGES", path)
    end, final_until, finals = run.run().plans[0].schema.names.index("window_end"), 0, 0
    for items in run.steps():
        rows = rows_in(items)
        assert all(row[end] > final_until for row in rows), "a change of a window that is final"
        finals += sum(row[-1] for row in rows)
        final_until = max([final_until, *(row[end] for row in rows if row[-1])])
    assert finals > 0
