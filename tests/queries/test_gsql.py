"""GSQL to plans, as pairs of text: a clause that runs wrong, or on the wrong level, differs in one line here."""

import pickle

import pytest

from highlevel.plan.plan import Plan
from highlevel.windows.kind import WHOLE_INPUT, SlidingWindow
from lowlevel.expressions.address_constants import Prefix
from lowlevel.expressions.tree import Binary, Column, Expression, InPrefix, Literal, Mean, Present
from lowlevel.expressions.types import Op, Type
from queries.gsql import compile_query
from queries.text.printer import expression_text

SECOND = 10**9
MINUTE = 60 * SECOND


def parts(plan: Plan) -> str:
    """The plan on one line: WHERE | keys | sub-aggregates | groups | HAVING | select list."""
    low = plan.leaves[0].low

    def text(tree: Expression | None) -> str:
        return "" if tree is None else expression_text(tree)

    words = [f"{sub.name}={sub.kind}({text(sub.argument) or '*'})" for sub in low.subaggregates]
    return " | ".join(
        [
            text(low.where),
            " ".join(f"{key.name}={text(key.expression)}" for key in low.keys),
            " ".join(words),
            " ".join(plan.aggregation.group_by),
            text(plan.aggregation.having),
            " ".join(f"{out.name}={text(out.expression)}" for out in plan.aggregation.select),
        ]
    )


