"""Queries that are wrong: a table of them, and texts from a random source.

The table fails when a message loses its place or its advice; the random texts find inputs that break the compiler.
"""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queries.gsql import compile_query
from queries.text.errors import QueryError

# SQL with « before the place that the message must point at, then parts of the message.
MALFORMED = [
    ("«", "got the end of the query", "expected SELECT"),
    ("«UPDATE M", "got 'UPDATE'"),
    ("WITH a AS (SELECT 1«) SELECT count(*) FROM a", "has no FROM"),
    ("SELECT count(*)«", "has no FROM"),
    ("SELECT «FROM M", "got 'FROM' in SELECT", "a column"),
    ("SELECT count(*) FROM«", "the name of a stream"),
    ("SELECT count(*) FROM «WHERE len > 5", "the name of a stream"),
    ("SELECT count(*) FROM M UNION «m", "listed twice"),
    ("SELECT count(*) FROM M «SELECT count(*) FROM N", "a second SELECT", "UNION, INTERSECT or EXCEPT"),
    ("SELECT len FROM M UNION «SELECT len, ttl FROM N", "UNION of 1 and 2 columns", "the same number of columns"),
    ("SELECT len, ttl FROM M EXCEPT SELECT len, «srcIP FROM N", "EXCEPT in the column 'ttl' over integer and address"),
    (
        "SELECT len FROM M UNION ALL SELECT «* FROM (SELECT link FROM N) q",
        "over integer and text",
    ),
    ("SELECT srcIP FROM M UNION SELECT «'1.2.3' AS x FROM N", "1.2.3", "an address like"),
    ("SELECT len FROM M UNION SELECT len FROM N ORDER BY «ttl", "unknown column 'ttl';", "valid: len"),
    ("SELECT len FROM M [RANGE 1 s] GROUP BY len UNION «SELECT len FROM N", "UNION of different windows"),
    (
        "SELECT len FROM M [RANGE 1 s] GROUP BY len UNION «SELECT len FROM N [RANGE 2 s] GROUP BY len",
        "the same window in all queries",
    ),
    ("SELECT count(*) FROM M WHERE len IN «(SELECT len FROM M)", "a sub-query in WHERE", "files as input"),
    ("SELECT count(*) FROM M WHERE len > «(SELECT max(len) FROM M)", "a sub-query in WHERE", "is computed first"),
    ("SELECT count(*) FROM M WHERE EXISTS «len", "got 'len' in WHERE", "a query in parentheses after EXISTS"),
    ("SELECT count(*) FROM M WHERE «EXISTS (SELECT ts FROM M)", "a sub-query in WHERE"),
    ("SELECT count(*) FROM M WHERE len > (SELECT len FROM N WHERE «)", "got ')' in WHERE"),
    ("SELECT count(*) FROM «(M UNION N", "never closed"),
    ("SELECT count(*) FROM M«) WHERE len > 5", "without an opening bracket"),
    ("SELECT count(*) FROM M GROUP BY len «CLOSING WHEN true", "CLOSING WHEN without windows", "[RANGE 10 seconds]"),
    ("SELECT ts, len FROM M «CLOSING WHEN true", "CLOSING WHEN without groups", "GROUP BY, and [RANGE 10 seconds]"),
    ("SELECT count(*) FROM M [SESSION 5 s] «CLOSING WHEN true", "CLOSING WHEN over sessions", "RANGE of time"),
    ("SELECT count(*) FROM M [RANGE 5 s, LATE EMIT] «CLOSING WHEN true", "CLOSING WHEN together with LATE EMIT"),
    ("SELECT count(*) FROM M [RANGE 5 s] CLOSING WHEN true «FILL 0", "FILL together with CLOSING WHEN", "one of the"),
    ("SELECT count(*) FROM M [RANGE 5 s] CLOSING WHEN true «HAVING true", "HAVING after CLOSING WHEN"),
    ("SELECT count(*) FROM M [RANGE 5 s] CLOSING «5", "WHEN after CLOSING"),
    ("SELECT count(*) FROM M [RANGE 5 s] CLOSING WHEN «count(*)", "CLOSING WHEN over a value of type integer"),
    ("SELECT count(*) FROM M [RANGE 5 s] CLOSING WHEN «len > 5", "column 'len' is neither grouped by nor inside"),
    (
        "SELECT len, count(*) FROM M [RANGE 5 s] GROUP BY len HAVING top(3, count(*)) «CLOSING WHEN true",
        "CLOSING WHEN together with HAVING top() or heavy()",
    ),
    (
        "SELECT «rank() OVER (ORDER BY count(*)) FROM M [RANGE 5 s] CLOSING WHEN true",
        "OVER together with CLOSING WHEN",
        "OVER in a query that reads this one",
    ),
    ("SELECT «moving_sum(len, 5) FROM M [RANGE 5 s]", "moving_sum without CLOSING WHEN", "CLOSING WHEN after GROUP BY"),
    ("SELECT «moving_sum(len) FROM M [RANGE 5 s] CLOSING WHEN true", "moving_sum with 1 argument", "moving_sum(x, 5)"),
    ("SELECT moving_sum(len, «0) FROM M [RANGE 5 s] CLOSING WHEN true", "invalid number of windows", "from 1 to 1000"),
    ("SELECT moving_sum(«srcIP, 2) FROM M [RANGE 5 s] CLOSING WHEN true", "over a value of type address"),
    (
        "SELECT moving_sum_exp(len, 2, «1.5) FROM M [RANGE 5 s] CLOSING WHEN true",
        "moving_sum_exp with an invalid decay",
        "a number above 0 and at most 1",
    ),
    ("SELECT len, ts FROM M WHERE «moving_sum(len, 2) > 3", "the aggregate moving_sum in WHERE"),
    ("SELECT count(*) FROM M «FILL 0", "FILL without windows", "[RANGE 10 seconds]"),
    ("SELECT ts, len FROM M «FILL 0", "FILL without windows", "groups, and [RANGE 10 seconds]"),
    ("SELECT ts, count(*) FROM (SELECT ts, len FROM M) GROUP BY ts «FILL 0", "FILL without windows"),
    ("SELECT count(*) FROM M [SESSION 5 s] «FILL 0", "FILL of sessions, lifetimes, windows of rows", "RANGE of time"),
    ("SELECT count(*) FROM M [RANGE 5 rows] «FILL NULL", "FILL of sessions, lifetimes, windows of rows or RANGE ALL"),
    ("SELECT count(*) FROM M [RANGE ALL, SLIDE 5 s] «FILL 0", "FILL of sessions, lifetimes, windows of rows"),
    ("SELECT count(*) FROM M [RANGE 5 s, LATE EMIT] «FILL 0", "FILL together with LATE EMIT"),
    ("SELECT count(*) FROM M [RANGE 5 s] HAVING count(*) > 1 «FILL 0", "FILL together with HAVING", "WHERE in a query"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL 0 «HAVING count(*) > 1", "HAVING after FILL"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL 0 «FILL 1", "FILL is given twice"),
    ("SELECT count(*) FROM M [RANGE 5 s] LIMIT 1 «FILL 1", "FILL after LIMIT"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL «'x'", "got 'x' in FILL", "a number, NULL or PREVIOUS"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL «LINEAR", "got 'LINEAR' in FILL", "a number, NULL or PREVIOUS"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL«", "got the end of the query in FILL", "a number, NULL or PREVIOUS"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL 0 «1", "got '1' in FILL"),
    ("SELECT count(*) AS n FROM M [RANGE 5 s] FILL «0.5", "FILL 0.5 of the column 'n', which has integers"),
    ("SELECT count(*) FROM M [RANGE 5 s] FILL «9223372036854775808", "an integer of 64 bits"),
    ("SELECT avg(len) FROM M [RANGE 5 s] FILL «1e999", "a number that is not infinite"),
    (
        "SELECT tb, count(*) FROM M GROUP BY ts/60 AS tb SUPERGROUP tb CLEANING WHEN true CLEANING BY true «FILL 0",
        "samples",
    ),
    ("SELECT count(*) FROM M ORDER BY «len", "'len' is neither grouped by nor inside an aggregate"),
    ("SELECT count(*) FROM M «ORDER len", "got 'ORDER' without BY", "ORDER BY and columns"),
    ("SELECT srcIP FROM M ORDER BY «lenn", "unknown column 'lenn'", "valid: len, "),
    ("SELECT srcIP, len FROM M ORDER BY «3", "the select list has 2 columns", "a position from 1 to 2"),
    ("SELECT srcIP FROM M ORDER BY «0", "the select list has 1 column;", "a position from 1 to 1"),
    ("SELECT srcIP FROM M ORDER BY «'x'", "ORDER BY over a constant"),
    ("SELECT srcIP FROM M ORDER BY «payload", "ORDER BY of bytes", "length(…)"),
    ("SELECT srcIP FROM M ORDER BY len «srcIP", "got 'srcIP' in ORDER BY", "ASC, DESC"),
    ("SELECT srcIP FROM M ORDER BY len NULLS «DESC", "got 'DESC'", "FIRST or LAST"),
    ("SELECT CASE WHEN «len THEN 1 END FROM M", "WHEN over a value of type integer", "boolean"),
    ("SELECT CASE WHEN len > 1 THEN 'x' ELSE «5 END FROM M", "CASE over text and integer", "a value of type text"),
    ("SELECT CASE WHEN len > 1 THEN «NULL END FROM M", "CASE over NULL only"),
    ("SELECT CASE WHEN len > 1 THEN «payload END FROM M", "CASE over bytes", "length(…)"),
    ("SELECT CASE WHEN len > 1 THEN srcIP ELSE «'1.2.3' END FROM M", "1.2.3"),
    ("SELECT CASE len WHEN «'x' THEN 1 END FROM M", "= between integer and text"),
    ("SELECT CASE «FROM M", "got 'FROM' in SELECT"),
    ("SELECT CASE len «THEN 1 END FROM M", "WHEN and a condition"),
    ("SELECT CASE WHEN len > 1 THEN 1 ELSE 2 «FROM M", "ELSE or END"),
    ("SELECT len + «NULL FROM M", "NULL"),
    (
        "SELECT count(*) FROM M GROUP BY «CUBE (ttl, len, protocol, srcIP, destIP, srcPort)",
        "64 grouping sets; expected at",
    ),
    ("SELECT count(*) FROM M GROUP BY ROLLUP («())", "got '()'; expected columns"),
    ("SELECT count(*) FROM M GROUP BY ROLLUP «protocol", "got 'protocol'"),
    ("SELECT count(*) FROM M GROUP BY ROLLUP (protocol «AS p)", "expected an operator"),
    ("SELECT count(*) FROM M GROUP BY GROUPING SETS «protocol", "expected '(' and columns"),
    ("SELECT count(*) FROM M GROUP BY CUBE (protocol) «AS p", "expected ',' or the end of the clause"),
    ("SELECT «protocol + 1, count(*) FROM M GROUP BY ROLLUP (protocol)", "an expression over 'protocol'", "reads this"),
    ("SELECT protocol, «grouping(protocol), count(*) FROM M GROUP BY protocol", "ROLLUP, CUBE or GROUPING SETS"),
    ("SELECT «grouping(len), count(*) FROM M GROUP BY ROLLUP (protocol)", "ROLLUP, CUBE or GROUPING SETS"),
    ("SELECT «nullif(len) FROM M", "nullif with 1 argument;", "nullif(x, y)"),
    ("SELECT «bucket(len) FROM M", "bucket with 1 argument;", "bucket(len, 64, 512, 1518)"),
    ("SELECT bucket(«srcIP, 4) FROM M", "bucket over a value of type address", "integer or float"),
    (
        "SELECT bucket(len, «ttl) FROM M",
        "a bound of bucket that is not a constant number",
        "bucket(len, 64, 512, 1518)",
    ),
    ("SELECT bucket(len, 64, «64) FROM M", "the bound 64 after 64", "bounds in ascending order"),
    ("SELECT bucket(len, «'x') FROM M", "a bound of bucket that is not a constant number", "bucket(len, 64"),
    ("SELECT «greatest(len) FROM M", "greatest with 1 argument;", "greatest(x, y, …)"),
    ("SELECT greatest(len, «srcIP) FROM M", "greatest over integer and address"),
    ("SELECT greatest(srcIP, destIP, «'::1') FROM M", "greatest over 3 addresses", "two addresses"),
    ("SELECT greatest(«link, len) FROM M", "greatest over a value of type text", "address"),
    ("SELECT mask(srcIP, «129) FROM M", "a prefix of 129 bits", "0 to 128"),
    ("SELECT mask(srcIP, «33, 64) FROM M", "a prefix of 33 bits", "0 to 32"),
    ("SELECT mask(srcIP, «len) FROM M", "not a constant", "0 to 128"),
    ("SELECT «mask(srcIP) FROM M", "mask with 1 argument;", "mask(ip, 24)"),
    ("SELECT mask(«len, 8) FROM M", "mask over a value of type integer", "an address"),
    ("SELECT is_private(«len) FROM M", "is_private over a value of type integer"),
    ("SELECT date_trunc(«'month', ts) FROM M", "date_trunc got 'month'", "minute, "),
    ("SELECT date_trunc('day', «len) FROM M", "date_trunc over a value of type integer", "a time"),
    ("SELECT extract(«year FROM ts) FROM M", "extract got 'year'", "epoch, second"),
    ("SELECT «extract(ts) FROM M", "extract with 1 argument;", "extract(hour FROM ts)"),
    ("SELECT count(*) FROM M WHERE «len LIKE 'a'", "LIKE over a value of type integer", "payload"),
    ("SELECT count(*) FROM M WHERE payload LIKE «len", "not a constant text"),
    ("SELECT count(*) FROM M WHERE matches(payload, «'(a')", "the regular expression '(a'", "RE2"),
    ("SELECT count(*) FROM M WHERE «matches(payload)", "matches with 1 argument;"),
    ("SELECT coalesce(destPort, «'x') FROM M", "coalesce over integer and text"),
    ("SELECT length(link) FILTER (WHERE «len > 5) FROM M", "FILTER after length", "an aggregate"),
    ("SELECT sum(len) FILTER («len > 5) FROM M", "WHERE and a condition"),
    ("SELECT sum(len) FILTER (WHERE «len) FROM M", "FILTER (WHERE …) over a value of type integer"),
    ("SELECT count(*) FROM M GROUP BY len HAVING top(5, len) FILTER (WHERE «len > 1)", "FILTER after top"),
    ("SELECT srcIP FROM M LIMIT «-1", "got '-' in LIMIT", "0 or more"),
    ("SELECT srcIP FROM M LIMIT «1.5", "got '1.5' in LIMIT", "a number of rows"),
    ("SELECT srcIP FROM M LIMIT «len", "got 'len' in LIMIT", "a number of rows"),
    ("SELECT srcIP FROM M LIMIT 1 «ORDER BY len", "ORDER BY after LIMIT", "the clauses in the order"),
    ("SELECT srcIP FROM M LIMIT 1 «LIMIT 1", "LIMIT is given twice"),
    ("SELECT srcIP FROM M OFFSET 1 «LIMIT 1", "LIMIT after OFFSET"),
    ("SELECT DISTINCT ts, srcIP FROM M ORDER BY «len", "ORDER BY of another column than DISTINCT"),
    (
        "SELECT count(*) FROM M [RANGE 1 s, LATE EMIT] GROUP BY srcIP «ORDER BY count(*)",
        "ORDER BY together with LATE EMIT",
        "without LATE EMIT",
    ),
    ("SELECT count(*) FROM M [RANGE 1 s, LATE EMIT] GROUP BY srcIP «LIMIT 1", "LIMIT together with LATE EMIT"),
    ("SELECT count(*) FROM (SELECT ts, len FROM M ORDER BY len) [RANGE 1 s, WA «ts]", "ts"),
    ("SELECT «DISTINCT * FROM M [RANGE 1 s]", "DISTINCT without a column", "the names of columns"),
    (
        "SELECT srcIP, count(*) FROM M GROUP BY «3",
        "GROUP BY 3, but the select list has 2 items",
        "from 1 to 2, or a col",
    ),
    ("SELECT srcIP FROM M GROUP BY «0", "GROUP BY 0, but the select list has 1 item", "from 1 to 1"),
    ("SELECT srcIP FROM M GROUP BY «1.5", "GROUP BY 1.5, but the select list has 1 item"),
    ("SELECT srcIP, «count(*) FROM M GROUP BY 2", "the aggregate count in GROUP BY"),
    ("SELECT * FROM M GROUP BY «1", "GROUP BY a position of *", "the name of a column"),
    ("SELECT count(*) FROM M [RANGE 600«, WA ts]", "got ',' after 600", "a unit of time, or rows"),
    ("SELECT count(*) FROM M [RANGE 600 «WA ts]", "got 'WA' after 600"),
    ("SELECT count(*) FROM M [RANGE 1 minute, SLIDE 60«]", "got ']' after 60"),
    ("SELECT count(*) FROM M [RANGE 10, WA time, SLIDE 60 «parsecs]", "got 'parsecs' after 60"),
    ("SELECT count(*) FROM M [RANGE «0, WA time]", "got a duration of 0 seconds", "more than 0"),
    ("SELECT sum(«DISTINCT len) FROM M", "DISTINCT is not supported"),
    ("SELECT «median(len) OVER () FROM M", "median with OVER", "window functions", "row_number"),
    ("SELECT rank(«) FROM M", "got ')' in SELECT", "OVER after the parentheses"),
    ("SELECT count(«) FROM M", "got ')' in SELECT", "an argument"),
    ("SELECT srcIP FROM M WHERE «rank() OVER (ORDER BY len) < 3", "OVER in WHERE", "SELECT and ORDER BY only"),
    ("SELECT srcIP FROM M GROUP BY srcIP HAVING «rank() OVER () = 1", "OVER in HAVING"),
    ("SELECT sum(«rank() OVER ()) OVER () FROM M", "OVER in SELECT", "not within each other"),
    ("SELECT sum(«rank() OVER ()) FROM M", "OVER in the argument of sum"),
    ("SELECT rank() OVER «w FROM M", "got 'w' in SELECT", "'(' after OVER"),
    ("SELECT sum(len) OVER (ORDER BY ts «GROUPS 1 PRECEDING) FROM M", "a frame of GROUPS in OVER", "ROWS or RANGE"),
    ("SELECT sum(len) OVER («ROWS 2 PRECEDING) FROM M", "a frame without ORDER BY", "ORDER BY before the frame"),
    ("SELECT rank() OVER (ORDER BY ts «ROWS 2 PRECEDING) FROM M", "a frame of rank", "all rows of the partition"),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS «x PRECEDING) FROM M", "no distance in the frame", "10 seconds"),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS 2«) FROM M", "got ')' in SELECT", "PRECEDING or FOLLOWING"),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS UNBOUNDED«) FROM M", "got ')' in SELECT", "PRECEDING or FOLLOWING"),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS «-2 PRECEDING) FROM M", "no distance in the frame"),
    (
        "SELECT sum(len) OVER (ORDER BY ts ROWS «1.5 PRECEDING) FROM M",
        "a frame of ROWS without",
        "a whole number",
    ),
    (
        "SELECT sum(len) OVER (ORDER BY ts ROWS «2 seconds PRECEDING) FROM M",
        "a frame of ROWS without",
        "follows RANGE",
    ),
    ("SELECT sum(len) OVER (ORDER BY ts RANGE «2 PRECEDING) FROM M", "over a value of type time", "10 seconds"),
    ("SELECT sum(len) OVER (ORDER BY len RANGE «2 s PRECEDING) FROM M", "over a value of type integer", "whole"),
    ("SELECT sum(len) OVER (ORDER BY link RANGE «2 PRECEDING) FROM M", "over a value of type text", "ROWS"),
    ("SELECT sum(len) OVER (ORDER BY ts, len RANGE «2 s PRECEDING) FROM M", "with 2 keys in ORDER BY", "one key"),
    (
        "SELECT sum(len) OVER (ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND «CURRENT ROW) FROM M",
        "a frame that ends before it begins",
        "BETWEEN 5 PRECEDING AND CURRENT ROW",
    ),
    (
        "SELECT sum(len) OVER (ORDER BY ts ROWS BETWEEN «UNBOUNDED FOLLOWING AND CURRENT ROW) FROM M",
        "a frame from UNBOUNDED FOLLOWING",
    ),
    (
        "SELECT sum(len) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND «UNBOUNDED PRECEDING) FROM M",
        "a frame to UNBOUNDED PRECEDING",
    ),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING «) FROM M", "got ')' in SELECT", "AND and the last"),
    ("SELECT sum(len) OVER (ORDER BY ts ROWS 1 PRECEDING «EXCLUDE TIES) FROM M", "EXCLUDE in OVER"),
    ("SELECT len, «rank() OVER () FROM M GROUP BY ROLLUP (len)", "OVER in a query with ROLLUP", "reads this one"),
    ("SELECT len FROM M GROUP BY CUBE (len) HAVING «top(1, count(*))", "top in a query with CUBE", "reads this one"),
    (
        "SELECT len, count(*) AS n FROM M GROUP BY ROLLUP (len) ORDER BY «sum(ttl)",
        "ORDER BY an expression in a query with ROLLUP",
        "the name of an item of SELECT",
    ),
    ("SELECT «len + 1, count(*) FROM M GROUP BY ROLLUP (len)", "an expression over 'len', a column of ROLLUP"),
    (
        "SELECT count(*) FROM M GROUP BY GROUPING SETS ((len), (ttl)) HAVING «len > 3",
        "an expression over 'len', a column of GROUPING SETS",
        "in a query that reads this one",
    ),
    ("SELECT «hash(5) FROM M", "hash without a value", "hash(srcIP, destIP)"),
    ("SELECT hash(len, -«5) FROM M", "a constant in hash", "a seed, 0 or more"),
    ("SELECT uniform(«5, len) FROM M", "a constant in uniform", "a seed as the last argument"),
    ("SELECT hash(«payload) FROM M", "hash over bytes", "text(…) of bytes"),
    (
        "SELECT «upper(CAST(len AS VARCHAR)), count(*) FROM M GROUP BY 1",
        "GROUP BY over a text made of values",
        "a query over",
    ),
    ("SELECT count(*) FROM M GROUP BY «srcIP || ':' || len", "GROUP BY over a text made of values", "FROM (SELECT ts"),
    (
        "SELECT count(DISTINCT «srcIP || link) FROM M",
        "count_distinct over a text that an expression computes",
        "FROM (SELECT ts",
    ),
    (
        "SELECT max(«len::TEXT) FROM M",
        "max over a text that an expression computes",
        "FROM (SELECT ts, CAST(len AS VARCHAR)",
    ),
    ("SELECT «payload::TEXT FROM M", "CAST to TEXT over bytes", "text(…) or hex(…)"),
    ("SELECT link || «payload FROM M", "|| over bytes", "text(…) or hex(…)"),
    ("SELECT «len || ttl FROM M", "|| over a value of type integer", "a text among the values"),
    ("SELECT «ts::INTEGER FROM M", "CAST of time to INTEGER", "extract(epoch FROM ts)"),
    ("SELECT TRY_CAST «len FROM M", "got 'len' in SELECT", "'(' after TRY_CAST"),
    ("SELECT rank() OVER (PARTITION «len) FROM M", "got 'len' in SELECT", "BY and columns"),
    ("SELECT rank() OVER («len) FROM M", "got 'len' in SELECT", "PARTITION BY, ORDER BY or ')'"),
    ("SELECT rank() OVER (ORDER BY len «ttl) FROM M", "got 'ttl' in SELECT", "ASC, DESC"),
    ("SELECT lag(len, -«1) OVER () FROM M", "lag with a distance that is not a number", "0 or more"),
    ("SELECT lag(len, «ttl) OVER () FROM M", "lag with a distance that is not a number"),
    ("SELECT «lag(len, 1, 0) OVER () FROM M", "lag with 3 arguments", "a column and a number of rows"),
    ("SELECT «rank(len) OVER () FROM M", "rank with 1 argument", "rank() without an argument"),
    ("SELECT «sum(*) OVER () FROM M", "sum(*)", "sum of a column, or count(*)"),
    ("SELECT sum(«srcIP) OVER () FROM M", "sum over a value of type address", "integer or float"),
    ("SELECT avg(«ts) OVER () FROM M", "avg over a value of type time"),
    ("SELECT count(*) FILTER (WHERE «len > 1) OVER () FROM M", "FILTER together with OVER after count", "CASE"),
    ("SELECT «count(len) OVER (PARTITION BY payload) FROM M", "OVER with bytes", "length"),
    ("SELECT first_value(«payload) OVER () FROM M", "first_value over bytes"),
    ("SELECT «DISTINCT ts, rank() OVER (ORDER BY len) FROM M", "DISTINCT together with OVER", "a query that reads"),
    ("SELECT count(*), «rank() OVER (ORDER BY len) FROM M", "neither grouped by"),
    (
        "SELECT srcIP, «rank() OVER (ORDER BY count(*)) [SESSION 3 s] FROM M GROUP BY srcIP",
        "OVER in a query with sessions",
    ),
    ("SELECT srcIP, «rank() OVER () [RANGE 1 s, LATE EMIT] FROM M GROUP BY srcIP", "OVER together with LATE EMIT"),
    (
        "SELECT count(*) FROM M GROUP BY len «WHERE len > 5",
        "WHERE after GROUP BY",
        "SELECT, FROM, WHERE, GROUP BY, HAVING",
    ),
    ("SELECT count(*) FROM M WHERE len > 5 «WHERE len > 6", "given twice"),
    ("SELECT count(*) FROM M«; SELECT count(*) FROM M", "several statements"),
    ("SELECT count(*)\nFROM M\nWHERE «lenn > 5", "line 3, column 7", "unknown column 'lenn'", "valid: len, "),
    ("SELECT count(*) FROM M WHERE flag = «SYNACK", "unknown column 'SYNACK'", "valid: SYN_ACK, "),
    ("SELECT count(*) FROM M WHERE «N.len > 5", "a column of 'N'", "valid: M"),
    ("SELECT count(*) FROM M UNION N WHERE «M.len > 5", "the column without the stream"),
    ("SELECT count(*) FROM flows UNION «Main1", "packets together with flows", "streams of one kind"),
    ("SELECT count(*) FROM M.flows UNION «M.samples", "samples together with flows"),
    ("SELECT count(*) FROM M.flows UNION «m.FLOWS", "listed twice"),
    ("SELECT count(*) FROM M.«flowz", "unknown kind of rows 'flowz'", "valid: flows, packets, frames, samples"),
    ("SELECT count(*) FROM M.«", "a kind of rows after '.'", "packets, frames, flows, samples"),
    ("SELECT count(*) FROM flows UNION «N.flows", "'flows' together with other streams", "only flows"),
    ("SELECT count(*) FROM N UNION «packets", "'packets' together with other streams"),
    ("SELECT count(*) FROM frames WHERE «scrIP IS NULL", "unknown column 'scrIP' of frames", "valid: srcIP"),
    (
        "SELECT sum(«byte_count) FROM flows",
        "unknown column 'byte_count' of flows",
        "an IPFIX element's name",
        "exporter",
    ),
    ("SELECT sum(«ttl) FROM flows", "unknown column 'ttl' of flows"),
    ("SELECT count(*) FROM flows WHERE «inner.srcIP = '10.0.0.1'", "a column of 'inner'"),
    ("SELECT count(*) FROM M WHERE inner.«len > 5", "unknown column 'inner.len'", "valid: inner.ip_len, "),
    ("SELECT sum(«start_ts) FROM flows", "sum(start_ts)", "exceeds 64 bits"),
    ("SELECT sum(«flowEndMilliseconds) FROM flows", "exceeds 64 bits"),
    ("SELECT count(*) FROM M [RANGE 1 minute, «SPREAD]", "SPREAD over packets", "SPREAD over flows"),
    ("SELECT count(*) FROM flows [SPREAD, RANGE 1 minute «SPREAD]", "SPREAD is given twice"),
    ("SELECT count(*) FROM M GROUP BY «payload", "GROUP BY over bytes", "length(…)"),
    ("SELECT «x'00', count(*) FROM M", "SELECT of bytes"),
    ("SELECT «payload, count(*) FROM M GROUP BY len", "SELECT of bytes"),
    (
        "SELECT max(«payload) FROM M",
        "max over a value of type bytes",
        "integer or float or time or boolean or address or mac or text",
    ),
    ("SELECT last(«payload) FROM M", "last over a value of type bytes", "or boolean or address or mac or text"),
    (
        "SELECT first(«len::TEXT) FROM M",
        "first over a text that an expression computes",
        "FROM (SELECT ts, CAST(len AS VARCHAR)",
    ),
    ("SELECT first(«'a') FROM M", "first over a constant"),
    ("SELECT «last(srcIP) FROM M [SESSION 5 s]", "last over sessions", "windows of another kind"),
    ("SELECT bit_or(«link) FROM M", "bit_or over a value of type text", "integer or time"),
    ("SELECT count(*) FROM M WHERE «payload = x'00'", "= over bytes", "starts_with("),
    ("SELECT count(*) FROM M WHERE «payload IN (x'00')", "IN over bytes"),
    ("SELECT count(*) FROM M WHERE starts_with(payload, «x'0')", "got the bytes x'0'", "pairs of hexadecimal digits"),
    ("SELECT count(*) FROM M WHERE starts_with(payload, «len)", "a search in bytes for a value that is not a constant"),
    ("SELECT count(*) FROM M WHERE contains(link, «x'00')", "a search in text for a constant of type bytes"),
    ("SELECT count(*) FROM M WHERE «contains(payload)", "contains with 1 argument;", "contains(x, 'text')"),
    ("SELECT count(*) FROM M WHERE «length(payload, 1, 2) = 1", "length with 3 arguments", "length(x)"),
    ("SELECT count(*) FROM M WHERE byte(«link, 0) = 1", "byte over a value of type text", "a column of bytes"),
    ("SELECT count(*) FROM M WHERE byte(payload, «'a') = 1", "byte at a value of type text", "an integer"),
    ("SELECT count(*) FROM M WHERE byte(payload, -«1) = 1", "byte at -1", "0 or more"),
    ("SELECT count(*) FROM M WHERE length(«'abc') = 3", "length over a constant"),
    ("SELECT length(«payload), count(*) FROM M", "'payload' is neither grouped by nor inside an aggregate"),
    ("SELECT count(*) FROM M WHERE srcMAC = «'00:11:22:33:44'", "'00:11:22:33:44' is not a MAC address", "0011.22aa"),
    ("SELECT count(*) FROM M WHERE srcMAC IN ('00:11:22:33:44:55', «'00:11:22-33:44:55')", "is not a MAC address"),
    ("SELECT count(*) FROM M WHERE srcMAC = «1", "= between mac and integer"),
    ("SELECT sum(«srcMAC) FROM M", "sum over a value of type mac"),
    ("SELECT count(*) FROM M WHERE «interface < 'b'", "texts have no order"),
    ("SELECT «medain(len) FROM M", "unknown function", "valid: "),
    ("SELECT «lengths(len) FROM M", "unknown function", "valid: length"),
    ("SELECT «count(len, ttl) FROM M", "one argument"),
    ("SELECT count(«) FROM M", "an argument"),
    ("SELECT «sum(*) FROM M", "sum(*)"),
    ("SELECT sum(«count(*)) FROM M", "not within each other"),
    ("SELECT sum(«srcIP) FROM M", "sum over a value of type address"),
    ("SELECT sum(«link) FROM M", "sum over a value of type text"),
    ("SELECT sum(«ts) FROM M", "exceeds 64 bits", "min, max or avg"),
    ("SELECT sum(«ts + 5) FROM M", "sum(ts + 5)", "exceeds 64 bits"),
    ("SELECT sum(«ts - 5) FROM M", "sum(ts - 5)", "exceeds 64 bits"),
    ("SELECT sum(-«ts) FROM M", "exceeds 64 bits"),
    ("SELECT sum(«2 * ts) FROM M", "exceeds 64 bits"),
    ("SELECT stddev(«ts + 1) FROM M", "exceed the precision of floats"),
    ("SELECT max(«ts * ts) FROM M", "ts * ts, a product of times", "more than 64 bits", "ts * 1.0 * ts"),
    ("SELECT avg(«ts * time) FROM M", "a product of times"),
    ("SELECT sum(len) FROM M WHERE «ts * (len - ts) > 5", "a product of times"),
    ("SELECT -«ts * ts * 1.0 FROM M", "a product of times"),
    ("SELECT count(*) FROM M HAVING sum((«ts)) > 5", "min, max or avg"),
    ("SELECT avg(«link) FROM M", "avg over a value of type text"),
    ("SELECT «* FROM M GROUP BY len", "named columns, or count(*)"),
    ("SELECT count(*), «len FROM M", "'len' is neither grouped by nor inside an aggregate"),
    ("SELECT ttl + «len FROM M GROUP BY ttl", "'len' is neither"),
    ("SELECT count(*) FROM M HAVING «len > 5", "'len' is neither"),
    ("SELECT count(*) FROM M HAVING «cuont > 5", "unknown column", "valid: count, "),
    ("SELECT count(*) FROM M GROUP BY «'a'", "a constant"),
    ("SELECT count(*) AS n FROM M GROUP BY «m", "unknown column"),
    ("SELECT «count(*) AS n FROM M GROUP BY n", "the aggregate count in GROUP BY"),
    ("SELECT count(*) FROM M GROUP BY len / 100 AS «ttl", "already means something else"),
    ("SELECT count(*) AS n, sum(len) AS «N FROM M", "already taken"),
    ("SELECT count(*) AS «window_end FROM M", "already taken"),
    ("SELECT count(*) AS «and FROM M", "a name after AS"),
    ('SELECT len AS «".function 1", rank() OVER (ORDER BY len + 1) FROM M', "'.function 1' begins with a dot"),
    ('SELECT len AS «".order 1" FROM M ORDER BY ttl + 1', "names with a dot are internal columns"),
    ("SELECT count(*) AS «FROM M", "a name after AS"),
    ("SELECT srcIP «destIP FROM M", "got the column 'destIP' after an item of SELECT", "',' before a column"),
    ("SELECT srcIP, count(*) «len FROM M GROUP BY srcIP", "got the column 'len' after an item of SELECT"),
    ("SELECT srcIP a «b FROM M", "got 'b' in SELECT", "','"),
    ("SELECT count(*), «, len FROM M", "got ','"),
    ("SELECT count(*), «FROM M", "got 'FROM'"),
    ("SELECT count(*) FROM M WHERE «len", "WHERE over a value of type integer", "a condition"),
    ("SELECT count(*) FROM M HAVING «count(*)", "HAVING over a value of type integer"),
    ("SELECT count(*) FROM M WHERE len >« ", "got the end of the query in WHERE"),
    ("SELECT count(*) FROM M WHERE len > 5 «GROUP", "got 'GROUP'"),
    ("SELECT count(*) FROM M WHERE len «5", "an operator"),
    ("SELECT count(*) FROM M WHERE len > «5x", "got '5x'"),
    ("SELECT count(*) FROM M WHERE len > «= 5", "got '='"),
    ("SELECT count(*) FROM M WHERE len BETWEEN 1 «OR 2", "AND and the upper bound"),
    ("SELECT count(*) FROM M WHERE (len BETWEEN 1«) AND ttl = 2", "AND and the upper bound"),
    ("SELECT count(*) FROM M WHERE len NOT «5", "IN, BETWEEN, LIKE or ILIKE"),
    ("SELECT count(*) FROM M WHERE len = «NULL", "IS NULL"),
    ("SELECT count(*) FROM M WHERE len IS «5", "NULL or NOT NULL"),
    ("SELECT count(*) FROM M WHERE len IN «5", "a list in parentheses"),
    ("SELECT count(*) FROM M WHERE len IN («)", "got ')'"),
    ("SELECT count(*) FROM M WHERE len IN (5, «ttl)", "IN takes constants"),
    ("SELECT count(*) FROM M WHERE len IN (5, «5.5)", "type float"),
    ("SELECT count(*) FROM M WHERE len IN («'x')", "type text"),
    ("SELECT count(*) FROM M WHERE len = «'abc'", "= between integer and text"),
    ("SELECT count(*) FROM M WHERE «srcIP + 1 > 5", "+ over a value of type address"),
    ("SELECT count(*) FROM M WHERE «len AND ttl = 5", "AND over a value of type integer"),
    ("SELECT count(*) FROM M WHERE NOT «len", "NOT over a value of type integer"),
    ("SELECT count(*) FROM M WHERE len & «5.5 = 5", "& over a value of type float"),
    ("SELECT count(*) FROM M WHERE len << «64 = 5", "0 to 63"),
    ("SELECT count(*) FROM M WHERE «TRUE = TRUE", "AND, OR and NOT"),
    ("SELECT count(*) FROM M WHERE «link < 'x'", "texts have no order"),
    ("SELECT count(*) FROM M WHERE len > «9223372036854775808", "out of range"),
    ("SELECT count(*) FROM M WHERE len > «1e999", "out of range"),
    ("SELECT count(*) FROM M WHERE srcIP = «10.0.0.1", "addresses are strings"),
    ("SELECT count(*) FROM M WHERE srcIP = «'10.0.0'", "is not an address"),
    ("SELECT count(*) FROM M WHERE srcIP = «'10.0.0.0/8'", "IN to compare with a prefix"),
    ("SELECT count(*) FROM M WHERE srcIP = «'fe80::1%eth0'", "names a zone"),
    ("SELECT count(*) FROM M WHERE srcIP IN «'10.1.0.0/8'", "host bits", "'10.0.0.0/8'"),
    ("SELECT count(*) FROM M WHERE srcIP IN ('10.0.0.0/8', «'10.0.0.0/33')", "IPv4 has 0 to 32"),
    ("SELECT count(*) FROM M WHERE link = «'x", "never closed"),
    ("SELECT count(*) FROM M «/* x", "never closed"),
    ("SELECT count(*) FROM M WHERE len > «$5", "got '$' in WHERE"),
    ("SELECT count(*) FROM M WHERE " + "(" * 20 + "«(len > 5)" + ")" * 20, "nested too deeply"),
    ("SELECT count(*) FROM M WHERE «len" + " - len" * 200 + " > 5", "more than 100 levels", "a query in FROM"),
    ("SELECT avg(len + «0.5" + " + len" * 200 + ") FROM M", "a chain of 202 decimals", "at most 32"),
    ("SELECT count(*) FROM M WHERE len IN (1, «99999999999999999999, 3)", "is out of range"),
    ("SELECT count(*) FROM M WHERE len IN (1, -«9223372036854775809)", "is out of range"),
    ("SELECT count(*) FROM M WHERE len IN (1, «'a', 3)", "got a value of type"),
    ("SELECT count(*) FROM M WHERE srcIP IN ('10.0.0.1', «-5)", "got a value of type"),
    ("SELECT count(*) FROM M WHERE link = «'it''s", "never closed"),
    ("SELECT count(*) FROM M [«]", "no RANGE"),
    ("SELECT count(*) FROM M [«SLIDE 5 s]", "no RANGE"),
    ("SELECT count(*) FROM M [RANGE «ALL]", "without a SLIDE of time", "[RANGE ALL, SLIDE 1 minute]"),
    ("SELECT count(*) FROM M [RANGE ALL, SLIDE «5 rows]", "without a SLIDE of time"),
    ("SELECT count(*) FROM M [RANGE ALL, SLIDE 1 minute, CAP «0]", "a number of groups"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, SLIDE 10 rows, WA «row]", "got WA 'row'", "row-num"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, SLIDE «10 s]", "RANGE of rows and SLIDE of time"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, WA «ts]", "RANGE of rows over ts"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, «IDLE 5 s]", "IDLE without PA"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, «SPREAD]", "SPREAD together with RANGE of rows"),
    ("SELECT count(*) FROM M [RANGE «1.5 rows]", "a number of rows"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, PA «, SLIDE 5 rows]", "got PA ','"),
    ("SELECT count(*) FROM M [RANGE 1000 rows, PA «nothing]", "unknown column 'nothing'"),
    ("SELECT count(*) FROM M [«RANGE 100000 rows, SLIDE 1 row]", "make 100000 panes per window"),
    ("SELECT count(*) FROM M [«RANGE 5 minutes, RATTR ts]", "without a SLIDE of rows", "SLIDE 1 row"),
    ("SELECT count(*) FROM M [RANGE 5 minutes, SLIDE «1 s, RATTR ts]", "without a SLIDE of rows"),
    ("SELECT count(*) FROM M [RANGE 5 minutes, SLIDE 1 row, RATTR «row-num]", "got RATTR 'row'"),
    ("SELECT count(*) FROM M [RANGE 5 minutes, SLIDE 1 row, SATTR «rank]", "got SATTR 'rank'", "rank(ts)"),
    ("SELECT count(*) FROM M [RANGE 5 minutes, «PA srcIP]", "PA together with RANGE of time"),
    ("SELECT count(*) FROM M [RANGE 5 minutes, WA «row-num]", "over row-num"),
    ("SELECT count(*) FROM M [SESSION «5 rows]", "got SESSION of rows"),
    ("SELECT count(*) FROM M [SESSION 5 s, «RANGE 5 s]", "RANGE together with a session"),
    ("SELECT count(*) FROM M [RANGE 5 s, LATE «never]", "DROP or EMIT"),
    ("SELECT count(*) FROM M GROUP BY «TUMBLE(ts)", "TUMBLE with other arguments", "TUMBLE(ts, INTERVAL '1' MINUTE)"),
    ("SELECT count(*) FROM M GROUP BY TUMBLE(«len, INTERVAL '1' MINUTE)", "TUMBLE over 'len'"),
    ("SELECT count(*) FROM M GROUP BY TUMBLE(ts, «5)", "no length of time in TUMBLE"),
    ("SELECT count(*) FROM M GROUP BY TUMBLE(ts, 1 minute) «DESC", "got 'DESC' after TUMBLE"),
    ("SELECT count(*) FROM M GROUP BY TUMBLE(ts, 1 s), «HOP(ts, 1 s, 2 s)", "a second window in GROUP BY"),
    ("SELECT count(*) FROM M [RANGE 1 s] GROUP BY «TUMBLE(ts, 1 s)", "a second window, in GROUP BY"),
    ("SELECT count(*) FROM M GROUP BY «HOP(ts, 1 ms, 1 day)", "panes per window"),
    ("SELECT count(*) FROM M WHERE «window_start > 5", "unknown column 'window_start'"),
    ("SELECT count(*) FROM M HAVING «window_start > 5", "unknown column 'window_start'"),
    ("SELECT count(*) FROM M [RANGE 5 «fortnights]", "a unit of time", "valid: "),
    ("SELECT count(*) FROM M [RANGE 5«]", "a unit of time"),
    ("SELECT count(*) FROM M [RANGE «0 s]", "more than 0"),
    ("SELECT count(*) FROM M [RANGE «0.5 ns]", "not a whole number of nanoseconds"),
    ("SELECT count(*) FROM M [RANGE «99999 days]", "less than 146 years"),
    ("SELECT count(*) FROM M [«RANGE 1 day, SLIDE 1 ms]", "panes per window"),
    ("SELECT count(*) FROM M [«RANGE 10001 s, SLIDE 1 s]", "make 10001 panes per window", "at most 10000"),
    (
        "SELECT count(*) FROM M [RANGE 50000 days, SLIDE 10000 days, ORIGIN «'1830-01-01']",
        "exceed an integer of 64 bits",
        "an ORIGIN nearer 1970, or a RANGE below 510",
    ),
    ("SELECT count(*) FROM M [ORIGIN «-4611686018427387903, RANGE 20000 days]", "exceed an integer of 64 bits"),
    ("SELECT count(*) FROM M [RANGE 1 s, WA «times]", "got WA 'times'"),
    ("SELECT count(*) FROM M [RANGE 1 s, «RANGE 2 s]", "given twice"),
    ("SELECT count(*) FROM M [RANGE 1 s«,]", "got ','"),
    ("SELECT count(*) FROM M [RANGE 1 s, «SLID 2 s]", "valid: SLIDE"),
    ("SELECT count(*) FROM M [RANGE 1 s, ORIGIN «'2008-13-01']", "got ORIGIN"),
    ("SELECT count(*) FROM M [RANGE 1 s, ORIGIN «'9999-01-01']", "out of range"),
    ("SELECT count(*) [RANGE 1 s] FROM M «[RANGE 1 s]", "a second window clause"),
    ("SELECT count(*) FROM M WHERE len > 5 «[RANGE 1 s]", "after the last stream"),
    ("SELECT count(*) FROM M «[RANGE 1 s] UNION N", "after the last stream"),
    ("SELECT count(*) «[RANGE 1 s] + 1 FROM M", "after an item"),
    ("SELECT «[RANGE 1 s] count(*) FROM M", "after an item"),
    ("SELECT count(*) FROM M «[RANGE 1 s", "never closed"),
]


