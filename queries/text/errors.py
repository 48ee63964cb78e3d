"""QueryError: an error in the text of a query, with a message, a position, and the valid choices."""

from __future__ import annotations

import re
from collections.abc import Iterable

from capture.errors import WiretideError

MAX_SHOWN_CHARACTERS = 100
"""Largest number of characters of the line in a message. If the line is longer, a message shows the part around the
position.
"""

MAX_WORD_LENGTH, MAX_TEXT_LENGTH = 100, 400
"""Largest number of characters of one word, and of the description of the problem, because a query may contain
megabytes.
"""


class QueryError(WiretideError, ValueError):
    """A query cannot be compiled. The user must correct its text.

    `position` is the 0-based offset into the text. `line` and `column` count characters from 1. `str()` returns the
    position, the problem, the expected text, the line with a caret under the position, and the valid names; similar
    names are first.
    """

    status = 2

    def __init__(
        self, message: str, sql: str, position: int, expected: str = "", choices: Iterable[str] = (), got: str = ""
    ) -> None:
        """`choices` are the valid names; those that are similar to `got` are listed first."""
        self.message = _shortened(message)
        self.sql = sql
        self.position = min(max(position, 0), len(sql))
        self.expected = expected
        self.choices = _closest_first(got, choices)
        before = sql[: self.position]
        self.line = before.count("\n") + 1
        self.column = len(before) - (before.rfind("\n") + 1) + 1
        super().__init__(self._text())

    def __reduce__(self) -> tuple[type[QueryError], tuple[str, str, int, str, tuple[str, ...]]]:
        """Pickle the arguments, so that the error can be sent between processes."""
        return QueryError, (self.message, self.sql, self.position, self.expected, self.choices)

    def of_query(self, name: str) -> QueryError:
        """Return this error with the name of a query before its text."""
        error = QueryError(self.message, self.sql, self.position, self.expected, self.choices)
        error.args = (f"{name}: {self}",)
        return error

    def _text(self) -> str:
        head = f"line {self.line}, column {self.column}: {self.message}"
        if self.expected:
            head += f"; expected {self.expected}"
        lines = [head, *self._excerpt()]
        if self.choices:
            lines.append(f"valid: {', '.join(self.choices)}")
        return "\n".join(lines)

    def _excerpt(self) -> list[str]:
        """Return the line and a second line with a caret under the position, both indented by four blanks."""
        line = self.sql.split("\n")[self.line - 1].rstrip("\r")
        caret = self.column - 1
        first = max(0, min(caret - MAX_SHOWN_CHARACTERS // 2, len(line) - MAX_SHOWN_CHARACTERS))
        excerpt = "".join(
            character if character.isprintable() else " " for character in line[first : first + MAX_SHOWN_CHARACTERS]
        )
        return ["    " + excerpt, "    " + " " * (caret - first) + "^"]


def _shortened(text: str) -> str:
    """Shorten long words and long texts; `…` marks what was removed."""
    text = re.sub(rf"(\S{{{MAX_WORD_LENGTH}}})\S+", r"\1…", text)
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]}…"


def _closest_first(got: str, choices: Iterable[str]) -> tuple[str, ...]:
    """Return the names, with up to three names that are similar to `got` (ignoring case) moved to the front.

    If names differ only in case, only the last one is returned: the select list contains names in lower case.
    """
    from difflib import get_close_matches

    by_key = {name.casefold(): name for name in choices}
    names = list(by_key.values())
    close = [by_key[key] for key in get_close_matches(got.casefold(), by_key, n=3, cutoff=0.5)] if got else []
    return tuple(close + [name for name in names if name not in close])
