"""Ready queries as text: names, parameters, and errors.

It can catch a parameter whose value changes the structure of a query, and a bound that is not checked. It can also
catch a message that does not name the valid choices.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

import wiretide
from queries.catalogue.catalogue import CATALOGUE
from queries.catalogue.ready_query import ReadyQuery
from queries.gsql import compile_query
from queries.query_text import query_text
from queries.text.errors import QueryError
from queries.text.parameters import Parameter, ParameterType
from tests.harness.command_line import run
from tests.references.small_captures import icmp, udp, write

VALID: dict[ParameterType, list[tuple[object, str]]] = {
    ParameterType.INTEGER: [(7, "7"), ("07", "7"), (" 7 ", "7")],
    ParameterType.FLOAT: [(0.5, "0.5"), ("0.25", "0.25"), (1, "1.0"), (".5", "0.5")],
    ParameterType.DURATION: [("90s", "90 seconds"), ("2 minutes", "2 minutes"), ("1.5H", "90 minutes")],
    ParameterType.WINDOW: [("all", ""), ("ALL", ""), ("1m", "[RANGE 1 minute]")],
    ParameterType.PREFIX: [("10.0.0.0/8", "'10.0.0.0/8'"), ("::1", "'::1/128'"), ("1.2.3.4", "'1.2.3.4/32'")],
    ParameterType.ADDRESS: [("10.0.0.1", "'10.0.0.1'"), ("2001:DB8::1", "'2001:db8::1'")],
    ParameterType.TEXT: [("eth0", "'eth0'"), ("it's", "'it''s'"), ("", "''")],
    ParameterType.BOOLEAN: [("true", "TRUE"), ("False", "FALSE"), (True, "TRUE")],
}

WRONG: dict[ParameterType, list[object]] = {
    ParameterType.INTEGER: [0, -1, "x", "", "1.5", 1.5, "1e3", "1; DROP", "１", True, None, [1], 10**30, "1 OR 1 = 1"],
    ParameterType.FLOAT: [0, "nan", "inf", "1e400", "x", False, None, "0.5)", "2", "0,5"],
    ParameterType.DURATION: ["", "0", "0s", "-1s", "10", 10, "1 fortnight", "1s, SLIDE 1 s", "200 years", None],
    ParameterType.WINDOW: ["", "none", "0", "1m] WHERE TRUE", "[RANGE 1 minute]", None],
    ParameterType.PREFIX: ["", "10.0.0.1/8", "x", "10.0.0.0/33", "1.2.3.4' OR '1' = '1", "fe80::1%eth0", 1],
    ParameterType.ADDRESS: ["", "10.0.0.0/8", "x", "10.0.0.1' OR '1' = '1", 1, None],
    ParameterType.TEXT: [1, None, True, ["a"]],
    ParameterType.BOOLEAN: ["", "1", 1, "yes", None, "TRUE OR TRUE"],
}


def parameter(kind: ParameterType) -> Parameter:
    defaults = dict(zip(ParameterType, (5, 0.5, "1s", "all", "10.0.0.0/8", "::1", "a", True), strict=True))
    low, high = {ParameterType.INTEGER: (1, 10**17), ParameterType.FLOAT: (0.1, 1)}.get(kind, (None, None))
    return Parameter("x", kind, defaults[kind], "a value", low, high)


@pytest.mark.parametrize(
    ("kind", "value", "literal"), [(kind, *case) for kind, cases in VALID.items() for case in cases]
)
def test_a_value_becomes_a_literal_in_one_form(kind: ParameterType, value: object, literal: str) -> None:
    assert parameter(kind).literal(value) == literal


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in WRONG.items() for value in values])
def test_a_wrong_value_is_refused_with_the_expected_form(kind: ParameterType, value: object) -> None:
    placeholders = {ParameterType.WINDOW: "FROM packets $x", ParameterType.PREFIX: "FROM packets WHERE srcIP IN $x"}
    query = ReadyQuery("q", "c", "packets", "s", f"SELECT ts {placeholders.get(kind, '$x')}", (parameter(kind),))
    with pytest.raises(QueryError) as error:
        query.sql({"x": value})
    assert error.value.message.partition(": '")[0] == f"got x = {str(value)!r}"
    assert error.value.expected == parameter(kind).expected


@pytest.mark.usefixtures("indicators")
@pytest.mark.parametrize("name", CATALOGUE)
def test_a_ready_query_compiles_and_describes_itself(name: str) -> None:
    query = CATALOGUE[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert query.sentence.endswith(".")
    assert query.sentence[0].isupper()
    assert len(query.sentence) <= 100
    assert all(len(line) <= 100 for line in query.text.split("\n"))
    assert "$" not in query.sql()
    first = [f"{each.name}={each.default}" for each in query.parameters[:1]]
    options = [word for pair in first for word in ("--param", pair)]
    assert shlex.split(query.usage) == ["wiretide", "query", "FILE", f"@{name}", *options]
    plan = compile_query(query.sql(), name)
    assert [stream.lower() for stream in plan.streams] == [query.input]
    for parameter in query.parameters:
        assert not parameter.help.endswith(".")
        if parameter.type is ParameterType.WINDOW:
            names = compile_query(query.sql({"window": "5s"}), name).schema.names
            assert names == ["window_start", "window_end", *plan.schema.names]


def test_a_query_whose_placeholders_are_not_its_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match=r"got the placeholders \['n'\], expected \[\]"):
        ReadyQuery("q", "c", "packets", "s", "SELECT ts FROM packets LIMIT $n")


HOST_BITS = "got network = '10.0.0.1/8': '10.0.0.1/8' has host bits set; its network is '10.0.0.0/8'"


@pytest.mark.parametrize(
    ("sql", "values", "message", "expected", "choices"),
    [
        ("@top-takers", {}, "unknown query '@top-takers'", "a name of the catalogue", ("top-talkers",)),
        ("@", {}, "unknown query '@'", "a name of the catalogue", ()),
        ("@top-talkers", {"m": 3}, "unknown parameter 'm'", "a parameter of this query", ("n", "window")),
        ("@top-talkers", {"windw": 3}, "unknown parameter 'windw'", "a parameter of this query", ("window", "n")),
        ("@top-talkers", {"n": "0"}, "got n = '0'", "an integer, at least 1", ()),
        ("@peers", {"network": "10.0.0.1/8"}, HOST_BITS, "a prefix such as", ()),
        ("Top-talkers", {}, "got the name Top-talkers", "@top-talkers, or SELECT", ()),
        ("SELECT ts FROM p", {"n": 1}, "got the parameter n", "@NAME", ()),
    ],
)
def test_a_wrong_name_or_parameter_is_an_error_with_the_nearest_name_first(
    sql: str, values: dict[str, object], message: str, expected: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(QueryError) as error:
        query_text(sql, values)
    assert error.value.message == message
    assert error.value.expected.startswith(expected)
    assert error.value.choices[: len(choices)] == choices


def test_names_may_be_written_in_capitals_and_with_underscores() -> None:
    assert query_text(" @Top_Talkers ") == query_text("@top-talkers")


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    packets = [(61, udp("10.0.0.1", "10.0.0.9", 1, 53)), (5, icmp("10.0.0.1", "10.0.0.2")), (6, icmp("::1", "::2"))]
    return write(tmp_path / "M.pcap", packets)


def test_the_python_functions_take_ready_queries(capture: Path) -> None:
    rows = [{"srcIP": "10.0.0.1", "packets": 2, "bytes": 300}]
    total = rows[0]["bytes"] = wiretide.query(
        "SELECT sum(len) AS n FROM packets WHERE srcIP = '10.0.0.1'", capture
    ).to_pylist()[0]["n"]
    assert total > 0
    assert wiretide.query("@top-talkers", capture, params={"n": 1}).to_pylist() == rows
    with wiretide.open(capture) as inputs:
        assert inputs.query("@top-talkers", {"n": 1}).arrow().to_pylist() == rows
    watched = list(wiretide.watch("@top-talkers", capture, params={"n": 1}))
    assert [row for batch in watched for row in batch.to_pylist()] == rows
    assert wiretide.explain("@top-talkers", params={"n": 3}) == wiretide.explain(query_text("@top-talkers", {"n": 3}))
    assert wiretide.compare("@links", capture, params={"window": "10s"}, slack="0", repeat=1).num_rows > 1
    with pytest.raises(QueryError, match="unknown parameter 'm'"):
        wiretide.query("@top-talkers", capture, params={"m": 1})


@pytest.mark.slow("seven processes")
def test_the_commands_take_ready_queries(capture: Path) -> None:
    folder = capture.parent
    asked = run("query", "M.pcap", "@top-talkers", "--param", "n=1", "--format", "csv", cwd=folder)
    assert asked[0] == 0
    assert asked[1].splitlines()[0] == "srcIP,packets,bytes"
    assert len(asked[1].splitlines()) == 2
    assert run("explain", "@top-talkers", "--param", "n=3", cwd=folder)[1].startswith("query query: SELECT srcIP")
    compared = run("compare", "M.pcap", "@links", "--param", "window=10s", "--repeat", "1", cwd=folder)
    assert compared[0] == 0
    for words, message in (
        (["query", "M.pcap", "@top-takers"], "valid: top-talkers, "),
        (["query", "M.pcap", "@top-talkers", "--param", "n"], "expected NAME=VALUE"),
        (["query", "M.pcap", "@top-talkers", "--param", "n=1", "--param", "n=2"], "a second value of n"),
        (["explain", ".", "--param", "n=1"], "--param needs a query with parameters"),
    ):
        status, out, err = run(*words, cwd=folder)
        assert (status, out) == (2, "")
        assert message in err


@pytest.mark.slow("three processes")
def test_the_command_queries_lists_and_describes_all(tmp_path: Path) -> None:
    _, listed, _ = run("queries", cwd=tmp_path)
    assert [line.split()[0] for line in listed.splitlines()[1:-2]] == [f"@{name}" for name in CATALOGUE]
    _, text, _ = run("queries", "networks", cwd=tmp_path)
    query = CATALOGUE["networks"]
    assert query.text in text
    assert query.sentence in text
    assert all(f"{parameter.name} " in text and parameter.help in text for parameter in query.parameters)
    assert text.endswith("wiretide query FILE @networks --param ipv4=24\n")
    values = json.loads(run("queries", "--format", "json", cwd=tmp_path)[1])
    assert [value["name"] for value in values] == list(CATALOGUE)
    assert values[0] == {
        "name": "packets",
        "category": "traffic",
        "input": "packets",
        "sentence": "Packets and bytes of all links together.",
        "parameters": [
            {
                "name": "window", "type": "window", "default": "all", "minimum": None, "maximum": None,
                "help": "length of the windows; all: one answer for the whole input",
            }
        ],
        "sql": CATALOGUE["packets"].text,
    }  # fmt: skip
