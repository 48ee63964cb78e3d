"""The complete explanation of a plan. Every query of the catalogue compiles and can be explained."""

import pytest

from queries.catalogue.catalogue import CATALOGUE
from queries.explain.plan import explain
from queries.gsql import compile_query, compile_tree
from queries.plans.evidence import packets_of, with_distinct_rows
from queries.text.parser import parse_query

SLIDING = """\
query q: SELECT destIP, sum(len) / count(*) AS mean FROM Main1 UNION Main2 [RANGE 5 minutes, SLIDE 2 minutes, WA ts] \
WHERE protocol = 6 AND srcIP IN '10.0.0.0/8' GROUP BY destIP, destPort, link HAVING count(*) > 9

low level: next to the packets, once per link, in a table of fixed size
  streams         Main1 UNION Main2: the files bound to each name; every link separately
  rows            packets: each is an IP packet
  layer           outer, for names of columns that do not begin with inner.
  columns         destIP, destPort, len, protocol, srcIP, ts: only these are decoded
  keep            protocol = 6 AND srcIP IN '10.0.0.0/8', before the row is stored
  key             k0 = destIP: 32 bits for IPv4, 128 for IPv6, in separate tables
  key             k1 = destPort: 17 bits, NULL included
  key words       1 of 64 bits for IPv4, 3 for IPv6
  keep per group  s0 = sum(len)
  keep per group  s1 = count(*)
  pane            1 minute: the largest common divisor of RANGE and SLIDE; each row is counted once

high level: over partials, in any order of arrival, until punctuation closes a window
  windows         sliding, RANGE 5 minutes, SLIDE 2 minutes, from the epoch
  roll up         5 panes per window, each row in 2 or 3 windows
  by cost         running totals: panes that come in are added, panes that go out subtracted; small windows are merged
  meld            2 streams: the watermark is the minimum of the links
  group by        k0 = destIP, k1 = destPort, link
  merge           s0 by sum
  merge           s1 by sum
  having          s1 > 9
  output          window_start, window_end: ns since the epoch, half-open
  output          destIP = k0 (address)
  output          mean = s0 / s1 (integer)"""


def test_explain_shows_both_levels_and_the_reasons() -> None:
    sql = SLIDING.split("\n", 1)[0].removeprefix("query q: ")
    assert explain(compile_query(sql, "q")) == SLIDING


def test_explain_says_when_a_query_without_a_window_answers() -> None:
    text = explain(compile_query("SELECT avg(vlan)\n FROM M"))
    assert text.startswith("query query: SELECT avg(vlan) FROM M\n")
    assert "streams         M: the files bound to it\n" in text
    assert "meld" not in text
    assert "pane            the whole input" in text
    assert "group by        none: one row per window, no row for a window without packets" in text
    assert "output          avg_vlan = mean(s0, s1) (float)" in text
    assert "window_start" not in text


def test_explain_names_the_kind_of_rows_and_what_plain_names_mean() -> None:
    sql = "SELECT outer.srcIP, srcMAC, interface, count(*) FROM Gate.frames GROUP BY outer.srcIP, srcMAC, interface"
    lines = explain(compile_query(sql, layer="inner")).split("\n")
    assert lines[2:10] == [
        "low level: next to the frames, once per link, in a table of fixed size",
        "  streams         Gate: the files bound to it",
        "  rows            frames: each is a record of a capture",
        "  layer           inner, for names of columns that do not begin with outer.",
        "  columns         inner.srcMAC, interface, srcIP, ts: only these are decoded",
        "  keep            every row",
        "  key             k0 = srcIP: 32 bits for IPv4, 128 for IPv6, none for NULL, in separate tables",
        "  key             k1 = inner.srcMAC: 49 bits, NULL included",
    ]
    assert "  key             k2 = interface: 32 bits, the number of the text" in lines