PAIRS = [
    # aggregates are split by the table of lowlevel.subaggregates
    ("count(*) FROM M", " |  | s0=count(*) |  |  | count=s0"),
    ("count(1) FROM M", " |  | s0=count(*) |  |  | column_1=s0"),
    ("count(len) FROM M", " |  | s0=count(*) |  |  | count_len=s0"),
    ("count(vlan) FROM M", " |  | s0=count(vlan) |  |  | count_vlan=s0"),
    ("sum(len) FROM M", " |  | s0=sum(len) |  |  | sum_len=s0"),
    ("sum(vlan) FROM M", " |  | s0=sum(vlan) s1=count(vlan) |  |  | sum_vlan=(s0 if s1 > 0)"),
    (
        "avg(len), sum(len), count(*) FROM M",
        " |  | s0=sum(len) s1=count(*) |  |  | avg_len=mean(s0, s1) sum_len=s0 count=s1",
    ),
    (
        "min(ttl), max(vlan) FROM M",
        " |  | s0=min(ttl) s1=max(vlan) s2=count(vlan) |  |  | min_ttl=s0 max_vlan=(s1 if s2 > 0)",
    ),
    (
        "sum(len * 8) / count(*) AS bits FROM M",
        " |  | s0=upper_sum(len * 8) s1=lower_sum(len * 8) s2=count(*) |  |  | bits=wide_sum(s0, s1) / s2",
    ),
    ("avg(ts) FROM M", " |  | s0=sum(ts * 1.0) s1=count(*) |  |  | avg_ts=mean(s0, s1)"),
    ("avg(ts - 5.5) FROM M", " |  | s0=sum(ts - 5.5) s1=count(*) |  |  | column_1=mean(s0, s1)"),
    (
        "sum(ts / 1000) FROM M",
        " |  | s0=upper_sum(ts / 1000) s1=lower_sum(ts / 1000) |  |  | column_1=wide_sum(s0, s1)",
    ),
    ("sum(len / 100) FROM M", " |  | s0=sum(len / 100) |  |  | column_1=s0"),
    ("sum(len / ttl) FROM M", " |  | s0=sum(len / ttl) s1=count(len / ttl) |  |  | column_1=(s0 if s1 > 0)"),
    (
        "stddev(len), var_pop(len) FROM M",
        (
            " |  | s0=sum(len * 1.0) s1=sum(len * 1.0 * (len * 1.0)) s2=count(*) |  |  | "
            "stddev_len=stddev_samp(s0, s1, s2) var_pop_len=var_pop(s0, s1, s2)"
        ),
    ),
    (
        "bit_or(tcp_flags), bit_and(len), bit_xor(ttl) FROM M",
        (
            " |  | s0=bit_or(tcp_flags) s1=count(tcp_flags) s2=bit_and(len) s3=bit_xor(ttl) |  |  | "
            "bit_or_tcp_flags=(s0 if s1 > 0) bit_and_len=s2 bit_xor_ttl=s3"
        ),
    ),
    (
        "first(len), last(vlan), last(len) FROM M",
        (
            " |  | s0=earliest(len) s1=first(len) s2=latest(vlan) s3=last(vlan) s4=count(vlan) s5=latest(len) "
            "s6=last(len) |  |  | first_len=s1 last_vlan=(s3 if s4 > 0) last_len=s6"
        ),
    ),
    # keys go low, the link never does
    ("srcIP, count(*) FROM M GROUP BY srcIP", " | k0=srcIP | s0=count(*) | k0 |  | srcIP=k0 count=s0"),
    ("link, count(*) FROM M GROUP BY link", " |  | s0=count(*) | link |  | link=link count=s0"),
    ("count(*) FROM M GROUP BY ttl, link, tos", " | k0=ttl k1=tos | s0=count(*) | k0 link k1 |  | count=s0"),
    ("count(*) FROM M GROUP BY ttl, TTL, m.ttl", " | k0=ttl | s0=count(*) | k0 |  | count=s0"),
    ("srcIP FROM M GROUP BY srcIP", " | k0=srcIP | s0=count(*) | k0 |  | srcIP=k0"),
    ("count(*) FROM M GROUP BY link = 'a'", " | k0=link = 'a' | s0=count(*) | k0 |  | count=s0"),
    # names between the clauses
    ("size * 100 AS least FROM M GROUP BY len / 100 AS size", " | k0=len / 100 | s0=count(*) | k0 |  | least=k0 * 100"),
    ("size FROM M GROUP BY len / 100 AS Size", " | k0=len / 100 | s0=count(*) | k0 |  | Size=k0"),
    ("len / 100 AS size FROM M GROUP BY size", " | k0=len / 100 | s0=count(*) | k0 |  | size=k0"),
    ("len / 100 + 1 FROM M GROUP BY len / 100", " | k0=len / 100 | s0=count(*) | k0 |  | column_1=k0 + 1"),
    ("ttl + 1 AS ttl FROM M GROUP BY ttl HAVING ttl = 5", " | k0=ttl | s0=count(*) | k0 | k0 = 5 | ttl=k0 + 1"),
    ("max(len) AS len FROM M GROUP BY ttl HAVING len > 5", " | k0=ttl | s0=max(len) | k0 | s0 > 5 | len=s0"),
    ("count(*) FROM M HAVING count > 5", " |  | s0=count(*) |  | s0 > 5 | count=s0"),
    ("count(*) AS n FROM M HAVING sum(len) / n > 9", " |  | s0=count(*) s1=sum(len) |  | s1 / s0 > 9 | n=s0"),
    ("count(*) AS len FROM M HAVING sum(len) > 9", " |  | s0=count(*) s1=sum(len) |  | s1 > 9 | len=s0"),
    ("count(*), count(*), 1 FROM M", " |  | s0=count(*) |  |  | count=s0 count_2=s0 column_3=1"),
    ("count(*), max(len) AS count FROM M", " |  | s0=count(*) s1=max(len) |  |  | count_2=s0 count=s1"),
    ("SRCip, Count (*) FROM M group By srcip", " | k0=srcIP | s0=count(*) | k0 |  | srcIP=k0 count=s0"),
    ('count(*) AS "number of" FROM M', " |  | s0=count(*) |  |  | number of=s0"),
]


@pytest.mark.parametrize("sql, expected", PAIRS)
def test_a_query_is_split_between_the_levels(sql: str, expected: str) -> None:
    assert parts(compile_query("SELECT " + sql)) == expected


