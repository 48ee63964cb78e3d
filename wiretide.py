"""Wiretide: network monitoring in SQL over packets and flows. The public Python API and the command line.

    import wiretide
    table = wiretide.query("SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP", "trace.pcap")
    table.to_pandas()

Functions import the heavy modules that they use, so that `wiretide --help` and a query on a small file start at once.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dashboards import request
from lowlevel.layers import Layer

if TYPE_CHECKING:
    import pyarrow as pa
    import typer

    from capture.errors import InputError, MissingPackageError, WiretideError
    from dashboards.frame_run import FrameRun
    from dashboards.inputs import Inputs
    from highlevel.aggregation import AggregateError
    from highlevel.compare.question import NotComparedError
    from highlevel.speculation.lifetimes.model import LifetimeError
    from highlevel.speculation.lifetimes.streams import Lifetimes
    from lowlevel.expressions.user_functions import FunctionError
    from queries.pipeline.sections import PipelineError
    from queries.text.errors import QueryError

    app: typer.Typer

__all__ = [
    "AggregateError",
    "FunctionError",
    "InputError",
    "LifetimeError",
    "MissingPackageError",
    "NotComparedError",
    "PipelineError",
    "QueryError",
    "WiretideError",
    "aggregate",
    "app",
    "compare",
    "explain",
    "function",
    "lifetimes",
    "main",
    "open",
    "packets",
    "query",
    "register",
    "stream",
    "watch",
]

ERRORS = {
    "AggregateError": "highlevel.aggregation",
    "FunctionError": "lowlevel.expressions.user_functions",
    "InputError": "capture.errors",
    "LifetimeError": "highlevel.speculation.lifetimes.model",
    "MissingPackageError": "capture.errors",
    "NotComparedError": "highlevel.compare.question",
    "PipelineError": "queries.pipeline.sections",
    "QueryError": "queries.text.errors",
    "WiretideError": "capture.errors",
}
"""Public error classes and their modules, which are imported when the class is used."""


def __getattr__(name: str) -> type[Exception] | typer.Typer:
    if name == "app":
        from dashboards.commands.app import make_app

        return make_app()
    if name not in ERRORS:
        raise AttributeError(f"module 'wiretide' has no attribute {name!r}")
    error: type[Exception] = getattr(importlib.import_module(ERRORS[name]), name)
    return error


def __dir__() -> list[str]:
    return __all__


OBJECTS_BEFORE_COLLECTION = 200_000
"""Number of new objects after which Python searches for unreachable cycles. With Python's default of 700, the imports
of a query cause hundreds of searches, a tenth of the time of a short query. A micro-batch creates few objects."""


def main() -> None:
    """Run the command line.

    The exit status is 0 for success, 1 for an error of the input or the run, and 2 for an error in the command line or
    the query. It is 130 after Ctrl-C and 143 after SIGTERM.
    """
    # Each thread of numpy's library for matrices waits in a loop for work when it starts. Nothing here multiplies
    # matrices, and these loops took more processor time than everything else that a short query does after its imports.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    atexit.register(gc.freeze)  # else Python searches all objects for cycles when it ends: a quarter of a short query
    from dashboards.commands.app import run_command_line

    run_command_line()


def run_program() -> None:
    """Run `main` as the only work of the process, which ends at once after success.

    Python would free all modules first, which takes 6 ms. Threads are joined and all other exit functions are called
    before, because `atexit` calls the function that was registered first as the last one.
    """
    has_succeeded = False

    def end_at_once() -> None:
        if has_succeeded:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(0)

    atexit.register(end_at_once)
    main()
    has_succeeded = True


def query(
    sql: str,
    *files: str | os.PathLike[str] | request.Frame,
    streams: Mapping[str, Iterable[str] | request.Frame] | None = None,
    on: str = request.INLINE,
    layer: str = Layer.OUTER,
    sampling: str | Iterable[str] = (),
    threads: int | None = None,
    slack: str | None = None,
    follow: bool = False,
    lull: str | None = None,
    params: Mapping[str, object] | None = None,
    schema: str | os.PathLike[str] | None = None,
) -> pa.Table:
    """Answer one query: SQL, or `@name` for a ready query of the catalogue (docs/guide/catalogue.md).

    * `params`: values of the parameters of a ready query or of PARAM (docs/guide/sql.md), such as {"n": 20}.
    * `files`: captures, folders, globs, named pipes or `-` (standard input); each name in FROM means all of them.
      `streams`: the files of each name in FROM, instead of `files`. `files` may also be one Arrow table or data frame
      (docs/guide/python.md), or the results of a run, whose queries FROM names (docs/guide/results.md). Both are read
      without other options.
    * `schema`: PROTOCOL definitions, or the path of a file with them. Then `files` and `streams` are CSV, Parquet or
      Arrow files, or tables, and FROM names protocols (docs/guide/tables.md). Without other options.
    * `on`: the engine, `inline` (this process), `local` (Spark in this process) or the URL of a Spark master.
    * `layer`: the IP header that names without a prefix mean: `outer` (outermost), or `inner` (innermost in tunnels).
    * `sampling`: a sampling rate that replaces those of all flow exporters, "1000", or of single exporters,
      ["192.0.2.1=1000"].

    Only for the inline engine:

    * `threads`: number of threads.
    * `slack`: the allowed disorder, such as "10s" or "exact".
    * `follow`: read files as they grow, as on the command line.
    * `lull`: how far an idle live input may be behind the clock, such as "5s" (docs/guide/watermarks.md).

    Live inputs are read until they end or until Ctrl-C; use `watch` for final rows before that. In the result addresses
    are text, times `timestamp[ns, UTC]`, and differences of times integers in ns.

    Raises QueryError for a wrong query and InputError for a file that is no capture. Emits a RuntimeWarning for
    unreadable parts of the input and for late rows.
    """
    from dashboards.inputs import Options, open_inputs

    options = Options.parse(on, layer, sampling, threads, slack, follow, lull)
    return open_inputs(files, streams, options, schema=schema).query(sql, params).arrow()


def open(  # noqa: A001  # as gzip.open
    *files: str | os.PathLike[str] | request.Frame,
    streams: Mapping[str, Iterable[str] | request.Frame] | None = None,
    on: str = request.INLINE,
    layer: str = Layer.OUTER,
    sampling: str | Iterable[str] = (),
    threads: int | None = None,
    slack: str | None = None,
    follow: bool = False,
    lull: str | None = None,
    schema: str | os.PathLike[str] | None = None,
) -> Inputs:
    """Open inputs for any number of queries, each with a result in the format that the caller reads.

        with wiretide.open("trace.pcap") as trace:
            result = trace.query("SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP")
            frame = result.pandas()

    Arguments are as in `query`, except for `params`. Raises ValueError for a wrong option, and InputError for an input
    that is missing or no capture. Live inputs are opened when a result is read.
    """
    from dashboards.inputs import Options, open_inputs

    options = Options.parse(on, layer, sampling, threads, slack, follow, lull)
    return open_inputs(files, streams, options, check=True, schema=schema)


def compare(
    sql: str,
    *files: str | os.PathLike[str],
    streams: Mapping[str, Iterable[str]] | None = None,
    layer: str = Layer.OUTER,
    slack: str = "0,1s,5s",
    skew: Mapping[str, str] | None = None,
    lull: Mapping[str, str] | None = None,
    disorder: str = "0",
    block: str = "0",
    seed: int = 1,
    repeat: int = 3,
    tick: str | None = None,
    limit: int = 20_000_000,
    params: Mapping[str, object] | None = None,
) -> pa.Table:
    """Run one query in order and out of order over the same arrivals; return a row of figures for each method.

    The arguments are those of the command line (docs/guide/compare.md): `skew` is {"b": "3s"}, `lull` {"b": "60s+30s"}.
    `params` are values of parameters, as in `query`.
    The result has the columns of the CSV file of `wiretide compare`. Raises QueryError for a wrong query,
    NotComparedError for a query without an in-order method, InputError for a wrong input, ValueError for a wrong time.
    """
    from dashboards import comparing
    from highlevel.compare.figures import figures
    from queries.query_text import query_text

    skews = [f"{name}={time}" for name, time in (skew or {}).items()]
    lulls = [f"{name}={time}" for name, time in (lull or {}).items()]
    settings = comparing.parse_settings(slack, skews, lulls, disorder, block, seed, repeat, tick, limit)
    return figures(comparing.run_comparison(query_text(sql, params), files, streams, layer, settings))


def watch(
    sql: str,
    *files: str | os.PathLike[str],
    streams: Mapping[str, Iterable[str]] | None = None,
    layer: str = Layer.OUTER,
    sampling: str | Iterable[str] = (),
    threads: int | None = None,
    slack: str | None = None,
    follow: bool = False,
    lull: str | None = None,
    params: Mapping[str, object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Answer one query in this process; yield a batch whenever windows become final, or rows if there are no windows.

    Arguments and errors are as in `query`. Inputs are opened at once and read from the first request of a batch on.
    Closing the iterator ends the run.
    """
    from dashboards.inputs import Options, open_inputs

    options = Options.parse(request.INLINE, layer, sampling, threads, slack, follow, lull)
    return open_inputs(files, streams, options).query(sql, params).batches()


