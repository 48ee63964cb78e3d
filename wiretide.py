"""Wiretide: network monitoring in SQL over packets. The public Python API and the command line.

    import wiretide
    table = wiretide.query("SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP", "trace.pcap")
    table.to_pandas()

Everything heavy is imported where it is used, so that `wiretide --help` and a query on a small file start at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dashboards.formats import BINARY, Format
from lowlevel.layers import Layer

if TYPE_CHECKING:
    import pyarrow as pa

    from capture.flows.sampling import HandRates
    from capture.generate import Attack
    from highlevel.inline import Input
    from highlevel.plan import QueryPlan
    from lowlevel.promises.lull import LullRule
    from queries.pipeline_file import PipelineFile

INLINE = "inline"
"""The engine that is this process."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def query(
    sql: str,
    *files: str | os.PathLike[str],
    streams: Mapping[str, Iterable[str]] | None = None,
    on: str = INLINE,
    layer: str = Layer.OUTER,
    sampling: str | Iterable[str] = (),
    threads: int | None = None,
    slack: str | None = None,
    follow: bool = False,
    lull: str | None = None,
) -> pa.Table:
    """Answer one query.

    `files` are captures, folders, globs, named pipes or `-` (standard input) that every name in FROM means together; or
    `streams` binds each name to its own. `on` is the engine: `inline` (this process), `local` (Spark in this process)
    or the URL of a Spark master. `layer` says which IP layer plain names mean: `outer`, or `inner`, the innermost
    reached through tunnels. `sampling` is a rate of flow exporters that stands whatever they announce, "1000", or one
    for each of some, ["192.0.2.1=1000"]. The rest is the inline engine's: `threads`; `slack`, such as "10s" or
    "exact"; `follow`, as on the command line; and `lull`, such as "5s": how far behind the clock a live input that is
    silent may be (docs/promises.md). Live inputs are read until they end, or until Ctrl-C; `watch` yields what is final
    before that. Columns are those of the command line's CSV: window bounds are integer nanoseconds, addresses text.

    Raises QueryError for a wrong query, InputError for a file that is no capture; warns (RuntimeWarning) of what could
    not be read of one, and of late rows.
    """
    import pyarrow as pa

    from dashboards.answer import answer
    from dashboards.result_files import readable, readable_schema

    plan, inputs = _prepare(sql, layer, _rates(sampling), files, streams, follow)
    with answer(plan, inputs, on, None, threads, _slack(slack), _lull(lull)) as found:
        with found.until_stopped():
            batches = [readable(batch) for batch in found.batches]
        for text in found.warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=2)
    return pa.Table.from_batches(batches, readable_schema(plan.schema))


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
) -> Iterator[pa.RecordBatch]:
    """Answer one query in this process, a batch whenever windows become final. Arguments and errors are as in `query`.

    Inputs are opened at once, and read from when the first batch is asked for; closing the iterator ends that.
    """
    from dashboards.answer import answer
    from dashboards.result_files import readable

    plan, inputs = _prepare(sql, layer, _rates(sampling), files, streams, follow)
    stack = contextlib.ExitStack()
    found = stack.enter_context(answer(plan, inputs, threads=threads, slack=_slack(slack), lull=_lull(lull)))

    def batches() -> Iterator[pa.RecordBatch]:
        with stack:
            yield from map(readable, found.batches)
            for text in found.warnings():
                warnings.warn(text, RuntimeWarning, stacklevel=2)

    return batches()


def packets(
    path: str | os.PathLike[str], columns: Iterable[str] | None = None, kind: str = "packets"
) -> Iterator[pa.RecordBatch]:
    """Read one capture's rows of a `kind` (packets, frames, flows or samples) as Arrow batches, in file order.

    `columns` are names of `docs/gsql.md`, those of the kind's table by default, `inner.` before one that is of the
    innermost IP layer. A field that a row lacks is NULL; addresses are text, a payload is bytes. A damaged capture is
    read up to the damage, with a RuntimeWarning.
    """
    from dashboards.result_files import readable
    from lowlevel.row_batches import row_batches

    return map(readable, row_batches(Path(path), columns, kind))


