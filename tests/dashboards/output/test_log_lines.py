"""Lines of a run as JSON documents: a line, a warning, several lines, and the error that ends the run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dashboards.commands.app import make_app
from dashboards.output.log_lines import make_document, print_document, print_line

PIPELINE = """[links]
M = "missing.pcap"
[queries.q]
sql = "SELECT count(*) FROM M [RANGE 1 s]"
"""


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        ("metrics at x", "info", "metrics at x"),
        ("warning: a\u2028b", "warning", "a\u2028b"),
        ("\nall input read\n\ntable\n", "info", "all input read\n\ntable"),
        ('a "quoted" \x1b[31m text', "info", 'a "quoted" \x1b[31m text'),
    ],
)
def test_a_line_is_one_document_of_ascii(line: str, level: str, message: str) -> None:
    text = make_document(line, "info", 1_700_000_000_250_000_000)
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"time": "2023-11-14T22:13:20.250Z", "level": level, "message": message}


def test_documents_and_lines_are_printed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("a\x1bb")
    print_document("failed", "error")
    line, document = capsys.readouterr().out.splitlines()
    assert line == "a\\x1bb"
    assert json.loads(document)["level"] == "error"


def test_the_error_that_ends_a_run_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(PIPELINE)
    done = CliRunner().invoke(make_app(), ["run", str(tmp_path / "p.toml"), "--log-format", "json"])
    assert done.exit_code == 1
    *_, last = done.stdout.splitlines()
    document = json.loads(last)
    assert document["level"] == "error"
    assert "missing.pcap" in document["message"]
