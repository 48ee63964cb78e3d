"""TOML tables of a pipeline file. Errors contain the key, the received value and the expected values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from capture.errors import WiretideError

Value = TypeVar("Value")


class PipelineError(WiretideError):
    """A pipeline file with a wrong value. The user corrects the file; the message contains its name and the key."""

    status = 2


class Section:
    """A TOML table of the file. `names` are its keys. Messages put `prefix` before a key, for example `node.`."""

    def __init__(self, prefix: str, values: dict[str, Any], valid_keys: tuple[str, ...] | None = None) -> None:
        """Raises PipelineError for a key that is not among `valid_keys`; None allows all keys."""
        self.prefix = prefix
        self.values = values
        self.names = list(values)
        unknown = [name for name in values if valid_keys is not None and name not in valid_keys]
        if unknown:
            raise PipelineError(f"{prefix}{unknown[0]} is not known; valid here: {', '.join(valid_keys or ())}")

    def section(self, name: str, valid_keys: tuple[str, ...] | None = None) -> Section:
        """Return the table under a key of this table; an empty section if the key is missing.

        `valid_keys`: its keys.
        """
        return Section(f"{self.prefix}{name}.", self.value(name, dict, {}), valid_keys)

    def value(self, name: str, kind: type, default: Any) -> Any:
        """Return a value of type `kind`, or `default`."""
        value = self.values.get(name, default)
        if not isinstance(value, kind):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}")
        return value

    def number(self, name: str, kind: type, default: Any, expected: str, is_valid: Callable[[Any], bool]) -> Any:
        """Return a number of type `kind` for which `is_valid` is true. Messages contain its description `expected`."""
        value = self.values.get(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not is_valid(value):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}, {expected}")
        return kind(value)

    def paths(self, name: str) -> list[str]:
        """Return the paths of a key, whose value is one path or a list of paths. The key must exist."""
        value = self.values[name]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected a path or a list of paths")
        return texts

    def choice(self, name: str, default: str, valid: Iterable[str]) -> str:
        """Return a text that is one of `valid`."""
        value: str = self.value(name, str, default)
        if value not in (choices := list(valid)):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {' or '.join(choices)}")
        return value

    def parsed_value(self, name: str, default: Value, parse: Callable[[str], Value]) -> Value:
        """Return `parse(text)`, or `default` without the key. Raises PipelineError for errors of `parse`."""
        if name not in self.values:
            return default
        text = self.value(name, str, "")
        try:
            return parse(text)
        except (ValueError, WiretideError) as error:
            raise PipelineError(f"{self.prefix}{name}: {error}") from error


_KINDS = {
    bool: "true or false",
    list: "a list",
    str: "text",
    dict: "a section",
    int: "a whole number",
    float: "a number",
}
