"""`wiretide query`: answer one query over files or live inputs, or several queries in one pass over files."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

from dashboards import request
from dashboards.command_arguments import (
    NO_INPUT,
    add_archive_option,
    check_engine_name,
    exists,
    load_functions,
    parse_bindings,
    parse_conf,
    parse_params,
    split_words,
)
from dashboards.command_options import Argument, Option, UsageError
from dashboards.output.formats import BINARY, ChangeForm, Format, Times
from dashboards.query_outputs import (
    Drawing,
    change_writer,
    check_changes,
    check_outputs,
    check_plot,
    check_several,
    format_of,
)
from dashboards.request import INLINE, is_results
from dashboards.wire_text import escape
from lowlevel.layers import Layer

if TYPE_CHECKING:
    from dashboards.tables import Tables
    from highlevel.inline.engine import InlineRun, Input
    from highlevel.plan.plan import Plan


class WithoutPandas:
    """An import finder that hides pandas and dateutil from Arrow.

    Arrow imports pandas (which takes 0.13 s) and dateutil to recognise their values, but this command has no such
    values.
    """

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Raise ModuleNotFoundError for pandas and dateutil. For other modules the next finders are used."""
        if name in ("pandas", "dateutil"):
            raise ModuleNotFoundError(name)


def query(
    words: Annotated[
        list[str],
        Argument(
            metavar="[INPUT]... SQL...",
            help="The inputs (see above), then the query in quotes, or @NAME. Several queries share one pass.",
        ),
    ],
    stream: Annotated[
        list[str] | None,
        Option("--stream", "-s", metavar="NAME=INPUT", help="Bind a name in FROM to an input. Repeatable."),
    ] = None,
    param: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Set a parameter of @NAME, or of PARAM in the query. Repeatable."),
    ] = None,
    functions: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Load functions from a Python file (docs/guide/functions.md). Repeatable."),
    ] = None,
    schema: Annotated[
        Path | None,
        Option(metavar="FILE", help="Read CSV, JSON, Parquet, Arrow files: FROM names a PROTOCOL of this file."),
    ] = None,
    format: Annotated[  # noqa: A002
        Format | None,
        Option(help="Format of the answer. Default: by the suffix of the output file, otherwise a table."),
    ] = None,
    output: Annotated[
        Path | None,
        Option(
            "--output",
            "-o",
            help="Write the answer to this file. The suffix selects the format: .txt, .csv, .json, .jsonl, .ndjson, "
            ".parquet, .arrow, .arrows or .om (OpenMetrics). For several queries: the folder of their files.",
        ),
    ] = None,
    times: Annotated[
        Times | None,
        Option(
            help="Format of times in text: iso (ISO 8601), or ns (nanoseconds since 1970). Default: iso in "
            "tables, ns in CSV and JSON. Arrow and Parquet contain timestamps."
        ),
    ] = None,
    on: Annotated[
        str,
        Option(
            metavar="ENGINE", help="inline (this process), local (Spark on this machine), or the URL of a Spark master."
        ),
    ] = INLINE,
    conf: Annotated[
        list[str] | None,
        Option(metavar="KEY=VALUE", help="With --on: a setting of Spark (docs/guide/spark.md). Repeatable."),
    ] = None,
    archive: Annotated[
        Path | None,
        Option(metavar="FILE", help="With --on URL: run the tasks in this archive, which `wiretide pack` has built."),
    ] = None,
    layer: Annotated[
        Layer,
        Option(help="IP layer of plain column names. outer.srcIP and inner.srcIP always name their layer."),
    ] = Layer.OUTER,
    sampling: Annotated[
        list[str] | None,
        Option(
            metavar="RATE",
            help="Sampling rate of all flow exporters, or EXPORTER=RATE of one exporter; replaces the announced rate. "
            "Repeatable.",
        ),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", help="Continue with data that is appended to files, and with new files.")
    ] = False,
    slack: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="Allowed disorder of live inputs: how much older than the newest row a row may be. Default: 10s. "
            "exact: answer only at the end of the input. 'exported 15s late 5m': sequence numbers of flow exports show "
            "which records have arrived.",
        ),
    ] = None,
    lull: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="If a live input is idle, close its windows when the system clock is this much later than "
            "their end. '5s trace' uses the clock of a replay instead.",
        ),
    ] = None,
    threads: Annotated[
        int | None, Option(min=1, help="Number of reading threads. Default: one per core, at most 8.")
    ] = None,
    slots: Annotated[int | None, Option(help="Number of slots of each low-level table, a power of two.")] = None,
    plot: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Draw a plot of the answer into this file: .svg, .png, or .html (with the rows). Rows are then "
            "printed only if --output or --format is given. Needs matplotlib.",
        ),
    ] = None,
    packets_to: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Also copy the packets of the answer into this capture (.pcap or .pcapng): those of the rows, or all "
            "packets of each match of MATCH_RECOGNIZE. Reads the captures twice.",
        ),
    ] = None,
    final_to: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Also write the final rows of a query with EMIT CHANGES into this file. Its suffix selects the "
            "format, as for --output.",
        ),
    ] = None,
    partial_matches: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Also write the partial matches of MATCH_RECOGNIZE or AUTOMATON at the end of the input into this "
            "file (.txt, .csv, .json, .parquet, .arrow).",
        ),
    ] = None,
    changes: Annotated[
        ChangeForm | None,
        Option(
            help="Format of the changes of a query with EMIT CHANGES, for other systems. Default: weights. "
            "debezium needs --format json, arrow or parquet, and writes the rows of other queries as a snapshot."
        ),
    ] = None,
    raw_csv: Annotated[
        bool, Option("--raw-csv", help="Do not escape text in CSV. For programs only, not for spreadsheets.")
    ] = False,
    describe: Annotated[
        bool,
        Option(
            "--describe",
            help="Print the columns of the answer, and how late the first million rows of the inputs are: times for "
            "WAIT and REMEMBER. The query is not answered.",
        ),
    ] = False,
    stats: Annotated[bool, Option("--stats", help="Print all counters to standard error at the end.")] = False,
) -> None:
    """Answer one query over files or live inputs.

    \b
    wiretide query trace.pcap \\
      "SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP"

    \b
    Inputs:
      trace.pcap       a capture: pcap, pcapng, NetFlow, IPFIX or sFlow export
                       datagrams; also compressed (.gz, .zst, .bz2, .xz, .lz4)
      captures/        a folder: all captures in it
      'eth0-*.pcap'    a glob, in quotes
      -                standard input
      interface:eth0   a network interface
      state/           the results of `wiretide run`, or its history.sqlite:
                       FROM names its queries

    Every name in FROM means all inputs together. -s NAME=INPUT binds a name to one input.

    @NAME is a ready query: `wiretide queries` lists all, `wiretide queries NAME` shows its parameters.

    \b
    wiretide query trace.pcap @top-talkers --param n=20
    wiretide query trace.pcap @top-talkers @floods @dns-latency -o answers/

    Live inputs: each window is printed when it is final. Ctrl-C ends the query and prints the open windows.

    \b
    wiretide query interface:eth0 \\
      "SELECT destPort, count(*) FROM packets [RANGE 10 seconds] GROUP BY destPort"
    wiretide query exports/ \\
      "SELECT exporter, sum(bytes) AS bytes FROM flows GROUP BY exporter"
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.output.console import BelowBar, compile_kernels, print_live_hint, progress_bar, report, warn
    from dashboards.output.run_warnings import plan_warnings
    from dashboards.output.writers import open_output, write_answer

    if on == INLINE and not functions and plot is None:  # functions may use pandas, and matplotlib uses dateutil
        sys.meta_path.insert(0, WithoutPandas())
    files, queries = split_words(words)
    if not (files or stream):
        if exists(queries[0]):
            problem = f"got {queries[0]} without a query after it"
            raise UsageError(f"{problem}, expected for example SELECT count(*) FROM p")
        raise UsageError(NO_INPUT)
    several = len(queries) > 1
    check_engine_name(on)
    settings = parse_conf(conf) if conf else {}
    if conf and on == INLINE:
        from queries.pipeline.spark_settings import MASTER_FORMS

        raise UsageError(f"--conf {conf[0]} is a setting of Spark: expected --on local, or {MASTER_FORMS}")
    settings = add_archive_option(settings, archive, on)
    if slots is not None and (slots < 8 or slots & (slots - 1)):
        raise UsageError(f"--slots {slots}: expected a power of two, at least 8")
    kind = format_of(format, None if several else output)
    if several:
        check_several(kind, output)
    if plot is not None:
        check_plot(plot, several)
    if changes is not None:
        check_changes(changes, kind, several, plot)
    if raw_csv and kind is not Format.CSV:
        raise UsageError(f"--raw-csv: got --format {kind}, expected --format csv")
    if kind in BINARY and output is None and sys.stdout.isatty():
        raise UsageError(f"{kind} is not text: use --output PATH, or send standard output to a file or a pipe")
    if kind is Format.OPENMETRICS and times is not None:
        raise UsageError(f"--times {times} with openmetrics: expected table, csv or json")
    if kind in BINARY and times is not None:
        raise UsageError(f"--times {times} with {kind}: expected table, csv or json; {kind} has timestamps")
    try:
        disorder = request.parse_slack(slack)
    except ValueError as error:
        raise UsageError(f"--slack: {error}") from error
    try:
        idle = request.parse_lull(lull)
    except ValueError as error:
        raise UsageError(f"--lull: {error}") from error
    try:
        rates = request.parse_sampling(sampling or [])
    except ValueError as error:
        raise UsageError(f"--sampling: {error}") from error
    load_functions(functions or [])
    params = parse_params(param or [])
    bindings = parse_bindings(stream or [])
    results = [path for path in (*files, *(path for paths in bindings.values() for path in paths)) if is_results(path)]
    if schema is not None or results:
        given: dict[str, object] = {
            "--follow": follow,
            "--slack": slack,
            "--lull": lull,
            "--threads": threads,
            "--slots": slots,
        }
        given |= {"--on": on != INLINE and schema is None, "--sampling": sampling, "--layer": layer != Layer.OUTER}
        given |= {"several queries": several, "--describe": describe, "--packets-to": packets_to}
        given |= {"--partial-matches": partial_matches}
        source = "--schema" if schema is not None else f"{results[0]}, the results of a run,"
        if wrong := next((name for name, value in given.items() if value), None):
            expected = "one query, without options of captures"
            if wrong == "--on":
                expected = "the inline engine: Spark reads captures, exports, spools, and files with a schema"
            raise UsageError(f"{source} and {wrong}: expected {expected}")
        tables = _tables_of(schema, files, bindings, (on, settings))
        drawing = (plot, output is not None or format is not None)
        check_outputs({"--output": output, "--plot": plot, "--final-to": final_to}, [*results, *tables.paths])
        _answer_tables(tables, queries[0], params, (kind, output, times, raw_csv, stats), changes, drawing, final_to)
        return
    inline_options = {"--follow": follow, "--slack": slack, "--lull": lull, "--threads": threads}
    if describe:
        others: dict[str, object] = {
            "several queries": several,
            "--on": on != INLINE,
            "--output": output,
            "--format": format,
        }
        others |= {"--plot": plot, "--changes": changes, "--slack": slack, "--lull": lull, "--packets-to": packets_to}
        others |= {"--final-to": final_to}
        others |= {"--partial-matches": partial_matches}
        if wrong := next((name for name, value in others.items() if value), None):
            raise UsageError(f"--describe and {wrong}: expected one query, without options of its answer")
        plan, inputs = request.bind(queries[0], layer, rates, files, bindings, follow, params, _show_progress, threads)
        _describe(plan, inputs)
        return
    for name, file in (
        ("--packets-to", packets_to),
        ("--final-to", final_to),
        ("--partial-matches", partial_matches),
    ):
        if file is not None and (several or on != INLINE):
            problem = "several queries" if several else f"--on {on}"
            raise UsageError(f"{name} {file}: got {problem}, expected one query and the inline engine")
    outputs = {"--output": output, "--plot": plot, "--final-to": final_to}
    outputs |= {"--packets-to": packets_to, "--partial-matches": partial_matches}
    check_outputs(outputs, [])
    for name, file in (("--packets-to", packets_to), ("--partial-matches", partial_matches)):
        if file is not None and final_to is not None:
            raise UsageError(f"--final-to {final_to}: got {name} {file} too, expected one of them")
    if partial_matches is not None:
        if packets_to is not None:
            raise UsageError(f"--packets-to and --partial-matches {partial_matches}: expected one of them")
        from dashboards.partial_matches import check_file

        check_file(partial_matches)
    if several:
        from dashboards.many_queries import AnswerFormat, answer_all_into

        texts = request.texts_of(queries, params)
        plans, inputs = request.bind_all(texts, layer, rates, files, bindings, follow, _show_progress, threads)
        _refuse_live("several queries read complete files", inputs)
        if on != INLINE:
            _refuse_inline_options(on, inputs, inline_options)
        style = AnswerFormat(kind, times, raw_csv)
        samples, warnings = answer_all_into(plans, inputs, output, style, slots, threads, disorder, on, settings)
        report(samples, warnings, stats=stats)
        return
    if packets_to is None:
        plan, inputs = request.bind(queries[0], layer, rates, files, bindings, follow, params, _show_progress, threads)
        evidence = None
    else:
        texts = request.texts_of(queries, params)
        plans, inputs = request.bind_all(
            texts, layer, rates, files, bindings, follow, _show_progress, threads, with_packets=True
        )
        plan = plans[0]
        _refuse_live("--packets-to reads captures twice", inputs)
        from dashboards.evidence import Evidence

        evidence = Evidence(packets_to, plans, inputs, layer)
    check_outputs(outputs, [source.path for source in inputs])
    if on != INLINE:
        _refuse_inline_options(on, inputs, inline_options)
        compile_kernels()
    from dashboards.answer import answer
    from dashboards.idle_kernels import IdleKernels
    from dashboards.stop_signals import interrupt_at_sigterm
    from queries.pipeline.inputs import is_live, never_ends

    # SIGTERM ends a query with live inputs normally, and interrupts other queries.
    live = any(is_live(source) for source in inputs)
    if plot is not None:
        _refuse_live("--plot reads complete inputs", inputs)
    drawn, form = Drawing(plan, plot, output is not None or format is not None), change_writer(plan, changes)
    final_rows = None
    if final_to is not None:
        from dashboards.final_rows import FinalRows

        final_rows = FinalRows(final_to, plan, times, live=live)
    with (
        contextlib.nullcontext() if live else interrupt_at_sigterm(),
        (
            evidence.answer(slots, threads, disorder)
            if evidence is not None
            else answer(plan, inputs, on, slots, threads, disorder, idle, settings)
            if final_rows is None
            else final_rows.answer(inputs, slots, threads, disorder, idle)
        ) as result,
    ):
        if result.run is not None:
            compile_kernels(is_idle=IdleKernels(result.run))
        take_partial = None
        if partial_matches is not None:
            from dashboards.partial_matches import keep_partial_matches

            assert result.run is not None
            take_partial = keep_partial_matches(result.run)
        for warning in plan_warnings(plan):
            warn(warning)
        print_live_hint(result.live)
        # A Parquet file cannot be read before it is complete, and OpenMetrics samples are sorted by series.
        growing = result.live and kind not in (Format.PARQUET, Format.OPENMETRICS)
        with (
            result.until_stopped(),
            progress_bar(is_shown=result.shows_progress, detail=result.pairs_text) as bar,
            open_output(output, live=growing) as sink,
        ):
            if plan.waiting_reason is not None and any(never_ends(source) for source in inputs):
                warn(
                    f"the query {plan.waiting_reason}: its results come after Ctrl-C, and its state may grow until then"
                )
            result.report_progress(bar)
            result.warn_of_large_state(warn if bar is None else bar.warn)
            shared = bar is not None and output is None and sys.stdout.isatty()
            text = cast(BinaryIO, BelowBar(sink, bar)) if shared and bar is not None else sink
            batches = drawn.collect(result.batches)
            if drawn.writes_rows:
                write_answer(plan, batches, kind, text, live=result.live, style=times, raw_csv=raw_csv, changes=form)
            else:
                drawn.read(batches)
        report(result.samples(), result.warnings(), stats=stats)
        drawn.write()
        if evidence is not None:
            print(escape(evidence.write()), file=sys.stderr)
        if take_partial is not None and partial_matches is not None:
            from dashboards.partial_matches import write_partial_matches

            print(escape(write_partial_matches(plan, take_partial(), partial_matches, times)), file=sys.stderr)


def _describe(plan: Plan, inputs: list[Input]) -> None:
    """Print the columns of the answer, and the lateness of the rows of the inputs."""
    from dashboards.description import describe_columns, describe_lateness, measure, start_counting, suggestion
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, print_live_hint, progress_bar, warn
    from dashboards.stop_signals import interrupt_at_sigterm
    from dashboards.wire_text import escape_lines
    from queries.pipeline.inputs import is_live

    live = any(is_live(source) for source in inputs)
    print(escape_lines(describe_columns(plan)), end="\n\n", flush=True)
    with contextlib.nullcontext() if live else interrupt_at_sigterm(), start_counting(plan, inputs) as counting:
        assert counting.run is not None
        compile_kernels(is_idle=IdleKernels(counting.run))
        print_live_hint(live)
        with (
            counting.until_stopped(),
            progress_bar(is_shown=counting.shows_progress, detail=lambda: "measuring") as bar,
        ):
            counting.report_progress(bar)
            links, complete = measure(plan, inputs, counting)
        for warning in counting.warnings():
            warn(warning)
    print(escape_lines(describe_lateness(links, complete=complete)), end="\n\n")
    print(suggestion(links))


def _tables_of(
    schema: Path | None, files: list[str], streams: dict[str, list[str]], engine: tuple[str, dict[str, str]]
) -> Tables:
    """Return files with a schema, or results of runs, as tables. `engine`: name and settings."""
    if schema is not None:
        from dashboards.tables import Engine, Tables

        return Tables.of_schema(schema, files, streams, Engine(*engine))
    from dashboards.stored_results import tables_of

    tables = tables_of(files, streams)
    assert tables is not None, "one of the inputs has results"
    return tables


def _answer_tables(
    tables: Tables,
    sql: str,
    params: dict[str, object],
    style: tuple[Format, Path | None, Times | None, bool, bool],
    changes: ChangeForm | None,
    drawing: tuple[Path | None, bool],
    final_to: Path | None,
) -> None:
    """Answer a query over tables. The final rows are computed in a second pass, because tables can be read again."""
    from dashboards.output.console import BelowBar, progress_bar, report, warn
    from dashboards.output.writers import open_output, write_answer
    from dashboards.stop_signals import interrupt_at_sigterm

    kind, output, times, raw_csv, stats = style
    plan, start = tables.bind(sql, params)
    final_kind = None
    if final_to is not None:
        from dashboards.final_rows import final_format

        final_kind = final_format(final_to, plan)
    drawn, form = Drawing(plan, *drawing), change_writer(plan, changes)
    with interrupt_at_sigterm(), start() as result:
        with progress_bar() as bar, open_output(output) as sink:
            if bar is not None:
                tables.progress.append(bar)
            shared = bar is not None and output is None and sys.stdout.isatty()
            text = cast(BinaryIO, BelowBar(sink, bar)) if shared and bar is not None else sink
            batches = drawn.collect(result.batches)
            if drawn.writes_rows:
                write_answer(plan, batches, kind, text, style=times, raw_csv=raw_csv, changes=form)
            else:
                drawn.read(batches)
        if stats:
            report(result.samples(), result.warnings(), stats=True)
        else:
            for warning in result.warnings():
                warn(warning)
    drawn.write()
    if final_kind is not None:
        tables.progress.clear()  # the bar has ended
        final_plan = plan.with_final_rows()
        with interrupt_at_sigterm(), tables.run(final_plan) as final, open_output(final_to) as sink:
            write_answer(final_plan, final.batches, final_kind, sink, style=times)


@contextlib.contextmanager
def _show_progress(run: InlineRun) -> Iterator[None]:
    """Show the progress of a sub-query, which reads the whole input before the query itself."""
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar
    from dashboards.stop_signals import interrupt_at_sigterm

    compile_kernels(is_idle=IdleKernels(run))
    with interrupt_at_sigterm(), progress_bar(detail=lambda: "sub-query") as bar:
        run.progress = bar
        yield


def _refuse_live(reason: str, inputs: Sequence[Input]) -> None:
    """Raise UsageError for live inputs."""
    from queries.pipeline.inputs import is_live

    live = next((source for source in inputs if is_live(source)), None)
    if live is not None:
        given = "--follow" if live.follow else live.path
        raise UsageError(f"{reason}: got {given}; run one query, or a pipeline (`wiretide run`)")


def _refuse_inline_options(on: str, inputs: list[Input], options: Mapping[str, object]) -> None:
    """Raise UsageError for live inputs or options of the inline engine, because Spark supports neither."""
    from queries.pipeline.inputs import can_be_read_only_once

    given = [name for name, value in options.items() if value]
    given += [str(source.path) for source in inputs if can_be_read_only_once(source.path)]
    if given:
        raise UsageError(f"--on {on} reads complete files: {given[0]} needs the inline engine, so leave out --on")