def test_explain_says_how_flows_are_spread() -> None:
    lines = explain(compile_query("SELECT sum(bytes) FROM flows [RANGE 1 minute, SPREAD]")).split("\n")
    assert "  streams         flows: the files of every link, or of the link with this name" in lines
    assert "  rows            flows: each is a flow record" in lines
    assert not any(line.startswith("  layer") for line in lines)
    assert "  columns         bytes, start_ts, ts: only these are decoded" in lines
    assert "  spread          counters of a row are divided among the panes from its start_ts to its end_ts" in lines


def test_explain_says_what_sessions_and_landmark_windows_are_made_of() -> None:
    lines = explain(compile_query("SELECT srcIP, count(*) FROM M [SESSION 30 seconds] GROUP BY srcIP")).split("\n")
    assert [line for line in lines if line.split()[0:1] in (["pane"], ["windows"], ["roll"])] == [
        "  pane            30 seconds: the gap; rows of a group less than the gap apart are in one session",
        "  windows         sessions of each group, ended by 30 seconds without a row",
        "  roll up         intervals from the first ts to the last; intervals less than the gap apart are merged",
    ]
    assert lines.count("  keep per group  s1 = min(ts)") == lines.count("  keep per group  s2 = max(ts)") == 1
    lines = explain(compile_query("SELECT count(*) FROM M [RANGE ALL, SLIDE 1 minute, CAP 5000]")).split("\n")
    assert [line for line in lines if line.split()[0:1] in (["pane"], ["windows"], ["roll"])] == [
        "  pane            1 minute: the SLIDE; running totals add one slide at a time",
        "  windows         landmark, all since the epoch, SLIDE 1 minute",
        "  roll up         running totals of up to 5,000 groups, written for each slide with rows",
    ]


@pytest.mark.usefixtures("indicators")
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_ready_query_is_explained(name: str) -> None:
    assert explain(compile_query(CATALOGUE[name].sql(), name)).startswith(f"query {name}: ")


JOINED = (
    "SELECT S.destIP, count(*) AS n [RANGE 1 minute, WA S.ts] FROM syn S [RANGE 3 s, WA ts] LEFT JOIN "
    "synack A [RANGE 0 s] ON S.srcIP = A.destIP AND S.len < A.len WHERE S.ttl > 9 AND A.srcIP IS NULL "
    "GROUP BY S.destIP"
)
JOINED_TEXT = """\
query q: SELECT S.destIP, count(*) AS n [RANGE 1 minute, WA S.ts] FROM syn S [RANGE 3 s, WA ts] LEFT JOIN synack A \
[RANGE 0 s] ON S.srcIP = A.destIP AND S.len < A.len WHERE S.ttl > 9 AND A.srcIP IS NULL GROUP BY S.destIP

graph: 5 nodes, of which 2 run next to the packets; rows in any order of arrival, until a watermark covers them

leaf 1: low level, next to the packets, once per link, and each row that passes WHERE is passed on unchanged
  streams         syn: the files bound to each name; every link separately
  rows            packets: each is an IP packet
  columns         destIP, len, srcIP, ts, ttl: only these are decoded
  keep            ttl > 9, before the row is stored
  passes on       ts, destIP, len, srcIP
  watermark       ts

leaf 2: low level, next to the packets, once per link, and each row that passes WHERE is passed on unchanged
  streams         synack: the files bound to each name; every link separately
  rows            packets: each is an IP packet
  columns         destIP, len, srcIP, ts: only these are decoded
  keep            every row
  passes on       ts, destIP, len, srcIP
  watermark       ts

join: over leaf 1, leaf 2
  kind            LEFT: pairs that match, and left rows without a match, once no match can arrive; left is leaf \
1, right leaf 2
  window          A.ts - S.ts from 0 to 3 seconds, both included (CLOSED [-R1, R0])
  state           left rows until the watermark of A.ts is 3 seconds later than their S.ts,
                  right rows until the watermark of S.ts is later than their A.ts
  key             srcIP of the left = destIP of the right
  of pairs        S.len < A.len
  columns         S.ts, S.destIP, S.len, S.srcIP, A.ts, A.destIP, A.len, A.srcIP
  watermark       S.ts, for filter

filter: over join
  keep            A.srcIP IS NULL
  watermark       S.ts

windowed: over filter
  time            S.ts
  key             k0 = S.destIP
  of each row     s0 = count(*)
  windows         tumbling, RANGE 1 minute, SLIDE 1 minute, from the epoch
  group by        k0 = S.destIP
  merge           s0 by sum
  output          window_start, window_end: ns since the epoch, half-open
  output          destIP = k0 (address)
  output          n = s0 (integer)
  watermark       window_end"""