CONDITIONS = [
    ("len > 100", "len > 100"),
    ("LEN != 0x1f", "len <> 31"),
    ("len BETWEEN 1 + 1 AND 5 AND ttl = 1", "len >= 1 + 1 AND len <= 5 AND ttl = 1"),
    ("NOT len BETWEEN 1 AND 5", "NOT (len >= 1 AND len <= 5)"),
    ("len NOT BETWEEN 1 AND 5", "NOT (len >= 1 AND len <= 5)"),
    ("ttl IN (1, -2, 0x3)", "ttl IN (1, -2, 3)"),
    ("ttl NOT IN (1)", "NOT ttl IN (1)"),
    ("ttl / 2.0 IN (1, 2.5)", "ttl / 2.0 IN (1.0, 2.5)"),
    ("vlan IS NULL OR vlan IS NOT NULL", "vlan IS NULL OR NOT vlan IS NULL"),
    ("(TRUE)", "TRUE"),
    ("NOT NOT ttl = 1", "NOT NOT ttl = 1"),
    # precedence: unary, * / %, + -, & | ^ << >>, IN BETWEEN IS, < >, = <>, NOT, AND, OR
    ("tcp_flags & 18 = 2", "tcp_flags & 18 = 2"),
    ("1 + 2 * 3 << 1 | 4 > -ttl % 5", "1 + 2 * 3 << 1 | 4 > -ttl % 5"),
    ("(1 + 2) * ~(3 & ttl) - (4 - 5) = +6", "(1 + 2) * ~(3 & ttl) - (4 - 5) = 6"),
    ("ttl = 1 OR tos = 2 AND NOT len = 3", "ttl = 1 OR tos = 2 AND NOT len = 3"),
    ("(ttl = 1 OR tos = 2) AND len = 3", "(ttl = 1 OR tos = 2) AND len = 3"),
    ("- -ttl = -(-5)", "-(-ttl) = 5"),
    # addresses
    ("srcIP = '10.0.0.1'", "srcIP = '10.0.0.1'"),
    ("'2001:DB8:0::1' > srcIP", "'2001:db8::1' > srcIP"),
    ("srcIP BETWEEN '10.0.0.1' AND '10.0.0.9'", "srcIP >= '10.0.0.1' AND srcIP <= '10.0.0.9'"),
    ("srcIP IN '10.0.0.0/8'", "srcIP IN '10.0.0.0/8'"),
    ("srcIP NOT IN '::/0'", "NOT srcIP IN '::/0'"),
    ("srcIP IN '10.0.0.1'", "srcIP IN ('10.0.0.1')"),
    ("srcIP IN ('10.0.0.1', '::ffff:10.0.0.1')", "srcIP IN ('10.0.0.1', '::ffff:10.0.0.1')"),
    ("destIP IN '::ffff:a00:0/104'", "destIP IN '::ffff:10.0.0.0/104'"),
    ("srcIP IN ('10.0.0.0/8', '1.2.3.4')", "srcIP IN ('10.0.0.0/8', '1.2.3.4/32')"),
    ("srcIP IN ('10.0.0.0/8', '2001:db8::/32')", "srcIP IN ('10.0.0.0/8', '2001:db8::/32')"),
    ("M.srcIP <> destIP", "srcIP <> destIP"),
    # quotes as they are printed
    ('srcIP = “202.101.0.0” or srcIP = "202.101.0.1"', "srcIP = '202.101.0.0' OR srcIP = '202.101.0.1'"),
    ("link = ‘a’ OR link IN (“b”, \"c\", 'it''s')", "link = 'a' OR link IN ('b', 'c', 'it''s')"),
    ('"TTL" = 1 AND "len" > "tos"', "ttl = 1 AND len > tos"),
    ('link = "len" AND "link" = \'x\'', "link = 'len' AND link = 'x'"),
    ('link IN "len"', "link IN ('len')"),
    # comments are blanks
    ("len /* ' [ */ > -- ] \n 5", "len > 5"),
]


@pytest.mark.parametrize("sql, expected", CONDITIONS)
def test_a_condition_is_read_with_its_precedence_and_types(sql: str, expected: str) -> None:
    where = compile_query("SELECT count(*) FROM M WHERE " + sql).leaves[0].low.where
    assert where is not None
    assert expression_text(where) == expected


def test_an_ipv4_prefix_keeps_its_version() -> None:
    where = compile_query("SELECT count(*) FROM M WHERE srcIP IN '10.0.0.0/8'").leaves[0].low.where
    assert where == InPrefix(Column("srcIP", Type.ADDRESS, bits=128), (Prefix(4, 10 << 24, 8),))


