"""LIKE, ILIKE and matches.

A pattern is converted to a search for a prefix or a part, or to a regular expression (RE2).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lowlevel.expressions.tree import Call, Literal
from lowlevel.expressions.types import Function, Type
from queries.binding.comparisons import Operand

if TYPE_CHECKING:
    from queries.text.tree import Like

ESCAPE = "\\"
"""In a LIKE pattern, the character after ESCAPE has no special meaning."""


def matches(subject: Operand, pattern: Operand) -> Call:
    """Return the call that tests whether a text or bytes contain a match of a regular expression."""
    _check_subject(subject, Function.MATCHES)
    text = _text(pattern, Function.MATCHES)
    _compile(pattern, text)
    return Call(Function.MATCHES, subject.bound, Literal(text, Type.TEXT))


def like(node: Like, subject: Operand, pattern: Operand) -> Call:
    """Return the call that tests whether a whole text or bytes match a pattern with `%` and `_`."""
    name = "ILIKE" if node.ignore_case else "LIKE"
    _check_subject(subject, name)
    text = _text(pattern, name)
    parts = _parts(text)
    plain = [part for part in parts if part not in ("%", "_")]
    if not node.ignore_case and len(plain) == 1 and parts in ([plain[0], "%"], ["%", plain[0], "%"]):
        function = Function.STARTS_WITH if parts[0] == plain[0] else Function.CONTAINS
        return Call(function, subject.bound, _constant(plain[0].removeprefix(ESCAPE), subject.type))
    wild = {"%": ".*", "_": "."}
    expression = "".join(wild.get(part) or re.escape(part.removeprefix(ESCAPE)) for part in parts)
    flags = "(?is)" if node.ignore_case else "(?s)"
    return Call(Function.MATCHES, subject.bound, Literal(rf"{flags}\A{expression}\z", Type.TEXT))


def _parts(pattern: str) -> list[str]:
    """Divide a pattern into `%`, `_` and the texts between them.

    If such a text is itself `%` or `_`, or begins with ESCAPE, another ESCAPE is written before it.
    """
    parts: list[str] = []
    literal, escaped = "", False
    for character in pattern:
        if escaped or character not in ("%", "_", ESCAPE):
            literal, escaped = literal + character, False
        elif character == ESCAPE:
            escaped = True
        else:
            parts += [*([_escape(literal)] if literal else []), character]
            literal = ""
    literal += ESCAPE * escaped
    return [*parts, _escape(literal)] if literal else parts


def _escape(literal: str) -> str:
    return ESCAPE + literal if literal in ("%", "_") or literal.startswith(ESCAPE) else literal


def _constant(text: str, wanted: Type) -> Literal:
    return Literal(text.encode(), Type.BYTES) if wanted is Type.BYTES else Literal(text, Type.TEXT)


def _check_subject(subject: Operand, name: str) -> None:
    if subject.type not in (Type.BYTES, Type.TEXT) or isinstance(subject.bound, Literal):
        what = "a constant" if isinstance(subject.bound, Literal) else f"a value of type {subject.type}"
        subject.fail(f"{name} over {what}", "a column of bytes or text, for example payload")


def _text(pattern: Operand, name: str) -> str:
    pattern = pattern.comparable_with(Type.TEXT)
    if not isinstance(pattern.bound, Literal) or not isinstance(pattern.bound.value, str):
        pattern.fail(f"{name} with a pattern that is not a constant text", "a text such as 'GET '")
    return pattern.bound.value


def _compile(pattern: Operand, text: str) -> None:
    """Raise QueryError for a regular expression that RE2 does not accept."""
    import pyarrow as pa

    from capture import arrow_compute as pc

    try:
        pc.match_substring_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        pattern.fail(f"the regular expression '{text}': {str(error).partition(': ')[2]}", "the syntax of RE2")
