"""Scripts with DEFINE and PARAM: their text as one query, values of parameters, and a table of wrong scripts.

It can catch a parameter that is replaced in a string or comment, a bound that is not checked, and an error that names
another line than the line of the script.
"""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wiretide
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError
from queries.query_text import query_text
from queries.text.errors import QueryError
from queries.text.parameters import ParameterType
from queries.text.schema import parse_schema
from queries.text.script import PROPERTIES, TYPES, expand
from tests.harness.command_line import run
from tests.references.small_captures import icmp, udp, write

TALKERS = """DEFINE { query_name 'talkers'; comment 'by sender'; port '53'; slow_flush 4 }
PARAM { least UINT DEFAULT 2 BETWEEN 1 AND 50; }
SELECT srcIP, count(*) AS n FROM packets GROUP BY srcIP HAVING n >= $least -- $least #port
"""
COUNT = "SELECT count(*) AS n FROM packets WHERE "

VALUES = [
    ("USHORT", "65535", "destPort = $x", "destPort = 65535"),
    ("UINT", 7, "len > $x", "len > 7"),
    ("INT", "-5", "len-$x > 0", "len- -5 > 0"),
    ("ULLONG", 2**63 - 1, "len < $x", "len < 9223372036854775807"),
    ("LLONG", -(2**63), "len > $x", "len >  -9223372036854775808"),
    ("float", ".5", "len * $X > 1", "len * 0.5 > 1"),
    ("BOOL", True, "ipFragment = $x", "ipFragment = TRUE"),
    ("STRING", "it's $x", "link = $x", "link = 'it''s $x'"),
    ("IP", "010.0.0.1", "srcIP = $x", None),
    ("IP", "10.0.0.1", "srcIP = $x", "srcIP = '10.0.0.1'"),
    ("IPV6", "2001:DB8::1", "srcIP = $x", "srcIP = '2001:db8::1'"),
    ("PREFIX", "10.0.0.0/8", "srcIP IN $x", "srcIP IN '10.0.0.0/8'"),
]

# A script with « before the position of the error, then parts of the message.
WRONG = [
    ("DEFINE { «query_nam 'x'; } SELECT ts FROM M", "unknown property 'query_nam'", "valid: query_name"),
    ("DEFINE { query_name «x; } SELECT ts FROM M", "got 'x'", "the value of query_name in quotes"),
    ("DEFINE { query_name «; } SELECT ts FROM M", "got ';'", "the value of query_name"),
    ("DEFINE { query_name «''; } SELECT ts FROM M", "got the query_name ''"),
    ("DEFINE { comment 'a' «title 'b'; } SELECT ts FROM M", "got 'title'", "';' after a property"),
    ("DEFINE { comment 'a'; «Comment 'b'; } SELECT ts FROM M", "Comment is given twice"),
    ("DEFINE { «'comment'; } SELECT ts FROM M", "a property such as query_name"),
    ("DEFINE { «lfta_aggregation 'true'; } SELECT ts FROM M", "wiretide capture"),
    ("DEFINE «{ comment 'a'; SELECT ts FROM M", "'{' is never closed", "expected '}' after it"),
    ("DEFINE { comment 'a'; «) SELECT ts FROM M", "without an opening bracket"),
    ("«DEFIN { comment 'a'; } SELECT ts FROM M", "got 'DEFIN'", "valid: DEFINE, PARAM"),
    ("DEFINE { comment 'a'; }«", "got the end of the query", "a query after the blocks"),
    ("DEFINE { comment 'a'; } «;", "a query after the blocks"),
    ("SELECT ts FROM M WHERE len > 1 «{ }", "DEFINE and PARAM are before SELECT"),
    ("PARAM { «5 UINT; } SELECT ts FROM M", "the name of a parameter"),
    ("PARAM { x «UNIT; } SELECT ts FROM M", "got 'UNIT' as the type of x", "valid: UINT"),
    ("PARAM { x «; } SELECT ts FROM M", "got ';' as the type of x"),
    ("PARAM { x UINT DEFAULT «; } SELECT ts FROM M", "got ';'", "a value"),
    ("PARAM { x UINT DEFAULT «-1; } SELECT ts FROM M", "got '-1' as the default of x", "at least 0"),
    ("PARAM { x USHORT DEFAULT «65536; } SELECT ts FROM M", "at most 65535"),
    ("PARAM { x INT DEFAULT «'a'; } SELECT ts FROM M", "got 'a' as the default of x", "an integer"),
    ("PARAM { x IP DEFAULT «'10.0.0'; } SELECT ts FROM M", "as the default of x", "an address such as"),
    ("PARAM { x PREFIX DEFAULT «'10.0.0.1/8'; } SELECT ts FROM M", "host bits"),
    ("PARAM { x DURATION DEFAULT «'soon'; } SELECT ts FROM M", "a duration such as"),
    ("PARAM { x BOOL DEFAULT «2; } SELECT ts FROM M", "true or false"),
    ("PARAM { x UINT BETWEEN «1 TO 5; } SELECT ts FROM M", "as a bound of x"),
    ("PARAM { x UINT BETWEEN 1«; } SELECT ts FROM M", "AND and the upper bound"),
    ("PARAM { x UINT BETWEEN 5 AND «1; } SELECT ts FROM M", "the smaller bound first"),
    ("PARAM { x UINT BETWEEN «-5 AND 1; } SELECT ts FROM M", "as a bound of x", "at least 0"),
    ("PARAM { x STRING «BETWEEN 1 AND 2; } SELECT ts FROM M", "only numbers have bounds"),
    ("PARAM { x UINT DEFAULT «9 BETWEEN 1 AND 5; } SELECT ts FROM M", "at most 5"),
    ("PARAM { x UINT; «x INT; } SELECT ts FROM M", "a second parameter x"),
    ("SELECT ts FROM M WHERE len > «$least", "unknown parameter '$least'", "PARAM { least UINT"),
    ("PARAM { least UINT; }\nSELECT ts FROM M WHERE len > «$lest", "has no value"),
    ("PARAM { least UINT DEFAULT 1; }\nSELECT ts FROM M WHERE len > «$lest", "valid: $least"),
    ("SELECT ts FROM M WHERE link = «#name", "unknown constant '#name'", "DEFINE { name 'text'; }"),
    ("DEFINE { comment 'a'; }\n«SELECT ts FROM M; SELECT ts FROM N", "a query without a name"),
    ("DEFINE { query_name «'a'; }\nSELECT ts FROM M; SELECT ts FROM N", "no query reads 'a'", "FROM a"),
]


