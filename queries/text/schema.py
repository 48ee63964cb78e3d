"""Schemas of files and tables, in Gigascope's language: PROTOCOL with types, inheritance and attributes.

    PROTOCOL event { TIME ts (banded_increasing(10 seconds)); STRING host; }
    PROTOCOL login (event) { IP srcIP; UINT attempts; STRING site (constant); }

The columns that a protocol inherits from its bases precede its other columns.

    increasing              the watermark is the largest time so far
    banded_increasing(n)    the watermark is the largest time so far minus n; n without a unit counts seconds
    constant                no watermark: all rows have one value
    key                     no watermark: a column of the key, by which an event of Debezium finds the row it replaces

A column may have several attributes: TIME ts (increasing, key).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.inline.table_files import FileColumn
from lowlevel.durations import UNITS
from lowlevel.expressions.types import Type
from lowlevel.kinds import KINDS
from queries.text.errors import QueryError
from queries.text.lexer import Kind, Token, tokenize
from queries.text.literals import duration_of
from queries.text.script import TYPES
from queries.text.tree import Length

OTHER_TYPES = {
    "FLOAT": Type.FLOAT,
    "BOOL": Type.BOOL,
    "STRING": Type.TEXT,
    "V_STR": Type.TEXT,
    "IP": Type.ADDRESS,
    "IPV6": Type.ADDRESS,
    "MAC": Type.MAC,
    "TIME": Type.TIME,
}
COLUMN_TYPES = ("USHORT", "UINT", "INT", "ULLONG", "LLONG", *OTHER_TYPES)
"""Types of columns. Integers have the ranges of `queries.text.script`."""

KEY = "key"
ATTRIBUTES = ("increasing", "banded_increasing", "constant", KEY)
RESERVED_COLUMNS = {"ts": Type.TIME, "link": Type.TEXT}
"""Columns with a meaning in queries, and the types that they must have."""


def type_of_column(name: str) -> Type | None:
    """Return the type with a name of COLUMN_TYPES, in upper or lower case; None for other names."""
    keyword = name.upper()
    return OTHER_TYPES.get(keyword, Type.INT) if keyword in COLUMN_TYPES else None


@dataclass(frozen=True, slots=True)
class Protocol:
    """A name that FROM may contain, and the columns of its rows."""

    name: str
    columns: tuple[FileColumn, ...]

    @property
    def times(self) -> tuple[str, ...]:
        """Time columns for windows, the default first: those with a temporal attribute, then `ts`, then the others."""
        times = [column for column in self.columns if column.type is Type.TIME]
        times.sort(key=lambda column: (column.slack_ns is None, column.name.lower() != "ts"))
        return tuple(column.name for column in times)


def parse_schema(text: str) -> dict[str, Protocol]:
    """Return the protocols of a schema by their names in lower case. Raises QueryError for other text."""
    return _SchemaParser(text).protocols()


def read_schema(schema: str | os.PathLike[str]) -> str:
    """Return the text of a schema. `schema` is this text (with PROTOCOL), or the path of a file. Raises InputError."""
    if isinstance(schema, str) and "{" in schema:
        return schema
    try:
        return Path(schema).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{os.fspath(schema)}: cannot be read as a schema: {reason}") from error


class _SchemaParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0
        self._known: dict[str, Protocol] = {}

    def protocols(self) -> dict[str, Protocol]:
        """Read the whole text."""
        while self._token.kind is not Kind.END or not self._known:
            protocol = self._protocol()
            self._known[protocol.name.lower()] = protocol
            self._accept(";")
        return self._known

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _accept(self, keyword: str) -> bool:
        accepted = self._token.keyword == keyword
        self._at += accepted
        return accepted

    def _expect(self, keyword: str, after: str) -> None:
        if not self._accept(keyword):
            raise self._got(f"'{keyword}' after {after}")

    def _got(self, expected: str, choices: Sequence[str] = ()) -> QueryError:
        token = self._token
        return QueryError(f"got {token.name_in_messages}", self._text, token.start, expected, choices, token.text)

    def _wrong(self, token: Token, problem: str, expected: str, choices: Sequence[str] = ()) -> QueryError:
        return QueryError(problem, self._text, token.start, expected, choices, token.text)

    def _name(self, expected: str) -> Token:
        token = self._token
        if token.kind not in (Kind.WORD, Kind.QUOTED) or not token.text.strip() or token.text.startswith("."):
            raise self._got(expected)
        self._at += 1
        return token

    def _protocol(self) -> Protocol:
        if not self._accept("PROTOCOL"):
            raise self._got("PROTOCOL", ("PROTOCOL",))
        name = self._name("the name of a protocol")
        if name.text.lower() in self._known or name.text.lower() in KINDS:
            meaning = "a protocol" if name.text.lower() in self._known else "a kind of rows"
            raise self._wrong(name, f"the name {name.name_in_messages} already means {meaning}", "another name")
        columns: list[FileColumn] = []
        if self._accept("("):
            while not columns or self._accept(","):
                self._inherit(columns)
            self._expect(")", "the bases")
        self._expect("{", "the name of a protocol")
        while not self._accept("}"):
            start = self._at
            column = self._column()
            self._add(columns, column, self._tokens[start + 1])
        if not columns:
            raise self._wrong(name, f"the protocol {name.text} has no columns", "columns such as UINT bytes;")
        return Protocol(name.text, tuple(columns))

    def _inherit(self, columns: list[FileColumn]) -> None:
        base = self._name("the name of a protocol")
        if base.text.lower() not in self._known:
            known = [protocol.name for protocol in self._known.values()]
            raise self._wrong(base, f"unknown protocol {base.name_in_messages}", "a protocol before this one", known)
        for column in self._known[base.text.lower()].columns:
            if column not in columns:  # two bases may inherit the same column from a common base
                self._add(columns, column, base)

    def _add(self, columns: list[FileColumn], column: FileColumn, token: Token) -> None:
        if any(column.name.lower() == other.name.lower() for other in columns):
            expected = "a name that differs from all columns, also those of the bases"
            raise self._wrong(token, f"a second column '{column.name}'", expected)
        columns.append(column)

    def _column(self) -> FileColumn:
        word = self._token
        if word.keyword not in COLUMN_TYPES:
            raise self._wrong(
                word, f"unknown type {word.name_in_messages}", "a type, then the name of a column", COLUMN_TYPES
            )
        self._at += 1
        name = self._name(f"the name of a column of type {word.text}")
        kind, low, high = Type.INT, None, None
        if word.keyword in OTHER_TYPES:
            kind = OTHER_TYPES[word.keyword]
        else:
            _, low, high = TYPES[word.keyword]
        if RESERVED_COLUMNS.get(name.text.lower(), kind) is not kind:
            expected = "TIME" if name.text.lower() == "ts" else "STRING"
            raise self._wrong(word, f"got the type {word.text} of the column {name.text}", expected)
        band, is_key = self._attributes(kind) if self._accept("(") else (None, False)
        self._expect(";", "a column")
        return FileColumn(name.text, kind, word.keyword, low, high, band, is_key)

    def _attributes(self, kind: Type) -> tuple[int | None, bool]:
        """Read attributes and their closing parenthesis.

        Return the slack in ns (None without a temporal attribute), and whether the column belongs to the key.
        """
        bands: list[int | None] = []
        is_key = False
        while not (bands or is_key) or self._accept(","):
            word = self._token
            attribute = word.text.lower()
            if attribute not in ATTRIBUTES:
                raise self._wrong(word, f"unknown attribute {word.name_in_messages}", "an attribute", ATTRIBUTES)
            if attribute not in ("constant", KEY) and kind is not Type.TIME:
                raise self._wrong(word, f"{attribute} of a column of type {kind}", "a column of type TIME")
            if is_key if attribute == KEY else bands:
                raise self._wrong(word, f"a second attribute {word.name_in_messages}", "one order in time, and key")
            self._at += 1
            if attribute == KEY:
                is_key = True
            elif attribute == "banded_increasing":
                self._expect("(", attribute)
                bands.append(self._band())
                self._expect(")", "the band")
            else:
                bands.append(0 if attribute == "increasing" else None)
        self._expect(")", "the attributes")
        return bands[0] if bands else None, is_key

    def _band(self) -> int:
        number = self._token
        if number.kind is not Kind.NUMBER or not number.text.replace(".", "", 1).isdecimal():
            raise self._got("a length of time such as 10 seconds")
        self._at += 1
        unit = "seconds"
        if self._token.kind is Kind.WORD:
            unit = self._token.text.lower()
            if unit not in UNITS:
                raise self._wrong(
                    self._token, f"unknown unit {self._token.name_in_messages}", "a unit of time", tuple(UNITS)
                )
            self._at += 1
        return duration_of(self._text, Length(number.text, unit, number.start, number.start))
