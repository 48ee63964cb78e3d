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
        self.lists = constant_lists(tokens)
        """Tokens of the IN lists that hold only literals, by the number of the first: sqlglot sees that one alone."""
        hidden = {number for run in self.lists.values() for number in run[1 + (tokens[run[0]].keyword == "-") :]}
        numbered: list[SqlglotToken] = []
        for number, token in enumerate(tokens):
            if number in hidden:
                continue
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

    def constants(self, nodes: Sequence[exp.Expr]) -> list[Token] | None:
        """Return the literals of an IN list, a sign before its number, or None for a list of other expressions."""
        leaf = nodes[0].find(exp.Literal) if len(nodes) == 1 else None
        run = None if leaf is None else self.lists.get(int(leaf.name) - isinstance(leaf.parent, exp.Neg))
        return None if run is None else [self.tokens[number] for number in run if self.tokens[number].keyword != ","]

    def token(self, node: exp.Expr) -> Token:
        """The token of a leaf or the name of a call; for other nodes the first token of their first leaf."""
        leaves = node.find_all(exp.Identifier, exp.Literal, exp.Anonymous)
        numbers = [int(leaf.name.lstrip("_")) for leaf in leaves]
        return self.tokens[min(numbers, default=0)]


def constant_lists(tokens: Sequence[Token]) -> dict[int, range]:
    """Return where `IN (literal, literal, …)` has its literals, by the number of the first token behind `(`.

    Such a list may have a hundred thousand literals, and needs no precedence. The tokens are well formed.
    """
    lists: dict[int, range] = {}
    for at, token in enumerate(tokens[:-2]):
        if token.keyword != "IN" or tokens[at + 1].keyword != "(":
            continue
        end = at + 2
        while tokens[end].kind in (Kind.NUMBER, Kind.STRING) or tokens[end].keyword in (",", "-"):
            end += 1
        signs = [number for number in range(at + 2, end) if tokens[number].keyword == "-"]
        plain = all(
            tokens[number + 1].kind is Kind.NUMBER and tokens[number - 1].keyword in ("(", ",") for number in signs
        )
        if plain and tokens[end].keyword == ")" and end > at + 2:
            lists[at + 2] = range(at + 2, end)
    return lists


def _types(token: Token) -> tuple[TokenType, ...]:
    if token.kind is Kind.NUMBER:
        return (TokenType.NUMBER,)
    if token.kind in (Kind.STRING, Kind.BYTES, Kind.TIME):
        return (TokenType.STRING,)
    return _TYPES.get(token.keyword, (TokenType.VAR,))
