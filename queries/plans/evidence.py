"""Make a query for the packets from which the rows of another query come.

    SELECT port FROM (SELECT ts, destPort FROM packets) MATCH_RECOGNIZE (… ONE ROW PER MATCH …) WHERE port > 1024
      ▼
    SELECT "packet ts", … FROM (SELECT ts, destPort, ts AS "packet ts", … FROM packets)
    MATCH_RECOGNIZE (… ALL ROWS PER MATCH …) WHERE port > 1024

The columns that identify a packet are added to each select list. ONE ROW PER MATCH becomes ALL ROWS PER MATCH, with
FINAL measures, so that a condition on measures is true for all rows of a match or for none. The fields of the register
of an automaton always are those of the result. Queries of WITH become sub-queries. Changes become final rows.

A packet may be part of many results of an automaton, but it is copied once. So the plan of this query lists each row
once, if its conditions allow it:

    Filter (n > 1 AND len > 100) ► Apply ► RowsOfRuns
      ▼
    Filter (len > 100) ► DistinctRowsOfRuns (n > 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from highlevel.aggregation import Output
from highlevel.plan.automaton_nodes import DistinctRowsOfRuns, RowsOfRuns
from highlevel.plan.nodes import Apply, Filter, Node
from highlevel.plan.partitioning import substitute_columns
from highlevel.plan.plan import Plan
from lowlevel.expressions.tree import Expression
from queries.plans.conjuncts import conjuncts
from queries.plans.relations import conjunction, names_in
from queries.text import tree
from queries.text.errors import QueryError
from queries.text.tree import Name, SelectItem, Word

IDENTITY_COLUMNS = (
    "link", "ts", "len", "caplen", "srcIP", "destIP", "srcPort", "destPort", "protocol", "ip_len", "ip_id",
    "fragment_offset", "ttl", "tcp_flags", "tcp_seq", "tcp_ack", "tcp_window", "icmp_type", "icmp_code", "vlan",
    "srcMAC", "destMAC",
)  # fmt: skip
"""The columns that identify a packet. Packets with equal values have equal headers and times."""

HIDDEN_PREFIX = "packet "
"""Prefix of the names of these columns in sub-queries."""

EXPECTED = (
    "rows of packets with WHERE, of sub-queries with such rows, or of MATCH_RECOGNIZE or AUTOMATON over them; for "
    "another answer, select its packets by hosts and times in a second query: SELECT ts FROM packets "
    "WHERE srcIP = '10.0.0.1' AND ts >= TIMESTAMP '2024-05-01T10:00:00Z' AND ts < TIMESTAMP '2024-05-01T10:05:00Z'"
)


CLAUSES: dict[type, str] = {
    tree.Union: "UNION",
    tree.Merge: "MERGE",
    tree.SetOperation: "UNION, INTERSECT or EXCEPT",
    tree.DistinctOn: "DISTINCT ON",
    tree.MergeRecords: "MERGE WITHIN",
    tree.ChangeLog: "CHANGES BY",
}
"""Words for tables in FROM that are refused, by class."""


Named = Mapping[str, tree.Query]
"""The queries of WITH by their names in lower case. They read no other queries by name."""


def packets_of(query: tree.Query) -> tree.Query:
    """Return the query for the packets of `query`. Its columns are those of IDENTITY_COLUMNS, in this order.

    Raises QueryError for a query whose rows do not come from single packets.
    """
    table, names = _traced(_with_subqueries(query, {}))
    select = tuple(_item(name, names[name], name) for name in IDENTITY_COLUMNS)
    clause = table.consistency
    final = None if clause is None else replace(clause, emit=None)
    return replace(table, select=select, order=None, consistency=final)


def with_distinct_rows(plan: Plan) -> Plan:
    """Return the plan of `packets_of` with each row of an automaton once.

    Return `plan` if there is no automaton, if one condition reads both columns of results and columns of rows, or the
    state column, or if the sub-query has ORDER BY.
    """
    above: list[Apply | Filter] = []
    node = plan.root
    while isinstance(node, Apply | Filter):
        above.append(node)
        node = node.input
    if not isinstance(node, RowsOfRuns):
        return plan
    rows, results = {*node.keys, *node.shown}, {column.name for column in node.result_columns}
    # The columns of each node above, over the columns of the automaton.
    columns: dict[str, Expression] = {column.name: column for column in node.columns}
    of_results: list[Expression] = []
    of_rows: list[Expression] = []
    for node_above in reversed(above):
        if isinstance(node_above, Apply):
            columns = {out.name: substitute_columns(out.expression, columns) for out in node_above.outputs}
            continue
        for part in conjuncts(substitute_columns(node_above.where, columns)):
            read = names_in([part])
            if not (read <= results or read <= rows):
                return plan
            (of_results if read <= results else of_rows).append(part)
    if not names_in(columns.values()) <= rows:
        return plan
    parameters = {field.name: getattr(node, field.name) for field in fields(node)}
    distinct: Node = DistinctRowsOfRuns(**parameters, where=conjunction(of_results))
    condition = conjunction(of_rows)
    distinct = distinct if condition is None else Filter(distinct, condition)
    outputs = tuple(Output(name, expression) for name, expression in columns.items())
    return replace(plan, root=Apply(distinct, outputs, ()))


def _with_subqueries(query: tree.Query, named: Named) -> tree.Query:
    """Return a query without WITH: the queries of WITH and `named` are sub-queries of FROM."""
    known = dict(named)
    for word, defined in query.queries:
        known[word.text.lower()] = _with_subqueries(defined, known)
    tables = []
    for item in query.tables:
        table = _with_subqueries_in(item.table, known)
        is_named = isinstance(item.table, tree.Stream) and table is not item.table
        alias = item.table.word if is_named and item.alias is None else item.alias  # type: ignore[union-attr]
        tables.append(replace(item, table=table, alias=alias))
    return replace(query, queries=(), tables=tuple(tables))


def _with_subqueries_in(table: tree.Table, named: Named) -> tree.Table:
    match table:
        case tree.Stream(word, None) if word.text.lower() in named:
            return tree.Subquery(named[word.text.lower()])
        case tree.Subquery(query):
            return replace(table, query=_with_subqueries(query, named))
        case tree.MatchRecognize(inner) | tree.AutomatonTable(inner):
            return replace(table, table=_with_subqueries_in(inner, named))
    return table


def _item(name: str, source: str, alias: str) -> SelectItem:
    start = 0
    return SelectItem(Name(Word(source, start, quoted=source != name)), Word(alias, start, quoted=True))


def _traced(query: tree.Query, *, in_pattern: bool = False) -> tuple[tree.Query, dict[str, str]]:
    """Return a query whose tables have the columns of IDENTITY_COLUMNS, and the names of these columns.

    `in_pattern`: a pattern or an automaton reads the rows.
    """
    _check_clauses(query)
    (item,) = query.tables
    table, names = _traced_table(query.sql, item.table, in_pattern=in_pattern)
    return replace(query, tables=(replace(item, table=table),)), names


def _traced_table(sql: str, table: tree.Table, *, in_pattern: bool) -> tuple[tree.Table, dict[str, str]]:
    """Return a table that has the columns of IDENTITY_COLUMNS, and their names in it."""
    match table:
        case tree.Stream() | tree.Union() if tree.streams_of(table) is not None:
            return table, {name: name for name in IDENTITY_COLUMNS}
        case tree.Subquery(query):
            inner, names = _traced(query, in_pattern=in_pattern)
            if query.selects_all:
                return replace(table, query=inner), names
            added = tuple(_item(name, names[name], HIDDEN_PREFIX + name) for name in IDENTITY_COLUMNS)
            inner = replace(inner, select=(*query.select, *added))
            return replace(table, query=inner), {name: HIDDEN_PREFIX + name for name in IDENTITY_COLUMNS}
        case tree.MatchRecognize() | tree.AutomatonTable() if in_pattern:
            raise _refusal(sql, tree.first_word(table), "a pattern over the matches of another pattern")
        case tree.MatchRecognize():
            rows, names = _traced_table(sql, table.table, in_pattern=True)
            is_one = table.rows is tree.RowsPerMatch.ONE
            pattern = _without_exclusions(table.pattern) if is_one else table.pattern
            kind = tree.RowsPerMatch.WITHOUT_EMPTY
            return replace(table, table=rows, rows=kind, pattern=pattern, has_final_measures=is_one), names
        case tree.AutomatonTable():
            rows, names = _traced_table(sql, table.table, in_pattern=True)
            hidden = tuple(name for name in names.values() if name.startswith(HIDDEN_PREFIX))
            return replace(table, table=rows, has_all_rows=True, added=hidden), names
    raise _refusal(sql, tree.first_word(table), f"{CLAUSES.get(type(table), 'a table that changes')} in FROM")


def _without_exclusions(pattern: tree.RowPattern) -> tree.RowPattern:
    match pattern:
        case tree.PatternExclusion(part):
            return _without_exclusions(part)
        case tree.PatternRepeat(part=part):
            return replace(pattern, part=_without_exclusions(part))
        case tree.PatternSequence(parts) | tree.PatternChoice(parts) | tree.PatternPermutation(parts):
            return replace(pattern, parts=tuple(map(_without_exclusions, parts)))
    return pattern


def _check_clauses(query: tree.Query) -> None:
    """Raise QueryError for a clause that combines rows, or leaves rows out depending on their order."""
    windows = [query.window, query.call, *(item.window for item in query.tables)]
    clauses: dict[str, object] = {
        "JOIN": len(query.tables) > 1,
        "a window": any(window is not None for window in windows),
        "GROUP BY": query.group_by or query.grouping_sets,
        "HAVING": query.having,
        "DISTINCT": query.distinct,
        "SUPERGROUP": query.supergroups,
        "CLOSING WHEN": query.closing,
        "FILL": query.fill,
        "LIMIT and OFFSET": query.order is not None and (query.order.limit is not None or query.order.offset),
    }
    for name, value in clauses.items():
        if value:
            raise _refusal(query.sql, query.keyword, name)


def _refusal(sql: str, word: Word, clause: str) -> QueryError:
    return QueryError(f"--packets-to and a query with {clause}", sql, word.start, EXPECTED)
