"""Wiretide: network monitoring in SQL over packets. The public Python API and the command line.

    import wiretide
    table = wiretide.query("SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP", "trace.pcap")
    table.to_pandas()

Everything heavy is imported where it is used, so that `wiretide --help` and a query on a small file start at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dashboards.formats import BINARY, Format

if TYPE_CHECKING:
    import pyarrow as pa

    from capture.metrics import Samples
    from highlevel.inline import Input
    from highlevel.plan import QueryPlan

INLINE = "inline"


def query(
    sql: str, *files: str | os.PathLike[str], streams: Mapping[str, Iterable[str]] | None = None, on: str = INLINE
) -> pa.Table:
    """Answer one query over finite inputs.

    `files` are captures, folders or globs that every name in FROM means together; or `streams` binds each name to its
    own. `on` is the engine: `inline` (this process), `local` (Spark in this process) or the URL of a Spark master.
    Columns are those of the command line's CSV: window bounds are integer nanoseconds, addresses text.

    Raises QueryError for a wrong query, InputError for a file that is no capture.
    """
    import pyarrow as pa

    from dashboards.result_files import readable, readable_schema

    plan, inputs = _prepare(sql, [os.fspath(file) for file in files], streams or {})
    with contextlib.closing(_Answer(plan, inputs, on)) as answer:
        return pa.Table.from_batches(map(readable, answer.batches()), readable_schema(plan.schema))


def packets(path: str | os.PathLike[str], columns: Iterable[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Read one capture as Arrow batches of the stream `packets`, in file order; `columns` as in `docs/gsql.md`, all by default.

    A field that a packet lacks is NULL; addresses are text.
    """
    from dashboards.result_files import readable
    from lowlevel.packet_batches import packet_batches

    yield from map(readable, packet_batches(Path(path), columns))


def explain(sql: str) -> str:
    """Describe how a query would run: what runs low, what runs high, and why."""
    from queries.explain import explain as explain_plan
    from queries.gsql import compile_query

    return explain_plan(compile_query(sql))


def _prepare(sql: str, files: list[str], streams: Mapping[str, Iterable[str]]) -> tuple[QueryPlan, list[Input]]:
    from queries.bindings import bind_files, bind_streams, check_streams
    from queries.gsql import compile_query

    plan = compile_query(sql)
    inputs = bind_files(files) + bind_streams(streams)
    check_streams([plan], inputs)
    return plan, inputs


class _Answer:
    """One finite answer, from whichever engine."""

    def __init__(
        self, plan: QueryPlan, inputs: list[Input], on: str, slots: int | None = None, progress: Any = None
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.on = on
        self.run: Any = None
        self.session: Any = None
        if on == INLINE:
            from highlevel.inline import InlineRun
            from lowlevel.node import TABLE_SLOTS

            self.run = InlineRun([plan], inputs, slots or TABLE_SLOTS, progress)
        else:
            from highlevel.spark.session import session

            self.session = session("local[*]" if on == "local" else on)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Result batches, each of one window on the inline engine."""
        if self.run is not None:
            for _, batch in self.run.results():
                yield batch
            return
        from highlevel.spark.batch import run_batch

        yield from run_batch(self.session, self.plan, self.inputs).to_batches()

    def samples(self) -> Samples | None:
        """Counters, where the engine runs here."""
        return self.run.samples() if self.run is not None else None

    def close(self) -> None:
        """Stop what was started."""
        if self.session is not None:
            self.session.stop()


class _WithoutPandas:
    """Hides pandas from Arrow, which would import it (0.13 s) only to ask whether a value is one of its own; none is."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        """Refuse pandas, and have no opinion on the rest."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


app = typer.Typer(
    help="Network monitoring in SQL over packets and flows, the Gigascope way.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(show_version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if show_version:
        from importlib.metadata import version

        print(f"wiretide {version('wiretide')}")
        raise typer.Exit


@app.command(name="query")
def _query(
    words: Annotated[
        list[str], typer.Argument(metavar="[FILE]... SQL", help="Captures, folders or globs; then the query.")
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", "-s", metavar="NAME=PATH", help="Bind a name in FROM to a file, folder or glob."),
    ] = None,
    format: Annotated[Format, typer.Option(help="How to write the answer.")] = Format.TABLE,  # noqa: A002
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file instead of standard output.")
    ] = None,
    on: Annotated[
        str, typer.Option(metavar="ENGINE", help="inline, local (Spark here) or the URL of a Spark master.")
    ] = INLINE,
    slots: Annotated[int | None, typer.Option(help="Slots of each low-level table, a power of two.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print all counters to standard error at the end.")] = False,
) -> None:
    """Answer one query over captures.

    With bare files every name in FROM means all of them together:

        wiretide query trace.pcap "SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP"
    """
    from dashboards.console import compile_kernels, progress_bar, report
    from dashboards.result_files import open_output, write_results

    if on == INLINE:
        sys.meta_path.insert(0, _WithoutPandas())  # type: ignore[arg-type]  # only find_spec is ever asked for
    *files, sql = words
    if format in BINARY and output is None and sys.stdout.isatty():
        raise typer.BadParameter(
            f"{format} is not text: give --output PATH, or send standard output to a file or a pipe"
        )
    plan, inputs = _prepare(sql, files, _bindings(stream or []))
    if not inputs:
        raise typer.BadParameter("no input: name at least one capture before the query, or bind one with -s NAME=PATH")
    compile_kernels()
    with progress_bar() as progress, contextlib.closing(_Answer(plan, inputs, on, slots, progress)) as answer:
        with open_output(output) as sink:
            write_results(answer.batches(), plan.schema, format, sink)
        report(answer.samples(), stats=stats)


@app.command(name="explain")
def _explain(sql: Annotated[str, typer.Argument(help="The query.")]) -> None:
    """Show the plan of a query: what runs low, what runs high, and why."""
    print(explain(sql))


def _bindings(pairs: list[str]) -> dict[str, list[str]]:
    bound: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"-s {pair}: got no NAME=PATH, expected for example -s Main1=main1.pcap")
        bound.setdefault(name, []).append(path)
    return bound


def main() -> None:
    """Run the command line. Exit status: 0 done, 1 the input or the run failed, 2 the command line or the query is wrong."""
    from capture.errors import InputError

    try:
        app()
    except InputError as error:
        sys.exit(_complain(error, 1))
    except ValueError as error:
        from queries.errors import QueryError

        if not isinstance(error, QueryError):
            raise
        sys.exit(_complain(error, 2))
    except BrokenPipeError:
        # The reader has gone, as `| head` does; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print("wiretide: stopped", file=sys.stderr)
        sys.exit(130)


def _complain(error: Exception, status: int) -> int:
    print(f"wiretide: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