def lifetimes(
    rows: str | pa.Table | pa.RecordBatch,
    *files: str | os.PathLike[str] | request.Frame,
    start: str = "start_ts",
    end: str = "end_ts",
    identifier: str | Iterable[str] = (),
    remember: str | None = None,
    counts_from: int | None = None,
    params: Mapping[str, object] | None = None,
    **options: Any,
) -> Lifetimes:
    """Read rows that are true from `start` to `end`, such as flow records, as a stream of changes.

        flows = wiretide.lifetimes("SELECT start_ts, end_ts, protocol FROM flows", "netflow.pcap")
        flows.aggregate(["protocol"], open="count(*)").table()

    docs/guide/lifetimes.md describes the stream. `rows` is a query over `files`, or a table.

    * `start`, `end`: columns with times, or with ns since the epoch. NULL as end: the row is still true.
    * `identifier`: columns that identify a row. A later row with the same values ends or replaces it.
    * `remember`: how much older than the newest start a row may begin, such as "1 hour". Older rows are dropped.
      Without it all rows are used, and results are final at the end of the input only.
    * `counts_from`: the start of the first count of changes, in ns. Rows with the columns `type`, `vs`, `ve` and `vnew`
      are changes, and may contain counts.
    * `params`, `options`: as in `query`, without `on`.

    Raises LifetimeError for wrong columns, and QueryError and InputError as `query`.
    """
    from dashboards.lifetimes import open_lifetimes

    columns = (identifier,) if isinstance(identifier, str) else tuple(identifier)
    return open_lifetimes(rows, files, start, end, columns, remember, counts_from, params, options)