WINDOWS = [
    ("RANGE 10 minutes, SLIDE 1 minute, WA ts", SlidingWindow(10 * MINUTE, MINUTE)),
    ("range 10 MINUTES slide 1 minute wa TS", SlidingWindow(10 * MINUTE, MINUTE)),
    ("WA ts, SLIDE 1 sec, RANGE 10 sec", SlidingWindow(10 * SECOND, SECOND)),
    ("RANGE 10 minutes, SLIDE 1 minute, WATTR ts", SlidingWindow(10 * MINUTE, MINUTE)),
    ("RANGE TUMBLING 60 seconds, WA ts", SlidingWindow(MINUTE, MINUTE)),
    ("RANGE 6.4 seconds", SlidingWindow(6_400_000_000, 6_400_000_000)),
    ("RANGE .5us SLIDE 1 ns", SlidingWindow(500, 1)),
    ("RANGE 1 day, SLIDE 1 h", SlidingWindow(86400 * SECOND, 3600 * SECOND)),
    ("RANGE 4 m, SLIDE 6 m", SlidingWindow(4 * MINUTE, 6 * MINUTE)),
    ("RANGE 1 minute, ORIGIN 5", SlidingWindow(MINUTE, MINUTE, 5)),
    ("RANGE 1 minute, ORIGIN -5", SlidingWindow(MINUTE, MINUTE, -5)),
    ("RANGE 1 minute, ORIGIN '1970-01-01T00:00:01.5Z'", SlidingWindow(MINUTE, MINUTE, 1_500_000_000)),
    ("RANGE 1 minute, ORIGIN '1970-01-02'", SlidingWindow(MINUTE, MINUTE, 86400 * SECOND)),
    ("RANGE 1 minute, ORIGIN '1970-01-01 01:00:00+01:00'", SlidingWindow(MINUTE, MINUTE, 0)),
]


@pytest.mark.parametrize("clause, window", WINDOWS)
@pytest.mark.parametrize("place", ["SELECT count(*) [{}] FROM M", "SELECT count(*) FROM M [{}] WHERE len > 5"])
def test_a_window_clause_means_the_same_in_either_place(clause: str, window: SlidingWindow, place: str) -> None:
    plan = compile_query(place.format(clause))
    assert plan.window == window
    assert (plan.leaves[0].low.pane, plan.leaves[0].low.origin) == (window.pane, window.origin)
    assert plan.schema.names == ["window_start", "window_end", "count"]


def test_a_query_without_a_window_is_answered_once_over_the_whole_input() -> None:
    plan = compile_query("SELECT count(*) FROM M;")
    assert (plan.window, plan.leaves[0].low.pane, plan.windowed) == (WHOLE_INPUT, 2**62, False)
    assert plan.schema.names == ["count"]


