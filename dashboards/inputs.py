"""Inputs of the Python API, their queries, and the results as Arrow tables, data frames or windows.

    Inputs ──query()──► Result ──► Batches ──► arrow(), pandas(), …, windows(), async for

A result runs its query when it is read. Every run is one `Batches`. `Batches.read` holds a lock while it computes, and
`cancel` works without this lock. So `close` in another thread first ends the computation, then releases the threads and
the files of the run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from capture.errors import InputError, MissingPackageError
from capture.files.stream import StreamedCapture
from capture.flows.sampling import FixedRates
from capture.lazy_dataclasses import dataclass
from capture.open import open_capture
from dashboards import request
from dashboards.answer import Answer, StartAll, StartRun, answer, answer_all, check_engine
from dashboards.measured_plan import Analysis, BatchAnalysis, InlineAnalysis
from dashboards.request import is_results
from dashboards.stored_results import tables_of
from dashboards.tables import Engine, Tables, tables_in
from highlevel.inline.engine import Input, UnwantedError, check_threads
from highlevel.operators.window_operator import WINDOW_END, WINDOW_START
from highlevel.plan.plan import Plan
from highlevel.results.user_types import readable, readable_schema
from lowlevel.layers import Layer, check_layer
from queries.explain.plan import explain
from queries.pipeline.input_options import Slack
from queries.pipeline.inputs import check_streams, is_live

API_MODULES = ("wiretide", __name__)
"""Modules of the Python API. Warnings are reported with the line of the user's code that called them."""


@dataclass(frozen=True)
class Options:
    """Options of `wiretide.open` (docs/guide/python.md).

    Raises ValueError for an unknown layer, for no threads, and for options of the inline engine with another engine.
    """

    on: str = request.INLINE
    layer: str = Layer.OUTER
    sampling: FixedRates | None = None
    threads: int | None = None
    slack: Slack | None = None
    follow: bool = False
    lull: str | None = None

    def __post_init__(self) -> None:
        check_layer(self.layer)
        check_threads(self.threads)
        check_engine(self.on, self.threads, self.slack, request.parse_lull(self.lull), self.follow)

    @classmethod
    def parse(
        cls,
        on: str,
        layer: str,
        sampling: str | Iterable[str],
        threads: int | None,
        slack: str | None,
        follow: bool,
        lull: str | None,
    ) -> Options:
        """Parse the texts of options. Raises ValueError for text that is not a rate or a slack."""
        rates = request.parse_sampling(sampling)
        return cls(on, layer, rates, threads, request.parse_slack(slack), follow, lull)


@dataclass(frozen=True)
class Captures:
    """Captures and live inputs: `files` are read for every name in FROM. `streams` are files by name in FROM."""

    files: Sequence[str | os.PathLike[str]]
    streams: Mapping[str, Iterable[str]]
    options: Options

    def check(self) -> None:
        """Raise InputError for an input that is missing or is not a capture. Live inputs are not opened."""
        inputs = request.bind_inputs(self.files, self.streams, self.options.follow)
        check_streams([], inputs)
        for source in inputs:
            if not is_live(source):
                capture = open_capture(source.path)
                if isinstance(capture, StreamedCapture):
                    capture.close()

    def bind(self, sql: str, params: Mapping[str, object] | None) -> tuple[Plan, StartRun]:
        """Compile a query over the inputs. Raises QueryError for the query, InputError for a name without a file."""
        options = self.options
        plan, inputs = request.bind(
            sql,
            options.layer,
            options.sampling,
            self.files,
            self.streams,
            options.follow,
            params,
            threads=options.threads,
        )
        return plan, self._make_start(plan, inputs)

    def bind_all(self, texts: Mapping[str, str]) -> tuple[list[tuple[Plan, StartRun]], StartAll | None]:
        """Compile queries as `bind` does. Also return a function that runs all of them in one pass.

        Raises InputError for an input that is not a file.
        """
        options = self.options
        plans, inputs = request.bind_all(
            texts,
            options.layer,
            options.sampling,
            self.files,
            self.streams,
            options.follow,
            threads=options.threads,
        )
        for source in inputs:
            if is_live(source):
                raise InputError(f"got several queries over {source.name}, expected files; run one query at a time")
        bound = [(plan, self._make_start(plan, inputs)) for plan in plans]
        return bound, lambda: answer_all(plans, inputs, None, options.threads, options.slack, on=options.on)

    def _make_start(self, plan: Plan, inputs: Sequence[Input]) -> StartRun:
        def start() -> contextlib.AbstractContextManager[Answer[pa.RecordBatch]]:
            options = self.options
            lull = request.parse_lull(options.lull)  # the clock of a rule belongs to one run
            return answer(plan, inputs, options.on, None, options.threads, options.slack, lull)

        return start


