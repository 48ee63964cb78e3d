"""Options that messages and documents name are options of the commands in which they appear.

It can catch advice that a user cannot follow: an option of another command, or one that was renamed.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import wiretide

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = typer.main.get_command(wiretide.app).commands  # type: ignore[attr-defined]
OPTIONS = {
    name: {option for parameter in command.params for option in parameter.opts} | {"--help"}
    for name, command in COMMANDS.items()
}
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

COMMAND_OF = {
    "queries/pipeline/inputs.py": "query",
    "dashboards/monitors/collector.py": "capture",
    "dashboards/monitors/node_links.py": "capture",
    "dashboards/monitors/node.py": "capture",
    "capture/collector/record_files.py": "capture",
    "dashboards/commands/explain.py": "explain",
    "dashboards/measured_plan.py": "explain",
    "dashboards/evidence.py": "query",
    "dashboards/partial_matches.py": "query",
    "dashboards/final_rows.py": "query",
    "dashboards/query_outputs.py": "query",
    "queries/plans/evidence.py": "query",
    "dashboards/comparing.py": "compare",
    "dashboards/deployment/archive.py": "pack",
    "dashboards/deployment/files.py": "dashboards",
    "dashboards/grafana/disorder_dashboard.py": "compare",
    "highlevel/compare/recording.py": "compare",
    "dashboards/output/change_forms.py": "query",
    "dashboards/output/formats.py": "query",
    "dashboards/output/openmetrics.py": "query",
    "dashboards/prometheus/remote_write.py": "backfill",
    "dashboards/output/run_warnings.py": "query",
    "dashboards/plots/answer_charts.py": "query",
    "dashboards/plots/plot_file.py": "query",
    "dashboards/report/report.py": "report",
    "dashboards/request.py": "query",
    "dashboards/wire_text.py": "query",
    "highlevel/plan/measurement.py": "explain",
    "highlevel/spark/run_folder/result_files.py": "query",
    "queries/catalogue/ready_query.py": "query",
    "highlevel/spark/session/settings.py": "run",
    "highlevel/spark/stream.py": "query",
    "queries/pipeline/spark_settings.py": "run",
}
"""The command that prints the messages of a module. Each module of `dashboards/commands` is one command."""

FOREIGN = {
    *("highlevel/spark/session/java.py", "dashboards/prometheus/backfill.py"),
    *("dashboards/deployment/compose.py", "dashboards/deployment/units.py", "dashboards/commands/units.py"),
    "dashboards/deployment/kubernetes.py",
    "dashboards/plots/document.py",  # variables of CSS
    "dashboards/commands/pack.py",  # the commands that use the archive
    *("dashboards/command_options.py", "dashboards/command_arguments.py"),  # names that stand for all options
}
"""Modules whose texts contain other options, such as those of other programs."""

ROOT_MODULES = ("dashboards/commands/app.py", "wiretide.py")
"""Modules of all commands."""


def mentions() -> Iterator[tuple[str, str]]:
    """Every option that a string of the program names, with its module."""
    folders = ("capture", "lowlevel", "highlevel", "queries", "dashboards")
    for path in [*(path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))), ROOT / "wiretide.py"]:
        module = path.relative_to(ROOT).as_posix()
        if module in FOREIGN:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for option in OPTION.findall(node.value):
                    yield module, option


def test_messages_name_options_that_their_command_has() -> None:
    found = sorted(set(mentions()))
    assert len(found) > 30
    wrong = []
    for module, option in found:
        command = COMMAND_OF.get(module, Path(module).stem if module.startswith("dashboards/commands/") else "")
        known = {"--version", *OPTIONS["query"]} if module in ROOT_MODULES else OPTIONS.get(command, set())
        if option not in known:
            wrong.append(f"{module}: {option} is no option of wiretide {command or '(which command?)'}")
    assert wrong == []


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_have_the_options_that_are_shown(path: Path) -> None:
    wrong = []
    text = path.read_text("utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        for shown in re.finditer(r"\bwiretide (\w+)((?:\s+(?:\"[^\"]*\"|'[^']*'|[^\s`|;&]+))*)", line):
            command, words = shown.groups()
            if command in OPTIONS:
                outside_quotes = re.sub(r"\"[^\"]*\"|'[^']*'", "", words)
                wrong += [
                    (command, option) for option in OPTION.findall(outside_quotes) if option not in OPTIONS[command]
                ]
    assert wrong == []
