"""Queries with misspelt words, or in the SQL of other systems: each message names what GSQL has in their place.

The table fails when a message points at a later word than the wrong one, or has no remedy.
"""

import pytest

from queries.gsql import compile_query
from queries.text.errors import QueryError

# SQL with « before the position of the message, then parts of the message.
FOREIGN = [
    # Misspelt keywords, which the parser reads as names.
    ("«SELCT srcIP FROM M", "got 'SELCT'", "expected SELECT"),
    ("SELECT srcIP «FORM M", "got 'FORM'", "expected FROM"),
    ("SELECT srcIP FROM M «WERE len > 5", "got 'WERE'", "expected WHERE"),
    ("SELECT srcIP FROM M «WEHRE len > 5", "got 'WEHRE'", "expected WHERE"),
    ("SELECT srcIP FROM M «GRUOP BY srcIP", "got 'GRUOP'", "expected GROUP BY"),
    ("SELECT srcIP FROM M GROUP BY srcIP «HAVNG count(*) > 1", "got 'HAVNG'", "expected HAVING"),
    ("SELECT srcIP FROM M GROUP BY srcIP «ODER BY 1", "got 'ODER'", "expected ORDER BY"),
    ("SELECT srcIP FROM M «LIMTI 5", "got 'LIMTI'", "expected LIMIT"),
    ("SELECT srcIP FROM M WHERE len «BETWEN 1 AND 2", "got 'BETWEN'", "expected BETWEEN"),
    ("SELECT srcIP FROM M WHERE len > 1 «ADN ttl = 3", "got 'ADN'", "expected AND"),
    ("SELECT CASE WHEN len > 1 «THN 5 END FROM M", "got 'THN'", "expected THEN"),
    ("SELECT rank() OVER («PARTITON BY len) FROM M", "got 'PARTITON'", "expected PARTITION BY"),
    ("SELECT srcIP FROM M «SORT BY srcIP", "got 'SORT'", "expected ORDER BY"),
    ("SELECT ts FROM M «MINUS SELECT ts FROM N", "got 'MINUS'", "expected EXCEPT"),
    # Operators and characters.
    ("SELECT srcIP FROM M WHERE len «== 5", "got '=='", "= for equal values"),
    ("SELECT srcIP FROM M WHERE len > 5 «&& ttl = 3", "got '&&'", "AND between conditions"),
    ("SELECT srcIP FROM M WHERE len > «5 || ttl = 3", "|| over a value of type integer", "OR between conditions"),
    ("SELECT srcIP FROM M WHERE len «<=> 5", "got '<=>'", "=, or IS NULL"),
    ("SELECT srcIP FROM M WHERE len «=< 5", "got '=<'", "expected <="),
    ("SELECT srcIP FROM M WHERE len «=> 5", "got '=>'", "expected >="),
    ("SELECT srcIP FROM M WHERE «!(len > 5)", "NOT before a condition"),
    ("SELECT srcIP «// comment", "got '//'", "-- before a comment"),
    ("SELECT srcIP «# comment", "got the character '#'", "-- before a comment"),
    ("SELECT «`srcIP` FROM M", "got the character '`'", "double quotes"),
    ("SELECT «[srcIP] FROM M", "a window clause within SELECT", "after an item of SELECT"),
    ("SELECT len «– 5 FROM M", "got the character '–'", "the minus of ASCII"),
    ("SELECT srcIP FROM M WHERE len «≥ 5", "got the character '≥'", "expected >="),
    ("SELECT srcIP FROM M WHERE len «≠ 5", "expected <>"),
    ("SELECT srcIP FROM M WHERE link = «„a”", "got the character '„'", "single quotes"),
    ("SELECT count«（*） FROM M", "'(' of ASCII"),
    ("«\ufeffSELECT srcIP FROM M", "the invisible character U+FEFF"),
    ("SELECT«\u200b srcIP FROM M", "the invisible character U+200B"),
    ("SELECT «\0 FROM M", "the invisible character U+0000"),
    ("SELECT srcIP FROM M WHERE contains(payload, '«\udcff')", "expected UTF-8", "x'ff'"),
    ("SELECT srcIP FROM M WHERE link LIKE '«\ud800'", "expected UTF-8"),
    ("SELECT srcIP FROM M WHERE len > «@n", "got the character '@'", "the SQL of a ready query"),
    # Clauses.
    ("SELECT «TOP 5 srcIP FROM M", "got 'TOP'", "LIMIT and a number at the end"),
    ("SELECT «TOP(5) srcIP FROM M", "got 'TOP'", "LIMIT and a number at the end"),
    ("SELECT «ALL srcIP FROM M", "got 'ALL'", "SELECT without ALL"),
    ("SELECT «UNIQUE srcIP FROM M", "got 'UNIQUE'", "expected DISTINCT"),
    ("SELECT DISTINCT «ON (srcIP) srcIP, len FROM M", "got 'ON'", "GROUP BY and first(x)"),
    ("SELECT srcIP FROM M LIMIT 5«, 10", "got ','", "LIMIT 10 OFFSET 5"),
    ("SELECT srcIP FROM M LIMIT «ALL", "got 'ALL'", "a number of rows, 0 or more"),
    ("SELECT srcIP FROM M LIMIT «99999999999999999999", "at most 9223372036854775807"),
    ("SELECT srcIP FROM M «FETCH FIRST 5 ROWS ONLY", "FETCH is not supported", "LIMIT and a number"),
    (
        "SELECT srcIP, count(*) FROM M GROUP BY srcIP «QUALIFY rank() OVER (ORDER BY count(*)) < 3",
        "QUALIFY is not supported",
        "WHERE in a query over the query",
    ),
    ("SELECT srcIP FROM M «TABLESAMPLE (10)", "got 'TABLESAMPLE'", "LIMIT and a number"),
    ("SELECT rank() OVER «w FROM M WINDOW w AS (ORDER BY ts)", "windows have no names"),
    ("SELECT count(*) FROM M «WINDOW w AS (ORDER BY ts)", "a named window", "OVER (ORDER BY …)"),
    ("SELECT lag(len) «IGNORE NULLS OVER (ORDER BY ts) FROM M", "got 'IGNORE'", "no IGNORE NULLS"),
    ("SELECT count(*) «FILTER WHERE len > 5 FROM M", "got 'FILTER'", "FILTER (WHERE …)"),
    ("SELECT percentile_cont(0.5) «WITHIN GROUP (ORDER BY len) FROM M", "got 'WITHIN'", "quantile(x, 0.5)"),
    ("SELECT srcIP, count(*) FROM M GROUP BY «ALL", "unknown column 'ALL'"),
    ("SELECT «*, count(*) FROM M", "'*' as an item", "named columns"),
    ("SELECT «* EXCLUDE (len) FROM M", "'*' as an item", "named columns"),
    ("SELECT srcIP FROM «'office.pcap'", "got 'office.pcap' in FROM", "files are bound to names outside the query"),
    ("SELECT srcIP FROM «read_pcap('a.pcap')", "a call of 'read_pcap' in FROM", "the name of a stream"),
    ("SELECT srcIP FROM office.«pcap", "unknown kind of rows 'pcap'", "valid: packets"),
    ("SELECT count(*) FROM M «NATURAL JOIN N", "got 'NATURAL'", "USING"),
    ("SELECT count(*) FROM M «CROSS JOIN N", "got 'CROSS'", "JOIN with ON"),
    ("SELECT count(*) FROM M «ASOF JOIN N", "got 'ASOF'", "the windows of the two tables"),
    ("SELECT count(*) FROM M «JOIN N ON M.srcIP = N.srcIP", "a join without a window for M", "[RANGE n, WA ts]"),
    ("WITH «RECURSIVE a AS (SELECT ts FROM M) SELECT ts FROM a", "got 'RECURSIVE'", "only earlier queries"),
    ("«EXPLAIN SELECT srcIP FROM M", "got 'EXPLAIN'", "wiretide explain"),
    ("«SHOW TABLES", "got 'SHOW'", "wiretide queries"),
    ("«INSERT INTO M VALUES (1)", "got 'INSERT'", "expected SELECT"),
    ("«FROM M SELECT srcIP", "got 'FROM'", "expected SELECT"),
    ("SELECT srcIP AS «select FROM M", "got 'select'", "double quotes"),
    ("SELECT «select FROM M", "got 'select'", "double quotes"),
    ("SELECT M.«select FROM M", "got 'select'", "double quotes"),
    # Conditions.
    ("SELECT srcIP FROM M WHERE link «REGEXP 'a'", "got 'REGEXP'", "matches("),
    ("SELECT srcIP FROM M WHERE link «SIMILAR TO 'a'", "got 'SIMILAR'", "matches("),
    ("SELECT srcIP FROM M WHERE link «GLOB 'a*'", "got 'GLOB'", "LIKE with % and _"),
    ("SELECT srcIP FROM M WHERE link LIKE 'a' «ESCAPE '!'", "got 'ESCAPE'", "before % or _"),
    ("SELECT srcIP FROM M WHERE link ILIKE «ANY ('a%', 'b%')", "unknown function 'ANY'", "after IN"),
    ("SELECT srcIP FROM M WHERE len > «ALL (SELECT len FROM M)", "unknown function 'ALL'", "a sub-query"),
    ("SELECT srcIP FROM M WHERE len IS «TRUE", "got 'TRUE' after IS", "NULL or NOT NULL"),
    ("SELECT srcIP FROM M WHERE len IS «DISTINCT FROM 5", "got 'DISTINCT' after IS", "NULL or NOT NULL"),
    ("SELECT srcIP FROM M WHERE 1 < len < «5", "< between boolean and integer", "1 < x AND x < 5"),
    ("SELECT srcIP FROM M WHERE (len«, ttl) = (1, 2)", "got ','", "an operator, '(' or ')'"),
    ("SELECT srcIP FROM M WHERE len > «SELECT avg(len) FROM M", "parentheses around a sub-query"),
    ("SELECT srcIP FROM M WHERE len IN «SELECT len FROM M", "a query in parentheses"),
    ("SELECT srcIP FROM M WHERE len IN (1, 2,«)", "got ')'"),
    ("SELECT srcIP FROM M WHERE «(len > 5", "'(' is never closed", "expected ')'"),
    ("SELECT srcIP FROM M WHERE len > 5«)", "without an opening bracket", "expected '('"),
    ("SELECT srcIP FROM M WHERE -«srcIP = 5", "- over a value of type address"),
    # Times.
    ("SELECT srcIP FROM M WHERE ts > «now() - 5", "unknown function 'now'", "no current time"),
    ("SELECT srcIP FROM M WHERE ts > «CURRENT_TIMESTAMP", "unknown column 'CURRENT_TIMESTAMP'", "no current time"),
    ("SELECT ts + «INTERVAL '1' PARSEC FROM M", "got INTERVAL 1", "INTERVAL '90 seconds'"),
    ("SELECT ts + «INTERVAL 'a minute' FROM M", "got INTERVAL a minute", "INTERVAL '1' HOUR"),
    ("SELECT ts + «INTERVAL '0 s' FROM M", "got a duration of 0 s", "more than 0"),
    ("SELECT srcIP FROM M WHERE ts > «DATE '2016-01-01'", "got 'DATE'", "TIMESTAMP '2016-08-02'"),
    ("SELECT srcIP FROM M WHERE ts > «'yesterday'", "'yesterday' is not a time", "2016-08-02T02:19:00Z"),
    ("SELECT srcIP FROM M WHERE ts > «'2016-02-30'", "day is out of range"),
    ("SELECT srcIP FROM M WHERE ts > «'9999-01-01'", "out of range", "2262-04-11"),
    # Functions and columns.
    ("SELECT «if(len > 5, 1, 2) FROM M", "unknown function 'if'", "CASE WHEN"),
    ("SELECT «ifnull(destPort, 0) FROM M", "coalesce(x, y)"),
    ("SELECT srcIP FROM M WHERE «regexp_matches(link, 'a')", "matches(x"),
    ("SELECT «mean(len) FROM M", "avg(x)"),
    ("SELECT «percentile(len, 0.5) FROM M", "quantile(x, 0.99)"),
    ("SELECT «count_if(len > 5) FROM M", "FILTER (WHERE condition)"),
    ("SELECT count(*) FROM M GROUP BY «time_bucket('1 minute', ts)", "GROUP BY TUMBLE("),
    ("SELECT «vendor(srcMAC) FROM M", "unknown function 'vendor'", "mac_vendor(srcMAC"),
    ("SELECT «hour(ts) FROM M", "extract(hour FROM ts)"),
    ("SELECT «array_agg(len) FROM M", "top(x, 10)"),
    ("SELECT srcIP FROM M ORDER BY «rand()", "unknown function 'rand'", "equal results"),
    ("SELECT «first_value(len) FROM M", "OVER (ORDER BY …)", "valid: first"),
    ("SELECT «ntile(4) OVER (ORDER BY len) FROM M", "ntile with OVER", "valid: row_number"),
    ("SELECT «bytes FROM M", "unknown column 'bytes'", "valid: len,"),
    ("SELECT «timestamp FROM M", "unknown column 'timestamp'", "valid: ts,"),
    ("SELECT «dst FROM M", "unknown column 'dst'", "valid: destIP,"),
    ("SELECT srcIP, count(*) AS n FROM M GROUP BY srcIP HAVING «scrip > 5", "valid: srcIP,"),
    ("SELECT count(*) FROM M WHERE protocol = «'tpc'", "unknown protocol 'tpc'", "the name of a service", "tcp"),
    ("SELECT count(*) FROM M WHERE destPort IN (80, «'htps')", "unknown port 'htps'", "https"),
    ("SELECT count(*) FROM M WHERE len = «'tcp'", "= between integer and text", "type integer"),
    ("SELECT count(*) FROM M WHERE srcIP = «'example.com'", "is not an address", "2001:db8::1"),
]


@pytest.mark.parametrize("marked, parts", [(row[0], row[1:]) for row in FOREIGN])
def test_sql_of_other_dialects_is_refused_with_the_words_of_gsql(marked: str, parts: tuple[str, ...]) -> None:
    sql = marked.replace("«", "")
    with pytest.raises(QueryError) as caught:
        compile_query(sql)
    assert caught.value.position == marked.index("«"), str(caught.value)
    for part in (*parts, "; expected "):
        assert part in str(caught.value)
