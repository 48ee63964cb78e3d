r"""Make text from the wire harmless for terminals and spreadsheets. The functions are called immediately before output.

Names of interfaces, applications, links and files are from captures, exporters and other users. They can contain
control characters, which move a cursor, change a title or hide text, and characters that reverse the reading order. A
spreadsheet treats a cell as a formula if it begins with one of `= + - @`.

* `escape` writes these characters as Python does: `\x1b`, `\n`, `\u202e`. It does not escape backslashes, so programs
  cannot restore the exact text. `--raw-csv`, JSON, Parquet and Arrow contain the exact text.
* `neutralise` also writes an apostrophe before a formula. The apostrophe marks a text in spreadsheets. A number such
  as -5 is not changed.

These Unicode categories are escaped:

* Cc: control characters. Cf: bidirectional and other format characters.
* Cs: bytes of file names that are not text.
* Zl, Zp: separators of lines and paragraphs.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that do not load Arrow escape their messages too
    import pyarrow as pa

ESCAPED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of the characters that are escaped."""

CONTROLS = r"[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]"
"""ESCAPED as a regular expression for Arrow, without Cs, because Arrow strings cannot contain surrogates."""

FORMULA = "[=+\\-@\uff1d\uff0b\uff0d\uff20]"
"""Pattern of the first character of a formula. Spreadsheets also accept the full-width forms."""

NUMBER = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"


def escape(text: str, keep: str = "") -> str:
    r"""Write control and format characters as escapes, except the characters in `keep`.

    >>> print(escape("eth0\x1b[2J\r\n"))
    eth0\x1b[2J\r\n
    """
    if text.isprintable():
        return text
    return "".join(
        _escape_char(char) if char not in keep and unicodedata.category(char) in ESCAPED else char for char in text
    )


def escape_lines(text: str) -> str:
    """Escape a text, but keep its line breaks."""
    return escape(text, keep="\n")


def neutralise(text: str) -> str:
    """Escape a text, and write an apostrophe before it if a spreadsheet would treat it as a formula.

    >>> [neutralise(text) for text in ("=1+1", "-5", "-5+cmd", "eth0")]
    ["'=1+1", '-5', "'-5+cmd", 'eth0']
    """
    safe = escape(text)
    # Spreadsheets skip leading spaces. escape() has already replaced TAB and CR.
    return f"'{safe}" if re.match(FORMULA, safe.lstrip()) and not re.fullmatch(NUMBER, safe) else safe


def escape_column(texts: pa.Array) -> pa.Array:
    """Escape a column of texts."""
    import pyarrow as pa

    from capture import arrow_compute as pc

    if not pc.any(pc.match_substring_regex(texts, CONTROLS)).as_py():
        return texts
    return pa.array([None if text is None else escape(text) for text in texts.to_pylist()], texts.type)


def neutralise_column(texts: pa.Array) -> pa.Array:
    """Neutralise a column of texts."""
    import pyarrow as pa

    from capture import arrow_compute as pc

    suspect = pc.match_substring_regex(texts, rf"{CONTROLS}|^\s*{FORMULA}")
    if not pc.any(suspect).as_py():
        return texts
    return pa.array([None if text is None else neutralise(text) for text in texts.to_pylist()], texts.type)


def escape_json(text: str) -> str:
    r"""Escape characters that JSON allows in a string but a terminal executes. A JSON parser returns the same string.

    >>> escape_json('{"name": "\x9b2J"}')
    '{"name": "\\u009b2J"}'
    """
    if text.isprintable():
        return text
    return "".join(
        _escape_json_char(char) if char != "\n" and unicodedata.category(char) in ESCAPED else char for char in text
    )


def _escape_char(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escape_json_char(character: str) -> str:
    return "".join(
        f"\\u{int.from_bytes(unit, 'big'):04x}"
        for unit in re.findall(b"(?s)..", character.encode("utf-16-be", "surrogatepass"))
    )
