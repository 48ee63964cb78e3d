"""`wiretide translate`, and files with rules in place of a query.

Finds: a language that is chosen wrongly, and a rule file that is read as SQL or as an input.
"""

from pathlib import Path

import pytest

from queries.pipeline.file import parse_pipeline
from queries.query_text import query_text
from queries.text.errors import QueryError
from tests.harness.command_line import run
from tests.references.small_captures import udp, write

EQL = "network where destination.port == 53"
SIGMA = "title: dns\ndetection:\n    a:\n        destination.port: 53\n    condition: a\n"
SQL = "SELECT ts, srcIP, srcPort, destIP, destPort\nFROM packets\nWHERE destPort = 53"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "a.pcap", [(1, udp("10.0.0.1", "10.0.0.2", 4000, 53)), (2, udp("10.0.0.1", "10.0.0.2", 4000, 54))])
    (tmp_path / "dns.eql").write_text(EQL)
    (tmp_path / "dns.yml").write_text(SIGMA)
    return tmp_path


@pytest.mark.slow("six processes")
def test_the_command_prints_a_query(folder: Path) -> None:
    assert run("translate", "dns.eql", cwd=folder)[:2] == (0, SQL + "\n")
    assert run("translate", "dns.yml", cwd=folder)[:2] == (0, SQL + "\n")
    assert run("translate", SIGMA, "--language", "sigma", cwd=folder)[:2] == (0, SQL + "\n")
    status, text, _ = run("translate", EQL, "--rows", "flows", cwd=folder)
    assert (status, "FROM flows" in text) == (0, True)
    status, _, message = run("translate", "process where true", cwd=folder)
    assert (status, "line 1, column 1: got the event category 'process'" in message) == (2, True)
    status, _, message = run("translate", "none.eql", cwd=folder)
    assert (status, "none.eql: No such file" in message) == (1, True)


@pytest.mark.slow("two processes")
@pytest.mark.parametrize("name", ["dns.eql", "dns.yml"])
def test_a_file_with_a_rule_takes_the_place_of_a_query(name: str, folder: Path) -> None:
    status, text, _ = run("query", "a.pcap", name, "--format", "csv", cwd=folder)
    assert (status, text.splitlines()[1:]) == (0, ["1000000000,10.0.0.1,4000,10.0.0.2,53"])


def test_a_pipeline_file_may_name_a_file_with_a_rule(folder: Path) -> None:
    text = '[links]\na = "a.pcap"\n[queries.dns]\nsql = "dns.eql"\n'
    pipeline = parse_pipeline(text, folder)
    assert [query.sql for query in pipeline.queries.values()] == [SQL]


def test_a_rule_that_is_wrong_is_an_error_of_the_rule(folder: Path) -> None:
    (folder / "dns.eql").write_text("network where destination.prt == 53")
    with pytest.raises(QueryError) as error:
        query_text(str(folder / "dns.eql"))
    assert error.value.choices[0] == "destination.port"
    assert error.value.column == 15
