"""`wiretide init`: write a pipeline file from inputs and ready queries."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from capture.errors import InputError, WiretideError

QUERIES = ("bandwidth", "top-talkers", "top-conversations", "protocols", "ports", "resets", "syn-floods")
"""Default queries over packets."""

FLOW_QUERIES = ("exporters", "flow-talkers", "flow-interfaces")
"""Default queries over flow exports."""

INTERFACE = "interface:"


class InitError(WiretideError):
    """A pipeline file that exists, which is not replaced."""


def init(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUT...", help="Captures, folders, globs, or interface:NAME.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The pipeline file.")] = Path(
        "pipeline.toml"
    ),
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="@NAME", help="A ready query (`wiretide queries` lists them). Repeatable."),
    ] = None,
    flows: Annotated[bool, typer.Option("--flows", help="The inputs are flow exports: queries of flows.")] = False,
    window: Annotated[str, typer.Option(metavar="TIME", help="The length of the windows.")] = "1 minute",
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a pipeline file with comments.

    Each input becomes a link, and each ready query a query of the pipeline:

    \b
    wiretide init trace.pcap
    wiretide init main1.pcap 'backup-*.pcap' --query @top-talkers --query @resets
    wiretide init interface:eth0 --window "10 seconds"
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from queries.catalogue.catalogue import ready_query
    from queries.pipeline.file import parse_pipeline

    if output.exists() and not force:
        raise InitError(f"{output}: the file exists; expected --force, or another file with -o")
    for text in inputs:
        if not text.startswith(INTERFACE) and not Path(text).exists() and not glob.glob(text):  # noqa: PTH207
            raise InputError(f"{text}: no such file or folder, and no file has this pattern")
    names = [name.removeprefix("@") for name in query or (FLOW_QUERIES if flows else QUERIES)]
    sections = []
    for name in dict.fromkeys(names):
        ready = ready_query(name)
        has_window = any(parameter.name == "window" for parameter in ready.parameters)
        sections.append((ready.name, ready.sentence, has_window))
    folder = output.absolute().parent
    links = name_links(inputs, names)
    text = "\n".join(_make_lines(links, sections, window, folder, output.name)) + "\n"
    settings = parse_pipeline(text, folder)
    settings.plans()  # reports a wrong query or parameter before the file is written
    output.write_text(text, "utf-8")
    print(f"{output}: links {', '.join(links)}; queries {', '.join(settings.queries)}")
    if settings.spooled:
        print(f"next: wiretide capture {output}")
    print(f"next: wiretide run {output}")


def name_links(inputs: Iterable[str], taken: Sequence[str]) -> dict[str, str]:
    """Return a name for each input: the name of its file or interface, in letters, digits and underscores.

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
    links: dict[str, str], queries: Sequence[tuple[str, str, bool]], window: str, folder: Path, file: str
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
    yield "[metrics]                       # http://127.0.0.1:9464/ is the live page, …/metrics is for Prometheus"
    yield "# port = 9464"
    yield "# top = 10                      # groups of each query that have series of their own"
