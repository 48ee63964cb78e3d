r"""Text from the wire, made harmless for terminals and spreadsheets. Pure functions, called at the edges.

Names of interfaces, applications, links and files come from captures, exporters and other users. Such a text can hold
control characters, which move a cursor, change a title or hide text, and characters that reverse the reading order. A
spreadsheet takes a cell for a formula if it begins with one of `= + - @`.

* `escaped` writes such characters as Python does: `\x1b`, `\n`, `\u202e`. Backslashes stay as they are, so the result
  is for reading; `--raw-csv`, JSON, Parquet and Arrow hold the exact text.
* `neutralised` also puts an apostrophe before a formula, which spreadsheets take for "this is text". A number such as
  -5 stays as it is.

The characters are those of the Unicode categories Cc (C0, DEL, C1), Cf (bidirectional and other format characters), Cs
(bytes of file names that are no text), Zl and Zp (line and paragraph separators).
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # messages are escaped by commands that load no Arrow
    import pyarrow as pa

ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")

CONTROLS = r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]"
"""The same as a regular expression of Arrow, whose texts hold no surrogates."""

FORMULA = re.compile("[=+\\-@\uff1d\uff0b\uff0d\uff20]")
"""What a formula begins with; spreadsheets take the full-width forms too."""

NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def escaped(text: str, keep: str = "") -> str:
    r"""Write control and format characters as escapes; those in `keep` stay.

    >>> print(escaped("eth0\x1b[2J\r\n"))
    eth0\x1b[2J\r\n
    """
    if text.isprintable():
        return text
    return "".join(
        _escape(each) if each not in keep and unicodedata.category(each) in ESCAPED else each for each in text
    )


def lines_escaped(text: str) -> str:
    """Escape a text of several lines, which stay lines."""
    return escaped(text, keep="\n")


def neutralised(text: str) -> str:
    """Escape a text, and put an apostrophe before it if a spreadsheet would take it for a formula.

    >>> [neutralised(text) for text in ("=1+1", "-5", "-5+cmd", "eth0")]
    ["'=1+1", '-5', "'-5+cmd", 'eth0']
    """
    safe = escaped(text)
    # Spreadsheets skip blanks. A TAB or CR before a formula has become a backslash.
    return f"'{safe}" if FORMULA.match(safe.lstrip()) and not NUMBER.fullmatch(safe) else safe


def escaped_column(texts: pa.Array) -> pa.Array:
    """Escape a column of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.match_substring_regex(texts, CONTROLS)).as_py():
        return texts
    return pa.array([None if text is None else escaped(text) for text in texts.to_pylist()], texts.type)


def neutralised_column(texts: pa.Array) -> pa.Array:
    """Neutralise a column of texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    suspect = pc.match_substring_regex(texts, rf"{CONTROLS}|^\s*{FORMULA.pattern}")
    if not pc.any(suspect).as_py():
        return texts
    return pa.array([None if text is None else neutralised(text) for text in texts.to_pylist()], texts.type)


def json_escaped(text: str) -> str:
    r"""Escape what JSON allows in a text but a terminal obeys: the text that a reader gets is the same.

    >>> json_escaped('{"name": "\x9b2J"}')
    '{"name": "\\u009b2J"}'
    """
    if text.isprintable():
        return text
    return "".join(
        _json_escape(each) if each != "\n" and unicodedata.category(each) in ESCAPED else each for each in text
    )


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    return "".join(
        f"\\u{int.from_bytes(unit, 'big'):04x}"
        for unit in re.findall(b"(?s)..", character.encode("utf-16-be", "surrogatepass"))
    )
