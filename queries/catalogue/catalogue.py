"""The catalogue: all ready queries by name."""

from __future__ import annotations

from queries.catalogue.conversations import CONVERSATIONS
from queries.catalogue.exports import EXPORTS
from queries.catalogue.layers import LAYERS
from queries.catalogue.patterns import PATTERNS
from queries.catalogue.ready_query import ReadyQuery
from queries.catalogue.security import SECURITY
from queries.catalogue.traffic import TRAFFIC
from queries.text.errors import QueryError

CATALOGUE: dict[str, ReadyQuery] = {
    query.name: query for query in (*TRAFFIC, *CONVERSATIONS, *SECURITY, *LAYERS, *EXPORTS, *PATTERNS)
}
"""The ready queries by name, ordered by category."""


def ready_query(name: str) -> ReadyQuery:
    """Return a query of the catalogue; `name` may begin with `@`. Raises QueryError for an unknown name."""
    wanted = name.removeprefix("@").lower().replace("_", "-")
    if wanted not in CATALOGUE:
        expected = "a name of the catalogue; `wiretide queries` describes all"
        raise QueryError(f"unknown query '{name}'", name, 0, expected, CATALOGUE, wanted)
    return CATALOGUE[wanted]
