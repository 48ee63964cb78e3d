"""Parser of the clauses at the end of a text: WITH CONSISTENCY and EMIT.

    [WITH CONSISTENCY (WAIT 2 seconds, REMEMBER 1 hour, EARLY 1 second) | WITH STRONG | MIDDLE | WEAK CONSISTENCY]
    [EMIT CHANGES | EMIT FINAL]

The words of other systems are accepted too: GRACE and GRACE PERIOD (ksqlDB) mean REMEMBER, EARLY FIRE and EARLY_FIRE
(Flink) mean EARLY, EMIT ON WINDOW CLOSE (RisingWave) means EMIT FINAL.

The clauses may be in either order. They apply to the whole text, so they are found and parsed before the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from queries.text.errors import QueryError
from queries.text.lexer import Kind, Token
from queries.text.tree import Consistency, Length, Parameter, Word
from queries.text.windows import WindowParser

LEVELS = ("STRONG", "MIDDLE", "WEAK")
OPTIONS = ("WAIT", "REMEMBER", "EARLY")
_OTHER_NAMES = {"GRACE": "REMEMBER", "EARLY_FIRE": "EARLY"}
_SECOND_WORDS = {"GRACE": "PERIOD", "EARLY": "FIRE"}
_ON_CLOSE = ("ON", "WINDOW", "CLOSE")


class ConsistencyParser(WindowParser):
    """Reads WITH CONSISTENCY and EMIT."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        """Read `tokens`, from the first of the clauses to the end of the text."""
        super().__init__(sql, "the end of the query")
        self._tokens = list(tokens)

    def consistency(self) -> Consistency:
        """Read the clauses up to the end of the text."""
        first = self._token
        level: Word | None = None
        emit: Word | None = None
        options: dict[str, Parameter] | None = None
        while self._token.kind is not Kind.END:
            token = self._take()
            if token.keyword == "EMIT" and emit is None:
                emit = self._emit()
            elif token.keyword == "WITH" and options is None:
                level = self._word() if self._token.keyword in LEVELS else None
                if not self._accept("CONSISTENCY"):
                    raise self._wrong(f"got {self._token.name_in_messages} after WITH", "CONSISTENCY")
                options = self._options() if level is None else {}
            else:
                given = (
                    f"{token.keyword} is given twice"
                    if token.keyword in ("EMIT", "WITH")
                    else f"got {token.name_in_messages}"
                )
                expected = "WITH CONSISTENCY, EMIT CHANGES, EMIT FINAL or the end of the query"
                raise QueryError(given, self._sql, token.start, expected)
        return Consistency(Word(first.text, first.start), tuple((options or {}).values()), level, emit)

    def _emit(self) -> Word:
        """Read the word after EMIT. ON WINDOW CLOSE means FINAL."""
        start = self._token.start
        if not self._accept("ON"):
            return self._choice("EMIT", ("CHANGES", "FINAL"))
        for word in _ON_CLOSE[1:]:
            if not self._accept(word):
                raise self._wrong(f"got {self._token.name_in_messages}", "EMIT ON WINDOW CLOSE, which is EMIT FINAL")
        return Word("FINAL", start)

    def _options(self) -> dict[str, Parameter]:
        """Read the options in parentheses."""
        if not self._accept("("):
            raise self._wrong(
                f"got {self._token.name_in_messages}", "options in parentheses: (WAIT 2 seconds, REMEMBER 1 hour)"
            )
        options: dict[str, Parameter] = {}
        while True:
            name = _OTHER_NAMES.get(self._token.keyword, self._token.keyword)
            if name not in OPTIONS:
                raise self._wrong(f"got {self._token.name_in_messages} in WITH CONSISTENCY", "an option", OPTIONS)
            keyword = self._word()
            if self._token.keyword == _SECOND_WORDS.get(keyword.text.upper()):
                self._at += 1
            start = self._token.start
            if name in options:
                raise QueryError(f"{name} is given twice", self._sql, keyword.start, "each option once")
            options[name] = Parameter(name, keyword, self._amount(name), start)
            if self._accept(")"):
                return options
            if not self._accept(","):
                raise self._wrong(f"got {self._token.name_in_messages} in WITH CONSISTENCY", "',' or ')'")

    def _amount(self, name: str) -> Length | Word:
        """Read a length of time, 0, or FOREVER."""
        if self._token.keyword == "FOREVER" and name != "EARLY":
            return self._word()
        number, unit = self._token, self._ahead()
        if number.text == "0" and unit.kind is not Kind.WORD:
            self._at += 1
            return Length("0", "seconds", number.start, number.start)
        length = self._length()
        if length.unit.lower() in ("row", "rows"):
            raise QueryError(f"{name} {length.number} rows", self._sql, length.start, "a length of time: 2 seconds")
        return length


def find_consistency(sql: str, tokens: Sequence[Token]) -> int | None:
    """Return the position of the first of these clauses, or None. A WITH before queries is another clause.

    Raises QueryError for EMIT in a sub-query.
    """
    depth = 0
    for position, (token, following) in enumerate(pairwise(tokens)):
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        on_close = tuple(each.keyword for each in tokens[position + 1 : position + 4]) == _ON_CLOSE
        emits = token.keyword == "EMIT" and (on_close or following.keyword in ("CHANGES", "FINAL"))
        states = token.keyword == "WITH" and following.keyword in (*LEVELS, "CONSISTENCY") and position > 0
        if depth == 0 and (emits or states):
            return position
        if emits:
            expected = "EMIT at the end of the whole text, where it applies to all queries"
            raise QueryError(f"EMIT {following.keyword} in a sub-query", sql, token.start, expected)
    return None
