"""Answers as OpenMetrics: the samples of the windows, as promtool accepts them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.harness.command_line import run
from tests.harness.prometheus_server import program

pytestmark = pytest.mark.slow("a process for each case")
SQL = "SELECT srcIP, count(*) AS packets FROM p [RANGE 10 seconds] GROUP BY srcIP"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("openmetrics")
    assert run("generate", "a.pcap", "--duration", "60", "--rate", "20", "--groups", "30", cwd=folder)[0] == 0
    return folder


def test_samples_add_up_to_the_answer(folder: Path) -> None:
    status, out, error = run("query", "a.pcap", SQL, "--format", "openmetrics", cwd=folder)
    assert (status, error, out.endswith("# EOF\n")) == (0, "", True)
    (family,) = text_string_to_metric_families(out)
    rows = [line.split(",") for line in run("query", "a.pcap", SQL, "--format", "csv", cwd=folder)[1].splitlines()[1:]]
    expected: dict[float, int] = {}
    for _, end, _, packets in rows:
        expected[int(end) / 1e9] = expected.get(int(end) / 1e9, 0) + int(packets)
    found: dict[float, float] = {}
    for sample in family.samples:
        found[float(sample.timestamp)] = found.get(float(sample.timestamp), 0) + sample.value
    assert found == expected
    assert family.name == "wiretide_query_query_packets"


def test_promtool_makes_blocks_of_it(folder: Path) -> None:
    words = ("@links", "--param", "window=10 seconds", "-o", "a.om")
    assert run("query", "a.pcap", *words, cwd=folder) == (0, "", "")
    samples = [line for line in (folder / "a.om").read_text().splitlines() if line[0] != "#"]
    assert all(line.startswith("wiretide_query_links_") for line in samples)
    command = [program("promtool"), "tsdb", "create-blocks-from", "openmetrics", "a.om", "data"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    assert len(list((folder / "data").iterdir())) == 1


def test_several_queries_have_a_file_each(folder: Path) -> None:
    words = ("@links", "@protocols", "--param", "window=10 seconds", "--format", "openmetrics", "-o", "answers")
    assert run("query", "a.pcap", *words, cwd=folder) == (0, "", "")
    assert sorted(path.name for path in (folder / "answers").iterdir()) == ["links.om", "protocols.om"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("SELECT count(*) AS n FROM p",), "has no windows of time; expected for example [RANGE 1 minute]"),
        (("SELECT ts FROM p",), "the results of query 'query' have no windows"),
        ((SQL, "--times", "ns"), "--times ns with openmetrics"),
    ],
)
def test_answers_without_windows_are_refused(words: tuple[str, ...], message: str, folder: Path) -> None:
    status, out, error = run("query", "a.pcap", *words, "--format", "openmetrics", cwd=folder)
    assert (status, out) == (2, "")
    assert message in error
