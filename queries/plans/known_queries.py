"""The queries that another query can read by name: queries of its WITH, and queries of the same pipeline file.

A name in FROM means the query with this name if it exists, otherwise a link. Queries of a pipeline file may be in any
order. If a query reads itself, also through other queries, the error lists the whole path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from capture.lazy_dataclasses import dataclass
from lowlevel.kinds import KINDS
from lowlevel.layers import Layer
from queries.plans.subqueries import ReadableQuery
from queries.text.errors import QueryError
from queries.text.tree import Stream


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that other queries can read: its text, and the IP layer that column names without a prefix mean."""

    sql: str
    layer: str = Layer.OUTER


@dataclass(frozen=True)
class KnownQueries:
    """The queries and links that a query can read.

    * `named`: the queries of the pipeline by name in lower case. `with_queries`: the queries of WITH. `tables`: tables.
    * `links`: the names of links; None if they are unknown.
    * `path`: the queries whose compilation has begun, the outermost first. `later`: queries of WITH after the current
      one.
    """

    named: Mapping[str, NamedQuery] = field(default_factory=dict)
    with_queries: Mapping[str, ReadableQuery] = field(default_factory=dict)
    links: Collection[str] | None = None
    path: tuple[str, ...] = ()
    later: frozenset[str] = frozenset()
    tables: Mapping[str, ReadableQuery] = field(default_factory=dict)

    def find(self, name: str) -> ReadableQuery | None:
        """Return a query of WITH, or a table, by its name in lower case."""
        return self.with_queries.get(name) or self.tables.get(name)

    def has(self, stream: Stream) -> bool:
        """Return whether a name is the name of a query or a table."""
        name = stream.word.text.lower()
        return stream.kind is None and (self.find(name) is not None or name in self.named)

    def check(self, sql: str, streams: Sequence[Stream]) -> None:
        """If the links are known, raise QueryError for a name that is neither a link nor a query.

        The names in the outermost query are checked elsewhere, against the inputs. The name of a later query of WITH is
        an error too, because the user probably means this query.
        """
        for stream in streams:
            if stream.kind is None and stream.word.text.lower() in self.later:
                problem = f"{stream.word.name_in_messages} is a later query of WITH"
                raise QueryError(problem, sql, stream.word.start, "the query before the queries that read it")
        if self.links is None or len(self.path) < 2:
            return
        known = {name.lower() for name in self.links}
        for stream in streams:
            word = stream.word
            if word.text.lower() not in known and word.text.lower() not in KINDS:
                choices = (*self.links, *self.named, *self.with_queries)
                problem = f"{word.name_in_messages} is neither a link nor a query"
                raise QueryError(problem, sql, word.start, "one of these, or a kind of rows", choices, word.text)
