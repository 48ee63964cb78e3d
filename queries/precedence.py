"""The tree of an expression, built by sqlglot from tokens that are known to be well formed.

sqlglot gives many plain words a meaning (IF, DATE, TOP, ROLLUP, …) and keeps no place in the text for most nodes. Both
end here: each name and literal goes in under the number of its token, so sqlglot sees operators and precedence only,
and every leaf of the tree leads back to its token.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token as SqlglotToken
from sqlglot.tokenizer_core import TokenType

from queries.errors import QueryError
from queries.tokens import Kind, Token

_TYPES: dict[str, tuple[TokenType, ...]] = {
    "(": (TokenType.L_PAREN,),
    ")": (TokenType.R_PAREN,),
    ",": (TokenType.COMMA,),
    ".": (TokenType.DOT,),
    "+": (TokenType.PLUS,),
    "-": (TokenType.DASH,),
    "*": (TokenType.STAR,),
    "/": (TokenType.SLASH,),
    "%": (TokenType.MOD,),
    "&": (TokenType.AMP,),
    "|": (TokenType.PIPE,),
    "^": (TokenType.CARET,),
    "~": (TokenType.TILDE,),
    "<<": (TokenType.LT, TokenType.LT),
    ">>": (TokenType.GT, TokenType.GT),
    "=": (TokenType.EQ,),
    "<>": (TokenType.NEQ,),
    "<": (TokenType.LT,),
    "<=": (TokenType.LTE,),
    ">": (TokenType.GT,),
    ">=": (TokenType.GTE,),
    "AND": (TokenType.AND,),
    "OR": (TokenType.OR,),
    "NOT": (TokenType.NOT,),
    "IN": (TokenType.IN,),
    "BETWEEN": (TokenType.BETWEEN,),
    "IS": (TokenType.IS,),
    "NULL": (TokenType.NULL,),
}


class Tree:
    """One expression: sqlglot's tree in `root`, and the way from its nodes back to the tokens."""

    def __init__(self, sql: str, tokens: Sequence[Token]) -> None:
        """Raises `QueryError` where sqlglot refuses what the grammar let through."""
        self.tokens = tokens
        numbered: list[SqlglotToken] = []
        for number, token in enumerate(tokens):
            for kind in _types(token):
                text = f"_{number}" if kind is TokenType.VAR else str(number)
                numbered.append(SqlglotToken(kind, text, line=1, col=number, start=token.start, end=token.end - 1))
        try:
            root = Parser().parse_into(exp.Condition, numbered, sql)[0]
        except ParseError as error:
            token = tokens[min(int(error.errors[0].get("col") or 0), len(tokens) - 1)]
            raise QueryError(f"got {token.shown}", sql, token.start, "an expression") from error
        if root is None:
            raise QueryError("got nothing", sql, tokens[0].start, "an expression")
        self.root = root

    def token(self, node: exp.Expr) -> Token:
        """The token of a leaf or the name of a call; for other nodes the first token of their first leaf."""
        leaves = node.find_all(exp.Identifier, exp.Literal, exp.Anonymous)
        numbers = [int(leaf.name.lstrip("_")) for leaf in leaves]
        return self.tokens[min(numbers, default=0)]


def _types(token: Token) -> tuple[TokenType, ...]:
    if token.kind is Kind.NUMBER:
        return (TokenType.NUMBER,)
    if token.kind in (Kind.STRING, Kind.BYTES):
        return (TokenType.STRING,)
    return _TYPES.get(token.keyword, (TokenType.VAR,))
