"""TableLookup: finds the rows of the tables in FROM, which are links, other queries, or unions of these."""

from __future__ import annotations

from collections.abc import Callable

from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from highlevel.plan.nodes import Windowed
from queries.binding.links import Links, links_of
from queries.plans.known_queries import KnownQueries
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
            return self._of_links(streams)
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
                from queries.plans.revisions import remaining_rows

                return remaining_rows(self.sql, table, self.relation(inner))
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
            united.append(self._of_links(links) if links_of_table else self.relation(each))
            positions.append(first_word(each))
        return union_of(self.sql, united, positions)

    def read(self, query: Query) -> QueryRelation:
        """Return the rows of a query in parentheses, or next to a set operator."""
        return self._read(self.compile_query(query), query.keyword)

    def _of_links(self, streams: list[Stream]) -> LinkRelation:
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
