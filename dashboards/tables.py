"""Tables and data frames as the inputs of queries, in place of captures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.errors import InputError
from capture.metrics import Samples
from dashboards.answer import Answer, StartRun
from dashboards.request import Files, Frame, Streams
from dashboards.subqueries import compute_with
from highlevel.inline.table_files import FileStream, Progress
from highlevel.inline.table_sources import SUFFIXES
from highlevel.inline.tables import Stream, TableStream, arrow_table, run_tables
from highlevel.plan.plan import Plan
from lowlevel.kinds import TABLE
from queries.gsql import compile_tree
from queries.plans.subqueries import ReadableQuery
from queries.plans.subquery_values import has_subqueries, streams_of, with_values
from queries.query_text import query_text
from queries.text.lexer import Kind, tokenize
from queries.text.parser import parse_query
from queries.text.schema import Protocol, parse_schema
from queries.text.tree import Query

EVERY_NAME = "table"
"""The name of a table that every name in FROM means."""


def tables_by_name(tables: Iterable[Stream]) -> dict[str, Stream]:
    """Return tables by their names in lower case, and by these names with underscores in place of hyphens.

    SQL reads `top-talkers` as a difference, unless it has quotes.
    """
    tables = list(tables)
    named = {table.name.lower(): table for table in tables}
    for table in tables:
        named.setdefault(table.name.lower().replace("-", "_"), table)
    return named


REMEDY = "a larger banded_increasing in the schema"
"""The remedy in the warning about late rows."""


class Tables:
    """Tables by their names in FROM, or one table for every name in FROM."""

    def __init__(
        self,
        tables: Mapping[str, Stream],
        progress: list[Progress] | None = None,
        check: Callable[[Plan], None] | None = None,
        groups: Collection[str] = (),
    ) -> None:
        """Read `tables`, by names in lower case. Runs report to the functions in `progress`.

        `check` receives each plan before it runs, also those of sub-queries, and may raise an error. `groups`: names
        before a dot in FROM, in lower case.
        """
        self._tables = tables
        self._check = check
        self._groups = groups
        self.progress = progress if progress is not None else []

    @classmethod
    def of_frames(cls, frames: Mapping[str, Frame]) -> Tables:
        """Convert Arrow tables or data frames. Raises ValueError for values that queries do not have.

        Names are compared without regard to case, and must differ.
        """
        tables: dict[str, Stream] = {}
        for name, frame in frames.items():
            if name.lower() in tables:
                raise ValueError(f"streams: got two tables with the name {name}, in any case; rename one")
            tables[name.lower()] = TableStream.read(name, frame)
        return cls(tables)

    @classmethod
    def of_schema(
        cls, schema: str | os.PathLike[str], files: Iterable[str | os.PathLike[str] | Frame], streams: Streams
    ) -> Tables:
        """Read files or tables as the protocols of a schema: `files` for all of them, `streams` for single ones.

        Raises InputError for a file that cannot be read, QueryError for a wrong schema.
        """
        protocols = parse_schema(_schema_text(schema))
        given = dict(streams)
        unknown = next((name for name in given if name.lower() not in protocols), None)
        if unknown is not None:
            names = ", ".join(protocol.name for protocol in protocols.values())
            raise InputError(f"stream {unknown}: no protocol of {schema}; the protocols are: {names}")
        every = list(files)
        if bool(every) == bool(given):
            raise InputError("got a schema, expected either files or streams by name as its input")
        progress: list[Progress] = []
        named: dict[str, Any] = {name.lower(): value for name, value in given.items()}
        for name in () if named else protocols:
            named[name] = every
        return cls({name: _stream(protocols[name], value, progress) for name, value in named.items()}, progress)

    def bind(self, sql: str, params: Mapping[str, object] | None) -> tuple[Plan, StartRun]:
        """Compile a query over the tables. Raises QueryError for the query, InputError for a name without a table."""
        query = parse_query(query_text(sql, params), self._groups)
        if has_subqueries(query):
            compute = compute_with(lambda inner, _: self._compiled(inner), lambda plan: run_tables(plan, self._tables))
            query = with_values(query, compute)
        plan = self._compiled(query)

        @contextlib.contextmanager
        def start() -> Iterator[Answer[pa.RecordBatch]]:
            counters: list[Samples] = []
            with contextlib.closing(run_tables(plan, self._tables, counters.append)) as rows:
                yield Answer(rows, lambda: counters[0] if counters else Samples(), list, remedy=REMEDY)

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
                for leaf in plan.leaves:
                    self._tables[leaf.streams[0].lower()].check()
                if self._check is not None:
                    self._check(plan)
                return plan
        known = ", ".join(dict.fromkeys(table.name for table in self._tables.values()))
        raise InputError(f"query query: no table for {unbound[0]}; bound are: {known}")


def _stream(protocol: Protocol, value: Any, progress: list[Progress]) -> Stream:
    """Return files or tables as the stream of a protocol. Raises InputError for a file of another kind."""
    values = value if isinstance(value, list | tuple) else [value]
    sources = [_source(value) for value in values]
    return FileStream.make(protocol.name, sources, protocol.columns, protocol.times, progress)


def _source(value: Any) -> Path | pa.Table:
    if isinstance(value, Frame):
        return arrow_table(value)
    if not isinstance(value, str | os.PathLike):
        expected = "the path of a file, or a table"
        raise InputError(f"got {type(value).__name__} as the input of a schema, expected {expected}")
    path = Path(value)
    if not path.name.lower().endswith(SUFFIXES):
        raise InputError(f"{path}: got a file with another suffix, expected one of {', '.join(SUFFIXES)}")
    return path


def _schema_text(schema: str | os.PathLike[str]) -> str:
    """Return a schema, which is text with PROTOCOL, or the path of a file. Raises InputError."""
    if isinstance(schema, str) and "{" in schema:
        return schema
    try:
        return Path(schema).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{os.fspath(schema)}: cannot be read as a schema: {error}") from error


def tables_in(files: Files, streams: Streams | None) -> dict[str, Frame]:
    """Return the tables among the inputs by their names in FROM. Raises ValueError for tables and captures."""
    named = [*((EVERY_NAME, file) for file in files), *(streams or {}).items()]
    tables = {name: value for name, value in named if isinstance(value, Frame)}
    if tables and (len(tables) < len(named) or (files and streams)):
        raise ValueError("got a table together with other inputs, expected one table, or streams of tables by name")
    return tables
