"""Whether a query has groups, which is told by its words before anything is bound."""

from __future__ import annotations

from itertools import pairwise

from queries.aggregates import BOUNDED
from queries.clauses import Clauses
from queries.details import DETAILED
from queries.selections import SELECTED
from queries.tokens import Kind
from queries.user_aggregates import DEFINED


def has_groups(clauses: Clauses) -> bool:
    """Whether a query has groups: GROUP BY, or an aggregate in SELECT or HAVING."""
    if clauses.group_by is not None:
        return True
    words = [*clauses.select.tokens, *(clauses.having.tokens if clauses.having is not None else ())]
    known = {name.lower() for name in (*BOUNDED, *DETAILED, *SELECTED, *DEFINED)}
    return any(
        word.kind is Kind.WORD and word.text.lower() in known and behind.keyword == "("
        for word, behind in pairwise(words)
    )
