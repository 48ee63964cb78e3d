"""Command lines that are parsed without typer have the same arguments as with typer, the reference.

The random comparison can catch a word that one of the two accepts and the other refuses, a wrong type, default or
order. The table can catch a parser that leaves all command lines to typer.
"""

import functools
import random
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from dashboards.command_options import parse_plain
from dashboards.commands.app import COMMANDS, declare_for_typer, load_command

WITH_CONTEXT = {"capture", "generate"}
"""Commands that use the context of typer."""

WORDS = ["trace.pcap", "-", "--", "", "2", "-2", "2.5", "NAME=x", "--help", "--nothing", "a b", "json", "csv"]


def recorder(command: Callable[..., None], calls: list[dict[str, Any]]) -> typer.Typer:
    """Return a command line that appends its arguments to `calls`."""

    @functools.wraps(command)
    def record(**arguments: object) -> None:
        calls.append(arguments)

    app = typer.Typer()
    app.command()(declare_for_typer(record))
    return app


def draw_words(rng: random.Random, parameters: list[Any], existing: str) -> list[str]:
    words: list[str] = []
    drawn = [parameter for parameter in parameters if rng.random() < (0.9 if parameter.required else 0.2)]
    rng.shuffle(drawn)
    for parameter in drawn:
        choices = [str(choice) for choice in getattr(parameter.type, "choices", ())]
        value = rng.choice([*choices * 5, existing, *WORDS])
        if parameter.param_type_name == "argument":
            words.append(value)
            continue
        name = rng.choice([*parameter.opts, *parameter.secondary_opts])
        forms = [[name], [name, value], [f"{name}={value}"], [f"{name}{value}"]]
        words += rng.choices(forms, [4, 8, 1, 1] if parameter.is_flag else [1, 12, 1, 1])[0]
    return words


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITH_CONTEXT])
def test_random_command_lines_have_the_arguments_that_typer_returns(name: str, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    command = load_command(name)
    calls: list[dict[str, Any]] = []
    app = recorder(command, calls)
    parameters = [one for one in typer.main.get_command(app).params if one.name != "help"]
    existing = tmp_path / "existing"
    existing.touch()
    runner = CliRunner()
    compared = 0
    for _ in range(1000):
        words = draw_words(rng, parameters, str(existing))
        plain = parse_plain(command, words)
        if plain is None:
            continue
        calls.clear()
        result = runner.invoke(app, words)
        assert calls == [plain], (words, result.output)
        same = [type(value) is type(plain[key]) for key, value in calls[0].items() if type(value) is not float]
        assert all(same)
        compared += 1
        if compared == 12:
            break
    assert compared > 0


@pytest.mark.parametrize(
    ("name", "words", "given"),
    [
        ("query", ["a.pcap", "b.pcap", "SELECT 1"], {"words": ["a.pcap", "b.pcap", "SELECT 1"]}),
        ("query", ["-o", "x.csv", "q", "--raw-csv"], {"words": ["q"], "output": Path("x.csv"), "raw_csv": True}),
        ("query", ["-s", "A=a", "-s", "B=b", "q", "--threads", "2"], {"stream": ["A=a", "B=b"], "threads": 2}),
        ("run", ["x" * 300], {"pipeline": Path("x" * 300)}),
        ("run", ["p.toml", "--until-done"], {"pipeline": Path("p.toml"), "until_done": True}),
        ("compact", ["folder", "a", "b"], {"folder": Path("folder")}),
    ],
)
def test_plain_command_lines_are_parsed_without_typer(name: str, words: list[str], given: dict[str, object]) -> None:
    arguments = parse_plain(load_command(name), words)
    assert arguments is not None
    assert {key: arguments[key] for key in given} == given


def test_a_choice_is_a_member_of_its_enumeration() -> None:
    arguments = parse_plain(load_command("query"), ["q", "--format", "csv"])
    assert arguments is not None
    assert isinstance(arguments["format"], Enum)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("query", []),
        ("query", ["q", "--help"]),
        ("query", ["q", "--nothing"]),
        ("query", ["q", "--output"]),
        ("query", ["q", "--threads", "0"]),
        ("query", ["q", "--threads", "two"]),
        ("query", ["q", "--threads", "-1"]),
        ("query", ["q", "--format", "xml"]),
        ("query", ["q", "--format=csv"]),
        ("run", ["a.toml", "b.toml"]),
        ("capture", ["--udp", "*:2055"]),
    ],
)
def test_other_command_lines_are_left_to_typer(name: str, words: list[str]) -> None:
    assert parse_plain(load_command(name), words) is None