THESIS = {
    "Q1-1": (
        "SELECT    srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WA ts]\nFROM      M\nGROUP BY  srcIP",
        ("M",),
        " | k0=srcIP | s0=count(*) | k0 |  | srcIP=k0 count=s0",
    ),
    "Q1-2": (
        "SELECT count (*) [RANGE 1 minute, SLIDE 1 minute, WA ts]  \nFROM Control union Main1 union Main2",
        ("Control", "Main1", "Main2"),
        " |  | s0=count(*) |  |  | count=s0",
    ),
    "Q2-1": (
        (
            "SELECT    srcIP, ts, count (*)\nFROM      Main1\n"
            "WHERE     srcIP = “202.101.0.0” or srcIP = “202.101.0.1”\nGROUP BY  srcIP, ts"
        ),
        ("Main1",),
        (
            "srcIP = '202.101.0.0' OR srcIP = '202.101.0.1' | k0=srcIP k1=ts | s0=count(*) | k0 k1 |  | "
            "srcIP=k0 ts=k1 count=s0"
        ),
    ),
    "Q5-1": (
        "Select srcIP, count(*) [RANGE 10 minutes, SLIDE 1 minute, WATTR ts]\nFrom Main\nGroup By srcIP",
        ("Main",),
        " | k0=srcIP | s0=count(*) | k0 |  | srcIP=k0 count=s0",
    ),
    "Q6-5": (
        "SELECT srcIP, sum(len)\n      [RANGE 10 seconds, SLIDE 1 second, WA ts]\nFROM packets\nGROUPBY srcIP",
        ("packets",),
        " | k0=srcIP | s0=sum(len) | k0 |  | srcIP=k0 sum_len=s0",
    ),
    "Q6-8": (
        "SELECT count(*)\n      [RANGE 10 sec, SLIDE 1 sec, WA ts]\nFROM (Main2 ∪ (Main1 ∪ Control))\nGROUP-BY srcIP",
        ("Main2", "Main1", "Control"),
        " | k0=srcIP | s0=count(*) | k0 |  | count=s0",
    ),
    "Q8-2": (
        (
            "SELECT    srcIP, destIP, count(*)\n          [RANGE 1 minute, SLIDE 1 minute, WA ts]\n"
            "FROM      M1 UNION M2\nGROUP BY  srcIP, destIP"
        ),
        ("M1", "M2"),
        " | k0=srcIP k1=destIP | s0=count(*) | k0 k1 |  | srcIP=k0 destIP=k1 count=s0",
    ),
}


@pytest.mark.parametrize("name", THESIS)
def test_a_query_of_the_thesis_compiles_as_printed(name: str) -> None:
    sql, streams, expected = THESIS[name]
    plan = compile_query(sql, name)
    assert (plan.name, plan.sql, plan.streams) == (name, sql, streams)
    assert parts(plan) == expected


def test_columns_of_partials_keep_type_width_and_null() -> None:
    plan = compile_query("SELECT srcPort, sum(vlan), avg(len), srcIP FROM M GROUP BY srcPort, srcIP")
    total, count = Column("s0", Type.INT), Column("s1", Type.INT)
    assert [out.expression for out in plan.aggregation.select] == [
        Column("k0", Type.INT, nullable=True, bits=16),
        Present(total, count),
        Mean(Column("s2", Type.INT), Column("s3", Type.INT)),
        Column("k1", Type.ADDRESS, bits=128),
    ]


def test_an_arithmetic_aggregate_keeps_integer_division_apart_from_the_mean() -> None:
    (out,) = compile_query("SELECT sum(len) / count(*) FROM M").aggregation.select
    assert out.expression == Binary(Op.DIV, Column("s0", Type.INT), Column("s1", Type.INT))
    assert out.expression.type is Type.INT


def test_the_smallest_integer_is_a_literal() -> None:
    where = compile_query("SELECT count(*) FROM M WHERE len > -9223372036854775808").leaves[0].low.where
    assert isinstance(where, Binary)
    assert where.right == Literal(-(2**63), Type.INT)


def test_stream_names_keep_their_spelling_and_may_be_quoted() -> None:
    assert compile_query('SELECT count(*) FROM eth0 UNION ALL "Link 1" UNION "select"').streams == (
        "eth0",
        "Link 1",
        "select",
    )


FROMS = [
    ("M", ("M",), "packets", False),
    ("packets", ("packets",), "packets", True),
    ("Packets", ("Packets",), "packets", True),
    ("M.packets UNION N", ("M", "N"), "packets", False),
    ("frames", ("frames",), "frames", True),
    ("FLOWS", ("FLOWS",), "flows", True),
    ("samples", ("samples",), "samples", True),
    ('(Gate.flows ∪ "Link 1".FLOWS)', ("Gate", "Link 1"), "flows", False),
]


@pytest.mark.parametrize("text, streams, kind, every", FROMS, ids=lambda value: str(value))
def test_from_names_links_and_the_kind_of_their_rows(
    text: str, streams: tuple[str, ...], kind: str, every: bool
) -> None:
    plan = compile_query(f"SELECT count(*) FROM {text}")
    assert (plan.streams, plan.leaves[0].low.kind, plan.leaves[0].reads_all_links) == (streams, kind, every)