class Inputs:
    """Inputs for any number of queries. A context manager: its end closes all runs of its queries."""

    def __init__(self, source: Captures | Tables) -> None:
        """Read `source`."""
        self._source = source
        self._runs = weakref.WeakSet[Batches]()
        self._closed = False

    def __enter__(self) -> Inputs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, sql: str, params: Mapping[str, object] | None = None, **parameters: object) -> Result:
        """Compile a query over these inputs. Arguments are as in `wiretide.query`.

        Parameters may also be keywords: `query(sql, least=5)` is `query(sql, {"least": 5})`.
        Raises QueryError for the query, InputError for a name without an input.
        """
        return Result(self, *self._source.bind(sql, {**(params or {}), **parameters}))

    def query_all(
        self, queries: Mapping[str, str] | Sequence[str], params: Mapping[str, object] | None = None
    ) -> dict[str, Result]:
        """Answer several queries in one pass over files, and return their results by name.

        `queries`: texts by name, or a list. In a list a ready query keeps its name, and other queries are named by
        position: `query-1`, … Each query has the `params` that it declares. Equal parts of queries are computed once.
        Tables are read once per query. Raises QueryError for a wrong query or an unknown parameter, InputError for live
        inputs or an unreadable file, and ValueError if `queries` is a single text.
        """
        if isinstance(queries, str):
            raise ValueError(f"got the text {queries!r}, expected a list of queries, or queries by name")
        texts = request.texts_of([*queries.values()] if isinstance(queries, Mapping) else queries, params)
        if isinstance(queries, Mapping):
            texts = dict(zip(queries, texts.values(), strict=True))
        bound, start = self._source.bind_all(texts)
        results = {name: Result(self, plan, run) for name, (plan, run) in zip(texts, bound, strict=True)}
        if start is None or self._closed:
            for result in results.values():
                result.arrow()
            return results
        rows: list[list[pa.RecordBatch]] = [[] for _ in bound]
        with start() as answer:
            for number, batch in answer.batches:
                rows[number].append(readable(batch, bound[number][0].times))
            warn_user(answer.warnings())
        for result, batches in zip(results.values(), rows, strict=True):
            result.keep(pa.Table.from_batches(batches, result.schema))
        return results

    def analyze(self, plan: Plan) -> Analysis:
        """Return a run of a query over files with measurements. Raises ValueError for other inputs."""
        if not isinstance(self._source, Captures):
            raise ValueError("explain(analyze=True) measures queries over files: got a table")
        source = self._source
        inputs = request.bind_inputs(source.files, source.streams, source.options.follow)
        for one_input in inputs:
            if is_live(one_input):
                raise ValueError(f"explain(analyze=True) reads complete files: got {one_input.name}")
        if source.options.on != request.INLINE:
            return BatchAnalysis(plan, inputs, source.options.on)
        return InlineAnalysis(plan, inputs, threads=source.options.threads)

    def run(self, plan: Plan, start: StartRun) -> Batches:
        """Return a new run of a query. Raises ValueError after `close`."""
        if self._closed:
            raise ValueError("the inputs are closed: results must be read before close() or the end of the with block")
        batches = Batches(plan, start)
        self._runs.add(batches)
        return batches

    def close(self) -> None:
        """End all runs and close their files. Tables and data frames that exist remain valid."""
        self._closed = True
        for run in list(self._runs):
            run.close()