def packets(
    path: str | os.PathLike[str], columns: Iterable[str] | None = None, kind: str = "packets"
) -> Iterator[pa.RecordBatch]:
    """Read one capture's rows of a `kind` (packets, frames, flows or samples) as Arrow batches, in file order.

    `columns` are names from docs/guide/columns.md, with the prefix `inner.` for the innermost IP layer; the default is
    all columns of the outer layer. A missing field is NULL, addresses are text, times `timestamp[ns, UTC]`, payloads
    bytes. A damaged capture is read up to the damage, with a RuntimeWarning.
    """
    from highlevel.results.user_types import readable
    from lowlevel.expressions.types import Type
    from lowlevel.rows.batches import named_columns, row_batches

    wanted = named_columns(kind, columns)
    times = {column.name for column in wanted if column.type is Type.TIME}
    batches = row_batches(Path(path), [column.name for column in wanted], kind)
    return (readable(batch, times) for batch in batches)


def register(spark: object) -> None:
    """Add the format `wiretide` to a session of Spark: rows of captures as a DataFrame (docs/guide/dataframes.md).

        wiretide.register(spark)
        packets = spark.read.format("wiretide").option("columns", "ts, srcIP, len").load("archive/*.pcap")

    Call it once for each session. Raises ValueError for an object that is no session, and MissingPackageError without
    pyspark.
    """
    from highlevel.spark.data_source.source import register_source
    from queries.gsql import compile_query
    from queries.pipeline.inputs import bind_files

    register_source(spark, bind_files, compile_query)


