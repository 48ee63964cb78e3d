"""Parts of users' aggregates, from their texts to the aggregates of a query."""

from __future__ import annotations

from typing import NoReturn

from lowlevel.expressions.tree import Expression, columns_of
from queries.aggregates import BOUNDED, Aggregates
from queries.binder import Binder
from queries.clauses import Clause
from queries.details import DETAILED
from queries.errors import QueryError
from queries.everyday_windows import USAGE
from queries.functions import FUNCTIONS
from queries.grammar import ExpressionGrammar
from queries.selections import SELECTED
from queries.tokens import Token, tokenise
from queries.user_aggregates import ARGUMENT


def known_functions() -> frozenset[str]:
    """Return the names of all functions that GSQL has, in lower case."""
    return frozenset(name.lower() for name in (*BOUNDED, *DETAILED, *SELECTED, *FUNCTIONS, *USAGE))


def bind_part(name: str, part: str, text: str, argument: Expression, aggregates: Aggregates | None) -> Expression:
    """Bind a part of the aggregate `name` over its argument; QueryError where it is no bounded aggregate of that.

    Without `aggregates` it is only tried.
    """
    tried = aggregates is None
    aggregates = aggregates or Aggregates(False)
    tokens = tokenise(text)
    item = ExpressionGrammar(text, Clause(tokens[0], tuple(tokens[:-1]), tokens[-1])).expression()

    def inside(word: Token, stream: Token | None) -> Expression:
        if stream is None and word.text.lower() == ARGUMENT:
            return argument
        raise _error(text, word, f"the argument, which is called {ARGUMENT}")

    def outside(word: Token, _stream: Token | None) -> NoReturn:
        raise _error(text, word, f"aggregates of {ARGUMENT} alone, for example sum({ARGUMENT})")

    found = Binder(text, f"the part {part} of {name}", item, outside, aggregates, inside).bind()
    if tried and (aggregates.details or aggregates.user_columns):
        raise QueryError("got an aggregate without parts of a fixed size", text, 0, ", ".join(BOUNDED))
    if not any(columns_of(found)):
        raise QueryError("got a constant", text, 0, f"an aggregate, for example sum({ARGUMENT})")
    return found


def _error(text: str, word: Token, expected: str) -> QueryError:
    return QueryError(f"got {word.shown}", text, word.start, expected)