class Result:
    """The result of one query, in the format of the method that reads it.

    `arrow` runs the query once and keeps the table for `pandas` and the other formats. Every iteration runs the query
    again, and yields windows as soon as they are final. An asynchronous iteration runs the query in a thread.
    """

    def __init__(self, inputs: Inputs, plan: Plan, start: StartRun) -> None:
        """Read the result of `plan` in runs of `inputs`."""
        self._inputs = inputs
        self._plan = plan
        self._start = start
        self._table: pa.Table | None = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        return readable_schema(self._plan.schema, self._plan.times)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names

    def explain(self, analyze: bool = False) -> str:
        """Explain the plan of the query, as `wiretide.explain`.

        With `analyze` run the query over its files, and add measured figures of each node. Raises ValueError for tables
        and for inputs that are not files.
        """
        if not analyze:
            return explain(self._plan)
        analysis = self._inputs.analyze(self._plan)
        analysis.complete()
        warn_user(analysis.warnings())
        return analysis.text()

    def keep(self, table: pa.Table) -> None:
        """Store the table of all rows that another run has computed, so that `arrow` does not run the query."""
        self._table = table

    def arrow(self) -> pa.Table:
        """Return all rows. Live inputs are read until they end or until Ctrl-C."""
        if self._table is None:
            with contextlib.closing(self.batches()) as batches, batches.until_stopped():
                self._table = pa.Table.from_batches(list(batches), self.schema)
        return self._table

    def partial_matches(self) -> pa.Table:
        """Run the query, and return the partial matches of its pattern at the end of the input, the oldest first.

        The columns are those of PARTITION BY, `match_start`, `match_end`, the `variable` of the last row or the `state`
        of the automaton, and the fields that the pattern keeps. Raises InputError for a query without MATCH_RECOGNIZE
        or AUTOMATON, and for MATCH_RECOGNIZE with EMIT CHANGES; ValueError for tables and for engines other than
        inline.
        """
        from dashboards.partial_matches import keep_partial_matches, time_columns

        with self._start() as found, found.until_stopped():
            if found.run is None:
                raise ValueError("partial_matches() reads captures with the inline engine: got a table or Spark")
            take = keep_partial_matches(found.run)
            for _ in found.batches:
                pass
            warn_user(found.warnings())
            return readable(take(), time_columns(self._plan))

    def pandas(self) -> Any:
        """Return all rows as a `pandas.DataFrame`."""
        _import_package("pandas")
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """Return all rows as a `polars.DataFrame`."""
        return _import_package("polars").from_arrow(self.arrow())

    def duckdb(self, connection: Any = None) -> Any:
        """Return all rows as a DuckDB relation in `connection`, by default in the default connection of DuckDB."""
        return (connection or _import_package("duckdb")).from_arrow(self.arrow())

    def batches(self) -> Batches:
        """Open the inputs. Return an iterator over batches of final rows; `close` ends the run."""
        batches = self._inputs.run(self._plan, self._start)
        batches.open()
        return batches

    def windows(self) -> Generator[pa.Table, None, None]:
        """Open the inputs. Return an iterator over closed windows, each a table; `close` ends the run.

        Without windows the tables contain final rows, as they become available.
        """
        return self._windows(self.batches())

    def __iter__(self) -> Iterator[pa.Table]:
        return self.windows()

    async def __aiter__(self) -> AsyncIterator[pa.Table]:
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        batches = self._inputs.run(self._plan, self._start)
        loop, thread = asyncio.get_running_loop(), ThreadPoolExecutor(1, "wiretide-async")
        try:
            while (batch := await loop.run_in_executor(thread, batches.read)) is not None:
                for table in self._split(batch):
                    yield table
            batches.warn()
        finally:
            batches.cancel()
            closed = loop.run_in_executor(thread, batches.close)
            thread.shutdown(
                wait=False
            )  # without waiting, because this task may be cancelled again before the run is closed
            await closed
            thread.shutdown()

    def _windows(self, batches: Batches) -> Generator[pa.Table, None, None]:
        with contextlib.closing(batches):
            for batch in batches:
                yield from self._split(batch)

    def _split(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Yield the rows of each window of a batch. Rows of one window are neighbours."""
        rows = pa.Table.from_batches([batch])
        starts = [0]
        if self._plan.windowed:
            bounds = (batch[name].cast(pa.int64()).to_numpy() for name in (WINDOW_START, WINDOW_END))
            starts += (np.flatnonzero(np.any([np.diff(bound) != 0 for bound in bounds], axis=0)) + 1).tolist()
        for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
            yield rows.slice(start, end - start)


class Batches(Iterator[pa.RecordBatch]):
    """One run of a query: its final rows, with the column types of users.

    At the end it warns of data that was not read.
    """

    def __init__(self, plan: Plan, start: StartRun) -> None:
        """Run `plan`. `open` calls `start`."""
        self._plan = plan
        self._start = start
        self._stack = contextlib.ExitStack()
        self._answer: Answer[pa.RecordBatch] | None = None
        self._ended = threading.Event()
        self._warnings: list[str] = []
        self._lock = threading.Lock()

    def open(self) -> None:
        """Open the inputs. Raises InputError for an input that cannot be read."""
        with self._lock:
            self._open()

    def _open(self) -> Answer[pa.RecordBatch]:
        if self._answer is None:
            self._answer = self._stack.enter_context(self._start())
        return self._answer

    def until_stopped(self) -> contextlib.AbstractContextManager[None]:
        """End live inputs at the first Ctrl-C or SIGTERM, in the main thread (`Answer.until_stopped`)."""
        return contextlib.nullcontext() if self._answer is None else self._answer.until_stopped()

    def read(self) -> pa.RecordBatch | None:
        """Return the next batch, or None at the end and after `cancel`.

        The call that returns None at the end prepares the warnings.
        """
        with self._lock:
            if self._ended.is_set():
                return None
            result = self._open()
            try:
                batch = None if self._ended.is_set() else next(result.batches, None)
            except UnwantedError:
                return None
            if self._ended.is_set():
                return None
            if batch is not None:
                return readable(batch, self._plan.times)
            self._warnings = result.warnings()
            self._ended.set()
            return None

    def warn(self) -> None:
        """Emit the warnings of the run once."""
        texts, self._warnings = self._warnings, []
        warn_user(texts)

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = self.read()
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            self.warn()
            raise StopIteration
        return batch

    def cancel(self) -> None:
        """Let `read` return None soon. Does not wait; any thread may call it."""
        self._ended.set()
        if self._answer is not None and self._answer.run is not None:
            self._answer.run.cancel()

    def close(self) -> None:
        """End the run, its threads and its files. Waits for `read` in another thread."""
        self.cancel()
        with self._lock:
            self._stack.close()
            self._answer = None


def open_inputs(
    files: request.Files,
    streams: request.Streams | None,
    options: Options,
    check: bool = False,
    schema: str | os.PathLike[str] | None = None,
) -> Inputs:
    """Return tables or captures as inputs. Raises ValueError for both together, and for a table with options.

    With a `schema` the inputs are files or tables with the protocols of the schema.

    Captures are opened when a query runs. With `check`, they are also checked by this call, which raises the errors.
    """
    if not (files or streams):
        raise InputError("got no input, expected captures, folders, globs or one table after the query, or streams")
    if schema is not None:
        if options != Options(on=options.on):
            raise ValueError("got options of captures together with a schema, expected only schema and on")
        return Inputs(Tables.of_schema(schema, files, streams or {}, Engine(options.on)))
    tables = tables_in(files, streams)
    if tables and options != Options():
        raise ValueError("got options of captures together with a table, expected only the table")
    if tables:
        return Inputs(Tables.of_frames(tables))
    paths = cast(Sequence[str | os.PathLike[str]], files)
    named = {name: list(cast(Iterable[str], paths)) for name, paths in (streams or {}).items()}
    _check_types((*paths, *(path for given in named.values() for path in given)))
    results = [path for path in (*paths, *(path for given in named.values() for path in given)) if is_results(path)]
    if results:
        if options != Options():
            raise ValueError(f"got options of captures together with {results[0]}, the results of a run")
        stored = tables_of([os.fspath(path) for path in paths], named)
        assert stored is not None, "tables_of returns tables, because an input is results"
        return Inputs(stored)
    captures = Captures(paths, named, options)
    if check:
        captures.check()
    return Inputs(captures)


def _check_types(paths: Iterable[object]) -> None:
    """Raise TypeError for an input that is not a path."""
    for path in paths:
        if not isinstance(path, str | os.PathLike):
            advice = "; write several files as several arguments" if isinstance(path, list | tuple) else ""
            raise TypeError(
                f"got {type(path).__name__} as an input, expected the path of a capture, or one table{advice}"
            )


def warn_user(texts: Iterable[str]) -> None:
    """Emit warnings with the line of the user's code."""
    for text in texts:
        frame, level = sys._getframe(), 1
        while frame.f_back is not None and frame.f_globals.get("__name__") in API_MODULES:
            frame, level = frame.f_back, level + 1
        warnings.warn(text, RuntimeWarning, stacklevel=level)


def _import_package(package: str) -> Any:
    """Import an optional package. Raises MissingPackageError if it is not installed."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingPackageError(package, "frames", f"the result as {package}") from error
