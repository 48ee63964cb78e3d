"""Every command, query, pipeline file, Python block and notebook of the guide works, and prints what the page shows.

A page that is not run ages: options are renamed, queries no longer compile, and outputs belong to older versions.
Outputs are compared with those of the captures that the tutorial and the cookbook generate, so a change of the
generator is noticed too. `python -m tests.documents PAGE…` records outputs again.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from dashboards.alerts.evaluation import Evaluation
from dashboards.prometheus.pipeline_series import make_pipeline_series
from lowlevel.expressions.types import Type
from queries.gsql import compile_tree
from queries.pipeline.alert_settings import RECEIVER_KEYS, RULE_KEYS
from queries.pipeline.file import PageSettings, PipelineFile, parse_pipeline
from queries.pipeline.node_settings import LINK_KEYS, NODE_KEYS, NodeSettings
from queries.pipeline.table_settings import TABLE_KEYS
from queries.plans.subquery_values import Values, with_values
from queries.text import tree
from queries.text.parser import parse_query
from tests.documents import notebooks
from tests.documents.blocks import GUIDE, ROOT, Block, blocks_of, commands_of, is_shown, sql_statements
from tests.documents.terminal import Terminal

NOTEBOOKS = sorted(GUIDE.glob("*.ipynb"))
MAX_NOTEBOOK_BYTES = 64 << 10
PAGES = [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]
LISTS = {
    "bad.txt": "203.0.113.7\n198.51.100.0/24\n",
    "leases.csv": "prefix,label,from,to\n192.0.2.5,printer,2024-05-01T09:10:00Z,\n",
    "blocked.csv": "prefix,from,to\n192.0.2.5,2024-05-01T09:10:00Z,\n",
    "usual_ports.txt": "53\n80\n443\n",
    "monitoring.txt": "192.0.2.5\n",
    "manuf": "00:00:0c Cisco Systems\n",
    "customers.tbl": "198.51.100.0/24 Example Ltd.\n",
    "c2.arcs": "ARC idle TO contact WHEN server = '203.0.113.9' SET indicator = 'botnet 17'\n",
}
"""Files that queries of the guide name without showing how they are made."""

GENERATED: dict[str, str] = {}
"""Output by command, of those that have generated the captures."""

COMPLETION = {
    "[links": '[links]\nMain1 = "main1.pcap"\n',
    "[queries": '[queries.talkers]\nsql = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM Main1 [RANGE 1 s] '
    'GROUP BY srcIP"\n[queries.scans]\nsql = "@vertical-scans"\nparams = { window = "1 minute" }\n',
}
"""Sections that a pipeline file needs and that a page may leave out."""


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """A terminal in a folder with all captures that pages generate."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "docs").symlink_to(ROOT / "docs")
    for name, text in LISTS.items():
        (folder / name).write_text(text)
    with contextlib.closing(Terminal(folder)) as terminal:
        for page in (GUIDE / "tutorial.md", GUIDE / "cookbook.md"):
            for command in (command for block in runnable(page, "console") for command in commands_of(block)):
                if command.text.startswith("wiretide generate"):
                    GENERATED[command.text] = terminal.run(command)
        yield terminal


@pytest.fixture
def prepared(terminal: Terminal, tmp_path: Path) -> Iterator[Terminal]:
    """The terminal in a new folder with links to the captures."""
    shared = terminal.folder
    for path in shared.iterdir():
        (tmp_path / path.name).symlink_to(path)
    terminal.folder = tmp_path
    yield terminal
    terminal.folder = shared


def runnable(page: Path, language: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == language and not block.not_run]


def ids(page: Path) -> str:
    return page.name


SLOW_PAGES = {"catalogue.md": "57 commands", "cookbook.md": "57 commands"}


def with_marks(page: Path) -> Any:
    reason = SLOW_PAGES.get(page.name)
    return pytest.param(page, marks=[pytest.mark.slow(reason)] if reason else [])


@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES], ids=ids)
def test_commands_print_what_the_page_shows(page: Path, prepared: Terminal) -> None:
    assert differences(page, prepared, spark=False) == {}


@pytest.mark.spark
@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if any(command.needs_spark for block in runnable(page, "console") for command in commands_of(block))
    ],
    ids=ids,
)
def test_commands_on_spark_print_what_the_page_shows(page: Path, prepared: Terminal) -> None:
    assert differences(page, prepared, spark=True) == {}