@pytest.mark.parametrize(("type_", "value", "condition", "text"), VALUES)
def test_a_parameter_becomes_a_literal_of_its_type(type_: str, value: object, condition: str, text: str | None) -> None:
    script = f"PARAM {{ x {type_}; }} {COUNT}"
    if text is None:
        with pytest.raises(QueryError, match="got x = "):
            expand(script + condition, {"x": value})
    else:
        assert expand(script + condition, {"x": value}).strip() == COUNT + text


@pytest.mark.parametrize(("marked", "parts"), [(case[0], case[1:]) for case in WRONG])
def test_a_wrong_script_has_an_error_at_its_position(marked: str, parts: tuple[str, ...]) -> None:
    position, script = marked.index("«"), marked.replace("«", "")
    with pytest.raises(QueryError) as error:
        compile_query(expand(script))
    assert all(part in str(error.value) for part in parts), str(error.value)
    assert error.value.position == position or "has no value" in parts


def test_several_queries_become_one_query_with_the_lines_of_the_script() -> None:
    first = TALKERS.replace("port '53'; ", "").replace(" -- $least #port", ";")
    script = first + "WITH b AS (SELECT n FROM talkers)\nSELECT n FROM b"
    text = expand(script, {"LEAST": "7"})
    assert "HAVING n >= 7" in text
    assert text.split("\n")[1].strip() == "WITH talkers AS ("
    assert text.count("\n") == script.count("\n")
    assert compile_query(text).schema.names == ["n"]
    with pytest.raises(QueryError) as error:
        compile_query(expand(script.replace("SELECT n FROM b", "SELECT m FROM b")))
    assert (error.value.line, error.value.column) == (5, len("SELECT m"))


def test_names_in_strings_and_comments_are_no_parameters() -> None:
    script = "PARAM { x UINT DEFAULT 1; } SELECT count(*) AS n FROM M WHERE link <> '$x #x' /* $x */ AND len > $x"
    assert expand(script).endswith("WHERE link <> '$x #x' /* $x */ AND len > 1")


def test_a_parameter_inside_define_is_the_same(subtests: pytest.Subtests) -> None:
    for block in ("DEFINE { PARAM { x UINT DEFAULT 3; } }", "DEFINE { comment 'c'; PARAM { x UINT DEFAULT 3 }; }"):
        with subtests.test(block=block):
            assert expand(f"{block} {COUNT}len > $x").strip() == f"{COUNT}len > 3"