def low_columns(select: str, layer: str = "outer", source: str = "M") -> list[str]:
    """Columns that the low level decodes, and what results call them."""
    plan = compile_query(f"SELECT {select} FROM {source} GROUP BY {select}", layer=layer)
    return [text for key in plan.leaves[0].low.keys if (text := expression_text(key.expression))] + list(
        plan.schema.names
    )


LAYERED = [
    ("srcIP", "outer", ["srcIP", "srcIP"]),
    ("srcIP", "inner", ["inner.srcIP", "srcIP"]),
    ("OUTER.srcip", "outer", ["srcIP", "srcIP"]),
    ("outer.srcIP", "inner", ["srcIP", "outer.srcIP"]),
    ("Inner.SRCIP", "outer", ["inner.srcIP", "inner.srcIP"]),
    ("inner.srcIP", "inner", ["inner.srcIP", "srcIP"]),
    ("len", "inner", ["len", "len"]),
    ("outer.len", "inner", ["len", "len"]),
    ("tunnel_id", "inner", ["tunnel_id", "tunnel_id"]),
]


@pytest.mark.parametrize("name, layer, expected", LAYERED)
@pytest.mark.parametrize("source", ["M", "frames", "M.samples"])
def test_a_name_means_the_layer_that_it_or_the_query_says(
    name: str, layer: str, expected: list[str], source: str
) -> None:
    assert low_columns(name, layer, source) == expected


def test_both_layers_stand_side_by_side_under_names_of_their_own() -> None:
    sql = "SELECT outer.srcIP, inner.srcIP, srcIP AS again, sum(inner.ip_len) FROM M GROUP BY outer.srcIP, inner.srcIP"
    assert compile_query(sql).schema.names == ["srcIP", "inner.srcIP", "again", "sum_inner.ip_len"]
    inner = compile_query(sql, layer="inner")
    assert inner.schema.names == ["outer.srcIP", "srcIP", "again", "sum_ip_len"]
    assert (inner.layer, compile_query(sql).layer) == ("inner", "outer")


def test_a_layer_is_outer_or_inner() -> None:
    with pytest.raises(ValueError, match="got the layer 'middle', expected one of outer, inner"):
        compile_query("SELECT count(*) FROM M", layer="middle")


def test_a_frame_may_lack_what_every_packet_has() -> None:
    sql = "SELECT protocol, count(srcIP) FROM {} GROUP BY protocol"
    packets, frames = (compile_query(sql.format(kind)).leaves[0].low for kind in ("packets", "frames"))
    assert [key.expression.nullable for key in (*packets.keys, *frames.keys)] == [False, True]
    assert [sub.argument is None for sub in (*packets.subaggregates, *frames.subaggregates)] == [True, False]


def test_flows_have_their_own_columns_and_every_information_element() -> None:
    sql = """SELECT exporter, sum(bytes), max(postNAPTSourceTransportPort), min(flowStartMilliseconds), avg(e5951_128)
             FROM flows WHERE flows.packets > 1 AND reverseOctetDeltaCount IS NULL AND "interfacename" <> 'lo'
             GROUP BY exporter"""
    assert parts(compile_query(sql)).startswith(
        "packets > 1 AND reverseOctetDeltaCount IS NULL AND interfaceName <> 'lo' | k0=exporter | "
        "s0=upper_sum(bytes) s1=lower_sum(bytes) "
    )


def test_a_sum_of_times_alone_is_refused_however_wide_the_other_columns_are() -> None:
    assert parts(compile_query("SELECT avg(end_ts), avg(bytes), avg(flowEndSeconds) FROM flows")).split(" | ")[2] == (
        "s0=sum(end_ts * 1.0) s1=count(*) s2=upper_sum(bytes) s3=lower_sum(bytes) s4=count(bytes) "
        "s5=sum(flowEndSeconds * 1.0) s6=count(flowEndSeconds)"
    )


def test_spread_is_part_of_the_low_level_and_needs_when_a_flow_began() -> None:
    plan = compile_query("SELECT sum(bytes) FROM flows [RANGE 1 minute, SPREAD, SLIDE 10 s]")
    assert plan.leaves[0].low.spread
    assert plan.leaves[0].low.columns == {"bytes", "start_ts", "ts"}
    assert not compile_query("SELECT sum(bytes) FROM flows [RANGE 1 minute]").leaves[0].low.spread


