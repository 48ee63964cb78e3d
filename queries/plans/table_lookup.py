"""The tables in FROM: links, queries of WITH or of the same pipeline file, and unions of these.

A name in FROM means the query with this name if it exists, otherwise a link. Queries of a pipeline file may be in any
order. If a query reads itself, also through other queries, the error lists the whole path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import Windowed
from lowlevel.kinds import KINDS
from lowlevel.layers import Layer
from queries.binding.links import Links, links_of
from queries.plans.relations import LinkRelation, QueryRelation, Relation, union_of
from queries.plans.subqueries import ReadableQuery
from queries.text.errors import QueryError
from queries.text.tree import (
    AutomatonTable,
    ChangeLog,
    DistinctOn,
    MatchRecognize,
    Merge,
    MergeRecords,
    Query,
    SetOperation,
    Stream,
    Subquery,
    Table,
    Union,
    Word,
    first_word,
    streams_of,
)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that other queries can read: its text, and the IP layer that column names without a prefix mean."""

    sql: str
    layer: str = Layer.OUTER


@dataclass(frozen=True)
class KnownQueries:
    """The queries and links that a query can read.

    * `pipeline_queries`: the queries of the pipeline by name in lower case. `with_queries`: the queries of WITH.
      `tables`: tables.
    * `links`: the names of links; None if the names are unknown.
    * `path`: the queries whose compilation has begun, the outermost first. `later_queries`: queries of WITH after the
      current one.
    """

    pipeline_queries: Mapping[str, NamedQuery] = field(default_factory=dict)
    with_queries: Mapping[str, ReadableQuery] = field(default_factory=dict)
    links: Collection[str] | None = None
    path: tuple[str, ...] = ()
    later_queries: frozenset[str] = frozenset()
    tables: Mapping[str, ReadableQuery] = field(default_factory=dict)

    def find(self, name: str) -> ReadableQuery | None:
        """Return a query of WITH, or a table, by its name in lower case."""
        return self.with_queries.get(name) or self.tables.get(name)

    def has(self, stream: Stream) -> bool:
        """Return whether a name is the name of a query or a table."""
        name = stream.word.text.lower()
        return stream.kind is None and (self.find(name) is not None or name in self.pipeline_queries)

    def check(self, sql: str, streams: Sequence[Stream]) -> None:
        """If the links are known, raise QueryError for a name that is neither a link nor a query.

        The names in the outermost query are checked elsewhere, against the inputs. The name of a later query of WITH is
        an error too, because the user probably means this query.
        """
        for stream in streams:
            if stream.kind is None and stream.word.text.lower() in self.later_queries:
                problem = f"{stream.word.name_in_messages} is a later query of WITH"
                raise QueryError(problem, sql, stream.word.start, "the query before the queries that read it")
        if self.links is None or len(self.path) < 2:
            return
        known = {name.lower() for name in self.links}
        for stream in streams:
            word = stream.word
            if word.text.lower() not in known and word.text.lower() not in KINDS:
                choices = (*self.links, *self.pipeline_queries, *self.with_queries)
                problem = f"{word.name_in_messages} is neither a link nor a query"
                raise QueryError(problem, sql, word.start, "one of these, or a kind of rows", choices, word.text)


@dataclass(frozen=True)
class TableLookup:
    """Finds the rows of tables in FROM.

    It calls `compile_query` for subqueries, `compile_named` for names, and `compile_operation` for set operations.
    """

    sql: str
    name: str
    layer: str
    sampling: FixedRates | None
    known: KnownQueries
    compile_query: Callable[[Query], ReadableQuery]
    compile_named: Callable[[Word], ReadableQuery]
    compile_operation: Callable[[SetOperation], Relation]

    def relation(self, table: Table) -> Relation:
        """Look up the names of a table."""
        self._check_merges(table)
        streams = streams_of(table)
        if streams is not None and not any(self.known.has(stream) for stream in streams):
            self.known.check(self.sql, streams)
            return self._link_relation(streams)
        match table:
            case Stream(word=word):
                return self._read(self.compile_named(word), word)
            case Subquery(query=query):
                return self.read(query)
            case SetOperation():
                return self.compile_operation(table)
            case DistinctOn(table=inner):
                from queries.plans.revisions import without_copies  # most queries have no such table

                return without_copies(self.sql, table, self.relation(inner))
            case ChangeLog(table=inner):
                from queries.plans.revisions import net_rows

                return net_rows(self.sql, table, self.relation(inner))
            case MatchRecognize(table=inner):
                from queries.plans.row_patterns import row_pattern_matches

                return row_pattern_matches(self.sql, table, self.relation(inner))
            case AutomatonTable(table=inner):
                from queries.plans.automata import accepted_runs

                return accepted_runs(self.sql, table, self.relation(inner))
            case MergeRecords(table=inner):
                from queries.plans.revisions import merged_flows

                return merged_flows(self.sql, table, self.relation(inner))
            case Union(parts=parts):
                tables = list(parts)
            case Merge(items=items):
                tables = [item.table for item in items]
        links = [stream for each in tables for stream in self._links_in(each)]
        self.known.check(self.sql, links)
        united: list[Relation] = []
        positions: list[Word] = []
        for each in tables:
            links_of_table = self._links_in(each)
            if (
                links_of_table and links_of_table[0] is not links[0]
            ):  # links_of has already united these links with the first
                continue
            united.append(self._link_relation(links) if links_of_table else self.relation(each))
            positions.append(first_word(each))
        return union_of(self.sql, united, positions)

    def read(self, query: Query) -> QueryRelation:
        """Return the rows of a query in parentheses, or next to a set operator."""
        return self._read(self.compile_query(query), query.keyword)

    def _link_relation(self, streams: list[Stream]) -> LinkRelation:
        links = Links(links_of(self.sql, streams), self.layer, self.sampling)
        return LinkRelation(self.sql, self.name, links)

    def _links_in(self, table: Table) -> list[Stream]:
        """Return the links of a table that consists only of links."""
        streams = streams_of(table)
        return [] if streams is None or any(self.known.has(stream) for stream in streams) else streams

    def _read(self, query: ReadableQuery, word: Word) -> QueryRelation:
        if any(isinstance(node, Windowed) and node.aggregation.emit_late for node in query.nodes):
            expected = "LATE DROP in that query: a late row would be a second result of a final window"
            raise QueryError("a query with LATE EMIT that is read", self.sql, word.start, expected)
        return QueryRelation(query)

    def _check_merges(self, table: Table) -> None:
        """Raise QueryError if MERGE names a column that is not a time column of its stream."""
        if isinstance(table, Union):
            for part in table.parts:
                self._check_merges(part)
        if not isinstance(table, Merge):
            return
        for (stream, column), item in zip(table.times, table.items, strict=True):
            name = item.name
            if name is None or stream.text.lower() != name.lower():
                expected = f"the name of the stream in its place, {name}" if name else "a stream with a name"
                raise QueryError(f"got {stream.name_in_messages} in MERGE", self.sql, stream.start, expected)
            wanted = "ts" if column.text.lower() == "time" else column.text.lower()
            times = self.relation(item.table).times
            if wanted not in [time.lower() for time in times]:
                expected = "a time column of that stream"
                raise QueryError(
                    f"MERGE by {column.name_in_messages}", self.sql, column.start, expected, times, column.text
                )
