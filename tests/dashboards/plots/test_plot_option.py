"""`wiretide query --plot`, as a process: the files, the printed rows, and what is refused."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.harness.command_line import run

pytestmark = pytest.mark.slow("a process for each case")
TALKERS = "SELECT srcIP, count(*) AS n FROM p [RANGE 10 seconds] GROUP BY srcIP"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("plots")
    assert run("generate", "a.pcap", "--duration", "60", "--rate", "20", "--groups", "10", cwd=folder)[0] == 0
    (folder / "t.protocol").write_text("PROTOCOL t { TIME ts (increasing); UINT port; UINT n; }\n")
    (folder / "t.csv").write_text(
        "ts,port,n\n2024-05-01 10:00:03,53,7\n2024-05-01 10:00:04,80,9\n2024-05-01 10:01:20,53,1\n"
    )
    return folder


def test_a_plot_replaces_the_rows(folder: Path) -> None:
    status, out, error = run("query", "a.pcap", TALKERS, "--plot", "a.svg", cwd=folder)
    assert (status, out) == (0, "")
    assert error.startswith("a.svg: 1 chart of ")
    assert ET.fromstring((folder / "a.svg").read_text()).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_format_prints_the_rows_too(folder: Path) -> None:
    status, out, error = run("query", "a.pcap", TALKERS, "--plot", "b.png", "--format", "csv", cwd=folder)
    assert (status, error.splitlines()[-1][:17]) == (0, "b.png: 1 chart of")
    assert out == run("query", "a.pcap", TALKERS, "--format", "csv", cwd=folder)[1]
    assert (folder / "b.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_a_page_has_the_rows(folder: Path) -> None:
    assert run("query", "a.pcap", "@top-talkers", "--plot", "c.html", cwd=folder)[0] == 0
    page = (folder / "c.html").read_text()
    rows = run("query", "a.pcap", "@top-talkers", "--format", "csv", cwd=folder)[1].splitlines()[1:]
    for row in rows:
        assert f'<td class="text">{row.split(",")[0]}</td>' in page
    assert page.count("<svg") == 1


def test_results_of_tables_are_drawn(folder: Path) -> None:
    sql = "SELECT port, sum(n) AS total FROM t [RANGE 1 minute] GROUP BY port"
    status, _, error = run("query", "t.csv", sql, "--schema", "t.protocol", "--plot", "t.svg", cwd=folder)
    assert (status, error) == (0, "t.svg: 1 chart of 3 rows\n")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("a.pcap", TALKERS, "--plot", "a.gif"), 2, "--plot a.gif: got a name without a known suffix, expected"),
        (("a.pcap", "SELECT ts FROM p", "--plot", "x.svg"), 2, "got a query of rows, expected values to draw"),
        (("a.pcap", TALKERS + " HAVING n > 9999", "--plot", "x.svg"), 2, "the answer has no rows"),
        (("a.pcap", "@floods", "@links", "-o", "d", "--plot", "x.svg"), 2, "got several queries, expected one"),
        (("interface:lo", TALKERS, "--plot", "x.svg"), 2, "--plot reads complete inputs: got interface:lo"),
        (("a.pcap", TALKERS, "--plot", "none/x.svg"), 1, "none/x.svg: cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_refused(words: tuple[str, ...], status: int, message: str, folder: Path) -> None:
    got, out, error = run("query", *words, cwd=folder)
    assert (got, out) == (status, "")
    assert message in error
    assert "Traceback" not in error
    assert not (folder / "x.svg").exists()