def stream(
    queries: str | Mapping[str, str],
    frames: Mapping[str, object],
    folder: str | os.PathLike[str],
    *,
    schema: str | os.PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    partitions: int | None = None,
    on_results: Callable[[dict[str, pa.Table]], None] | None = None,
) -> FrameRun:
    """Start queries over streaming DataFrames of Spark, in their session (docs/guide/dataframes.md).

        logins = spark.readStream.schema("ts TIMESTAMP, user STRING").json("logins")
        sql = "SELECT user, count(*) AS n FROM logins [RANGE 1 minute] GROUP BY user"
        schema = "PROTOCOL logins { TIME ts (banded_increasing(10 seconds)); STRING user; }"
        run = wiretide.stream(sql, {"logins": logins}, "state", schema=schema)

    * `queries`: one query, or queries by name, which may read each other.
    * `frames`: the DataFrame of each protocol of `schema` that the queries read. Other columns are ignored.
    * `folder`: state, checkpoint and results. A later call with the same folder continues. `wiretide.query` reads the
      results. On a cluster all executors must reach the folder under this path.
    * `trigger`: arguments of Spark's `DataStreamWriter.trigger`, such as {"availableNow": True}.
    * `partitions`: operator partitions; by default the cores of the session.
    * `on_results`: called after each micro-batch with its final rows, by query.

    Raises QueryError for a wrong query, InputError for a column that is missing or has another type, and ValueError for
    objects that are no streaming DataFrames, for no query, and for wrong names or partitions.
    """
    from dashboards.frame_run import start_frames

    return start_frames(queries, frames, folder, schema, trigger, partitions, on_results)


def aggregate(name: str, parts: Mapping[str, str], finish: Callable[..., object]) -> None:
    """Define, or redefine, an aggregate of one argument for the queries of this process.

    `parts`: aggregates of fixed size in GSQL (count, sum, min, max, avg, …) over the argument `x`, or arithmetic over
    them. The low level computes them. `finish` is called for final windows. Its parameters are the parts by name: numpy
    arrays with one value per group. It returns an array of the same length:

        wiretide.aggregate("rms", {"n": "count(x)", "q": "sum(x * 1.0 * x)"}, lambda n, q: numpy.sqrt(q / n))
        wiretide.query("SELECT srcIP, rms(len) FROM packets GROUP BY srcIP", "trace.pcap")

    For a group with a NULL part (`max(x)` over no value), `finish` is not called, and the result is NULL. NaN becomes
    NULL. On Spark the function is pickled with the objects that it uses. Raises AggregateError for a wrong definition;
    a query raises it if `finish` raises an error or returns another number of values.
    """
    from queries.binding.definitions import define

    define(name, parts, finish)


def function(
    body: Callable[..., object] | None = None, *, name: str | None = None, columns: bool = False, compiled: bool = False
) -> Callable[..., object]:
    """Define, or redefine, a function for the queries of this process. A decorator of a Python function.

        @wiretide.function
        def is_risky(port: int, address: str) -> bool:
            return port in RISKY and not address.startswith("10.")

        wiretide.query("SELECT srcIP, count(*) AS n FROM packets WHERE is_risky(destPort, destIP) GROUP BY srcIP", ...)

    The annotations are the types: `int`, `float`, `bool`, `str`, and `bytes` for payloads. Addresses, MACs and times
    become `str`; for `int` a time is ns since the epoch. If an argument is NULL, the function is not called; but a
    parameter `int | None` receives None. A result of `None` is NULL.

    * `name`: the name in SQL, instead of the name of the function.
    * `columns`: the function receives a numpy array for each parameter and returns one of equal length: much faster.
    * `compiled`: numba compiles the function, of numbers and `bool` only. Then x / 0 is infinite, as in numpy.

    A function has no side effects: the number and the order of its calls are undefined. Raises FunctionError for a
    wrong definition; a query raises it if the function fails or returns other values.
    """
    from queries.binding.definitions import taken_names
    from queries.binding.user_functions import define_function

    def define(decorated: Callable[..., object]) -> Callable[..., object]:
        define_function(decorated, name, taken_names(), of_columns=columns, compiled=compiled)
        return decorated

    return define if body is None else define(body)


def explain(sql: str, layer: str = Layer.OUTER, params: Mapping[str, object] | None = None) -> str:
    """Explain a query: its low-level part, its high-level part, and the reasons. Arguments are as in `query`."""
    from queries.explain.plan import explain as explain_plan
    from queries.gsql import compile_query
    from queries.query_text import query_text

    return explain_plan(compile_query(query_text(sql, params), layer=layer))


if __name__ == "__main__":
    run_program()
