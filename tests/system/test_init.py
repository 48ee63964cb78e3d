"""`wiretide init` writes a pipeline file that the other commands accept."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import wiretide
from queries.catalogue.catalogue import CATALOGUE
from queries.catalogue.topics import Topic
from queries.pipeline.file import read_pipeline
from tests.conformance.traffic import LINKS, generate_links
from tests.harness.command_line import environment, run


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
    (("*.pcap", "--topic", "talker"), 2, "got the topic 'talker', expected one of overview, talkers, protocols"),
    ((), 2, "no input: expected captures, folders, globs or interface:NAME"),
]


@pytest.mark.parametrize(("words", "expected", "message"), WRONG)
def test_wrong_words_write_nothing(words: tuple[str, ...], expected: int, message: str, folder: Path) -> None:
    (folder / "mine.toml").write_text("mine")
    status, out, err = run("init", *words, cwd=folder)
    assert (status, out) == (expected, ""), err
    assert message in err
    assert not (folder / "pipeline.toml").exists()
    assert (folder / "mine.toml").read_text() == "mine"


def test_topics_are_their_usual_queries_and_may_be_combined_with_queries(folder: Path) -> None:
    words = ("--topic", "handshakes", "--topic", "security", "--query", "@networks", "--query", "resets")
    assert run("init", "*.pcap", *words, cwd=folder)[0] == 0
    assert list(read_pipeline(folder / "pipeline.toml").queries) == [
        *("networks", "resets", "handshake-latency", "unanswered", "syn-floods", "horizontal-scans"),
    ]


@pytest.mark.parametrize("flows", [False, True])
def test_usual_queries_have_each_topic_once(flows: bool, folder: Path) -> None:
    assert run("init", "*.pcap", *(["--flows"] if flows else []), cwd=folder)[0] == 0
    queries = read_pipeline(folder / "pipeline.toml").queries.values()
    topics = ["flows"] if flows else ["overview", "talkers", "protocols", "handshakes", "security"]
    assert list(dict.fromkeys(query.topic for query in queries)) == topics


def answered(folder: Path, *answers: str) -> tuple[int, str]:
    """Run `wiretide init` on a terminal and answer its questions. Return the status and what the terminal shows."""
    terminal, end = os.openpty()
    command = [sys.executable, wiretide.__file__, "init"]
    # The process is the leader of a session with this terminal: otherwise Ctrl-C would be no signal.
    with subprocess.Popen(command, cwd=folder, env=environment(), preexec_fn=lambda: os.login_tty(end)) as process:
        os.close(end)
        shown = b""
        while b"Inputs [" not in shown:  # before the first question Ctrl-C would end Python's own start
            shown += os.read(terminal, 4096)
        os.write(terminal, "".join(f"{answer}\n" for answer in answers).encode())
        with contextlib.suppress(OSError):  # the end of a terminal whose process has ended
            while data := os.read(terminal, 4096):
                shown += data
    os.close(terminal)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def test_a_terminal_is_asked_and_wrong_answers_are_asked_again(folder: Path) -> None:
    first, second = captures(folder)
    answers = (
        "none.pcap",
        f"{first.name} {second.name}",
        "no",
        "weather",
        "talkers handshakes",
        "1 parsec",
        "10 seconds",
    )
    status, shown = answered(folder, *answers)
    assert status == 0, shown
    for reason in (
        "none.pcap: no such file or folder",
        "got the topic 'weather', expected one of overview, talkers",
        "expected a duration such as 500ms",
    ):
        assert reason in shown
    pipeline = read_pipeline(folder / "pipeline.toml")
    assert [Path(path).resolve() for paths in pipeline.links.values() for path in paths] == [first, second]
    assert {query.topic for query in pipeline.queries.values()} == {Topic.TALKERS, Topic.HANDSHAKES}
    assert {plan.window.range for plan in pipeline.plans()} == {10 * 10**9}


def test_empty_answers_take_the_proposed_capture_and_the_usual_topics(folder: Path) -> None:
    status, shown = answered(folder, "", "", "", "")
    assert status == 0, shown
    pipeline = read_pipeline(folder / "pipeline.toml")
    assert len(pipeline.links) == 1
    assert len({query.topic for query in pipeline.queries.values()}) == 5


def test_ctrl_c_at_a_question_writes_nothing(folder: Path) -> None:
    status, shown = answered(folder, "\x03")
    assert status == 130
    assert "Traceback" not in shown
    assert not (folder / "pipeline.toml").exists()
