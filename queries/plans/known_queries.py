"""The queries that a query may read by name: those of its WITH, and those that stand beside it in a pipeline file.

A name in FROM is a query where one is called that, else a link. Queries beside each other may be in any order; one that
reads itself, whoever is between, is told with the whole path.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lowlevel.kinds import KINDS
from lowlevel.layers import Layer
from queries.plans.subqueries import Block
from queries.text.errors import QueryError
from queries.text.tree import Stream


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that others may read: its text, and the layer that plain names mean in it."""

    sql: str
    layer: str = Layer.OUTER


@dataclass(frozen=True)
class KnownQueries:
    """`named` are the queries of a pipeline by their names in lower case, `blocks` those of WITH.

    `links` are the names of links, None where they are not known. `path` are the queries that are being compiled, the
    one that was asked for first; `later` those of WITH behind the one that is.
    """

    named: Mapping[str, NamedQuery] = field(default_factory=dict)
    blocks: Mapping[str, Block] = field(default_factory=dict)
    links: Collection[str] | None = None
    path: tuple[str, ...] = ()
    later: frozenset[str] = frozenset()

    def has(self, stream: Stream) -> bool:
        """Whether a name is that of a query."""
        name = stream.word.text.lower()
        return stream.kind is None and (name in self.blocks or name in self.named)

    def check(self, sql: str, streams: Sequence[Stream]) -> None:
        """Refuse names in a query that is read which are neither links nor queries, where the links are known.

        Those of the query that was asked for are looked for among the inputs, as everybody's are. Refuse names of later
        queries of WITH, too: whoever writes one means that.
        """
        for stream in streams:
            if stream.kind is None and stream.word.text.lower() in self.later:
                problem = f"{stream.word.shown} is a query that comes later in WITH"
                raise QueryError(problem, sql, stream.word.start, "it before the queries that read it")
        if self.links is None or len(self.path) < 2:
            return
        known = {name.lower() for name in self.links}
        for stream in streams:
            word = stream.word
            if word.text.lower() not in known and word.text.lower() not in KINDS:
                choices = (*self.links, *self.named, *self.blocks)
                problem = f"{word.shown} is neither a link nor a query"
                raise QueryError(problem, sql, word.start, "one of these, or a kind of rows", choices, word.text)