@pytest.mark.parametrize("marked, parts", [(row[0], row[1:]) for row in MALFORMED])
def test_a_wrong_query_is_told_where_and_why(marked: str, parts: tuple[str, ...]) -> None:
    sql = marked.replace("«", "")
    with pytest.raises(QueryError) as caught:
        compile_query(sql)
    assert caught.value.position == marked.index("«"), str(caught.value)
    for part in (*parts, "; expected "):
        assert part in str(caught.value)


def test_the_message_shows_the_line_with_a_caret_and_the_closest_names_first() -> None:
    with pytest.raises(QueryError) as caught:
        compile_query("SELECT count(*)\n\tFROM M WHERE scrIP = '10.0.0.1'")
    head, line, caret, valid = str(caught.value).split("\n")
    assert head.startswith("line 2, column 15: unknown column 'scrIP'; expected")
    assert line == "     FROM M WHERE scrIP = '10.0.0.1'"
    assert caret.index("^") == line.index("scrIP")
    assert valid.startswith("valid: srcIP, ")


def test_a_long_line_is_shown_around_the_position() -> None:
    with pytest.raises(QueryError) as caught:
        compile_query("SELECT count(*) FROM M WHERE ttl IN (" + "1, " * 500 + "x" + ", 1" * 500 + ")")
    _, line, caret, _ = str(caught.value).split("\n")
    assert len(line) <= 104
    assert line[caret.index("^")] == "x"


