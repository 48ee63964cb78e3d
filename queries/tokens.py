"""The words of a query, each with its place in the text.

sqlglot's own tokenizer knows neither the bracketed window clause nor the curly quotes that papers are printed with, and
it gives hundreds of plain words a meaning. GSQL has few words, and every message needs a position.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from queries.errors import QueryError


class Kind(StrEnum):
    """What a token is. QUOTED is text in double quotes: a name, or a string where a name makes no sense.

    TIME is `TIMESTAMP '2016-08-02T02:19:00Z'`, two words that are one literal.
    """

    WORD = "name"
    QUOTED = "quoted name"
    STRING = "string"
    BYTES = "bytes"
    TIME = "time"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end of the query"


@dataclass(frozen=True, slots=True)
class Token:
    """One token at the half-open interval `[start, end)` of the query; `text` is without quotes.

    `keyword` is the text in capitals if the token is a symbol or an unquoted word, otherwise empty.
    """

    kind: Kind
    text: str
    start: int
    end: int
    keyword: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the keyword once: the passes over a long list ask for it many times."""
        word = self.kind is Kind.WORD or self.kind is Kind.SYMBOL
        object.__setattr__(self, "keyword", self.text.upper() if word else "")

    @property
    def shown(self) -> str:
        """The token as a message names it."""
        return "the end of the query" if self.kind is Kind.END else f"'{self.text}'"


_PATTERN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<dotted>[0-9]+(?:\.[0-9]+){2,}(?:/[0-9]+)?)
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<bytes>[xX]'[^']*')
      | (?P<word>[^\W\d]\w*)
      | (?P<string>'(?:[^']++|'')*+'|[‘’][^‘’]*[‘’]|[“”][^“”]*[“”])
      | (?P<quoted>"(?:[^"]++|"")*+")
      | (?P<symbol><>|!=|<=|>=|<<|>>|[-+*/%&|^~=<>().,:;\[\]∪])""",
    re.VERBOSE | re.DOTALL,
)

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")

_UNCLOSED = {
    "'": "a string that is never closed",
    '"': "a quoted name that is never closed",
    "/": "a comment that is never closed",
    "‘": "a string that is never closed",
    "’": "a string that is never closed",
    "“": "a string that is never closed",
    "”": "a string that is never closed",
}


def tokenise(sql: str) -> list[Token]:
    """Return the tokens of `sql`, the last of them END; comments (`-- …`, `/* … */`) are blanks."""
    tokens: list[Token] = []
    position = 0
    while position < len(sql):
        match = _PATTERN.match(sql, position)
        if match is None or (sql.startswith("/*", position) and match.lastgroup != "blank"):
            problem = _UNCLOSED.get(sql[position], f"got the character {sql[position]!r}")
            raise QueryError(
                problem,
                sql,
                position,
                "" if sql[position] in _UNCLOSED else "a word, a number, a string or an operator",
            )
        position = match.end()
        if match.lastgroup == "dotted":
            raise QueryError(
                f"got {match.group()} without quotes", sql, match.start(), f"'{match.group()}': addresses are strings"
            )
        if match.lastgroup == "bytes" and not _HEX.fullmatch(match.group()[2:-1]):
            expected = "pairs of hexadecimal digits, for example x'1603'"
            raise QueryError(f"got the bytes {match.group()}", sql, match.start(), expected)
        if match.lastgroup != "blank":
            token = _token(match)
            if token.kind is Kind.STRING and tokens and tokens[-1].keyword == "TIMESTAMP":
                token = replace(token, kind=Kind.TIME, start=tokens.pop().start)
            tokens.append(token)
    # Where something is missing at the end, the caret goes behind the last word, not behind blanks and comments.
    end = tokens[-1].end if tokens else 0
    return [*tokens, Token(Kind.END, "", end, end)]


def _token(match: re.Match[str]) -> Token:
    text = match.group()
    kind = Kind[(match.lastgroup or "").upper()]
    if kind in (Kind.STRING, Kind.QUOTED):
        quote = text[0]
        text = text[1:-1].replace(quote * 2, quote) if quote in "'\"" else text[1:-1]
    elif kind is Kind.BYTES:
        text = text[2:-1]
    elif text == "!=":
        text = "<>"
    return Token(kind, text, match.start(), match.end())


def closing(sql: str, tokens: Sequence[Token], opening: int) -> int:
    """Return where the parenthesis at `opening` is closed; QueryError where it is not."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += (tokens[at].keyword == "(") - (tokens[at].keyword == ")")
        if depth == 0:
            return at
    raise QueryError("'(' is never closed", sql, tokens[opening].start)
