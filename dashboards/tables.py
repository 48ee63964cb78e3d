"""Tables and data frames as the inputs of queries, in place of captures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import pyarrow as pa

from capture.errors import InputError
from capture.metrics import Samples
from dashboards.answer import Answer, StartRun
from dashboards.request import Files, Frame, Streams
from dashboards.subqueries import compute_with
from highlevel.inline.tables import TableStream, run_tables
from highlevel.plan.plan import Plan
from lowlevel.kinds import TABLE
from queries.catalogue.catalogue import query_text
from queries.gsql import compile_tree
from queries.plans.subqueries import ReadableQuery
from queries.plans.subquery_values import has_subqueries, streams_of, with_values
from queries.text.lexer import Kind, tokenize
from queries.text.parser import parse_query
from queries.text.tree import Query

EVERY_NAME = "table"
"""The name of a table that every name in FROM means."""


class Tables:
    """Tables by their names in FROM, or one table for every name in FROM."""

    def __init__(self, frames: Mapping[str, Frame]) -> None:
        """Convert Arrow tables or data frames. Raises ValueError for values that queries do not have.

        Names are compared without regard to case, and must differ.
        """
        self._tables: dict[str, TableStream] = {}
        for name, frame in frames.items():
            if name.lower() in self._tables:
                raise ValueError(f"streams: got two tables with the name {name}, in any case; rename one")
            self._tables[name.lower()] = TableStream.read(name, frame)

    def bind(self, sql: str, params: Mapping[str, object] | None) -> tuple[Plan, StartRun]:
        """Compile a query over the tables. Raises QueryError for the query, InputError for a name without a table."""
        query = parse_query(query_text(sql, params))
        if has_subqueries(query):
            compute = compute_with(lambda inner, _: self._compiled(inner), lambda plan: run_tables(plan, self._tables))
            query = with_values(query, compute)
        plan = self._compiled(query)

        @contextlib.contextmanager
        def start() -> Iterator[Answer[pa.RecordBatch]]:
            with contextlib.closing(run_tables(plan, self._tables)) as rows:
                yield Answer(rows, Samples, list)

        return plan, start

    def bind_all(self, texts: Mapping[str, str]) -> tuple[list[tuple[Plan, StartRun]], None]:
        """Compile queries as `bind` does. None: a run has one query."""
        return [self.bind(text, None) for text in texts.values()], None

    def _compiled(self, query: Query) -> Plan:
        tables = self._tables
        if list(tables) == [EVERY_NAME]:
            names = (token.text.lower() for token in tokenize(query.sql) if token.kind in (Kind.WORD, Kind.QUOTED))
            tables = dict.fromkeys(names, tables[EVERY_NAME])
        readable = {
            name: ReadableQuery(table.columns, table.times, table.node, Plan("query", query.sql, table.node(None)))
            for name, table in tables.items()
        }
        unbound = sorted(name for name in streams_of(query) if name.lower() not in tables)
        if not unbound:
            plan = compile_tree(query, tables=readable)
            unbound = [leaf.streams[0] for leaf in plan.leaves if leaf.low.kind != TABLE]
            if not unbound:
                return plan
        known = ", ".join(table.name for table in self._tables.values())
        raise InputError(f"query query: no table for {unbound[0]}; bound are: {known}")


def tables_in(files: Files, streams: Streams | None) -> dict[str, Frame]:
    """Return the tables among the inputs by their names in FROM. Raises ValueError for tables and captures."""
    named = [*((EVERY_NAME, file) for file in files), *(streams or {}).items()]
    tables = {name: value for name, value in named if isinstance(value, Frame)}
    if tables and (len(tables) < len(named) or (files and streams)):
        raise ValueError("got a table together with other inputs, expected one table, or streams of tables by name")
    return tables