PAIRS = "SELECT a.ts, b.ts, max(b.len) FROM a [RANGE 1 s], b [RANGE 1 s, BOUNDARY HALF-OPEN] GROUP BY a.ts, b.ts"
PAIRS_TEXT = """\
query q: SELECT a.ts, b.ts, max(b.len) FROM a [RANGE 1 s], b [RANGE 1 s, BOUNDARY HALF-OPEN] GROUP BY a.ts, b.ts

graph: 4 nodes, of which 2 run next to the packets; rows in any order of arrival, until a watermark covers them

leaf 1: low level, next to the packets, once per link, and each row that passes WHERE is passed on unchanged
  streams         a: the files bound to each name; every link separately
  rows            packets: each is an IP packet
  columns         ts: only these are decoded
  keep            every row
  passes on       ts
  watermark       ts

leaf 2: low level, next to the packets, once per link, and each row that passes WHERE is passed on unchanged
  streams         b: the files bound to each name; every link separately
  rows            packets: each is an IP packet
  columns         len, ts: only these are decoded
  keep            every row
  passes on       ts, len
  watermark       ts

join: over leaf 1, leaf 2
  kind            INNER: pairs that match; left is leaf 1, right leaf 2
  window          b.ts - a.ts from -1 second to 999999999 ns, both included (HALF-OPEN [-R1, R0))
  state           left rows until the watermark of b.ts is 999999999 ns later than their a.ts,
                  right rows until the watermark of a.ts is 1 second later than their b.ts
  key             none: every row is compared with every row of the other side in its window
  columns         a.ts, b.ts, b.len
  watermark       a.ts and b.ts, joint: a group is written once a joint watermark covers both times

timegroups: over join
  key             k0 = a.ts
  key             k1 = b.ts
  of each row     s0 = max(b.len)
  output          a.ts = k0 (time)
  output          b.ts = k1 (time)
  output          max_len = s0 (integer)
  state           a group until the joint watermark of a.ts and b.ts covers it
  watermark       a.ts and b.ts"""


@pytest.mark.parametrize("sql, text", [(JOINED, JOINED_TEXT), (PAIRS, PAIRS_TEXT)])
def test_a_graph_is_told_node_by_node(sql: str, text: str) -> None:
    assert explain(compile_query(sql, "q")) == text


