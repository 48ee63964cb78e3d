"""Wrong joins, unions and queries of queries: the position and the text of the error messages."""

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError

J = "SELECT a.ts FROM a [RANGE 1 s], b [RANGE 1 s]"
Q = "(SELECT ts, srcIP, count(*) AS n FROM M GROUP BY ts, srcIP)"

# SQL with « before the place that the message must point at, then parts of the message.
WRONG = [
    # windows of joins
    ("SELECT a.ts FROM a«, b", "a join without a window for a", "every row would be stored until the end"),
    ("SELECT a.ts FROM a«, b, c [RANGE 1 s]", "a join without a window for a", "[RANGE TUMBLING n, WA ts]"),
    ("SELECT a.ts FROM a [RANGE 1 s]«, b", "a join without a window for b"),
    ("SELECT a.ts FROM a [RANGE 1 s] «JOIN b ON a.len = b.len", "a join without a window for b"),
    ("SELECT a.ts FROM a [RANGE TUMBLING 1 s], b «[RANGE 1 s]", "windows of two kinds"),
    ("SELECT a.ts FROM a [RANGE TUMBLING 1 s], b «[RANGE TUMBLING 2 s]", "windows of two kinds"),
    (
        "SELECT a.ts FROM a [RANGE 1 s, «SLIDE 1 s], b [RANGE 1 s]",
        "got 'SLIDE' in the window of a join",
        "valid: RANGE",
    ),
    ("SELECT a.ts FROM a [«5 s], b [RANGE 1 s]", "got '5' in the window of a join"),
    ("SELECT a.ts FROM a «[WA ts], b [RANGE 1 s]", "has no RANGE"),
    ("SELECT a.ts FROM a [RANGE 5 «rows], b [RANGE 1 s]", "a unit of time", "valid: "),
    ("SELECT a.ts FROM a [RANGE «ALL], b [RANGE 1 s]", "a length of time"),
    ("SELECT a.ts FROM a [RANGE TUMBLING «0 s], b [RANGE 1 s]", "more than 0"),
    ("SELECT a.ts FROM a [RANGE «40000 days], b [RANGE 1 s]", "18 years"),
    ("SELECT a.ts FROM a [RANGE 1 s, «RANGE 2 s], b [RANGE 1 s]", "given twice"),
    ("SELECT a.ts FROM a [RANGE 1 s, BOUNDARY «shut], b [RANGE 1 s]", "got BOUNDARY 'shut'", "HALF-OPEN"),
    ("SELECT a.ts FROM a, b «[RANGE TUMBLING 1 s, BOUNDARY OPEN]", "BOUNDARY together with TUMBLING"),
    ("SELECT a.ts FROM a «[RANGE 1 s, ORIGIN 5], b [RANGE 1 s]", "ORIGIN without TUMBLING"),
    (
        "SELECT a.ts FROM a [RANGE 1 s, BOUNDARY OPEN], b «[RANGE 1 s, BOUNDARY CLOSED]",
        "two boundaries",
        "BOUNDARY once",
    ),
    ("SELECT a.ts FROM a [RANGE 1 s, WA «len], b [RANGE 1 s]", "the window of a over 'len'", "valid: ts"),
    ("SELECT a.ts FROM a [RANGE 1 s, WA «b.ts], b [RANGE 1 s]", "the window of a over b", "WA a.ts"),
    ("SELECT a.ts FROM «(SELECT len FROM M) a [RANGE 1 s], b [RANGE 1 s]", "whose rows have no time", "must select ts"),
    # names
    (f"{J} WHERE «len > 5", "'len' is a column of a and b", "expected a.len or b.len"),
    (f"{J} WHERE «c.len > 5", "got a column of 'c'", "valid: a, b"),
    (f"{J} WHERE a.«lenn > 5", "unknown column 'lenn' of a", "valid: len"),
    (f"{J} WHERE «nothing > 5", "unknown column 'nothing' of a and b"),
    ("SELECT a.ts FROM a [RANGE 1 s], «a [RANGE 1 s]", "two items of FROM are called a", "AS and another name"),
    ("SELECT a.ts FROM a [RANGE 1 s], b AS «A [RANGE 1 s]", "two items of FROM are called A"),
    ("SELECT a.ts FROM a [RANGE 1 s], «b UNION c [RANGE 1 s]", "an item of a join without a name"),
    (
        "SELECT «b.ts FROM a [RANGE 1 s] SEMI JOIN b [RANGE 1 s] ON a.len = b.len",
        "a SEMI or ANTI join has no columns of its right side",
        "valid: a",
    ),
    # shapes of FROM
    ("SELECT a.ts FROM a [RANGE 1 s], b [RANGE 1 s]«, c", "without a window for c"),
    ("SELECT count(*) FROM M,«", "got the end of the query in FROM"),
    ("SELECT count(*) FROM M x «y", "got 'y' after a stream", "JOIN"),
    ("SELECT count(*) FROM M x «UNION N", "got 'UNION' after a name"),
    ("SELECT count(*) FROM M AS «WHERE len > 5", "a name after AS"),
    ("SELECT a.ts FROM a [RANGE 1 s] LEFT «b [RANGE 1 s]", "got 'b' after LEFT", "JOIN"),
    ("SELECT a.ts FROM a [RANGE 1 s] «LEFT JOIN b [RANGE 1 s]", "LEFT JOIN without ON"),
    ("SELECT a.ts FROM a [RANGE 1 s], b [RANGE 1 s] «ON a.len = b.len", "ON after a comma"),
    ("SELECT a.ts FROM a [RANGE 1 s] JOIN b [RANGE 1 s] ON «a.len", "ON over a value of type integer"),
    ("SELECT a.ts FROM a [RANGE 1 s] JOIN b ON a.len = b.len «[RANGE 1 s]", "a window after ON"),
    ("SELECT a.ts FROM a [RANGE 1 s] JOIN b [RANGE 1 s] ON a.len = «srcIP", "is a column of a and b"),
    (
        "SELECT a.ts FROM a [RANGE 1 s] FULL JOIN b [RANGE 1 s] ON a.len = b.len JOIN «c [RANGE 1 s] ON b.len = c.len",
        "a join with the results of a FULL join",
    ),
    (
        "SELECT a.ts FROM a [RANGE 1 s], b [RANGE 1 s] WHERE length(a.«payload) = b.len",
        "payload outside of a condition on one stream",
    ),
    # rows and groups of tables
    ("SELECT ts FROM M «[RANGE 1 s]", "a window over rows without an aggregate"),
    ("SELECT ts FROM M «HAVING ts > 5", "HAVING without groups"),
    ("SELECT «payload FROM M", "SELECT of bytes"),
    ("SELECT «DISTINCT 1, 'a' FROM M", "DISTINCT without a column"),
    ("SELECT «C.* FROM A [RANGE 1 s], B [RANGE 1 s]", "got a column of 'C'", "valid: A, B"),
    ("SELECT «A.*, count(*) FROM A [RANGE 1 s], B [RANGE 1 s]", "'*' as an item"),
    ("SELECT «M.*, 1 FROM M", "'*' as an item"),
    ("SELECT count(A.«*) FROM A", "got '*' in SELECT"),
    ("SELECT A.len FROM A [RANGE 1 s] JOIN B [RANGE 1 s] USING «len", "got 'len' in USING", "'(' and the names"),
    ("SELECT A.len FROM A [RANGE 1 s] JOIN B [RANGE 1 s] USING («foo)", "unknown column 'foo' of A"),
    ("SELECT A.len FROM A [RANGE 1 s] JOIN B [RANGE 1 s] ON A.len = B.len «USING (len)", "USING after ON"),
    ("SELECT A.len FROM A [RANGE 1 s], B [RANGE 1 s] «USING (len)", "USING after a comma"),
    ("SELECT B.len FROM «(SELECT ts, len FROM A) [RANGE 1 s] JOIN B [RANGE 1 s] USING (len)", "without a name"),
    ("SELECT A.len FROM A [RANGE 1 s] JOIN B [RANGE 1 s] USING (len «ttl)", "got 'ttl' in USING", "',' or ')'"),
    ("SELECT «DISTINCT srcIP, count(*) FROM M GROUP BY srcIP", "DISTINCT together with groups"),
    ("SELECT DISTINCT A.len, «absolute(B.len) FROM A [RANGE 1 s], B [RANGE 1 s]", "unknown function 'absolute'"),
    (
        "SELECT count(*) «[RANGE 1 s] FROM a [RANGE 1 s], b [RANGE 1 s]",
        "without the name of a time column",
        "WA a.ts or WA b.ts",
    ),
    ("SELECT count(*) [RANGE 1 s, WA «ts] FROM a [RANGE 1 s], b [RANGE 1 s]", "is a column of a and b"),
    ("SELECT count(*) [RANGE 1 s, WA a.«len] FROM a [RANGE 1 s], b [RANGE 1 s]", "a window over a.len", "WA a.ts"),
    (
        "SELECT count(*) [RANGE 1 s, WA b.«ts] FROM a [RANGE 1 s] LEFT JOIN b [RANGE 1 s] ON a.len = b.len",
        "a window over b.ts",
        "WA a.ts: a column that has a time",
    ),
    (
        "SELECT count(*) «[RANGE 5 rows] FROM (SELECT ts FROM M)",
        "a window that counts rows, over a join or another query",
    ),
    ("SELECT count(*) [RANGE 1 minute, «SPREAD] FROM (SELECT ts FROM M)", "SPREAD over rows of other queries"),
    ("SELECT count(*) «[RANGE 1 s] FROM (SELECT len FROM M)", "without the name of a time column", "that selects ts"),
    ("SELECT «last(srcIP) FROM (SELECT srcIP FROM M)", "last of rows without a time", "min or max"),
    ("SELECT «first(srcPort) FROM (SELECT srcPort FROM M)", "first of rows without a time", "min or max"),
    (f"SELECT x.n FROM {Q} x WHERE «len > 5", "unknown column 'len' of x", "n"),
    ("SELECT n FROM («SELECT count(*) AS n FROM M [RANGE 1 s, LATE EMIT])", "LATE EMIT that is read"),
    ("SELECT a.«ts FROM a [RANGE 1 s], b [RANGE 1 s] GROUP BY a.len", "is neither grouped by"),
    ("SELECT a.ts AS x, b.ts AS «x FROM a [RANGE 1 s], b [RANGE 1 s]", "expected a name of its own for each column\n"),
    # unions and MERGE
    ("SELECT ts FROM (SELECT ts, srcIP AS who FROM M) UNION «N", "no column 'who'"),
    ("SELECT ts FROM (SELECT ts, len AS srcIP FROM M) UNION «N", "'srcIP' is address and integer"),
    ("SELECT ts FROM (MERGE «x.ts : b.ts FROM M a, N b)", "got 'x' in MERGE", "a"),
    ("SELECT ts FROM (MERGE a.«len : b.ts FROM M a, N b)", "MERGE by 'len'", "valid: ts"),
    ("SELECT ts FROM («MERGE a.ts : b.ts FROM M a)", "2 times and 1 streams in MERGE"),
    ("SELECT ts FROM (MERGE a.ts«)", "got ')' in MERGE", "':' and the time"),
    ("SELECT ts FROM (MERGE a.ts : b.ts FROM a, b «[RANGE 1 s])", "a window within MERGE"),
    ("SELECT ts FROM (MERGE a.ts : b.ts FROM a «JOIN b)", "a join within MERGE"),
    ("MERGE a.ts : b«", "got the end of the query in MERGE", "b.ts"),
    # WITH and queries in parentheses
    ("WITH «SELECT ts FROM M", "got 'SELECT' in WITH", "the name of a query"),
    ("WITH q «(SELECT ts FROM M) SELECT ts FROM q", "got '(' in WITH", "AS and a query"),
    ("WITH q AS (SELECT ts FROM M)«", "got the end of the query"),
    ("WITH q AS (SELECT ts FROM M), «Q AS (SELECT ts FROM M) SELECT ts FROM q", "already means a query"),
    ("WITH «flows AS (SELECT ts FROM M) SELECT ts FROM flows", "already means a kind of rows"),
    (
        "WITH x AS (SELECT ts FROM «Y), y AS (SELECT ts FROM x) SELECT ts FROM x",
        "'Y' is a later query of WITH",
        "before the queries that read it",
    ),
    (
        "WITH x AS (SELECT ts FROM M UNION «y), y AS (SELECT ts FROM N) SELECT ts FROM x",
        "'y' is a later query of WITH",
    ),
    (
        "WITH x AS (WITH z AS (SELECT ts FROM «y) SELECT ts FROM z), y AS (SELECT ts FROM N) SELECT ts FROM x",
        "'y' is a later query of WITH",
    ),
    ("SELECT ts FROM «(SELECT ts FROM M", "never closed"),
    ("SELECT ts FROM (SELECT ts, len FROM M) WHERE len IN «(SELECT len FROM N)", "a sub-query in WHERE"),
    ("SELECT ts FROM " + "(SELECT ts FROM " * 19 + "(«SELECT ts FROM M" + ")" * 20, "within each other too deeply"),
]


@pytest.mark.parametrize("marked, parts", [(row[0], row[1:]) for row in WRONG])
def test_a_wrong_query_is_told_where_and_why(marked: str, parts: tuple[str, ...]) -> None:
    sql = marked.replace("«", "")
    with pytest.raises(QueryError) as caught:
        compile_query(sql)
    for part in (*parts, "; expected "):
        assert part in str(caught.value)
    assert caught.value.position == marked.index("«"), str(caught.value)
