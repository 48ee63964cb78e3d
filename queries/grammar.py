"""Well-formed expressions: every clause is checked token by token before sqlglot builds its tree.

sqlglot reads many dialects and forgives much: to it `a BETWEEN 1 2`, `a,, b` and `a AS` are fine. Here an expression
alternates between *operands* (names, literals, calls, parentheses, behind any number of prefix operators) and
*operators*, and the first token that breaks the rule is named with what was expected in its place. Precedence is left
to sqlglot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from queries.clauses import Clause
from queries.errors import QueryError
from queries.reserved_words import RESERVED, SUPPORTED
from queries.tokens import Kind, Token

MAX_NESTING = 20
"""Parentheses and prefix operators within each other, at most: sqlglot needs about 20 Python frames for each."""

BINARY = frozenset({"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "=", "<>", "<", "<=", ">", ">="})
PREFIX = frozenset({"-", "+", "~", "NOT"})
_ABOVE_BETWEEN = frozenset({"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"})
_OPERAND = "a column, a literal, a function or '('"


@dataclass(frozen=True, slots=True)
class Item:
    """One expression of a clause and the name behind its AS, if any."""

    tokens: tuple[Token, ...]
    alias: Token | None


class _Inside(Enum):
    CLAUSE = auto()
    PARENTHESES = auto()
    CALL = auto()
    LIST = auto()


@dataclass(slots=True)
class _Frame:
    """What the tokens at one depth of parentheses have said so far."""

    inside: _Inside
    between: bool = False  # a BETWEEN still waits for its AND
    outer: int = 0  # levels of nesting around this frame
    nesting: int = 0  # the same, and the prefix operators that still wait for their operand


class ExpressionGrammar:
    """Checks one clause; `items` cuts it at its top-level commas, `expression` takes it as one."""

    def __init__(self, sql: str, clause: Clause) -> None:
        """Start before the first token of `clause`."""
        self._sql = sql
        self._clause = clause
        self._tokens: Sequence[Token] = [*clause.tokens, clause.end]
        self._last = len(clause.tokens)
        self._at = 0
        self._frames = [_Frame(_Inside.CLAUSE)]
        self._many = False

    def items(self) -> list[Item]:
        """Expressions between commas, each with an optional `AS name`."""
        self._many = True
        found: list[Item] = []
        while True:
            begin = self._at
            self._operands_and_operators()
            end, alias = self._at, None
            if self._keyword() == "AS":
                alias = self._alias()
            found.append(Item(tuple(self._tokens[begin:end]), alias))
            if self._at == self._last:
                return found
            if self._keyword() != ",":
                raise self._error(self._here(), "',' or the end of the clause")
            self._at += 1

    def expression(self) -> Item:
        """One expression up to the end of the clause."""
        self._operands_and_operators()
        if self._at < self._last:
            raise self._error(self._here(), "an operator or the end of the clause")
        return Item(tuple(self._tokens[: self._last]), None)

    def _operands_and_operators(self) -> None:
        """Move behind one whole expression: to the end of the clause, or to a comma or AS at its top level."""
        self._frames = [_Frame(_Inside.CLAUSE)]
        operand_next = True
        while operand_next or self._at < self._last:
            if operand_next:
                operand_next = self._operand()
                continue
            top = len(self._frames) == 1
            if top and self._many and self._keyword() in (",", "AS"):
                break
            operand_next = self._operator()
        self._no_open_between(self._here())

    def _operand(self) -> bool:
        """Take one token where an operand must begin; return whether an operand is still to come."""
        token, frame = self._here(), self._frames[-1]
        word = token.keyword
        if self._at == self._last:
            raise self._error(token, _OPERAND)
        self._at += 1
        if word in PREFIX:
            self._nest(token)
            before = self._tokens[self._at - 2].keyword if self._at > 1 else ""
            if word == "NOT" and before not in ("", "(", ",", "AND", "OR", "NOT"):
                raise self._error(token, "parentheses around NOT … here")
            return True
        if word == "(":
            self._nest(token)
            self._frames.append(_Frame(_Inside.PARENTHESES, outer=frame.nesting, nesting=frame.nesting))
            return True
        if (
            word == "*"
            and frame.inside is _Inside.CALL
            and self._tokens[self._at - 2].text == "("
            and self._keyword() == ")"
        ):
            return False
        if word == "*":
            raise QueryError("'*' as an item is not supported", self._sql, token.start, "named columns, or count(*)")
        if word == "NULL":
            raise self._error(token, "IS NULL or IS NOT NULL: nothing equals NULL")
        if token.kind is Kind.SYMBOL or word in RESERVED - {"TRUE", "FALSE"}:
            raise self._error(token, _OPERAND)
        if token.kind is Kind.NUMBER and self._here().kind is Kind.WORD and self._here().start == token.end:
            raise QueryError(f"got '{token.text}{self._here().text}'", self._sql, token.start, "a number or a name")
        frame.nesting = frame.outer
        return False

    def _operator(self) -> bool:
        """Take what may follow an operand; return whether an operand must come next."""
        token, frame = self._here(), self._frames[-1]
        word, before = token.keyword, self._tokens[self._at - 1]
        self._at += 1
        if frame.between and word not in _ABOVE_BETWEEN | {"AND", "(", ")", "."}:
            raise self._error(token, "AND and the upper bound of BETWEEN")
        after_name = before.kind in (Kind.WORD, Kind.QUOTED) and before.keyword not in RESERVED
        if word == "." and after_name:
            return self._column_of_stream(token)
        if word == "(" and after_name:
            self._nest(token)
            self._frames.append(_Frame(_Inside.CALL, outer=frame.nesting, nesting=frame.nesting))
            if self._keyword() == ")":
                raise self._error(self._here(), "an argument")
            return True
        if word == ")" and len(self._frames) > 1:
            self._no_open_between(token)
            self._frames.pop()
            self._frames[-1].nesting = self._frames[-1].outer
            return False
        if word == "," and frame.inside in (_Inside.CALL, _Inside.LIST):
            return True
        if word == "AND":
            frame.between = False
            return True
        if word in BINARY or word == "OR":
            return True
        if word in ("NOT", "IN", "BETWEEN", "IS"):
            return self._range(token)
        missing = (
            "an operator"
            + (", '('" if after_name else "")
            + (", AS and a name, ','" if self._many and len(self._frames) == 1 else "")
        )
        raise self._error(token, f"{missing} or {')' if len(self._frames) > 1 else 'the end of the clause'}")

    def _range(self, token: Token) -> bool:
        """IN, BETWEEN and IS, the first two with NOT before them where wanted."""
        word = token.keyword
        if word == "NOT":
            word = self._keyword()
            if word not in ("IN", "BETWEEN"):
                raise self._error(self._here(), "IN or BETWEEN behind NOT")
            self._at += 1
        if word == "BETWEEN":
            self._frames[-1].between = True
            return True
        if word == "IS":
            self._at += self._keyword() == "NOT"
            if self._keyword() != "NULL":
                raise self._error(self._here(), "NULL or NOT NULL behind IS")
            self._at += 1
            return False
        if self._keyword() == "(":
            self._frames.append(_Frame(_Inside.LIST, outer=self._frames[-1].nesting, nesting=self._frames[-1].nesting))
            self._at += 1
            return True
        if self._here().kind not in (Kind.STRING, Kind.QUOTED) or self._at == self._last:
            raise self._error(self._here(), "a list in parentheses or a prefix like '10.0.0.0/8'")
        self._at += 1
        return False

    def _column_of_stream(self, dot: Token) -> bool:
        name = self._here()
        if self._at == self._last or name.kind not in (Kind.WORD, Kind.QUOTED) or name.keyword in RESERVED:
            raise self._error(name, "the name of a column behind '.'")
        if self._at > 2 and self._tokens[self._at - 3].keyword == ".":
            raise self._error(dot, "a column, or one stream and its column")
        self._at += 1
        return False

    def _alias(self) -> Token:
        name = self._tokens[min(self._at + 1, self._last)]
        named = name.kind in (Kind.WORD, Kind.QUOTED, Kind.STRING) and name.text.strip() and name.text.isprintable()
        if self._at + 1 == self._last or not named or name.keyword in RESERVED:
            raise self._error(name, "a name behind AS, in double quotes where it is a word of SQL")
        self._at += 2
        return name

    def _nest(self, token: Token) -> None:
        self._frames[-1].nesting += 1
        if self._frames[-1].nesting > MAX_NESTING:
            raise QueryError("an expression nested too deeply", self._sql, token.start, f"at most {MAX_NESTING} levels")

    def _no_open_between(self, token: Token) -> None:
        if self._frames[-1].between:
            raise self._error(token, "AND and the upper bound of BETWEEN")

    def _here(self) -> Token:
        return self._tokens[min(self._at, self._last)]

    def _keyword(self) -> str:
        return "" if self._at >= self._last else self._tokens[self._at].keyword

    def _error(self, token: Token, expected: str) -> QueryError:
        if token.keyword == "[":
            return QueryError("a window clause here", self._sql, token.start, SUPPORTED)
        return QueryError(f"got {token.shown} in {self._name()}", self._sql, token.start, expected)

    def _name(self) -> str:
        return {"GROUP": "GROUP BY", "GROUPBY": "GROUP BY"}.get(
            self._clause.keyword.keyword, self._clause.keyword.keyword
        )