@pytest.mark.parametrize(
    "sql, parts",
    [
        ("SELECT a.ts FROM a, b [RANGE TUMBLING 5 s]", ["a.ts and b.ts in the same 5 seconds, tumbling"]),
        (
            "SELECT DISTINCT time FROM M",
            [
                "of which 1 runs next to the packets",
                "time = ts / 1000000000",
                "the first row of each time",
                "keys, until the watermark of time is later",
            ],
        ),
        (
            "SELECT ts FROM (SELECT ts FROM M) UNION N",
            ["the watermark is the minimum of the inputs", "unchanged       ts"],
        ),
        ("SELECT count(*) FROM (SELECT len FROM M)", ["none: the whole input is one window", "none before the end"]),
        (
            "SELECT sum(n) FROM (SELECT srcIP, count(*) AS n FROM M [RANGE 1 s] GROUP BY srcIP) [RANGE 1 hour]",
            [
                "leaf: low level, next to the packets, once per link, in a table of fixed size",
                "window_start, window_end",
            ],
        ),
        (
            "SELECT ts FROM a [RANGE 1 s] ANTI JOIN b [RANGE 1 s] ON a.len = b.len",
            ["left rows without a match"],
        ),
        (
            "SELECT srcIP, sum(len) AS b FROM M [RANGE 1 s] GROUP BY srcIP ORDER BY b DESC, count(*) LIMIT 2 OFFSET 3",
            [
                "order           b DESC, .order 1, then the other columns, in each window",
                "keys only       .order 1",
                "limit           2 rows per window, after the first 3",
                "the first rows, until the watermark of window_end",
            ],
        ),
        ("SELECT ts FROM M ORDER BY len NULLS FIRST", ["order           .order 1 NULLS FIRST", "the end of the input"]),
        (
            "SELECT len, sum(ttl) / sum(sum(ttl)) OVER () AS s, lag(len, 2) OVER (ORDER BY len) FROM M GROUP BY 1",
            [
                "function        .function 1 = sum(.over",
                ") OVER ()",
                "function        .function 2 = lag(len, 2) OVER (ORDER BY len)",
                "all rows, until the end of the input",
            ],
        ),
        ("SELECT ts FROM M LIMIT 5", ["limit           5 rows", "none: any rows are the first ones"]),
        ("SELECT ts FROM M OFFSET 5", ["offset          without the first 5 rows"]),
    ],
)
def test_each_kind_of_node_is_told(sql: str, parts: list[str]) -> None:
    told = explain(compile_query(sql))
    for part in parts:
        assert part in told


@pytest.mark.parametrize(
    "kind, results",
    [
        ("", "INNER: pairs, true while both rows are true"),
        ("LEFT", "LEFT: pairs, true while both rows are true, and left rows while they have no match"),
        ("RIGHT", "RIGHT: pairs, true while both rows are true, and right rows while they have no match"),
        ("FULL", "FULL: pairs, true while both rows are true, and rows of both sides while they have no match"),
        ("SEMI", "SEMI: left rows while they have a match"),
        ("ANTI", "ANTI: left rows while they have no match"),
    ],
)
def test_each_kind_of_join_of_lifetimes_is_told(kind: str, results: str) -> None:
    told = explain(
        compile_query(
            f"SELECT window_start, a.srcIP FROM flows [LIFETIME start_ts TO end_ts] AS a {kind} JOIN "
            "packets [LIFETIME 5 minutes] AS b ON a.srcIP = b.srcIP AND a.bytes > b.len"
        )
    )
    assert f"{results}; left is leaf 1, right leaf 2" in told
    assert "a row of the left is true from start_ts until end_ts" in told
    assert "a row of the right is true from ts until 5 minutes later" in told
    assert "srcIP of the left = srcIP of the right" in told
    # The condition of pairs determines which rows have a match, except for INNER.
    assert ("of pairs        a.bytes > b.len" in told) == bool(kind)
    assert ("keep            a.bytes > b.len" in told) == (not kind)


@pytest.mark.parametrize(
    "where, results", [("", "results         all"), (" WHERE n > 1", "results         those with n > 1")]
)
def test_the_rows_of_an_automaton_that_are_returned_once_are_told(where: str, results: str) -> None:
    sql = f"""SELECT n FROM (SELECT ts, len FROM packets) AUTOMATON (
        ORDER BY ts REGISTER n INT DEFAULT 0 START s FINAL e
        ARC s TO m SET n = 1 ARC m TO m WHEN len > 5 SET n = n + 1 ARC m TO e){where}"""
    told = explain(with_distinct_rows(compile_tree(packets_of(parse_query(sql)), "packets")))
    assert results in told
    assert "its first and last row: each row once" in told
    assert "which of them were returned" in told
