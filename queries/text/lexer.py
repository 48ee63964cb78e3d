"""Lexer: divides the text of a query into tokens with their positions.

The lexer also checks that brackets match. So the parser can assume that each opening bracket has a closing bracket.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from queries.text.dialects import instead_of_character
from queries.text.errors import QueryError


class Kind(StrEnum):
    """Kinds of tokens.

    QUOTED is text in double quotes: a name, or a string if no column has this name. TIME is one literal of two words:
    `TIMESTAMP '2016-08-02T02:19:00Z'`. PARAMETER is `$name`, CONSTANT is `#name`: `queries.text.script` replaces them
    by literals.
    """

    WORD = "name"
    QUOTED = "quoted name"
    STRING = "string"
    BYTES = "bytes"
    TIME = "time"
    NUMBER = "number"
    SYMBOL = "symbol"
    PARAMETER = "parameter"
    CONSTANT = "constant"
    END = "end of the query"


class Token(NamedTuple):
    """One token, in the half-open interval `[start, end)` of the text.

    `text` is without quotes. `keyword` is the text in capitals for a symbol or an unquoted word, otherwise empty.
    """

    kind: Kind
    text: str
    start: int
    end: int
    keyword: str = ""

    @property
    def name_in_messages(self) -> str:
        """The token as it is written in messages."""
        return "the end of the query" if self.kind is Kind.END else f"'{self.text}'"


UNSUPPORTED: dict[str, str] = {
    "DISTINCT": "DISTINCT",
    "EXCEPT": "EXCEPT outside a set operation",
    "FETCH": "FETCH",
    "INTERSECT": "INTERSECT outside a set operation",
    "JOIN": "JOIN outside FROM",
    "QUALIFY": "QUALIFY",
    "WINDOW": "a named window (WINDOW)",
    "WITH": "WITH within a query",
}
"""Reserved words of SQL at the start of a construct that GSQL does not support, and the name of the construct."""

CLOSING_WORDS = frozenset({"CLOSING", "CLOSING_WHEN"})
"""Words that begin the clause of running aggregates."""

SAMPLING_WORDS = frozenset({"SUPERGROUP", "CLEANING", "CLEANING_WHEN", "CLEANING_BY"})
"""Words that begin a clause of the sampling operator."""

CLAUSE_WORDS = (
    CLOSING_WORDS
    | SAMPLING_WORDS
    | {
        *("SELECT", "FROM", "WHERE", "GROUP", "GROUPBY", "HAVING", "FILL", "ORDER", "LIMIT", "OFFSET"),
    }
)
"""Words that begin a clause."""

RESERVED_WORDS = (
    frozenset(UNSUPPORTED)
    | CLAUSE_WORDS
    | {"BY", "UNION", "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "INTERVAL"}
    | {"CASE", "CAST", "WHEN", "THEN", "ELSE", "END", "LIKE", "ILIKE", "OVER", "EXISTS"}
)
"""Words that can be names of columns only in double quotes."""

_PATTERN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<dotted>[0-9]+(?:\.[0-9]+){2,}(?:/[0-9]+)?)
      | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<bytes>[xX]'[^']*')
      | (?P<word>[^\W\d]\w*(?:\$(?=\())?)
      | (?P<string>'(?:[^']++|'')*+'|[‘’][^‘’]*[‘’]|[“”][^“”]*[“”])
      | (?P<quoted>"(?:[^"]++|"")*+")
      | (?P<parameter>\$[^\W\d]\w*)
      | (?P<constant>\#[^\W\d]\w*)
      | (?P<symbol><>|!=|<=|>=|<<|>>|\|\||::|[-+*/%&|^~=<>().,:;\[\]{}∪?]|\$)""",
    re.VERBOSE | re.DOTALL,
)

_KINDS = {kind.name.lower(): kind for kind in Kind}
_HEX = r"(?:[0-9a-fA-F]{2})*"
_CLOSING = {")": "(", "]": "[", "}": "{"}

_UNCLOSED = {
    "'": "a string that is never closed",
    '"': "a quoted name that is never closed",
    "/": "a comment that is never closed",
    "‘": "a string that is never closed",
    "’": "a string that is never closed",
    "“": "a string that is never closed",
    "”": "a string that is never closed",
}

_CLOSED = {"/": "*/ after the comment", "‘": "’ after the text", "“": "” after the text"}


def tokenize(sql: str) -> list[Token]:
    """Return the tokens of `sql`; the last token is END. Comments (`-- …`, `/* … */`) count as blanks.

    Raises QueryError for characters with which no token begins, and for brackets that do not match.
    """
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        problem = f"got the byte or character {sql[error.start]!r}"
        raise QueryError(problem, sql, error.start, "UTF-8 text; write a byte of a BYTES literal as x'ff'") from None
    tokens: list[Token] = []
    opened: list[Token] = []
    position = 0
    while position < len(sql):
        match = _PATTERN.match(sql, position)
        if match is None or (match.lastgroup != "blank" and sql.startswith("/*", position)):
            first = sql[position]
            if first not in _UNCLOSED:
                raise QueryError(f"got the character {first!r}", sql, position, instead_of_character(first))
            raise QueryError(_UNCLOSED[first], sql, position, _CLOSED.get(first, f"{first} after the text"))
        position = match.end()
        if match.lastgroup == "blank":
            continue
        token = _token(sql, match)
        if token.keyword in ("(", "[", "{"):
            opened.append(token)
        elif token.keyword in _CLOSING and (not opened or opened.pop().text != _CLOSING[token.text]):
            expected = f"'{_CLOSING[token.text]}' before it, or no {token.name_in_messages}"
            raise QueryError(f"got {token.name_in_messages} without an opening bracket", sql, token.start, expected)
        elif token.kind is Kind.STRING and tokens and tokens[-1].keyword == "TIMESTAMP":
            token = token._replace(kind=Kind.TIME, start=tokens.pop().start)
        tokens.append(token)
    if opened:
        opening = opened[-1]
        closing = next(text for text, opened_by in _CLOSING.items() if opened_by == opening.text)
        raise QueryError(f"'{opening.text}' is never closed", sql, opening.start, f"'{closing}' after it")
    # If the query ends too early, the caret is after the last word, not after blanks and comments.
    end = tokens[-1].end if tokens else 0
    return [*tokens, Token(Kind.END, "", end, end)]


def _token(sql: str, match: re.Match[str]) -> Token:
    text, group = match.group(), match.lastgroup or ""
    start, end = match.span()
    if group == "dotted":
        raise QueryError(f"got {text} without quotes", sql, start, f"'{text}': addresses are strings")
    kind = _KINDS[group]
    if kind is Kind.BYTES:
        text = text[2:-1]
        if not re.fullmatch(_HEX, text):
            raise QueryError(f"got the bytes {match.group()}", sql, start, "pairs of hexadecimal digits, as in x'1603'")
    elif kind in (Kind.STRING, Kind.QUOTED):
        quote = text[0]
        text = text[1:-1].replace(quote * 2, quote) if quote in "'\"" else text[1:-1]
    elif kind is Kind.WORD:
        return Token(kind, text, start, end, text.upper())
    elif kind is Kind.SYMBOL:
        text = "<>" if text == "!=" else text
        return Token(kind, text, start, end, text)
    return Token(kind, text, start, end)
