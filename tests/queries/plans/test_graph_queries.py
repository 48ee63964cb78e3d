"""GSQL to graphs, as pairs: a clause on the wrong side of a join, or about the wrong time, differs here."""

import pickle

import pytest

from highlevel.joins.spec import Boundary
from queries.gsql import compile_query
from queries.plans.table_lookup import NamedQuery
from queries.text.errors import QueryError
from tests.references.graph_shapes import shape

GRAPHS = [
    (
        "SELECT ts, srcIP FROM M WHERE len > 5",
        [
            "leaf: M rows [srcIP] len > 5",
            "apply: ts=pane, srcIP | ts < pane",
        ],
    ),
    (
        ("SELECT link, ts / 60 AS m, length(payload) AS n FROM M.frames UNION N.frames WHERE contains(payload, 'x')"),
        [
            "leaf: M+N rows [length(payload)] contains(payload, x'78')",
            "apply: link, m=pane / 60, n=length(payload) | m < pane / 6e-08 s",
        ],
    ),
    (
        "SELECT time, flag FROM M WHERE flag = SYN",
        [
            "leaf: M rows [tcp_flags] tcp_flags & 63 = 2",
            "apply: time=pane / 1000000000, flag=tcp_flags & 63 | time < pane / 1 s",
        ],
    ),
    (
        "SELECT DISTINCT time, srcIP, destIP, ip_id FROM (MERGE tap1.time : tap2.time)",
        [
            "leaf: tap1+tap2 rows [destIP ip_id srcIP]",
            "apply: time=pane / 1000000000, srcIP, destIP, ip_id | time < pane / 1 s",
            "distinct: time srcIP destIP ip_id",
        ],
    ),
    (
        "SELECT DISTINCT ts, srcIP FROM M S",
        [
            "leaf: M rows [srcIP]",
            "apply: ts=pane, srcIP | ts < pane",
            "distinct: ts srcIP",
        ],
    ),
    (
        (
            "SELECT S.ts, A.ts - S.ts AS rtt FROM syn S [RANGE 3 s, WA ts], synack A [RANGE 0 s, WA ts] "
            "WHERE S.srcIP = A.destIP AND A.srcIP = S.destIP AND S.flag = SYN AND A.len + S.len > 9"
        ),
        [
            "leaf 1: syn rows [destIP len srcIP] tcp_flags & 63 = 2",
            "leaf 2: synack rows [destIP len srcIP]",
            "join: leaf 1.pane INNER leaf 2.pane, 0..3 s, left",
            "keys srcIP = destIP, destIP = srcIP",
            "pairs A.len + S.len > 9",
            "gives S.ts S.destIP S.len S.srcIP A.ts A.destIP A.len A.srcIP",
            "apply: ts=S.ts, rtt=A.ts - S.ts | ts < S.ts",
        ],
    ),
    (
        (
            "SELECT Main1.srcIP, Main2.srcIP, Main2.ts FROM Main1, Main2 [RANGE TUMBLING 5 minutes, WA "
            "ts], WHERE Main1.srcIP = Main2.destIP"
        ),
        [
            "leaf 1: Main1 rows [srcIP]",
            "leaf 2: Main2 rows [destIP srcIP]",
            "join: leaf 1.pane INNER leaf 2.pane, tumbling 300 s, right",
            "keys srcIP = destIP",
            "gives Main1.ts Main1.srcIP Main2.ts Main2.destIP Main2.srcIP",
            "apply: Main1.srcIP, Main2.srcIP, ts=Main2.ts | ts < Main2.ts",
        ],
    ),
    (
        (
            "SELECT a.srcIP, b.len FROM a [RANGE 1 s] LEFT JOIN b [RANGE 2 s] ON a.srcIP = b.srcIP AND "
            "b.len > 5 AND a.len > 6 WHERE a.ttl = 1 AND b.ttl IS NULL"
        ),
        [
            "leaf 1: a rows [len srcIP] ttl = 1",
            "leaf 2: b rows [len srcIP ttl] len > 5",
            "join: leaf 1.pane LEFT leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "pairs a.len > 6",
            "gives a.ts a.len a.srcIP b.ts b.len b.srcIP b.ttl",
            "filter: b.ttl IS NULL",
            "apply: srcIP=a.srcIP, len=b.len",
        ],
    ),
    (
        (
            "SELECT a.srcIP, b.len FROM a [RANGE 1 s] RIGHT JOIN b [RANGE 2 s] ON a.srcIP = b.srcIP AND "
            "b.len > 5 AND a.len > 6 WHERE a.ttl = 1 AND b.ttl = 7"
        ),
        [
            "leaf 1: a rows [srcIP ttl] len > 6",
            "leaf 2: b rows [len srcIP] ttl = 7",
            "join: leaf 1.pane RIGHT leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "pairs b.len > 5",
            "gives a.ts a.srcIP a.ttl b.ts b.len b.srcIP",
            "filter: a.ttl = 1",
            "apply: srcIP=a.srcIP, len=b.len",
        ],
    ),
    (
        ("SELECT a.ts FROM a [RANGE 1 s] FULL JOIN b [RANGE 2 s] ON a.srcIP = b.srcIP AND b.len > 5 WHERE a.ttl = 1"),
        [
            "leaf 1: a rows [srcIP ttl]",
            "leaf 2: b rows [len srcIP]",
            "join: leaf 1.pane FULL leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "pairs b.len > 5",
            "gives a.ts a.srcIP a.ttl b.ts b.len b.srcIP",
            "filter: a.ttl = 1",
            "apply: ts=a.ts",
        ],
    ),
    (
        (
            "SELECT ts FROM a [RANGE 1 s] SEMI JOIN b [RANGE 2 s] ON a.srcIP = b.srcIP AND b.len > 5 AND "
            "a.len > 6 WHERE ttl = 1"
        ),
        [
            "leaf 1: a rows [srcIP] len > 6 AND ttl = 1",
            "leaf 2: b rows [srcIP] len > 5",
            "join: leaf 1.pane SEMI leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "gives a.ts a.srcIP",
            "apply: ts=a.ts | ts < a.ts",
        ],
    ),
    (
        (
            "SELECT ts FROM a [RANGE 1 s] ANTI JOIN b [RANGE 2 s] ON a.srcIP = b.srcIP AND b.len > 5 AND "
            "a.len > 6 WHERE ttl = 1"
        ),
        [
            "leaf 1: a rows [len srcIP] ttl = 1",
            "leaf 2: b rows [srcIP] len > 5",
            "join: leaf 1.pane ANTI leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "pairs a.len > 6",
            "gives a.ts a.len a.srcIP",
            "apply: ts=a.ts | ts < a.ts",
        ],
    ),
    (
        (
            "SELECT S.destIP FROM syn S [RANGE 3 s] LEFT_OUTER_JOIN synack A [RANGE 0 s] WHERE S.srcIP = "
            "A.destIP AND S.len > 1 AND A.srcIP IS NULL"
        ),
        [
            "leaf 1: syn rows [destIP srcIP] len > 1",
            "leaf 2: synack rows [destIP srcIP]",
            "join: leaf 1.pane LEFT leaf 2.pane, 0..3 s, left",
            "keys srcIP = destIP",
            "gives S.ts S.destIP S.srcIP A.ts A.destIP A.srcIP",
            "filter: A.srcIP IS NULL",
            "apply: destIP=S.destIP",
        ],
    ),
    (
        (
            "SELECT a.ts, c.ts FROM a [RANGE 1 s], b [RANGE 2 s], c [RANGE 3 s] WHERE a.srcIP = b.srcIP "
            "AND b.destIP = c.destIP AND a.len < c.len"
        ),
        [
            "leaf 1: a rows [len srcIP]",
            "leaf 2: b rows [destIP srcIP]",
            "join 1: leaf 1.pane INNER leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "gives a.ts a.len a.srcIP b.ts b.destIP b.srcIP",
            "leaf 3: c rows [destIP len]",
            "join 2: join 1.a.ts INNER leaf 3.pane, -3..1 s, left",
            "keys b.destIP = destIP",
            "pairs a.len < c.len AND (c.ts - b.ts >= -3000000000 AND c.ts - b.ts <= 2000000000)",
            "gives a.ts a.len a.srcIP b.ts b.destIP b.srcIP c.ts c.destIP c.len",
            "apply: a.ts, c.ts | a.ts < a.ts",
        ],
    ),
    (
        "SELECT count(*) FROM a [RANGE 1 s], b [RANGE 2 s, BOUNDARY OPEN] GROUP BY b.ts/60, a.srcIP",
        [
            "leaf 1: a rows [srcIP]",
            "leaf 2: b rows []",
            "join: leaf 1.pane INNER leaf 2.pane, -2..1 s, right",
            "gives a.ts a.srcIP b.ts",
            "windowed: 60/60 s of b.ts [k0=a.srcIP]",
        ],
    ),
    (
        (
            "SELECT A.ts/60 AS m, B.time, count(*) FROM A [RANGE 1 s], B [RANGE 2 s, BOUNDARY HALF-OPEN] "
            "GROUP BY A.ts/60, B.time"
        ),
        [
            "leaf 1: A rows []",
            "leaf 2: B rows []",
            "join: leaf 1.pane INNER leaf 2.pane, -2..1 s, joint",
            "gives A.ts B.ts",
            "timegroups: A.ts/60000000000=k0, B.ts/1000000000=k1 [k0=A.ts / 60000000000 k1=B.ts / 1000000000]",
        ],
    ),
    (
        ("SELECT A.ts, count(*) FROM A [RANGE 1 s] LEFT JOIN B [RANGE 2 s] ON A.srcIP = B.srcIP GROUP BY A.ts, B.ts"),
        [
            "leaf 1: A rows [srcIP]",
            "leaf 2: B rows [srcIP]",
            "join: leaf 1.pane LEFT leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "gives A.ts A.srcIP B.ts B.srcIP",
            "timegroups: A.ts/1=k0 [k0=A.ts k1=B.ts]",
        ],
    ),
    (
        (
            "SELECT B.ts/60 AS m, count(*) FROM A [RANGE 1 s] LEFT JOIN B [RANGE 2 s] ON A.srcIP = B.srcIP "
            "GROUP BY A.ts/5, B.ts/60"
        ),
        [
            "leaf 1: A rows [srcIP]",
            "leaf 2: B rows [srcIP]",
            "join: leaf 1.pane LEFT leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "gives A.ts A.srcIP B.ts B.srcIP",
            "windowed: 5/5 s of A.ts [k0=B.ts / 60000000000]",
        ],
    ),
    (
        "SELECT count(*) FROM A [RANGE 1 s] FULL JOIN B [RANGE 2 s] ON A.srcIP = B.srcIP GROUP BY A.ts/60",
        [
            "leaf 1: A rows [srcIP]",
            "leaf 2: B rows [srcIP]",
            "join: leaf 1.pane FULL leaf 2.pane, -2..1 s, left",
            "keys srcIP = srcIP",
            "gives A.ts A.srcIP B.ts B.srcIP",
            "windowed: all [k0=A.ts / 60000000000]",
        ],
    ),
    (
        "SELECT sum(a.len) FROM a [RANGE 1 s], b [RANGE 2 s]",
        [
            "leaf 1: a rows [len]",
            "leaf 2: b rows []",
            "join: leaf 1.pane INNER leaf 2.pane, -2..1 s, left",
            "gives a.ts a.len b.ts",
            "windowed: all []",
        ],
    ),
    (
        (
            "SELECT tb, sum(n) FROM (SELECT srcIP, count(*) AS n FROM M [RANGE 10 s, SLIDE 5 s] GROUP BY "
            "srcIP) q GROUP BY ts/60 AS tb"
        ),
        [
            "leaf: M panes 5 s [k0]",
            "windowed 1: 10/5 s of pane [k0=srcIP]",
            "apply: ts=window_start, window_start, window_end, srcIP, n | ts < window_end - 10 s",
            "windowed 2: 60/60 s of ts []",
        ],
    ),
    (
        (
            "SELECT count(*) [RANGE 1 minute, WA window_end] FROM (SELECT srcIP, count(*) AS n FROM M "
            "[RANGE 10 s, SLIDE 5 s] GROUP BY srcIP)"
        ),
        [
            "leaf: M panes 5 s [k0]",
            "windowed 1: 10/5 s of pane [k0=srcIP]",
            "apply: ts=window_start, window_start, window_end, srcIP, n | window_end < window_end",
            "windowed 2: 60/60 s of window_end []",
        ],
    ),
    (
        (
            "WITH syn AS (SELECT ts, srcIP, destIP FROM M WHERE flag = SYN), ack AS (SELECT * FROM syn) "
            "SELECT s.ts, a.ts FROM syn s [RANGE 1 s], ack a [RANGE 0 s] WHERE s.srcIP = a.destIP"
        ),
        [
            "leaf: M rows [destIP srcIP] tcp_flags & 63 = 2",
            "apply 1: ts=pane, srcIP, destIP | ts < pane",
            "apply 2: ts, srcIP, destIP | ts < ts",
            "join: apply 1.ts INNER apply 2.ts, 0..1 s, left",
            "keys srcIP = destIP",
            "gives s.ts s.srcIP a.ts a.destIP",
            "apply 3: s.ts, a.ts | s.ts < s.ts",
        ],
    ),
    (
        "SELECT count(*) [RANGE 1 minute] FROM (SELECT ts, srcIP FROM M) UNION N UNION (MERGE x.ts : y.ts)",
        [
            "leaf 1: M rows [srcIP]",
            "apply 1: ts=pane, srcIP | ts < pane",
            "apply 2: ts, srcIP | ts < ts",
            "leaf 2: N+x+y rows [srcIP]",
            "apply 3: ts=pane, srcIP | ts < pane",
            "union: apply 2 apply 3",
            "windowed: 60/60 s of ts []",
        ],
    ),
    (
        "SELECT ts/60/1000000000 AS m FROM (SELECT * FROM M)",
        [
            (
                "leaf: M rows [caplen destIP destMAC destPort ethertype fragment_offset icmp_code "
                "icmp_type interface ip_id ip_len ip_version len more_fragments mpls protocol srcIP "
                "srcMAC srcPort tcp_ack tcp_flags tcp_seq tcp_window tos ttl tunnel_id tunnels vlan]"
            ),
            (
                "apply 1: ts=pane, link, interface, srcIP, destIP, srcPort, destPort, protocol, "
                "ip_version, len, caplen, ip_len, ttl, tos, ip_id, fragment_offset, more_fragments, "
                "tcp_flags, tcp_seq, tcp_ack, tcp_window, icmp_type, icmp_code, vlan, mpls, ethertype, "
                "srcMAC, destMAC, tunnels, tunnel_id | ts < pane"
            ),
            "apply 2: m=ts / 60 / 1000000000 | m < ts / 60 s",
        ],
    ),
    (
        (
            "SELECT A.srcIP, B.srcIP FROM A UNION C A, B [RANGE TUMBLING 1 s, ORIGIN 5] WHERE A.ts < B.ts"
            " OR A.len = 1 AND B.len = 2 OR A.len = 3"
        ),
        [
            "leaf 1: A+C rows [len srcIP]",
            "leaf 2: B rows [len srcIP]",
            "join: leaf 1.pane INNER leaf 2.pane, tumbling 1 s, left",
            "pairs A.ts < B.ts OR A.len = 1 AND B.len = 2 OR A.len = 3",
            "gives A.ts A.len A.srcIP B.ts B.len B.srcIP",
            "apply: A.srcIP, B.srcIP",
        ],
    ),
    (
        (
            "SELECT s.link FROM flows f [RANGE 1 s] JOIN samples s [RANGE 0 s, WA s.ts] ON f.srcIP = "
            "s.srcIP AND f.bytes = s.len * 2"
        ),
        [
            "leaf 1: flows rows [bytes srcIP]",
            "leaf 2: samples rows [len srcIP]",
            "join: leaf 1.pane INNER leaf 2.pane, 0..1 s, left",
            "keys srcIP = srcIP, bytes = len * 2",
            "gives f.ts f.bytes f.srcIP s.ts s.link s.len s.srcIP",
            "apply: link=s.link",
        ],
    ),
    (
        (
            "SELECT a.n FROM (SELECT x.ts, x.srcIP, count(*) AS n FROM x [RANGE 1 s] , y [RANGE 1 s] "
            "GROUP BY x.ts, x.srcIP) a [RANGE 1 s], z [RANGE 1 s] WHERE a.srcIP = z.srcIP"
        ),
        [
            "leaf 1: x rows [srcIP]",
            "leaf 2: y rows []",
            "join 1: leaf 1.pane INNER leaf 2.pane, -1..1 s, left",
            "gives x.ts x.srcIP y.ts",
            "timegroups: x.ts/1=k0 [k0=x.ts k1=x.srcIP]",
            "leaf 3: z rows [srcIP]",
            "join 2: timegroups.ts INNER leaf 3.pane, -1..1 s, left",
            "keys srcIP = srcIP",
            "gives a.ts a.srcIP a.n z.ts z.srcIP",
            "apply: n=a.n",
        ],
    ),
    (
        (
            "SELECT a.ts FROM a [RANGE 1 s] RIGHT JOIN b [RANGE 1 s] ON a.len = b.len LEFT JOIN c [RANGE "
            "1 s] ON c.len = b.len"
        ),
        [
            "leaf 1: a rows [len]",
            "leaf 2: b rows [len]",
            "join 1: leaf 1.pane RIGHT leaf 2.pane, -1..1 s, right",
            "keys len = len",
            "gives a.ts a.len b.ts b.len",
            "leaf 3: c rows [len]",
            "join 2: join 1.b.ts LEFT leaf 3.pane, -1..1 s, left",
            "keys b.len = len",
            "pairs a.ts IS NULL OR c.ts - a.ts >= -1000000000 AND c.ts - a.ts <= 1000000000",
            "gives a.ts a.len b.ts b.len c.ts c.len",
            "apply: ts=a.ts",
        ],
    ),
]


