"""The tables of a pipeline file, read key by key; what is wrong is told with its place and what was expected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from capture.errors import WiretideError

Value = TypeVar("Value")


class PipelineError(WiretideError):
    """A pipeline file that says something impossible: fix the file. The message names the file and the place in it."""

    status = 2


class Section:
    """A table of the file; `names` are its keys, `prefix` is what they begin with in messages."""

    def __init__(self, prefix: str, values: dict[str, Any], valid: tuple[str, ...] | None = None) -> None:
        """Read `values`, whose keys are to be among `valid`, where that is given."""
        self.prefix = prefix
        self.values = values
        self.names = list(values)
        unknown = [name for name in values if valid is not None and name not in valid]
        if unknown:
            raise PipelineError(f"{prefix}{unknown[0]} is not known; valid here: {', '.join(valid or ())}")

    def section(self, name: str, valid: tuple[str, ...] | None = None) -> Section:
        """Return a table in this one, an empty one where it is not there."""
        return Section(f"{self.prefix}{name}.", self.value(name, dict, {}), valid)

    def value(self, name: str, kind: type, default: Any) -> Any:
        """Return a value of a kind."""
        value = self.values.get(name, default)
        if not isinstance(value, kind):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}")
        return value

    def number(self, name: str, kind: type, default: Any, expected: str, fits: Callable[[Any], bool]) -> Any:
        """Return a number of a kind that `fits`, which is what `expected` says."""
        value = self.values.get(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not fits(value):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}, {expected}")
        return kind(value)

    def texts(self, name: str) -> list[str]:
        """Return a path or a list of them."""
        value = self.values[name]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected a path or a list of paths")
        return texts

    def choice(self, name: str, default: str, valid: Iterable[str]) -> str:
        """Return one of the `valid` texts."""
        value: str = self.value(name, str, default)
        if value not in (choices := list(valid)):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {' or '.join(choices)}")
        return value

    def parsed(self, name: str, default: Value, parse: Callable[[str], Value]) -> Value:
        """Return what `parse` makes of a text; what it raises, ValueError or WiretideError, is told with the place."""
        if name not in self.values:
            return default
        text = self.value(name, str, "")
        try:
            return parse(text)
        except (ValueError, WiretideError) as error:
            raise PipelineError(f"{self.prefix}{name}: {error}") from error


_KINDS = {str: "text", dict: "a section", int: "a whole number", float: "a number"}
