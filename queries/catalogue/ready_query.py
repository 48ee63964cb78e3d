"""A ready query: text of GSQL with placeholders, and the parameters that replace them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from capture.lazy_dataclasses import dataclass
from queries.text.parameters import Parameter, literals

_PLACEHOLDER = re.compile(r"\$([a-z0-9_]+)")


@dataclass(frozen=True, slots=True)
class ReadyQuery:
    """One query of the catalogue.

    * `name`: lower-case words with hyphens. `sentence`: the answer in one sentence.
    * `input`: the kind of rows, such as `packets`.
    * `text`: the query. The value of the parameter `name` replaces the placeholder `$name`.
    """

    name: str
    category: str
    input: str
    sentence: str
    text: str
    parameters: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        """Check that the placeholders are the parameters."""
        names = {parameter.name for parameter in self.parameters}
        placeholders = set(_PLACEHOLDER.findall(self.text))
        if names != placeholders or len(names) < len(self.parameters):
            raise ValueError(f"{self.name}: got the placeholders {sorted(placeholders)}, expected {sorted(names)}")

    @property
    def usage(self) -> str:
        """A shell command that runs the query, with its first parameter as an example."""
        words = ["wiretide", "query", "FILE", f"@{self.name}"]
        for parameter in self.parameters[:1]:
            words += ["--param", f"{parameter.name}={parameter.default}"]
        return shlex.join(words)

    def sql(self, values: Mapping[str, object] | None = None) -> str:
        """Return the query with `values` of parameters (numbers or texts). Other parameters have their defaults.

        Raises QueryError for an unknown parameter and for an invalid value.
        """
        texts = literals(self.parameters, values or {}, f"@{self.name}")
        # An omitted window clause must leave no blanks and no empty line.
        lines = _PLACEHOLDER.sub(lambda found: texts[found[1]], self.text).split("\n")
        return "\n".join(line.rstrip() for line in lines if line.strip())
