"""Queries over streaming DataFrames of Spark: `wiretide.stream` of the Python API.

DataFrames, schema, queries ──► plans and inputs ──► `highlevel.spark.stream.StreamRun` ──► files of results
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from capture.errors import InputError
from highlevel.inline.table_files import FileStream
from highlevel.plan.plan import Plan
from highlevel.results.stored_files import has_folder_name
from highlevel.results.user_types import readable
from lowlevel.kinds import TABLE
from queries.gsql import compile_query
from queries.pipeline.folder_uri import parse_folder
from queries.plans.subqueries import ReadableQuery
from queries.plans.table_lookup import NamedQuery
from queries.query_text import query_text
from queries.text.schema import parse_schema, read_schema

if TYPE_CHECKING:  # needs the extra `spark`
    from highlevel.spark.stream import StreamRun

OnResults = Callable[[dict[str, pa.Table]], None]
"""Called after each micro-batch with its final rows, by query. After a crash the rows of the last micro-batch may be
passed again."""


class FrameRun:
    """A run of queries over streaming DataFrames. After `stop`, a later run with the same folder continues it.

    As a context manager it stops at the end.
    """

    def __init__(self, run: StreamRun) -> None:
        """`run` has been started."""
        self._run = run

    def __enter__(self) -> FrameRun:
        """Return this run."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the run."""
        self.stop()

    @property
    def folder(self) -> Path:
        """The folder of the run. `wiretide.query` reads the results in it."""
        return self._run.folder

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds. Return True if the trigger has ended the run.

        If the run has failed, raise the reason: InputError for a wrong value of a row, FolderError, RunError, or the
        error of `on_results`.
        """
        return self._run.wait(timeout)

    def stop(self) -> None:
        """Stop after the current micro-batch. A second call has no effect. The session of Spark continues."""
        self._run.stop()


def start_frames(
    queries: str | Mapping[str, str],
    frames: Mapping[str, object],
    folder: str | os.PathLike[str],
    schema: str | os.PathLike[str],
    trigger: Mapping[str, Any] | None,
    partitions: int | None,
    on_results: OnResults | None,
) -> FrameRun:
    """Check the arguments, and start the run. The arguments and errors are those of `wiretide.stream`."""
    from highlevel.spark.inputs.frame_reading import check_frame, check_plan, frame_input
    from highlevel.spark.session.session import use_this_python
    from highlevel.spark.stream import StreamRun

    if not frames:
        raise ValueError("got no DataFrame, expected one for each protocol that the queries read")
    if not queries:
        raise ValueError("got no query, expected at least one")
    if partitions is not None and partitions < 1:
        raise ValueError(f"partitions: got {partitions}, expected at least 1")
    named = {"query": queries} if isinstance(queries, str) else queries
    _check_names([*named, *frames])
    protocols = parse_schema(read_schema(schema))
    streams: dict[str, FileStream] = {}
    checked = {}
    for name, frame in frames.items():
        if name.lower() not in protocols:
            known = ", ".join(protocol.name for protocol in protocols.values())
            raise InputError(f"stream {name}: no protocol of the schema; the protocols are: {known}")
        protocol = protocols[name.lower()]
        stream = FileStream.make(protocol.name, (), protocol.columns, protocol.times, [])
        streams[name.lower()] = stream
        checked[stream.name] = check_frame(frame, stream, is_streaming=True)
    plans = _compile(named, streams)
    for plan in plans:
        for stream in streams.values():
            check_plan(plan, stream)
    inputs = [frame_input(stream) for stream in streams.values()]
    sessions = {id(frame.sparkSession): frame.sparkSession for frame in checked.values()}
    if len(sessions) > 1:
        raise ValueError(f"got DataFrames of {len(sessions)} sessions of Spark, expected one session")
    (spark,) = sessions.values()
    use_this_python(spark.sparkContext)

    def on_batch(_: int, tables: dict[str, pa.Table], __: object) -> None:
        assert on_results is not None, "checked below"
        on_results({plan.name: readable(tables[plan.name], plan.times) for plan in plans})

    run = StreamRun(
        spark,
        plans,
        inputs,
        _check_folder(folder),
        partitions=spark.sparkContext.defaultParallelism if partitions is None else partitions,
        on_batch=None if on_results is None else on_batch,
        say=lambda line: print(f"wiretide: {line}", file=sys.stderr, flush=True),
        frames=checked,
        trigger=trigger,
    )
    run.start()
    return FrameRun(run)


def _check_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the path of the run's folder. Raises ValueError for a URI of an object store."""
    try:
        return parse_folder(os.fspath(folder))
    except ValueError as error:
        raise ValueError(f"folder: {error}") from None


def _check_names(names: Iterable[str]) -> None:
    """Raise ValueError for a name that cannot be a folder of results, and for names that are equal in lower case.

    FROM may contain the names of queries and of DataFrames.
    """
    seen: set[str] = set()
    for name in names:
        if not has_folder_name(name):
            raise ValueError(f"queries and frames: got the name {name!r}, expected for example 'users'")
        if name.lower() in seen:
            raise ValueError(
                f"queries and frames: got the name {name} twice (case is ignored); expected different names"
            )
        seen.add(name.lower())


def _compile(queries: Mapping[str, str], streams: Mapping[str, FileStream]) -> list[Plan]:
    """Compile queries.

    A query may read DataFrames and other queries; InputError is raised if it reads anything else.
    """
    named = {name: NamedQuery(query_text(text)) for name, text in queries.items()}
    tables = {
        name: ReadableQuery(stream.columns, stream.times, stream.node, Plan(stream.name, "", stream.node(None)))
        for name, stream in streams.items()
    }
    plans = [compile_query(query.sql, name, queries=named, links=(), tables=tables) for name, query in named.items()]
    for plan in plans:
        unbound = next((leaf.streams[0] for leaf in plan.leaves if leaf.low.kind != TABLE), None)
        if unbound is not None:
            bound = ", ".join(stream.name for stream in streams.values())
            raise InputError(f"query {plan.name}: no DataFrame for {unbound}; bound are: {bound}")
        if plan.waiting_reason is not None:
            raise InputError(
                f"query {plan.name} {plan.waiting_reason}, so it would have no results; expected for example "
                f"{plan.waiting_remedy}"
            )
    return plans