def differences(page: Path, terminal: Terminal, *, spark: bool) -> dict[str, tuple[str, str]]:
    """Return by command what it printed and what the page shows, if they differ."""
    wrong = {}
    for block in runnable(page, "console"):
        for command in commands_of(block):
            if spark or not command.needs_spark:
                output = GENERATED.get(command.text) or terminal.run(command)
                if not is_shown(output, command.output):
                    wrong[f"{block.name}: {command.text}"] = (output, command.output)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_python_blocks_run_and_print_what_the_page_shows(page: Path, prepared: Terminal) -> None:
    run_python_blocks(page, prepared, spark=False)


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.needs_spark for block in runnable(page, "python"))], ids=ids
)
def test_python_blocks_on_spark_print_what_the_page_shows(
    page: Path, prepared: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process: the session is one that a user has started."""
    from highlevel.spark.session.java import require_java

    monkeypatch.setenv("JAVA_HOME", str(require_java()))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with contextlib.closing(Terminal(prepared.folder)) as terminal:
        run_python_blocks(page, terminal, spark=True)


def run_python_blocks(page: Path, terminal: Terminal, *, spark: bool) -> None:
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        if block.language == "python" and not block.not_run and block.needs_spark == spark:
            output = terminal.run_python(block.text)
            if following is not None and following.language == "output":
                assert output == following.text, block.name


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=ids)
def test_notebooks_run_and_print_what_they_show(notebook: Path, tmp_path: Path) -> None:
    shown = nbformat.read(notebook, as_version=4)
    run = notebooks.executed(notebook, tmp_path)
    assert notebooks.texts(run) == notebooks.texts(shown)
    assert len(notebooks.images(run)) == len(notebooks.images(shown)) > 0
    assert notebook.stat().st_size < MAX_NOTEBOOK_BYTES


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_queries_compile(page: Path, prepared: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(prepared.folder)
    for block in runnable(page, "sql"):
        for text in sql_statements(block):
            assert compile_tree(with_values(parse_query(text), a_value)).schema.names, block.name


def a_value(query: tree.Query, node: tree.Expression) -> Values:
    """Compile a sub-query of the guide; return a value of its type instead of its result."""
    column = compile_tree(query).root.columns[-1]
    return Values(column.type, ["10.0.0.1" if column.type is Type.ADDRESS else 1], 1)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_pipeline_files_are_read(page: Path, prepared: Terminal) -> None:
    for block in runnable(page, "toml"):
        missing = [text for section, text in COMPLETION.items() if f"\n{section}" not in f"\n{block.text}"]
        pipeline = parse_pipeline("\n".join([block.text, *missing]), prepared.folder)
        plans = pipeline.plans()
        rules = Evaluation(pipeline.alerts, plans, make_pipeline_series(pipeline, plans)).rules
        assert (bool(plans), len(rules)) == (True, len(pipeline.alerts.rules)), block.name


def test_the_reference_of_the_pipeline_file_has_every_key_and_default(tmp_path: Path) -> None:
    page = GUIDE / "pipeline-file.md"
    reference = runnable(page, "toml")[0].text
    pipeline = parse_pipeline(reference, tmp_path)
    assert pipeline.node == NodeSettings()
    assert pipeline.page == PageSettings()
    defaults = {field.name: field.default for field in dataclasses.fields(PipelineFile)}
    assert all(
        getattr(pipeline, name) == defaults[name]
        for name in ("host", "port", "top", "counters", "master", "partitions")
    )
    keys = re.findall(r"^\| `(\w+)` \| ", page.read_text("utf-8"), re.MULTILINE)
    assert keys == [
        *("folder", "functions", "speed"), *LINK_KEYS, *TABLE_KEYS, "topic", "brokers", "conf",
        *("sql", "rank", "layer", "histogram", "topic", "params"),
        *("consistency", "emit", "final"),
        *("host", "port", "top", "counters", "web_config", "token_file"), *("enabled", "keep", "size"),
        "keep",
        *("master", "partitions"),
        *NODE_KEYS, "silences", *RULE_KEYS,
        *dict.fromkeys(key for of_kind in RECEIVER_KEYS.values() for key in of_kind),
    ]  # fmt: skip
    assert all(f"{key} = " in reference for key in keys if key != "every")