def test_a_window_and_a_duration_are_parameters() -> None:
    script = "PARAM { w WINDOW DEFAULT '1 minute'; d DURATION DEFAULT 10 seconds; } SELECT count(*) FROM M "
    assert compile_query(expand(script + "$w")).windowed
    assert not compile_query(expand(script + "$w", {"w": "all"})).windowed
    assert compile_query(expand(script + "[RANGE $d]", {"d": "5s"})).leaves[0].low.pane == 5 * 10**9


def test_all_types_and_properties_can_be_written() -> None:
    assert {kind for kind, _, _ in TYPES.values()} == set(ParameterType)
    properties = " ".join(f"{name} 'v';" for name in PROPERTIES)
    assert expand(f"DEFINE {{ {properties} }} {COUNT}len > 1").strip() == f"{COUNT}len > 1"


def test_the_command_line_and_python_set_parameters(tmp_path: Path) -> None:
    capture = tmp_path / "a.pcap"
    write(capture, [(at, udp("10.0.0.1", "10.0.0.9", 5, 53)) for at in range(3)] + [(4, icmp("10.0.0.2", "10.0.0.9"))])
    script = TALKERS.replace("port '53'; ", "").replace("#port", "")
    assert wiretide.query(script, capture)["n"].to_pylist() == [3]
    assert wiretide.query(script, capture, params={"least": 1}).num_rows == 2
    with wiretide.open(capture) as opened:
        assert opened.query(script, least=4).arrow().num_rows == 0
        assert opened.query(script, {"least": 1}).arrow().num_rows == 2
    file = tmp_path / "talkers.gsql"
    file.write_text(script)
    assert wiretide.query(str(file), capture, params={"least": "1"}).num_rows == 2
    status, out, _ = run("query", "a.pcap", "talkers.gsql", "--param", "least=1", "--format", "csv", cwd=tmp_path)
    assert (status, len(out.split())) == (0, 3)
    assert "HAVING n >= 2" in run("explain", "talkers.gsql", cwd=tmp_path)[1]
    status, out, err = run("query", "a.pcap", script, "--param", "least=51", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert "got least = '51'; expected an integer, at least 1, at most 50" in err
    asked = ("query", "a.pcap", script, "talkers.gsql", "@packets", "--param", "LEAST=1")
    status, out, err = run(*asked, cwd=tmp_path)
    assert (status, out.count("10.0.0.2")) == (0, 2), err
    with pytest.raises(wiretide.InputError, match="No such file"):
        query_text("none.gsql")


PIPELINE = """[links]
M = "m.pcap"
[queries.talkers]
sql = '''PARAM { least UINT DEFAULT 2; port USHORT; }
SELECT srcIP, count(*) AS n FROM M [RANGE 1 minute] WHERE destPort = $port GROUP BY srcIP HAVING n >= $least'''
"""


def test_a_pipeline_file_sets_parameters(tmp_path: Path) -> None:
    file = parse_pipeline(PIPELINE + "[queries.talkers.params]\nport = 53\nleast = 9\n", tmp_path)
    assert "destPort = 53 GROUP BY srcIP HAVING n >= 9" in file.plans()[0].sql
    (tmp_path / "q.gsql").write_text("PARAM { w WINDOW; } SELECT count(*) AS n FROM M $w")
    lines = '[links]\nM = "m.pcap"\n[queries.q]\nsql = "q.gsql"\n[queries.q.params]\nw = "5s"\n'
    assert parse_pipeline(lines, tmp_path).plans()[0].windowed


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("", "queries.talkers.sql: line 1, column 1: the parameter port has no value"),
        ('params = "port"', "queries.talkers.params: got 'port', expected a section"),
        ("params = { prot = 53 }", "unknown parameter 'prot'; expected a parameter of this query"),
        ("params = { port = 70000 }", "got port = '70000'; expected an integer, at least 0, at most 65535"),
        ("params = { port = true }", "got port = 'True'"),
        ("params = { port = [53] }", r"got port = '\[53\]'"),
    ],
)
def test_wrong_parameters_of_a_pipeline_file_are_named(params: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_pipeline(PIPELINE + params, tmp_path)


WORDS = """
DEFINE PARAM query_name comment PROTOCOL x y UINT TIME IP STRING DEFAULT BETWEEN AND 1 -5 1.5 'a' "b" $x #y { } ( ) ; ,
SELECT ts FROM M WHERE len > increasing banded_increasing constant 10 seconds WITH AS -- /* */ $ # '
"""


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=25))
def test_random_blocks_are_text_or_an_error_of_the_text(words: list[str]) -> None:
    for parse in (expand, parse_schema):
        with contextlib.suppress(QueryError):
            parse(" ".join(words))
