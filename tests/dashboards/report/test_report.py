"""Reports about captures, as a process and in a browser: every section, damaged and empty inputs, names with markup."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from dashboards.report.sections import FLOW_SECTIONS, MAX_WINDOWS, PACKET_SECTIONS, WINDOW_LENGTHS, window_length
from tests.harness.browser import Messages, chromium
from tests.harness.command_line import run
from tests.references.netflow_bytes import v5, v5_record

TRAFFIC = ("--duration", "120", "--rate", "60", "--groups", "40", "--traffic", "dns:1", "--traffic", "tls:0.3")
MARKUP = "<img src=x onerror=alert(1)>.pcap"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures: a link with a flood, and one with disorder whose name is markup."""
    folder: Path = tmp_path_factory.mktemp("report")
    assert run("generate", "a.pcap", *TRAFFIC, "--attack", "syn-flood:40-60:50", cwd=folder)[0] == 0
    assert run("generate", MARKUP, *TRAFFIC, "--disorder", "band", "--span", "1.5", "--seed", "5", cwd=folder)[0] == 0
    return folder


@pytest.fixture(scope="module")
def document(folder: Path) -> str:
    assert run("report", "a.pcap", MARKUP, cwd=folder) == (0, "report.html\n", "")
    return (folder / "report.html").read_text()


def section(document: str, name: str) -> str:
    """Return the text of a section."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', document, re.DOTALL)
    assert found is not None, name
    return html.unescape(re.sub(r"<[^>]+>", "\n", found[1]))


@pytest.mark.parametrize("first", [0, 10**9 * 1_700_000_000])
@pytest.mark.parametrize("length", [*WINDOW_LENGTHS[::4], 1, 10**12])
def test_timelines_have_few_windows(first: int, length: int) -> None:
    window = window_length(first, first + length * 100)
    assert length * 100 < window * MAX_WINDOWS or window == WINDOW_LENGTHS[-1]
    shorter = [each for each in WINDOW_LENGTHS if each < window]
    assert not shorter or length * 100 >= shorter[-1] * MAX_WINDOWS


@pytest.mark.slow("a process")
def test_a_report_has_every_section(document: str) -> None:
    for each in PACKET_SECTIONS:
        assert f'<a href="#{each.name}">' in document
        assert section(document, each.name).strip().startswith(each.title)
    assert "2 links" in section(document, "summary")
    assert "198.19.0.1" in section(document, "floods")
    assert "have a smaller time than an earlier record of the same input" in section(document, "times")
    assert "2 seconds" in section(document, "times")
    assert document.count("<svg") == document.count("</svg>") >= 8


@pytest.mark.slow("a process")
def test_rows_are_those_of_the_queries(document: str, folder: Path) -> None:
    status, out, _ = run("query", "a.pcap", MARKUP, "@top-talkers", "--format", "csv", cwd=folder)
    assert status == 0
    rows = [line.split(",") for line in out.splitlines()[1:]]
    shown = section(document, "talkers").split("\n")
    for address, packets, size in rows:
        assert {address, f"{int(packets):,}", f"{int(size):,}"} <= set(shown)


@pytest.mark.slow("a process")
def test_names_with_markup_are_text(document: str) -> None:
    assert "<img" not in document
    assert html.escape(MARKUP.removesuffix(".pcap")) in document
    assert "script" not in re.sub(r"default-src[^\"]*", "", document).lower()


@pytest.mark.slow("starts a browser")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_a_report_without_requests_and_defects(
    scheme: str, document: str, folder: Path, tmp_path: Path
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    url = (folder / "report.html").as_uri()
    with chromium() as browser:
        page: Any = browser.new_context(color_scheme=scheme, bypass_csp=True).new_page()  # axe adds a script
        messages = Messages(page, url)
        page.goto(url)
        assert page.locator("figure svg").count() >= 8
        violations = Axe().run(page).response["violations"]
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        page.context.close()
    assert [(each["id"], each["impact"], [node["html"] for node in each["nodes"]]) for each in violations] == []
    assert messages.lines == []


@pytest.mark.slow("a process")
def test_a_damaged_capture_has_a_report_with_a_warning(folder: Path, tmp_path: Path) -> None:
    data = (folder / "a.pcap").read_bytes()
    (tmp_path / "cut.pcap").write_bytes(data[: len(data) // 2 + 7])
    status, out, error = run("report", "cut.pcap", "-o", "cut.html", cwd=tmp_path)
    assert (status, out) == (0, "cut.html\n")
    assert error.startswith("wiretide: warning: cut.pcap: cut in record, after")
    assert error.removeprefix("wiretide: warning: ").strip() in section((tmp_path / "cut.html").read_text(), "summary")


@pytest.mark.slow("a process")
def test_flow_exports_have_their_own_sections(folder: Path, tmp_path: Path) -> None:
    records = [v5_record(bytes([10, 0, 0, n]), octets=100 + n, packets=2, first=n, last=1000 * n) for n in range(1, 20)]
    (tmp_path / "exports.bin").write_bytes(v5(records, uptime=60_000, seconds=1_700_000_000))
    assert run("report", "exports.bin", "--flows", "--window", "10 s", cwd=tmp_path) == (0, "report.html\n", "")
    document = (tmp_path / "report.html").read_text()
    for each in FLOW_SECTIONS:
        assert section(document, each.name).strip().startswith(each.title)
    assert "19 flow records of 1 link" in section(document, "summary")


@pytest.mark.slow("a process for each case")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "no input"),
        (("missing.pcap",), 1, "missing.pcap"),
        (("empty.pcap",), 1, "empty.pcap: no IP packets; for flow exports write --flows"),
        (("text.pcap",), 1, "text.pcap: "),
        (("a.pcap", "--window", "soon"), 2, "--window: expected a duration"),
        (("a.pcap", "--window", "1us"), 2, "expected at least 1 ms"),
        (("a.pcap", "--flows"), 1, "a.pcap: no flows: without --flows"),
        (("interface:lo",), 1, "got a live interface, expected a file"),
    ],
)
def test_wrong_inputs_are_errors(
    words: tuple[str, ...], status: int, message: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.pcap").write_bytes((folder / "a.pcap").read_bytes()[:24])
    (tmp_path / "text.pcap").write_text("no capture\n")
    (tmp_path / "a.pcap").symlink_to(folder / "a.pcap")
    got, out, error = run("report", *words, cwd=tmp_path)
    assert (got, out) == (status, "")
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "report.html").exists()
