"""Automata as graphs for Graphviz: all arcs between declared states, and texts that cannot leave their quotes.

Finds: an arc or a state that is missing, states of two automata that are one, and a text that is read as DOT.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from queries.explain.automaton_graph import automaton_graph
from queries.gsql import compile_query
from tests.harness.command_line import run

SCAN = """SELECT * FROM (SELECT ts, srcIP, len, srcPort FROM packets) AUTOMATON (PARTITION BY srcIP ORDER BY ts
    REGISTER n INT DEFAULT 0, asked TIME START idle FINAL done, missing ARC idle TO busy WHEN srcPort = 7 SET asked = ts
    ARC busy TO busy WHEN len < 5 SET n = n + 1 SILENT ARC busy TO done WHEN n = 2
    ARC busy TO missing AT asked + INTERVAL '3 seconds'{0} WITHIN 1 minute)"""
MATCH = """SELECT * FROM packets MATCH_RECOGNIZE (ORDER BY ts PATTERN (A B+ C?)
    DEFINE A AS link = 'x"]; } \\ <b>\n', B AS len > prev(len), C AS len = 1)"""

STRING = r'"(?:[^"\\\n]|\\.)*"'
ATTRIBUTES = rf"(?P<attributes>(?:\w+=(?:{STRING}|\w+)(?:, )?)+)"
STATEMENT = re.compile(
    rf"(?:label={STRING}|(?P<source>{STRING})(?: -> (?P<target>{STRING}))? \[{ATTRIBUTES}\]);",
)


def statements(graph: str) -> list[re.Match[str]]:
    """Return the statements of the automata. Each line must be a whole statement, or a bracket."""
    lines = [line.strip() for line in graph.splitlines()[5:]]
    found = [STATEMENT.fullmatch(line) for line in lines if line != "}" and not line.startswith("subgraph cluster_")]
    assert all(found), lines
    return [each for each in found if each]


def arcs_of(graph: str) -> list[tuple[str, str, str]]:
    found = statements(graph)
    states = {each["source"] for each in found if each["source"] and not each["target"]}
    edges = [(each["source"], each["target"], each["attributes"]) for each in found if each["target"]]
    assert {name for edge in edges for name in edge[:2]} <= states
    return [tuple(text.strip('"') for text in edge) for edge in edges]


def test_the_graph_of_an_automaton_has_its_states_arcs_and_register(tmp_path: Path) -> None:
    rules = tmp_path / "r.arcs"
    rules.write_text("ARC busy TO late WHEN len = 9 FROM '2024-05-01'")
    graph = automaton_graph(compile_query(SCAN.format(f" ARCS FROM '{rules}'")))
    assert arcs_of(graph) == [
        ("0", "0 idle", 'label="n = 0\\nasked = NULL'),
        ("0 idle", "0 busy", 'label="srcPort = 7; asked = ts'),
        ("0 busy", "0 busy", 'label="len < 5; n = n + 1'),
        ("0 busy", "0 done", 'label="without a row, n = 2", style=dashed'),
        ("0 busy", "0 missing", 'label="at asked + 3000000000, if no row has\\ncome before", style=dotted'),
        ("0 busy", "0 late", 'label="len = 9, from\\n2024-05-01T00:00:00.000000000", color=blue'),
    ]
    assert 'label="AUTOMATON, partitions by srcIP, within 1\\nminute";' in graph
    assert '"0 done" [label="done", peripheries=2];' in graph


def test_arcs_that_ignore_rows_are_gray() -> None:
    loop = SCAN.format("").replace(
        " SILENT ARC busy TO done WHEN n = 2", " ARC busy TO done ARC busy TO busy WHEN len > 9"
    )
    edges = arcs_of(automaton_graph(compile_query(loop)))
    gray = [edge for edge in edges if "color=gray" in edge[2]]
    label = 'label="len > 9; a row is ignored if no other\\narc applies'
    assert gray == [("0 busy", "0 busy", f'{label}", color=gray')]


def test_the_graph_of_a_row_pattern_has_the_arcs_of_its_automaton_and_quoted_texts() -> None:
    graph = automaton_graph(compile_query(MATCH))
    (start, *edges) = arcs_of(graph)
    states = {name.partition(" ")[2] for edge in edges for name in edge[:2]}
    assert len(states) == 4
    assert start[0] == "0"
    assert [edge[1].partition(" ")[2] for edge in edges].count("B") == 2
    assert any("prev(len)" in attributes or "len >" in attributes for _, _, attributes in edges)


def test_states_of_two_automata_are_different() -> None:
    inner = SCAN.format("")
    sql = f"SELECT * FROM ({inner}) AUTOMATON (ORDER BY match_end START idle FINAL done ARC idle TO done)"
    edges = arcs_of(automaton_graph(compile_query(sql)))
    assert ("1 idle", "1 done", 'label="every row') in edges
    assert ("0 idle", "0 busy", 'label="srcPort = 7; asked = ts') in edges


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("sql", [SCAN.format(""), MATCH, f"{MATCH} EMIT CHANGES"])
def test_graphviz_draws_the_graph(sql: str) -> None:
    graph = automaton_graph(compile_query(sql))
    drawn = subprocess.run(["dot", "-Tsvg"], input=graph, text=True, capture_output=True, check=True)
    assert drawn.stdout.count('class="edge"') == graph.count(" -> ")
    assert drawn.stderr == ""


def test_the_command_writes_the_graph_and_refuses_queries_without_automata(tmp_path: Path) -> None:
    status, graph, _ = run("explain", "--format", "dot", SCAN.format(""), cwd=tmp_path)
    assert (status, graph[:19]) == (0, "digraph automata {\n")
    assert run("explain", "-o", "scan.dot", SCAN.format(""), cwd=tmp_path)[0] == 0
    assert (tmp_path / "scan.dot").read_text() == graph
    count = "SELECT count(*) FROM packets"
    status, _, message = run("explain", "--format", "dot", count, cwd=tmp_path)
    assert status == 2
    assert "expected a query with MATCH_RECOGNIZE or AUTOMATON" in message
    status, _, message = run("explain", "--analyze", "--format", "dot", "x.pcap", count, cwd=tmp_path)
    assert status == 2
    assert "expected --format svg" in " ".join(message.split())
