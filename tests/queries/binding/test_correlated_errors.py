"""Wrong correlated sub-queries: the position and the text of the error messages."""

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError

P = "SELECT p.ts FROM packets p [RANGE 10 s] WHERE"
Q = "FROM packets q [RANGE 10 s] WHERE q.srcIP = p.destIP"
NO_TIME = "(SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP)"
DEEP = "EXISTS (SELECT 1 FROM M b WHERE b.ts = a.ts AND " * 5 + "TRUE" + ")" * 5

# SQL with « before the place that the message must point at, then parts of the message.
WRONG = [
    # windows
    (
        f"{P} EXISTS (SELECT 1 FROM «packets q WHERE q.srcIP = p.destIP)",
        "a correlated sub-query without a window",
        "an equality of times, such as q.window_end = p.window_end",
    ),
    (
        "SELECT p.ts FROM packets p WHERE EXISTS (SELECT 1 FROM packets q «[RANGE 10 s] WHERE q.len = p.len)",
        "with a window in a query without a window",
        "the same window after the item",
    ),
    (f"{P} EXISTS (SELECT 1 FROM packets q «[RANGE 5 s] WHERE q.len = p.len)", "another window", "SEMI, ANTI or LEFT"),
    (
        (
            "SELECT p.ts FROM packets p [RANGE 10 s, SLIDE 5 s] WHERE EXISTS "
            "(SELECT 1 FROM packets q «[RANGE 10 s, SLIDE 5 s] WHERE q.len = p.len)"
        ),
        "not tumbling",
        "windows of a RANGE that do not overlap",
    ),
    (
        (
            "SELECT count(*) FROM packets p [SESSION 5 s] WHERE EXISTS "
            "(SELECT 1 FROM packets q «[SESSION 5 s] WHERE q.len = p.len)"
        ),
        "not tumbling",
    ),
    (
        f"{P} EXISTS (SELECT 1 {Q}) AND «EXISTS (SELECT 1 FROM packets q WHERE q.ts = p.ts)",
        "two correlated sub-queries over different windows",
        "the same window or times in all of them",
    ),
    (f"{P} EXISTS (SELECT 1 FROM «packets q WHERE q.time/60 = p.time/61)", "without a window"),
    (f"{P} EXISTS (SELECT 1 FROM «packets q WHERE q.len = p.len AND q.len/60 = p.len/60)", "without a window"),
    (
        (
            f"SELECT p.n FROM {NO_TIME} p [RANGE 1 s] "
            "WHERE EXISTS (SELECT 1 FROM packets q «[RANGE 1 s] WHERE q.srcIP = p.srcIP)"
        ),
        "rows without a time",
        "an inner query must select ts, or have windows",
    ),
    # conditions
    (f"{P} EXISTS (SELECT 1 {Q} AND q.len > «p.len)", "that is not an equality", "LEFT JOIN"),
    (f"{P} EXISTS (SELECT 1 {Q} OR q.len = p.len)".replace("p.destIP", "«p.destIP"), "that is not an equality"),
    (f"{P} EXISTS (SELECT 1 {Q} AND q.len + «p.len = 7)", "that is not an equality"),
    (f"{P} EXISTS (SELECT 1 {Q} AND «p.len IN (q.len, 5))", "that is not an equality"),
    (f"{P} EXISTS (SELECT 1 {Q} AND q.len = «p.srcIP)", "= between integer and address"),
    (f"{P} EXISTS (SELECT 1 {Q} AND q.len = p.«lenn)", "unknown column 'lenn'", "valid: len"),
    (f"{P} EXISTS (SELECT 1 {Q} AND q.«lenn = p.len)", "unknown column 'lenn'", "valid: len"),
    (f"{P} EXISTS (SELECT «lenn {Q})", "unknown column 'lenn'", "valid: len"),
    (f"{P} EXISTS (SELECT 1 {Q} AND «q.payload = p.payload)", "SELECT of bytes", "length(…)"),
    # columns of the outer query, where they have no meaning
    (f"{P} EXISTS (SELECT «p.len {Q})", "'p.len', a column of the outer query", "in WHERE of the sub-query only"),
    (f"{P} 5 < (SELECT max(«p.len) {Q})", "outside WHERE of the sub-query"),
    (f"{P} EXISTS (SELECT q.len {Q} GROUP BY q.len HAVING max(q.ttl) > «p.ttl)", "outside WHERE of the sub-query"),
    (
        f"{P} EXISTS (SELECT 1 {Q} AND EXISTS (SELECT 1 FROM packets r WHERE r.ts = q.ts AND r.len = «p.len))",
        "'p.len', a column of a query two levels outside",
        "columns of the directly outer query",
    ),
    (f"{P} EXISTS (SELECT 1 FROM (SELECT ts, len FROM M WHERE len = «p.len) q)", "two levels outside"),
    (f"SELECT ts FROM M a WHERE «{DEEP}", "more than 4 sub-queries within each other"),
    # clauses of the sub-query
    (f"{P} «EXISTS (SELECT count(*) {Q})", "always has a row", "(SELECT count(*) FROM …) > 0"),
    (f"{P} len > «(SELECT q.len {Q})", "may have no row or several", "one aggregate such as max(x)"),
    (f"{P} len > «(SELECT max(q.len) {Q} GROUP BY q.ttl)", "may have no row or several"),
    (f"{P} len > «(SELECT max(q.len) {Q} HAVING count(*) > 1)", "may have no row or several"),
    (f"{P} len > «(SELECT max(q.len), min(q.len) {Q})", "may have no row or several"),
    (f"{P} len > (SELECT max(q.len) + «q.ttl {Q})", "'ttl', a column outside the aggregates"),
    (f"{P} len IN (SELECT q.len, «q.ttl {Q})", "other than one named column"),
    (f"{P} len IN (SELECT «* {Q})", "other than one named column"),
    (f"{P} len IN «(SELECT q.srcIP {Q})", "= between integer and address"),
    (f"{P} len IN (SELECT q.len {Q} «LIMIT 3)", "with LIMIT or OFFSET", "an aggregate such as max(x)"),
    (f"{P} EXISTS (SELECT q.len {Q} «LIMIT 0)", "with LIMIT or OFFSET"),
    (f"{P} EXISTS (SELECT q.len {Q} «LIMIT 1 OFFSET 1)", "with LIMIT or OFFSET"),
    (f"{P} «EXISTS (SELECT q.len, rank() OVER (ORDER BY q.len) {Q})", "with OVER", "OVER in a query of WITH"),
    (f"{P} «EXISTS (SELECT count(*) {Q} FILL 0)", "with FILL"),
    (f"{P} «EXISTS (SELECT q.len {Q} GROUP BY ROLLUP (len))", "with GROUPING SETS"),
    (f"{P} «EXISTS (WITH w AS (SELECT ts FROM M) SELECT ts {Q})", "WITH in a correlated sub-query"),
    (
        f"{P} «EXISTS (SELECT 1 FROM M q [RANGE 1 s], N r [RANGE 1 s] WHERE q.len = p.len)",
        "a correlated sub-query over a join",
        "a join in a query of WITH",
    ),
    # clauses of the outer query
    (f"{P} ttl = 3 OR len IN «(SELECT q.len {Q} GROUP BY q.len)", "IN with groups within", "without groups"),
    (f"{P} ttl = 3 OR «len IN (SELECT q.srcIP {Q})", "= between address and integer"),
    (f"{P} ttl = 3 OR «EXISTS (SELECT q.len {Q} GROUP BY q.len)", "EXISTS of groups within", "without groups"),
    (
        f"SELECT p.destIP FROM packets p [RANGE 10 s] GROUP BY destIP HAVING count(*) > «(SELECT count(*) {Q})",
        "in HAVING of a query with groups",
        "in WHERE, or in SELECT of a query without groups",
    ),
    (f"SELECT count(*), «(SELECT count(*) {Q}) FROM packets p [RANGE 10 s]", "in SELECT of a query with groups"),
    (f"SELECT ts FROM packets p [RANGE 10 s] ORDER BY «(SELECT max(q.len) {Q})", "in ORDER BY"),
    (
        "SELECT a.ts FROM M a [RANGE 1 s], N b [RANGE 1 s] WHERE «EXISTS (SELECT 1 FROM M c WHERE c.ts = a.ts)",
        "in a query over a join",
        "a join in a query of WITH",
    ),
    (
        "SELECT ts FROM M UNION N WHERE «EXISTS (SELECT 1 FROM M q WHERE q.ts = N.ts)",
        "over several streams",
        "AS and a name",
    ),
    (
        (
            "SELECT destIP, count(*) FROM packets p [RANGE 10 s] "
            f"WHERE «EXISTS (SELECT 1 {Q}) GROUP BY destIP CLOSING WHEN running_sum(len) > 5"
        ),
        "in a query with CLOSING",
    ),
]


@pytest.mark.parametrize("marked, parts", [(row[0], row[1:]) for row in WRONG])
def test_a_wrong_sub_query_is_refused_with_its_place_and_a_remedy(marked: str, parts: tuple[str, ...]) -> None:
    sql = marked.replace("«", "")
    with pytest.raises(QueryError) as caught:
        compile_query(sql)
    for part in (*parts, "; expected "):
        assert part in str(caught.value)
    assert caught.value.position == marked.index("«"), str(caught.value)