@pytest.mark.parametrize("sql, expected", GRAPHS)
def test_a_query_is_a_graph_of_these_nodes(sql: str, expected: list[str]) -> None:
    assert shape(sql) == expected
    plan = compile_query(sql)
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_groups_of_links_stay_the_plans_they_were() -> None:
    plans = [
        compile_query(sql)
        for sql in (
            "SELECT srcIP, count(*) FROM a UNION b [RANGE 1 minute] GROUP BY srcIP",
            "SELECT S.srcIP, count(*) [RANGE 1 minute, WA S.ts] FROM a UNION b AS S GROUP BY S.srcIP",
            "SELECT x.srcIP, count(*) FROM (MERGE a.ts : b.time) x GROUP BY srcIP, TUMBLE(x.ts, 1 minute)",
            "SELECT srcIP, count(*) FROM (MERGE m.ts : n.ts FROM a m, b n) GROUP BY srcIP, ts/60",
        )
    ]
    assert all(plan.scan is not None for plan in plans)
    assert len({(plan.leaves[0].low, plan.window, plan.streams, plan.aggregation.select) for plan in plans}) == 1


def test_boundaries_of_a_band_are_those_that_are_asked_for() -> None:
    sql = "SELECT a.ts FROM a [RANGE 3 s], b [RANGE 2 s{}]"
    for text, boundary in (
        ("", Boundary.CLOSED),
        (", BOUNDARY CLOSED", Boundary.CLOSED),
        (" BOUNDARY HALF-OPEN", Boundary.HALF_OPEN),
        (", BOUNDARY half_open, WA ts", Boundary.HALF_OPEN),
        (", BOUNDARY OPEN", Boundary.OPEN),
    ):
        plan = compile_query(sql.format(text))
        (join,) = [node for node in plan.nodes if hasattr(node, "spec")]
        assert join.spec.window.boundary is boundary, text
    both = compile_query("SELECT a.ts FROM a [RANGE 3 s, BOUNDARY OPEN], b [RANGE 2 s]")
    (join,) = [node for node in both.nodes if hasattr(node, "spec")]
    assert join.spec.window.boundary is Boundary.OPEN


