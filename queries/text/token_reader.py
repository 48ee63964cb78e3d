"""The current position of a parser in the tokens of a text, and the errors at this position.

An error names what the text has and what may follow. It recognises syntax of other SQL dialects and misspelt keywords
(`queries.text.dialects`).
"""

from __future__ import annotations

from collections.abc import Sequence

from queries.text import dialects
from queries.text.errors import QueryError
from queries.text.lexer import CLAUSE_WORDS, RESERVED_WORDS, UNSUPPORTED, Kind, Token, tokenize
from queries.text.tree import Word

SUPPORTED = (
    "SELECT … FROM stream [UNION stream …] [RANGE …, SLIDE …, WA ts] [JOIN …] WHERE … GROUP BY … HAVING … "
    "ORDER BY … LIMIT …"
)


class TokenReader:
    """Steps through the tokens of a text. `clause` is the name of the clause in messages."""

    def __init__(self, sql: str, clause: str = "the expression") -> None:
        """Split `sql` into tokens. Raises QueryError."""
        self._sql = sql
        self._tokens = tokenize(sql)
        self._at = 0
        self._clause = clause
        self._in_list = False  # in a clause whose items have commas and AS
        self._parentheses = 0

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _ahead(self, count: int = 1) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        self._at += token.kind is not Kind.END
        return token

    def _accept(self, keyword: str) -> bool:
        """If the current token is `keyword`, move to the next token and return True."""
        accepted = self._tokens[self._at].keyword == keyword
        self._at += accepted
        return accepted

    def _is_name(self, token: Token) -> bool:
        """Return whether a token may be a name: a word that is not reserved, or text in double quotes."""
        return token.kind in (Kind.WORD, Kind.QUOTED) and token.keyword not in RESERVED_WORDS

    def _word(self) -> Word:
        token = self._take()
        return Word(token.text, token.start, token.kind is Kind.QUOTED)

    def _at_clause_end(self) -> bool:
        """Return whether the current token begins the next clause or ends the query."""
        token = self._token
        ends = token.kind is Kind.END or token.keyword == ")" or token.keyword in CLAUSE_WORDS
        return ends or self._begins_operation()

    def _after_operator(self) -> str:
        """Return the next keyword after the current token, skipping ALL or DISTINCT."""
        keyword = self._ahead().keyword
        return self._ahead(2).keyword if keyword in ("ALL", "DISTINCT") else keyword

    def _begins_operation(self) -> bool:
        """Return whether the current token is a set operator between queries.

        UNION may also be between tables in FROM.
        """
        keyword = self._token.keyword
        if keyword not in ("UNION", "INTERSECT", "EXCEPT"):
            return False
        if self._after_operator() != "(":
            return self._after_operator() == "SELECT" or keyword != "UNION"
        at = self._at + 1
        while self._tokens[at].keyword in ("ALL", "DISTINCT", "("):
            at += 1
        return self._tokens[at].keyword in ("SELECT", "WITH", "MERGE")

    # --- errors at the current token ---

    def _missing_operator(self) -> QueryError:
        expected = "an operator"
        if self._is_name(self._tokens[self._at - 1]) and self._tokens[self._at - 2].keyword != ".":
            expected += ", '('"
        if self._in_list and not self._parentheses:
            expected += ", AS and a name, ','"
        end = "')'" if self._parentheses else "the end of the clause"
        return self._unexpected(f"{expected} or {end}")

    def _unexpected(self, expected: str, choices: Sequence[str] = ()) -> QueryError:
        """Return the error for an unexpected current token. The message names constructs that GSQL does not support."""
        token = self._token
        if token.keyword == "[":
            return self._window_here(token.start)
        dialect = self._dialect()
        if dialect is not None:
            return dialect
        if token.keyword == ";":
            expected = "one query; after DEFINE { query_name 'a'; } a later query may read it as a"
            return QueryError("several statements", self._sql, token.start, expected)
        if token.keyword == "SELECT" and self._clause != "WITH":
            expected = "UNION, INTERSECT or EXCEPT between two queries"
            return QueryError("a second SELECT", self._sql, token.start, expected)
        if token.keyword == "UNION" and self._clause != "FROM":
            name_in_messages, start = self._ahead().name_in_messages, self._ahead().start
            return QueryError(
                f"got {name_in_messages} after UNION", self._sql, start, "SELECT, or a query in parentheses"
            )
        if token.keyword in UNSUPPORTED:
            return self._unsupported(UNSUPPORTED[token.keyword], token)
        return QueryError(f"got {token.name_in_messages} in {self._clause}", self._sql, token.start, expected, choices)

    def _unsupported(self, construct: str, token: Token) -> QueryError:
        remedy = dialects.WORDS.get(token.keyword, SUPPORTED)
        return QueryError(f"{construct} is not supported", self._sql, token.start, remedy)

    def _not_a_name(self, expected: str) -> QueryError:
        """Return the error for a token that should be a name.

        A reserved word of SQL is a name only in double quotes.
        """
        token = self._token
        if token.kind is Kind.WORD:
            expected += ", in double quotes if it is a word of SQL"
            return QueryError(f"got {token.name_in_messages} in {self._clause}", self._sql, token.start, expected)
        return self._unexpected(expected)

    def _dialect(self) -> QueryError | None:
        """Return the error if a construct of another dialect or a misspelt keyword is at or before the current token.

        The parser has read such a word as a name, so it fails only at the token after it.
        """
        token, before = self._token, self._tokens[max(self._at - 1, 0)]
        adjacent = before.text + token.text if before.end == token.start and token is not before else ""
        if before.kind is token.kind is Kind.SYMBOL and adjacent in dialects.OPERATORS:
            problem = f"got '{adjacent}' in {self._clause}"
            return QueryError(problem, self._sql, before.start, dialects.OPERATORS[adjacent])
        if token.kind is Kind.STRING and before.keyword in ("DATE", "TIME"):
            remedy = f"TIMESTAMP '2016-08-02' in place of {before.keyword}"
            return QueryError(f"got '{before.text}' in {self._clause}", self._sql, before.start, remedy)
        for word in (token, before):
            if word.keyword in dialects.WORDS and word.keyword not in UNSUPPORTED:
                problem = f"got {word.name_in_messages} in {self._clause}"
                return QueryError(problem, self._sql, word.start, dialects.WORDS[word.keyword])
        for word in (before, token):
            keyword = dialects.misspelt_keyword(word.keyword) if self._is_name(word) else None
            if keyword is not None:
                return QueryError(f"got {word.name_in_messages} in {self._clause}", self._sql, word.start, keyword)
        return None

    def _window_here(self, start: int) -> QueryError:
        """Return the error for a window clause that follows neither an item nor a stream."""
        expected = "the window after an item of SELECT, or after the last stream of FROM"
        return QueryError(f"a window clause within {self._clause}", self._sql, start, expected)