def test_an_error_survives_the_way_between_processes() -> None:
    with pytest.raises(QueryError) as caught:
        compile_query("SELECT count(*) FROM M WHERE scrIP = 5")
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == str(caught.value)


WORDS = """
SELECT FROM WHERE GROUP BY GROUPBY HAVING UNION AS AND OR NOT IN BETWEEN IS NULL TRUE RANGE SLIDE TUMBLING WA ORIGIN
ts minute rows ALL CASE count sum avg len srcIP vlan link M N x if date interval top . , ; ( ) [ ] + - * / % & | ^ ~
<< >> = <> < <= > ∪ 1 0x1F 2.5 1e9 9999999999999999999 '10.0.0.0/8' '10.0.0.1' 'a' "len" "y" “z” ' " /* -- $
count(*) len>5 M.len [RANGE GROUP-BY
packets frames flows samples M.flows SPREAD inner outer inner.srcIP outer. payload srcMAC x'16' x' X'' '0011.2233.4455'
length( contains( starts_with( byte( (payload, bytes octetDeltaCount e9_1
ORDER LIMIT OFFSET ASC DESC NULLS FIRST OVER PARTITION rank() lag( FILTER EXISTS WHEN THEN ELSE END LIKE ILIKE matches(
coalesce( greatest( mask( date_trunc( extract( 'minute' '%a' USING S.* (SELECT-len-FROM-N) FORM WERE == && || ` ! # 0
JOIN LEFT RIGHT FULL OUTER INNER SEMI ANTI ON LEFT_OUTER_JOIN MERGE WITH DISTINCT BOUNDARY OPEN
S S.ts S.len N.ts flag SYN time : (SELECT ts (MERGE q AS( [RANGE-1-s] [RANGE-TUMBLING-1-s] S.srcIP=N.destIP
"""
SOUP = st.lists(
    st.sampled_from([word.replace("-", " ") if word[:1] in ("[", "(") else word for word in WORDS.split()]), max_size=25
)
SOUP = SOUP.map(" ".join)
FRAMES = st.sampled_from(
    [
        "{}",
        "SELECT {} FROM M",
        "SELECT count(*) FROM M WHERE {}",
        "SELECT sum({}) FROM flows [RANGE 1 s, SPREAD]",
        "SELECT count(*) FROM frames WHERE contains({})",
        "SELECT count(*) FROM {}",
        "SELECT count(*) FROM M [{}]",
        "SELECT count(*) FROM M GROUP BY {}",
        "SELECT srcIP, sum(len) AS b FROM M GROUP BY srcIP HAVING {}",
        "SELECT {} FROM M S [RANGE 1 s], N [RANGE 2 s] WHERE S.srcIP = N.destIP",
        "SELECT S.ts, N.ts FROM M S [RANGE 1 s], N [RANGE 2 s] WHERE {}",
        "SELECT S.ts, count(*) FROM M S [RANGE 1 s] LEFT JOIN N [RANGE 2 s] ON {} GROUP BY S.ts",
        "SELECT count(*) FROM M S [RANGE 1 s], N [RANGE 2 s] GROUP BY {}",
        "SELECT * FROM M {} N [RANGE 2 s]",
        "SELECT ts FROM (MERGE {}) q",
        "WITH q AS (SELECT ts, len FROM M) SELECT {} FROM q",
        "SELECT rank() OVER ({}) FROM M",
        "SELECT CASE {} END FROM M",
        "SELECT sum(len) FILTER (WHERE {}) FROM M",
        "SELECT srcIP, count(*) FROM M GROUP BY srcIP ORDER BY {}",
        "SELECT ts FROM M WHERE EXISTS ({})",
        "SELECT DISTINCT {} FROM (SELECT ts, len, srcIP FROM M) S",
    ]
)


