"""`wiretide init`: write a pipeline file from inputs and ready queries, given as options or as answers to questions."""

from __future__ import annotations

import glob
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from capture.errors import InputError, WiretideError
from dashboards.command_options import Argument, Option, UsageError

TOPIC_QUERIES = {
    "overview": ("bandwidth",),
    "talkers": ("top-talkers", "top-conversations"),
    "protocols": ("protocols", "ports"),
    "handshakes": ("handshake-latency", "unanswered", "resets"),
    "security": ("syn-floods", "horizontal-scans"),
    "flows": ("exporters", "flow-talkers", "flow-interfaces"),
}
"""The ready queries of each topic. There is one Grafana dashboard per topic."""

PACKET_TOPICS, FLOW_TOPICS = tuple(TOPIC_QUERIES)[:-1], ("flows",)

INTERFACE = "interface:"
WINDOW = "1 minute"
PORT = 9464
OUTPUT = Path("pipeline.toml")
CAPTURES = (".pcap", ".pcapng", ".cap", ".gz", ".zst", ".nfcapd")
"""Suffixes of the files that the command proposes."""

MAX_PROPOSED = 6
"""Maximum number of proposed files and interfaces."""


Answer = TypeVar("Answer")


class InitError(WiretideError):
    """The pipeline file exists, and is not replaced."""