def explain(sql: str, layer: str = Layer.OUTER) -> str:
    """Describe how a query would run: what runs low, what runs high, and why. `layer` is as in `query`."""
    from queries.explain import explain as explain_plan
    from queries.gsql import compile_query

    return explain_plan(compile_query(sql, layer=layer))


def _prepare(
    sql: str,
    layer: str,
    sampling: HandRates | None,
    files: Iterable[str | os.PathLike[str]],
    streams: Mapping[str, Iterable[str]] | None,
    follow: bool,
) -> tuple[QueryPlan, list[Input]]:
    from queries.bindings import bind_files, bind_streams, check_streams
    from queries.gsql import compile_query

    plan = compile_query(sql, layer=layer, sampling=sampling)
    inputs = bind_files([os.fspath(file) for file in files], follow) + bind_streams(streams or {}, follow)
    check_streams([plan], inputs)
    return plan, inputs


def _rates(texts: str | Iterable[str]) -> HandRates | None:
    from queries.sampling import parse_rates

    return parse_rates([texts] if isinstance(texts, str) else texts)


def _slack(text: str | None) -> int | None:
    from queries.slack import parse_slack

    return None if text is None else parse_slack(text)


def _lull(text: str | None) -> LullRule | None:
    from queries.slack import parse_lull

    return None if text is None else parse_lull(text)