@settings(max_examples=1500)
@given(FRAMES, SOUP)
def test_any_soup_of_tokens_compiles_or_is_a_query_error(frame: str, soup: str) -> None:
    _compiles_or_is_refused(frame.replace("{}", soup))


@settings(max_examples=300)
@given(FRAMES, st.text(max_size=40))
def test_any_text_compiles_or_is_a_query_error(frame: str, text: str) -> None:
    _compiles_or_is_refused(frame.replace("{}", text))


def _compiles_or_is_refused(sql: str) -> None:
    refused = _refusal(sql)
    if refused is not None:
        assert 0 <= refused.position <= len(sql)
        assert refused.expected
        assert str(refused).startswith(f"line {refused.line}, column {refused.column}: ")


def _refusal(sql: str) -> QueryError | None:
    try:
        compile_query(sql, layer="inner")
    except QueryError as error:
        return error
    return None


def test_a_message_about_a_megabyte_of_text_is_short() -> None:
    for sql in (
        f"SELECT {'a' * 10**6} FROM M",
        f"SELECT {'a' * 10**6}(len) FROM M",
        f"SELECT len FROM {'a' * 10**6} WHERE vlan",
        f"SELECT count(*) FROM M WHERE srcIP = '{'a' * 10**6}'",
        f"SELECT count(*) FROM M WHERE srcIP = '{'a b ' * 10**5}'",
        f"SELECT count(*) FROM M WHERE len > {'9' * 10**6}",
    ):
        with pytest.raises(QueryError) as caught:
            compile_query(sql)
        assert len(caught.value.message) <= 401
        assert len(str(caught.value)) < 3000
