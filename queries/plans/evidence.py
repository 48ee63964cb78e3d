"""Make a query for the packets from which the rows of another query come.

    SELECT port FROM (SELECT ts, destPort FROM packets) MATCH_RECOGNIZE (… ONE ROW PER MATCH …) WHERE port > 1024
      ▼
    SELECT "packet ts", … FROM (SELECT ts, destPort, ts AS "packet ts", … FROM packets)
    MATCH_RECOGNIZE (… ALL ROWS PER MATCH …) WHERE port > 1024

The columns that identify a packet are added to each select list. ONE ROW PER MATCH becomes ALL ROWS PER MATCH, with
FINAL measures, so that a condition on measures is true for all rows of a match or for none.
"""

from __future__ import annotations

from dataclasses import replace

from queries.text import tree
from queries.text.errors import QueryError
from queries.text.tree import Name, SelectItem, Word

IDENTITY = (
    "link", "ts", "len", "caplen", "srcIP", "destIP", "srcPort", "destPort", "protocol", "ip_len", "ip_id",
    "fragment_offset", "ttl", "tcp_flags", "tcp_seq", "tcp_ack", "tcp_window", "icmp_type", "icmp_code", "vlan",
    "srcMAC", "destMAC",
)  # fmt: skip
"""The columns that identify a packet. Packets with equal values have equal headers and times."""

PREFIX = "packet "
"""Prefix of the names of these columns in sub-queries."""

EXPECTED = "rows of packets with WHERE, of sub-queries with such rows, or of MATCH_RECOGNIZE over them"


CLAUSES: dict[type, str] = {
    tree.Union: "UNION",
    tree.Merge: "MERGE",
    tree.SetOperation: "UNION, INTERSECT or EXCEPT",
    tree.DistinctOn: "DISTINCT ON",
    tree.MergeRecords: "MERGE WITHIN",
    tree.ChangeLog: "CHANGES BY",
    tree.AutomatonTable: "AUTOMATON",
}
"""Words for tables in FROM that are refused, by class."""


def packets_of(query: tree.Query) -> tree.Query:
    """Return the query for the packets of `query`. Its columns are those of IDENTITY, in this order.

    Raises QueryError for a query whose rows do not come from single packets.
    """
    table, names = _traced(query)
    select = tuple(_item(name, names[name], name) for name in IDENTITY)
    return replace(table, select=select, order=None)


def _item(name: str, source: str, alias: str) -> SelectItem:
    start = 0
    return SelectItem(Name(Word(source, start, quoted=source != name)), Word(alias, start, quoted=True))


def _traced(query: tree.Query) -> tuple[tree.Query, dict[str, str]]:
    """Return a query whose tables have the columns of IDENTITY, and the names of these columns."""
    _check(query)
    (item,) = query.tables
    table, names = _traced_table(query.sql, item.table)
    return replace(query, tables=(replace(item, table=table),)), names


def _traced_table(sql: str, table: tree.Table) -> tuple[tree.Table, dict[str, str]]:
    """Return a table that has the columns of IDENTITY, and their names in it."""
    match table:
        case tree.Stream() | tree.Union() if tree.streams_of(table) is not None:
            return table, {name: name for name in IDENTITY}
        case tree.Subquery(query):
            inner, names = _traced(query)
            if query.selects_all:
                return replace(table, query=inner), names
            added = tuple(_item(name, names[name], PREFIX + name) for name in IDENTITY)
            inner = replace(inner, select=(*query.select, *added))
            return replace(table, query=inner), {name: PREFIX + name for name in IDENTITY}
        case tree.MatchRecognize():
            rows, names = _traced_table(sql, table.table)
            is_one = table.rows is tree.RowsPerMatch.ONE
            pattern = _without_exclusions(table.pattern) if is_one else table.pattern
            kind = tree.RowsPerMatch.WITHOUT_EMPTY
            return replace(table, table=rows, rows=kind, pattern=pattern, has_final_measures=is_one), names
    raise _refused(sql, tree.first_word(table), f"{CLAUSES.get(type(table), 'a table that changes')} in FROM")


def _without_exclusions(pattern: tree.RowPattern) -> tree.RowPattern:
    match pattern:
        case tree.PatternExclusion(part):
            return _without_exclusions(part)
        case tree.PatternRepeat(part=part):
            return replace(pattern, part=_without_exclusions(part))
        case tree.PatternSequence(parts) | tree.PatternChoice(parts) | tree.PatternPermutation(parts):
            return replace(pattern, parts=tuple(map(_without_exclusions, parts)))
    return pattern


def _check(query: tree.Query) -> None:
    """Raise QueryError for a clause that combines rows, or leaves rows out depending on their order."""
    windows = [query.window, query.call, *(item.window for item in query.tables)]
    clauses: dict[str, object] = {
        "JOIN": len(query.tables) > 1,
        "WITH": query.queries,
        "a window": any(window is not None for window in windows),
        "GROUP BY": query.group_by or query.grouping_sets,
        "HAVING": query.having,
        "DISTINCT": query.distinct,
        "SUPERGROUP": query.supergroups,
        "CLOSING WHEN": query.closing,
        "FILL": query.fill,
        "EMIT CHANGES and CONSISTENCY": query.consistency,
        "LIMIT and OFFSET": query.order is not None and (query.order.limit is not None or query.order.offset),
    }
    for name, value in clauses.items():
        if value:
            raise _refused(query.sql, query.keyword, name)


def _refused(sql: str, word: Word, clause: str) -> QueryError:
    return QueryError(f"--packets-to and a query with {clause}", sql, word.start, EXPECTED)
