"""`wiretide init` writes a pipeline file that the other commands accept."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries.catalogue.catalogue import CATALOGUE
from queries.pipeline.file import read_pipeline
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.command_line import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generate_links(tmp_path)
    return tmp_path


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.pcap"))


def test_the_pipeline_answers_its_queries_over_the_inputs(folder: Path) -> None:
    first, second = captures(folder)
    status, out, err = run("init", first.name, second, "-o", "p.toml", "--window", "10 seconds", cwd=folder)
    assert (status, err) == (0, "")
    pipeline = read_pipeline(folder / "p.toml")
    assert [Path(path).resolve() for paths in pipeline.links.values() for path in paths] == [first, second]
    links = ", ".join(pipeline.links)
    assert out.splitlines()[0].startswith(f"p.toml: links {links}; queries bandwidth, top-talkers, ")
    assert out.splitlines()[-1] == "next: wiretide run p.toml"
    plans = pipeline.plans()
    assert {plan.window.range for plan in plans} == {10 * 10**9}
    # The same file serves the dashboards and the back-fill.
    assert run("dashboards", "p.toml", "-o", "mon", cwd=folder)[0] == 0
    status, out, err = run("backfill", "p.toml", "-o", "samples", cwd=folder)
    assert (status, err) == (0, "")
    assert out.startswith("samples/wiretide-2023-11-14.om: ")
    assert len(LINKS) == len(pipeline.links)


@pytest.mark.parametrize(
    "name", [name for name, each in CATALOGUE.items() if {"window"} <= {one.name for one in each.parameters}]
)
def test_each_ready_query_with_a_window_can_be_in_a_pipeline(name: str, tmp_path: Path) -> None:
    """In one process: a query of a pipeline needs results before the end of the input."""
    text = f'[links]\nM = "m.pcap"\n[queries.q]\nsql = "@{name}"\nparams = {{ window = "1 minute" }}\n'
    (tmp_path / "p.toml").write_text(text)
    (plan,) = read_pipeline(tmp_path / "p.toml").plans()
    assert plan.waiting_reason is None


def test_an_interface_is_a_link_of_the_node(tmp_path: Path) -> None:
    status, out, err = run("init", "interface:lo", "--query", "@top-talkers", "--query", "resets", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "pipeline.toml: links lo; queries top-talkers, resets",
        "next: wiretide capture pipeline.toml",
        "next: wiretide run pipeline.toml",
    ]
    assert read_pipeline(tmp_path / "pipeline.toml").spooled["lo"].spool == tmp_path / "spool" / "lo"


WRONG = [
    (("none.pcap",), 1, "none.pcap: no such file or folder, and no file has this pattern"),
    (("*.pcap", "-o", "mine.toml"), 1, "mine.toml: the file exists; expected --force, or another file with -o"),
    (("*.pcap", "--query", "@top-talker"), 2, "top-talkers"),
    (("*.pcap", "--window", "1 parsec"), 2, "1 parsec"),
]


@pytest.mark.parametrize(("words", "expected", "message"), WRONG)
def test_wrong_words_write_nothing(words: tuple[str, ...], expected: int, message: str, folder: Path) -> None:
    (folder / "mine.toml").write_text("mine")
    status, out, err = run("init", *words, cwd=folder)
    assert (status, out) == (expected, ""), err
    assert message in err
    assert not (folder / "pipeline.toml").exists()
    assert (folder / "mine.toml").read_text() == "mine"