def test_of_rows_that_are_spread_only_sums_of_counters_are_shared() -> None:
    select = "sum(bytes), sum(tos), count(*), count(tos), min(packets), max(ts), avg(bytes), avg(tos), sum(8 * bytes)"
    plan = compile_query(f"SELECT {select} FROM flows [RANGE 1 minute, SPREAD]")
    words = {
        sub.name: parts(plan).split(f"{sub.name}=")[1].split(") s")[0] + ")"
        for sub in plan.leaves[0].low.subaggregates[:-1]
    }
    assert list(words.values()) == [
        "upper_sum(share of bytes)",
        "lower_sum(share of bytes)",
        "count(share of bytes)",
        "sum(at_end(tos))",
        "count(at_end(tos))",
        "count(at_end(TRUE))",
        "min(at_end(packets))",
        "count(at_end(packets))",
        "max(at_end(ts))",
        "count(at_end(ts))",
        "count(at_end(bytes))",
        "upper_sum(8 * share of bytes)",
        "lower_sum(8 * share of bytes)",
    ]
    outputs = [expression_text(out.expression) for out in plan.aggregation.select]
    assert outputs[:5] == ["(wide_sum(s0, s1) if s2 > 0)", "(s3 if s4 > 0)", "s5", "s4", "(s6 if s7 > 0)"]
    assert outputs[6:8] == ["mean(wide_sum(s0, s1), s10)", "mean(s3, s4)"]


LITERALS = [
    ("srcMAC = '00:11:22:AA:bb:cc'", "srcMAC = '00:11:22:aa:bb:cc'"),
    ("'00-11-22-aa-BB-cc' <> destMAC", "'00:11:22:aa:bb:cc' <> destMAC"),
    ('srcMAC >= "0011.22AA.bbcc"', "srcMAC >= '00:11:22:aa:bb:cc'"),
    ("srcMAC IN ('00:00:00:00:00:00', \"ffff.ffff.ffff\")", "srcMAC IN ('00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff')"),
    ("srcMAC = destMAC", "srcMAC = destMAC"),
    ("contains(payload, 'GET ')", "contains(payload, x'47455420')"),
    ('contains(payload, "len")', "contains(payload, x'6c656e')"),
    ("STARTS_WITH(payload, X'1603')", "starts_with(payload, x'1603')"),
    ("starts_with(payload, x'')", "starts_with(payload, x'')"),
    ("byte(payload, 13) & 2 = 2", "byte(payload, 13) & 2 = 2"),
    ("byte(payload, byte(payload, 0) * 4) = 1", "byte(payload, byte(payload, 0) * 4) = 1"),
    ("length(inner.payload) > 0", "length(inner.payload) > 0"),
    ("payload IS NULL", "payload IS NULL"),
    ("starts_with(interface, 'eth') AND NOT contains(link, 'x''y')", None),
    ("length(interface) = 4", None),
]


@pytest.mark.parametrize("text, printed", LITERALS)
def test_macs_bytes_and_their_functions_compile_and_print_back(text: str, printed: str | None) -> None:
    plan = compile_query(f"SELECT count(*) FROM M WHERE {text}")
    assert plan.leaves[0].low.where is not None
    assert expression_text(plan.leaves[0].low.where) == (printed or text)
    again = compile_query(f"SELECT count(*) FROM M WHERE {expression_text(plan.leaves[0].low.where)}")
    assert again.leaves[0].low.where == plan.leaves[0].low.where


def test_functions_group_as_narrow_keys() -> None:
    plan = compile_query("SELECT byte(payload, 0), length(payload) FROM M GROUP BY byte(payload, 0), length(payload)")
    assert [out.expression for out in plan.aggregation.select] == [
        Column("k0", Type.INT, nullable=True, bits=8),
        Column("k1", Type.INT, nullable=True, bits=32),
    ]


def test_a_plan_can_be_pickled_into_a_task() -> None:
    plan = compile_query(THESIS["Q8-2"][0])
    assert pickle.loads(pickle.dumps(plan)) == plan