def init(
    inputs: Annotated[
        list[str] | None,
        Argument(
            metavar="[INPUT]...",
            help="Captures, folders, globs, or interface:NAME. Without an input, the command asks on the terminal.",
        ),
    ] = None,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The pipeline file.")] = OUTPUT,
    query: Annotated[
        list[str] | None,
        Option(metavar="@NAME", help="A ready query (`wiretide queries` lists them). Repeatable."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        Option(metavar="NAME", help=f"The usual queries of a topic: {', '.join(TOPIC_QUERIES)}. Repeatable."),
    ] = None,
    flows: Annotated[bool, Option("--flows", help="The inputs are flow exports, so use queries over flows.")] = False,
    window: Annotated[str, Option(metavar="TIME", help="The length of the windows.")] = WINDOW,
    port: Annotated[
        int, Option(min=0, max=65535, help="The port of the live page and the metrics; 0: any free port.")
    ] = PORT,
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a pipeline file with comments.

    Each input becomes a link, and each ready query a query of the pipeline:

    \b
    wiretide init trace.pcap
    wiretide init main1.pcap 'backup-*.pcap' --topic talkers --query @resets
    wiretide init interface:eth0 --window "10 seconds"

    Without an input, on a terminal, the command asks for all of this.
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    if output.exists() and not force:
        raise InitError(f"{output}: the file exists; expected --force, or another file with -o")
    if not inputs:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("no input: expected captures, folders, globs or interface:NAME")
        try:
            inputs, flows, topic, window = _ask(flows, topic, window)
        except typer.Abort:  # Ctrl-C or the end of the input at a question
            raise KeyboardInterrupt from None
    for text in inputs:
        check_input(text)
    names = [name.removeprefix("@") for name in query or ()]
    if topic or not names:
        names += [name for topic_name in topic or _usual_topics(flows) for name in _queries_of(topic_name)]
    _write(inputs, names, window, port, output)


def check_input(text: str) -> None:
    """Raise InputError for a file, folder or glob that does not exist. Interfaces are not opened."""
    if not text.startswith(INTERFACE) and not Path(text).exists() and not glob.glob(text):  # noqa: PTH207
        raise InputError(f"{text}: no such file or folder, and no file has this pattern")


def _usual_topics(flows: bool) -> Sequence[str]:
    return FLOW_TOPICS if flows else PACKET_TOPICS


def _queries_of(topic: str) -> Sequence[str]:
    """Return the queries of a topic. Raises UsageError for an unknown topic."""
    if topic not in TOPIC_QUERIES:
        raise UsageError(f"got the topic {topic!r}, expected one of {', '.join(TOPIC_QUERIES)}")
    return TOPIC_QUERIES[topic]


def _ask(flows: bool, topics: list[str] | None, window: str) -> tuple[list[str], bool, list[str], str]:
    """Ask for inputs, topics and windows on the terminal. After a wrong answer, print the reason and ask again."""
    from lowlevel.durations import parse_duration

    def inputs_of(text: str) -> list[str]:
        inputs = text.split()
        if not inputs:
            raise InputError("got nothing, expected at least one")
        for path in inputs:
            check_input(path)
        return inputs

    def topics_of(text: str) -> list[str]:
        names = re.split(r"[,\s]+", text.strip())
        for name in names:
            _queries_of(name)
        return names

    def window_of(text: str) -> str:
        parse_duration(text)
        return text

    proposed = _propose_inputs()
    typer.echo("Inputs: captures, folders, globs, or interface:NAME, separated by blanks.", err=True)
    if proposed:
        typer.echo(f"For example: {' '.join(proposed)}", err=True)
    inputs = _prompt("Inputs", proposed[0] if proposed else None, inputs_of)
    flows = flows or typer.confirm("Are they flow exports (NetFlow, IPFIX)?", default=False, err=True)
    usual = topics or list(_usual_topics(flows))
    typer.echo(f"Topics: {', '.join(TOPIC_QUERIES)}. Each has a few queries and a dashboard.", err=True)
    chosen = _prompt("Topics", " ".join(usual), topics_of)
    return inputs, flows, chosen, _prompt("Length of the windows", window, window_of)


def _prompt(question: str, default: str | None, parse: Callable[[str], Answer]) -> Answer:
    while True:
        try:
            return parse(typer.prompt(question, default=default, err=True))
        except (WiretideError, ValueError, UsageError) as error:
            typer.echo(f"{error}", err=True)


def _propose_inputs() -> list[str]:
    """Return captures of the working folder, the newest first, and interfaces of this machine that are up."""
    files = [path for path in Path().iterdir() if path.name.lower().endswith(CAPTURES) and path.is_file()]
    files.sort(key=lambda path: -path.stat().st_mtime)
    folder = Path("/sys/class/net")
    names = sorted(os.listdir(folder)) if folder.is_dir() else []  # noqa: PTH208
    up = [name for name in names if _state_of(folder / name) in ("up", "unknown") and name != "lo"]
    return [*(path.name for path in files[:MAX_PROPOSED]), *(f"{INTERFACE}{name}" for name in up[:MAX_PROPOSED])]


def _state_of(interface: Path) -> str:
    try:
        return (interface / "operstate").read_text().strip()
    except OSError:
        return ""


def _write(inputs: Sequence[str], names: Sequence[str], window: str, port: int, output: Path) -> None:
    """Write the file. For a wrong query or parameter, raise an error before the file is written."""
    from queries.catalogue.catalogue import ready_query
    from queries.pipeline.file import parse_pipeline

    sections = []
    for name in dict.fromkeys(names):
        ready = ready_query(name)
        has_window = any(parameter.name == "window" for parameter in ready.parameters)
        sections.append((ready.name, ready.sentence, has_window))
    folder = output.absolute().parent
    links = name_links(inputs, names)
    text = "\n".join(_make_lines(links, sections, window, port, folder, output.name)) + "\n"
    settings = parse_pipeline(text, folder)
    settings.plans()  # reports a wrong query or parameter before the file is written
    output.write_text(text, "utf-8")
    print(f"{output}: links {', '.join(links)}; queries {', '.join(settings.queries)}")
    if settings.spooled:
        print(f"next: wiretide capture {output}")
    print(f"next: wiretide run {output}")


def name_links(inputs: Iterable[str], taken: Sequence[str]) -> dict[str, str]:
    """Return a link name for each input: the name of its file or interface, with only letters, digits and underscores.

    >>> name_links(["a/main-1.pcap", "b/main-1.pcap.gz", "interface:eth0", "7.pcap"], [])
    {'main_1': 'a/main-1.pcap', 'main_1_2': 'b/main-1.pcap.gz', 'eth0': 'interface:eth0', 'link_7': '7.pcap'}
    """
    from lowlevel.kinds import KINDS

    links: dict[str, str] = {}
    used = {name.lower() for name in (*taken, *KINDS)}
    for text in inputs:
        stem = text.removeprefix(INTERFACE) if text.startswith(INTERFACE) else Path(text).name.split(".")[0]
        base = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_") or "link"
        base = base if base[0].isalpha() else f"link_{base}"
        name, number = base, 1
        while name.lower() in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name.lower())
        links[name] = text
    return links


def _make_lines(
    links: dict[str, str], queries: Sequence[tuple[str, str, bool]], window: str, port: int, folder: Path, file: str
) -> Iterable[str]:
    yield "# A pipeline of Wiretide. docs/guide/pipeline-file.md describes all keys."
    yield "#"
    yield f"#   wiretide explain {file}       shows links, tables and plans"
    yield f"#   wiretide run {file}           answers the queries, writes results, serves the live page"
    yield f"#   wiretide dashboards {file} -o monitoring     writes dashboards for Grafana"
    yield ""
    yield 'folder = "state"                # state, results and log of `wiretide run`'
    yield "# speed = 60                    # replay captures at 60 times their speed; default: as fast as possible"
    files = {name: text for name, text in links.items() if not text.startswith(INTERFACE)}
    if files:
        yield ""
        yield "[links]                         # names in FROM; `packets` are the packets of all links"
        for name, text in files.items():
            path = Path(text).absolute()
            shown = path.relative_to(folder) if path.is_relative_to(folder) else path
            yield f"{name} = {json.dumps(str(shown), ensure_ascii=False)}"
    for name, text in links.items():
        if text.startswith(INTERFACE):
            yield ""
            yield f"[links.{name}]                  # `wiretide capture {file}` reads it, into the spool"
            yield f"capture = {json.dumps(text)}"
            yield f'spool = "spool/{name}"'
            yield '# promise = "late 10s"          # how late packets may be'
            yield '# lull = "5s"                   # close windows by the clock if no packet arrives'
    for name, sentence, has_window in queries:
        yield ""
        yield f"[queries.{name}]"
        yield f"# {sentence}"
        yield f'sql = "@{name}"'
        if has_window:
            yield f"params = {{ window = {json.dumps(window, ensure_ascii=False)} }}"
    rule_queries = [name for name, _, has_window in queries if has_window]
    if rule_queries:
        yield ""
        yield "# [alerts.NAME]                 # a rule over the windows of a query: docs/guide/alerts.md"
        yield f'# query = "{rule_queries[0]}"'
        yield '# where = "CONDITION"           # on the columns of its result'
    yield ""
    yield f"[metrics]                       # http://127.0.0.1:{port}/ is the live page, …/metrics is for Prometheus"
    yield "# port = 9464" if port == PORT else f"port = {port}"
    yield "# top = 10                      # groups of each query that have series of their own"