class _WithoutPandas:
    """Hides pandas from Arrow, which would import it (0.13 s) only to ask whether a value is one of its; none is."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
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
    layer: Annotated[
        Layer, typer.Option(help="The IP layer that plain names mean; outer.srcIP and inner.srcIP say it themselves.")
    ] = Layer.OUTER,
    sampling: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RATE", help="Rate of flow exporters, whatever they announce; EXPORTER=RATE for one, repeatable."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is appended to files and comes into folders.")
    ] = False,
    slack: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How late rows of a live input may be, 10s by default; exact: answer at its end."
        ),
    ] = None,
    lull: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Close windows of live inputs that are silent when the clock is so far beyond them; '5s trace': the "
            "clock of a replay.",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that read; by default one per core, up to 8.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Slots of each low-level table, a power of two.")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print all counters to standard error at the end.")] = False,
) -> None:
    """Answer one query over captures.

    With bare files every name in FROM means all of them together:

        wiretide query trace.pcap "SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP"

    A - is standard input. Windows of live inputs are answered when they are over; Ctrl-C ends with what has been read:

        tcpdump -U -w - | wiretide query - "SELECT count(*) FROM packets [RANGE 10 seconds]"
    """
    from dashboards.console import compile_kernels, progress_bar, report, say_live
    from dashboards.result_files import open_output, write_results

    if on == INLINE:
        sys.meta_path.insert(0, _WithoutPandas())
    *files, sql = words
    if not (files or stream):
        if os.path.exists(sql):  # noqa: PTH110  # Path.exists raises where a query is too long for a name
            raise typer.BadParameter(f"got {sql} and no query behind it, expected one such as SELECT count(*) FROM p")
        raise typer.BadParameter("no input: name at least one capture before the query, or bind one with -s NAME=PATH")
    if on not in (INLINE, "local") and not on.startswith(("local[", "spark://")):
        raise typer.BadParameter(f"--on {on}: expected inline, local, or the URL of a Spark master, spark://HOST:PORT")
    if slots is not None and (slots < 4 or slots & (slots - 1)):
        raise typer.BadParameter(f"--slots {slots}: expected a power of two, at least 4")
    if format in BINARY and output is None and sys.stdout.isatty():
        raise typer.BadParameter(
            f"{format} is not text: give --output PATH, or send standard output to a file or a pipe"
        )
    try:
        late = _slack(slack)
    except ValueError as error:
        raise typer.BadParameter(f"--slack: {error}") from error
    try:
        silent = _lull(lull)
    except ValueError as error:
        raise typer.BadParameter(f"--lull: {error}") from error
    try:
        rates = _rates(sampling or [])
    except ValueError as error:
        raise typer.BadParameter(f"--sampling: {error}") from error
    plan, inputs = _prepare(sql, layer, rates, files, _bindings(stream or []), follow)
    if on != INLINE:
        _refuse_inline_options(on, inputs, {"--follow": follow, "--slack": slack, "--lull": lull, "--threads": threads})
        compile_kernels()
    from dashboards.answer import answer
    from dashboards.idle_kernels import IdleKernels

    with answer(plan, inputs, on, slots, threads, late, silent) as found:
        if found.run is not None:
            compile_kernels(idle=IdleKernels(found.run))
        say_live(found.live)
        growing = found.live and format is not Format.PARQUET  # which nobody can read before its end
        with (
            found.until_stopped(),
            progress_bar(shown=found.shows_progress) as progress,
            open_output(output, live=growing) as sink,
        ):
            found.show(progress)
            write_results(found.batches, plan.schema, format, sink, live=found.live)
        report(found.samples(), found.warnings(), stats=stats)


@app.command(name="explain")
def _explain(
    sql: Annotated[str, typer.Argument(help="The query.")],
    layer: Annotated[Layer, typer.Option(help="The IP layer that plain names mean.")] = Layer.OUTER,
) -> None:
    """Show the plan of a query: what runs low, what runs high, and why."""
    print(explain(sql, layer))


@app.command(name="run")
def _run(
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE.toml", help="Links, queries and where results go.")],
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when the inputs have ended, instead of serving until Ctrl-C.")
    ] = False,
) -> None:
    """Run a monitoring pipeline on Spark: links, queries, metrics for Prometheus, results as files.

    State is kept in the pipeline's folder: a run that was stopped or killed goes on where it was.
    """
    from dashboards.console import compile_kernels
    from queries.pipeline_file import read_pipeline

    described = read_pipeline(pipeline)
    compile_kernels()
    _monitor(described, until_done)


def _monitor(pipeline: PipelineFile, until_done: bool) -> None:
    from dashboards.monitor import Monitor, say_line

    with Monitor(pipeline, say_line) as monitor:
        monitor.wait()
        say_line(f"\nall input read\n\n{monitor.summary()}\n")
        if not until_done:
            say_line("serving the last windows; Ctrl-C ends")
            monitor.serve_until_stopped()


@app.command(name="generate")
def _generate(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The capture to write (classic pcap).")],
    packets: Annotated[int | None, typer.Option(help="Packets in all; or give --duration.")] = None,
    duration: Annotated[float | None, typer.Option(help="Seconds in all; or give --packets.")] = None,
    rate: Annotated[float, typer.Option(help="Packets per second.")] = 100_000,
    groups: Annotated[int, typer.Option(help="Distinct address pairs.")] = 100_000,
    skew: Annotated[float, typer.Option(help="Zipf exponent of the pairs; 0 makes them equal.")] = 1.0,
    ipv6: Annotated[float, typer.Option(help="Share of the pairs that are IPv6.")] = 0.1,
    vlan: Annotated[int, typer.Option(help="VLAN tags of each packet.")] = 0,
    disorder: Annotated[
        str, typer.Option(help="none, band (late by up to the span) or blocks (shuffled in blocks).")
    ] = "none",
    span: Annotated[float, typer.Option(help="Span of the disorder, in seconds.")] = 1.0,
    lull: Annotated[
        list[str] | None, typer.Option(metavar="FROM-TO", help="Silence, in seconds from the start.")
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:FROM-TO:RATE",
            help="syn-flood, port-scan or dns-amplification, with its seconds and packets/s.",
        ),
    ] = None,
    snap: Annotated[int, typer.Option(help="Bytes captured of each packet at most.")] = 86,
    link_type: Annotated[int, typer.Option(help="1 Ethernet, 101 raw IP, 113 and 276 Linux cooked, 0 null.")] = 1,
    skewed_clock: Annotated[float, typer.Option(help="Seconds added to every timestamp.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed makes the same file.")] = 1,
) -> None:
    """Write a synthetic capture: rate, groups, skew, disorder, lulls and attacks to choose."""
    from capture.generate import Profile, generate
    from dashboards.console import progress_bar

    if packets is None and duration is None:
        packets = 1_000_000
    try:
        profile = Profile(
            packets=packets,
            duration=None if duration is None else _ns(duration),
            rate=rate, groups=groups, skew=skew, ipv6=ipv6, disorder=disorder, seed=seed, snap_length=snap,
            link_type=link_type,
            disorder_span=_ns(span) if disorder != "none" else 0,
            vlan_depths=(0.0,) * vlan + (1.0,),
            lulls=tuple(_interval(each) for each in lull or []),
            attacks=tuple(_attack(each) for each in attack or []),
            clock_offset=_ns(skewed_clock),
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    with progress_bar("packets") as progress:
        summary = generate(profile, output, progress)
    seconds = (summary.high - summary.low) / 1e9
    amounts = f"{summary.groups:,} address pairs, {summary.file_size:,} bytes"
    print(f"{output}: {summary.packets:,} packets over {seconds:,.1f} s, {amounts}")


@app.command(name="capture")
def _capture(
    context: typer.Context,
    pipeline: Annotated[
        Path | None, typer.Argument(metavar="[PIPELINE.toml]", help="Run the low-level node for links with a spool.")
    ] = None,
    link: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Capture this link of the pipeline alone; repeatable.")
    ] = None,
    udp: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Receive datagrams here; *:PORT is every address of this host."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="Record datagrams into this folder.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="CIDR", help="Refuse all senders but these; repeatable.")
    ] = None,
    rotate_size: Annotated[str, typer.Option(metavar="SIZE", help="Begin another file after so many bytes.")] = "256Mi",
    rotate_every: Annotated[
        str, typer.Option(metavar="TIME", help="Begin another file at every multiple of this; 0 for never.")
    ] = "5m",
    keep: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Delete the oldest files beyond so many bytes; by default none.")
    ] = None,
    buffer: Annotated[
        str, typer.Option(metavar="SIZE", help="Receive buffer to ask the system for, per socket.")
    ] = "32Mi",
    exporters: Annotated[int, typer.Option(help="Senders to count one by one; the others are counted together.")] = 256,
    metrics: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Serve metrics for Prometheus here.")] = None,
) -> None:
    """Capture until Ctrl-C or SIGTERM: links of a pipeline into their spools, or datagrams into files.

    With a pipeline file this is the low-level node: packets are reduced by the pipeline's queries in fixed memory, and
    `wiretide run PIPELINE.toml` reads what it leaves in the spools:

        wiretide capture pipeline.toml --metrics 127.0.0.1:9465

    With --udp NetFlow, IPFIX and sFlow datagrams are recorded as they come, and can be queried meanwhile:

        wiretide capture --udp *:2055 --udp *:4739 -o exports --metrics 127.0.0.1:9465
        wiretide query exports "SELECT exporter, sum(bytes) AS bytes FROM flows GROUP BY exporter"
    """
    from dashboards import capture_command

    named = {each.name: each.opts[0] for each in context.command.params if each.name != "pipeline"}
    capture_command.check(
        pipeline,
        [
            option
            for name, option in named.items()
            if str(context.get_parameter_source(str(name))).endswith("COMMANDLINE")
        ],
    )
    if pipeline is not None:
        capture_command.node(pipeline, link or [], metrics)
        return
    assert output is not None, "checked"
    capture_command.collector(
        udp or [], output, allow=allow or [], rotate_size=rotate_size, rotate_every=rotate_every, keep=keep,
        buffer=buffer, exporters=exporters, metrics=metrics,
    )  # fmt: skip


def _ns(seconds: float) -> int:
    nanoseconds = seconds * 1_000_000_000
    if not math.isfinite(nanoseconds):
        raise ValueError(f"got {seconds} seconds, expected a finite number of them")
    return round(nanoseconds)


def _interval(text: str) -> tuple[int, int]:
    start, dash, end = text.partition("-")
    if not dash:
        raise ValueError(f"{text}: got no FROM-TO, expected seconds such as 60-120")
    return _ns(float(start)), _ns(float(end))


def _attack(text: str) -> Attack:
    from capture.generate import Attack

    parts = text.split(":")
    if len(parts) != 3:
        raise ValueError(f"{text}: got {len(parts)} parts, expected KIND:FROM-TO:RATE such as syn-flood:60-120:5000")
    kind, when, rate = parts
    return Attack(kind, *_interval(when), float(rate))


@app.command(name="demo")
def _demo(
    folder: Annotated[
        Path | None, typer.Option(help="Keep captures, state and results here; by default a temporary folder.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Length of the generated captures.")] = 600,
    rate: Annotated[float, typer.Option(help="Packets per second of the busiest link.")] = 2000,
    speed: Annotated[float, typer.Option(help="Capture seconds per second.")] = 20,
    port: Annotated[int, typer.Option(help="Port of the metrics; 0 takes any free one.")] = 9464,
    until_done: Annotated[bool, typer.Option("--until-done", help="End by itself when the replay has ended.")] = False,
) -> None:
    """Watch a replay being monitored: three generated links, five queries, metrics for Prometheus.

    Main1 and Main2 are busy, out of order and disagree on the time; Control is nearly silent and late. In the middle
    Main1 is flooded with SYNs.
    """
    import tempfile

    from dashboards.console import compile_kernels
    from dashboards.demo import demo_pipeline

    compile_kernels()
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wiretide-demo-")))
        try:
            described = demo_pipeline(folder, seconds=seconds, rate=rate, speed=speed, port=port)
        except (ValueError, OverflowError) as error:
            raise typer.BadParameter(str(error)) from error
        # In a pipe or a job nobody presses Ctrl-C.
        _monitor(described, until_done or not sys.stdin.isatty())


def _refuse_inline_options(on: str, inputs: list[Input], options: Mapping[str, object]) -> None:
    """Refuse what Spark cannot: live inputs, and the options that are about the inline engine."""
    from queries.bindings import can_be_read_once

    given = [name for name, value in options.items() if value]
    given += [str(each.path) for each in inputs if can_be_read_once(each.path)]
    if given:
        raise typer.BadParameter(f"--on {on} reads complete files: {given[0]} needs the inline engine, without --on")


def _bindings(pairs: list[str]) -> dict[str, list[str]]:
    bound: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"-s {pair}: got no NAME=PATH, expected for example -s Main1=main1.pcap")
        bound.setdefault(name, []).append(path)
    return bound


def main() -> None:
    """Run the command line.

    Exit status: 0 done, 1 the input or the run failed, 2 the command line or the query is wrong.
    """
    from capture.errors import WiretideError

    try:
        app()
    except (KeyboardInterrupt, SystemExit) as ended:
        # Typer turns Ctrl-C into this status and says nothing.
        if isinstance(ended, SystemExit) and ended.code != INTERRUPTED:
            raise
        print("wiretide: stopped", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except WiretideError as error:
        sys.exit(_complain(error, error.status))
    except BrokenPipeError:
        # The reader has gone, as `| head` does; Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a port in use
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(_complain(f"{where}{error.strerror or error}", 1))


def _complain(error: Exception | str, status: int) -> int:
    print(f"wiretide: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
