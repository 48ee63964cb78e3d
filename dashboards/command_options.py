"""Parameters of commands: how they are declared, and how a plain command line is parsed.

A command is a function. The annotations of its parameters are `Annotated[type, Option(...)]` or `Annotated[type,
Argument(...)]`. From these declarations `dashboards.commands.app` builds the command line with typer, which prints help
and errors and accepts each form of an option. But its import takes a tenth of the time of a short query. So
`parse_plain` parses command lines without typer if they are correct and plain, and leaves all others to typer. Both
return the same arguments (`tests/dashboards/test_command_options.py`).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from capture.lazy_dataclasses import dataclass


class UsageError(Exception):
    """Arguments that are wrong or cannot be combined. The message is printed below the usage of the command."""


class Parameter:
    """The help of a parameter, the word for its value in the help, and the bounds of a number."""

    def __init__(
        self,
        *names: str,
        help: str | None = None,  # noqa: A002  # as in typer
        metavar: str | None = None,
        min: int | None = None,  # noqa: A002
        max: int | None = None,  # noqa: A002
        show_default: bool = True,
    ) -> None:
        """`names`: the names of an option; if empty, `--` and the name of the parameter."""
        self.names = names
        self.settings: dict[str, Any] = {
            "help": help,
            "metavar": metavar,
            "min": min,
            "max": max,
            "show_default": show_default,
        }


class Option(Parameter):
    """A parameter with names, such as `--output FILE`, or a flag."""


class Argument(Parameter):
    """A parameter without names, recognised by its position."""


@dataclass(frozen=True)
class _AcceptedValues:
    """The values that a parameter of a function accepts."""

    name: str
    type: type
    is_list: bool
    settings: dict[str, Any]

    @staticmethod
    def from_annotation(name: str, annotated: Any) -> _AcceptedValues:
        """Read the annotation of the parameter `name`: `T`, `T | None`, or `list[T]`, with an Option or Argument."""
        declared, parameter = get_args(annotated)
        if isinstance(declared, UnionType):
            declared = get_args(declared)[0]
        repeated = get_origin(declared) is list
        return _AcceptedValues(name, get_args(declared)[0] if repeated else declared, repeated, parameter.settings)

    def parse(self, word: str) -> Any:
        """Convert a word to a value. Raises ValueError if typer would not accept the word."""
        value = self.type(word)
        least, most = self.settings["min"], self.settings["max"]
        if (least is not None and value < least) or (most is not None and value > most):
            raise ValueError
        # Path.exists would raise an error for a name that is too long.
        if isinstance(value, Path) and os.path.exists(value) and not os.access(value, os.R_OK):  # noqa: PTH110
            raise ValueError
        return value


def parse_plain(command: Callable[..., None], words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the words after the name of a command to its arguments. Return None if typer must parse the words.

    Plain words are values of arguments, flags, `--name VALUE` and `-n VALUE`, where no value begins with `-`. typer
    parses all other forms (`--name=VALUE`, `-nVALUE`, `--`), `--help`, and wrong words, for which it prints an error.
    """
    arguments: dict[str, Any] = {}
    required: set[str] = set()
    options: dict[str, _AcceptedValues] = {}
    positions: list[_AcceptedValues] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        if get_origin(parameter.annotation) is not Annotated:  # the context of typer
            return None
        values = _AcceptedValues.from_annotation(name, parameter.annotation)
        declared = parameter.annotation.__metadata__[0]
        if isinstance(declared, Argument):
            positions.append(values)
        else:
            options |= dict.fromkeys(declared.names or ["--" + name.replace("_", "-")], values)
        if parameter.default is parameter.empty:
            required.add(name)
        else:
            arguments[name] = parameter.default
    given: dict[str, Any] = {}
    remaining = iter(words)
    try:
        for word in remaining:
            if not word.startswith("-"):
                values = positions[0] if positions[0].is_list else positions.pop(0)
                value = values.parse(word)
            elif (values := options[word]).type is bool:
                value = True
            else:
                value = values.parse(_plain_value(next(remaining, "-")))
            given[values.name] = [*given.get(values.name, ()), value] if values.is_list else value
    except (KeyError, IndexError, ValueError):
        return None
    return arguments | given if required <= given.keys() else None


def _plain_value(word: str) -> str:
    if word.startswith("-"):
        raise ValueError
    return word
