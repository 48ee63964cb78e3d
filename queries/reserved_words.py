"""Words that GSQL keeps for itself, and the constructs of SQL that it does not have."""

from __future__ import annotations

from queries.errors import QueryError
from queries.tokens import Token

UNSUPPORTED: dict[str, str] = {
    "CASE": "CASE",
    "CAST": "CAST",
    "DISTINCT": "DISTINCT",
    "EXCEPT": "EXCEPT",
    "EXISTS": "EXISTS",
    "FETCH": "FETCH",
    "ILIKE": "ILIKE",
    "INTERSECT": "INTERSECT",
    "JOIN": "JOIN outside FROM",
    "LIKE": "LIKE",
    "LIMIT": "LIMIT",
    "OFFSET": "OFFSET",
    "ORDER": "ORDER BY",
    "OVER": "a window function (OVER)",
    "QUALIFY": "QUALIFY",
    "WINDOW": "a named window (WINDOW)",
    "WITH": "WITH within a query",
}
"""Reserved words of SQL that GSQL does not have, and what each begins."""

RESERVED = frozenset(UNSUPPORTED) | frozenset(
    [
        "SELECT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "GROUPBY",
        "HAVING",
        "UNION",
        "AS",
        "AND",
        "OR",
        "NOT",
        "IN",
        "BETWEEN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "INTERVAL",
    ]
)
"""Words that are no names unless quoted."""

SUPPORTED = "SELECT … FROM stream [UNION stream …] [RANGE …, SLIDE …, WA ts] [JOIN …] WHERE … GROUP BY … HAVING …"


def unsupported(sql: str, what: str, token: Token) -> QueryError:
    """Return the error for `what` at `token`, a construct of SQL that GSQL does not have."""
    return QueryError(f"{what} is not supported", sql, token.start, SUPPORTED)
