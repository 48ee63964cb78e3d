"""Tables and data frames as the inputs of queries, in place of captures."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.metrics import Samples
from dashboards.answer import Answer, StartRun, answer
from dashboards.request import INLINE, Files, Frame, Streams
from dashboards.subqueries import make_subquery_runner
from highlevel.inline.table_files import FileStream, Progress
from highlevel.inline.table_sources import Source
from highlevel.inline.tables import Stream, TableStream, arrow_table, run_tables
from highlevel.plan.plan import Plan
from lowlevel.kinds import TABLE
from queries.gsql import compile_tree
from queries.pipeline.table_settings import files_of_table, table_input
from queries.plans.subqueries import ReadableQuery
from queries.plans.subquery_values import has_subqueries, streams_of, with_values
from queries.query_text import query_text
from queries.text.lexer import Kind, tokenize
from queries.text.parser import parse_query
from queries.text.schema import parse_schema, read_schema
from queries.text.tree import Query

EVERY_NAME = "table"
"""The name of a table that is read for every name in FROM."""


def tables_by_name(tables: Iterable[Stream]) -> dict[str, Stream]:
    """Return tables by their names in lower case. A name with hyphens is also returned with underscores.

    SQL reads `top-talkers` as a difference, unless it has quotes.
    """
    tables = list(tables)
    named = {table.name.lower(): table for table in tables}
    for table in tables:
        named.setdefault(table.name.lower().replace("-", "_"), table)
    return named


REMEDY = "a larger banded_increasing in the schema"
"""The remedy in the warning about late rows."""


@dataclass(frozen=True)
class Engine:
    """The engine of a query (`dashboards.answer`), and settings of Spark."""

    on: str = INLINE
    settings: Mapping[str, str] = field(default_factory=dict)


INLINE_ENGINE = Engine()


class Tables:
    """Tables by their names in FROM, or one table for every name in FROM."""

    def __init__(
        self,
        tables: Mapping[str, Stream],
        progress: list[Progress] | None = None,
        check: Callable[[Plan], None] | None = None,
        stream_groups: Collection[str] = (),
        engine: Engine = INLINE_ENGINE,
    ) -> None:
        """Read `tables`, by names in lower case. Runs report their progress to the functions in `progress`.

        `check` receives each plan, also of sub-queries, before it runs, and may raise an error. `stream_groups`: the
        names that may be before a dot in FROM, in lower case. `engine`: Spark reads only files with a schema.
        """
        self._engine = engine
        self._tables = tables
        self._check = check
        self._stream_groups = stream_groups
        self.progress = progress if progress is not None else []
        self.frames: dict[str, list[Any]] = {}
        """The DataFrames that Spark reads, by the name of their stream."""

    @classmethod
    def of_frames(cls, frames: Mapping[str, Frame]) -> Tables:
        """Convert Arrow tables or data frames. Raises ValueError for values that queries do not have.

        Names are compared without regard to case, and must differ.
        """
        tables: dict[str, Stream] = {}
        for name, frame in frames.items():
            if name.lower() in tables:
                raise ValueError(f"streams: got two tables with the name {name} (case is ignored); rename one")
            tables[name.lower()] = TableStream.read(name, frame)
        return cls(tables)

    @classmethod
    def of_schema(
        cls,
        schema: str | os.PathLike[str],
        files: Iterable[str | os.PathLike[str] | Frame],
        streams: Streams,
        engine: Engine = INLINE_ENGINE,
    ) -> Tables:
        """Read files or tables as the protocols of a schema: `files` for all protocols, or `streams` by protocol.

        Spark reads its own DataFrames directly. Other tables are written to Parquet files for Spark, which are deleted
        with the returned object. Raises InputError for a file that cannot be read, QueryError for a wrong schema.
        """
        protocols = parse_schema(read_schema(schema))
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
        tables: dict[str, Stream] = {}
        opened = cls(tables, progress, engine=engine)
        folder = None if engine.on == INLINE else Path(tempfile.mkdtemp(prefix="wiretide-tables-"))
        if folder is not None:
            weakref.finalize(opened, shutil.rmtree, folder, ignore_errors=True)
        for name, value in named.items():
            protocol = protocols[name]
            frames = [] if folder is None else _frames_of_spark(value)
            if frames:
                opened.frames[protocol.name] = frames
            sources = [] if frames else _sources(value, folder)
            tables[name] = FileStream.make(protocol.name, sources, protocol.columns, protocol.times, progress)
        return opened

    @property
    def paths(self) -> list[Path]:
        """The files of the tables."""
        return [path for stream in self._tables.values() if isinstance(stream, FileStream) for path in stream.paths]

    def bind(self, sql: str, params: Mapping[str, object] | None) -> tuple[Plan, StartRun]:
        """Compile a query over the tables. Raises QueryError for the query, InputError for a name without a table."""
        query = parse_query(query_text(sql, params), self._stream_groups)
        if has_subqueries(query):
            compute = make_subquery_runner(
                lambda inner, _: self._compile(inner), lambda plan: run_tables(plan, self._tables)
            )
            query = with_values(query, compute)
        plan = self._compile(query)

        return plan, lambda: self.run(plan)

    @contextlib.contextmanager
    def run(self, plan: Plan) -> Iterator[Answer[pa.RecordBatch]]:
        """Open the tables and start a plan over them."""
        if self._engine.on != INLINE:
            with self._start_on_spark(plan) as result:
                yield result
            return
        counters: list[Samples] = []
        with contextlib.closing(run_tables(plan, self._tables, counters.append)) as rows:
            yield Answer(rows, lambda: counters[0] if counters else Samples(), list, remedy=REMEDY)

    @contextlib.contextmanager
    def _start_on_spark(self, plan: Plan) -> Iterator[Answer[pa.RecordBatch]]:
        streams = (self._tables[name.lower()] for name in dict.fromkeys(leaf.streams[0] for leaf in plan.leaves))
        inputs, frames = [], {}
        for stream in streams:
            if not isinstance(stream, FileStream):
                continue
            if stream.name in self.frames:
                from highlevel.spark.inputs.frame_reading import check_frame, frame_input

                checked = [check_frame(frame, stream, is_streaming=False) for frame in self.frames[stream.name]]
                frames[stream.name] = reduce(type(checked[0]).unionAll, checked)
                inputs.append(frame_input(stream))
            else:
                inputs.append(table_input(stream))
        settings = self._engine.settings
        with answer(plan, inputs, self._engine.on, spark_settings=settings, frames=frames) as result:
            yield Answer(result.batches, result.samples, result.readings, remedy=REMEDY)

    def bind_all(self, texts: Mapping[str, str]) -> tuple[list[tuple[Plan, StartRun]], None]:
        """Compile queries as `bind` does. The second value is None, because tables are read once per query."""
        return [self.bind(text, None) for text in texts.values()], None

    def _compile(self, query: Query) -> Plan:
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


def _sources(value: Any, folder: Path | None) -> list[Source]:
    """Return files or tables as sources. With a `folder`, tables are written to files in it.

    Raises InputError for a file of another kind.
    """
    sources: list[Source] = []
    for number, item in enumerate(value if isinstance(value, list | tuple) else [value]):
        if isinstance(item, Frame):
            sources += [arrow_table(item)] if folder is None else _write_frame(item, folder / f"{number}")
        elif isinstance(item, str | os.PathLike):
            sources += files_of_table([os.fspath(item)])
        else:
            expected = "the path of a file, or a table"
            raise InputError(f"got {type(item).__name__} as the input of a schema, expected {expected}")
    return sources


def _frames_of_spark(value: Any) -> list[Any]:
    """Return DataFrames of Spark, or none for other inputs. Raises InputError for both together."""
    items = value if isinstance(value, list | tuple) else [value]
    frames = [item for item in items if hasattr(item, "toArrow")]
    if frames and len(frames) < len(items):
        raise InputError("got DataFrames of Spark and other inputs for one name of a schema, expected one kind")
    return frames


def _write_frame(frame: Frame, folder: Path) -> list[Path]:
    """Write a table as Parquet."""
    while folder.exists():
        folder = folder.with_name(f"{folder.name}-")
    from pyarrow import parquet

    folder.mkdir()
    parquet.write_table(arrow_table(frame), folder / "part.parquet")
    return sorted(folder.glob("*.parquet"))


def tables_in(files: Files, streams: Streams | None) -> dict[str, Frame]:
    """Return the tables among the inputs, by their names in FROM. Raises ValueError if captures are given too."""
    named = [*((EVERY_NAME, file) for file in files), *(streams or {}).items()]
    tables = {name: value for name, value in named if isinstance(value, Frame)}
    if tables and (len(tables) < len(named) or (files and streams)):
        raise ValueError("got a table together with other inputs, expected one table, or streams of tables by name")
    return tables