def test_what_two_branches_read_is_one_node() -> None:
    nodes = compile_query(
        "WITH q AS (SELECT ts, srcIP, destIP FROM M WHERE len > 9) "
        "SELECT a.ts, b.ts FROM q a [RANGE 1 s], q b [RANGE 1 s] WHERE a.srcIP = b.destIP"
    ).nodes
    assert [type(node).__name__ for node in nodes] == ["Leaf", "Apply", "Join", "Apply"]
    (join,) = [node for node in nodes if hasattr(node, "spec")]
    assert join.left == join.right


def test_queries_that_stand_beside_each_other_are_read_by_name() -> None:
    queries = {
        "hours": NamedQuery("SELECT sum(n) AS n FROM Minutes [RANGE 1 hour]"),
        "minutes": NamedQuery("SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] GROUP BY srcIP", "inner"),
    }
    plan = compile_query(queries["hours"].sql, "hours", queries=queries, links=["M"])
    assert [type(node).__name__ for node in plan.nodes] == ["Leaf", "Windowed", "Apply", "Windowed"]
    (leaf,) = plan.leaves
    assert (leaf.name, leaf.streams, leaf.layer) == ("hours", ("M",), "inner")
    assert {column.name for tree in leaf.low.trees for column in [tree]} == {"inner.srcIP"}


WRONG_NAMES = {
    "a": "SELECT ts FROM b",
    "b": "SELECT ts FROM C",
    "c": "SELECT ts FROM a",
    "self": "SELECT ts FROM SELF",
    "reader": "SELECT ts FROM lost",
    "lost": "SELECT ts FROM nowhere",
    "broken": "SELECT ts FROM wrong",
    "wrong": "SELECT ts, lenn FROM M",
}


@pytest.mark.parametrize(
    "name, parts",
    [
        ("a", ["a query that reads itself: a reads b, which reads c, which reads a", "in the query"]),
        ("self", ["a query that reads itself: self reads self"]),
        ("reader", ["in the query lost, which reader reads: 'nowhere' is neither a link nor a query", "valid: "]),
        ("broken", ["in the query wrong, which broken reads: unknown column 'lenn'", "line 1, column 12"]),
    ],
)
def test_what_is_wrong_with_a_query_that_is_read_is_told_with_the_path(name: str, parts: list[str]) -> None:
    queries = {each: NamedQuery(sql) for each, sql in WRONG_NAMES.items()}
    with pytest.raises(QueryError) as caught:
        compile_query(WRONG_NAMES[name], name, queries=queries, links=["M"])
    for part in parts:
        assert part in str(caught.value)
