"""`wiretide query`: one answer over captures, live inputs among them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

import typer

from dashboards import request
from dashboards.output.formats import BINARY, COMPRESSED, SUFFIXES, Format, Times
from dashboards.request import INLINE
from lowlevel.layers import Layer

if TYPE_CHECKING:
    from highlevel.inline.engine import Input


def bound_names(pairs: list[str]) -> dict[str, list[str]]:
    """Return the paths of each name. Raises BadParameter for what has none."""
    bound: dict[str, list[str]] = {}
    for pair in pairs:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise typer.BadParameter(f"-s {pair}: got no NAME=PATH, expected for example -s Main1=main1.pcap")
        bound.setdefault(name, []).append(path)
    return bound


class WithoutPandas:
    """Hides pandas from Arrow, which would import it (0.13 s) only to ask whether a value is one of its; none is."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        """Refuse pandas, and have no opinion on the rest."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def query(
    words: Annotated[
        list[str], typer.Argument(metavar="[FILE]... SQL", help="Captures, folders or globs; then the query.")
    ],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", "-s", metavar="NAME=PATH", help="Bind a name in FROM to a file, folder or glob."),
    ] = None,
    format: Annotated[  # noqa: A002
        Format | None,
        typer.Option(help="How to write the answer; by default by the name of the output file, else a table."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write to this file instead of standard output. The suffix selects the format: .txt, .csv, .json, "
            ".jsonl, .ndjson, .parquet, .arrow or .arrows.",
        ),
    ] = None,
    times: Annotated[
        Times | None,
        typer.Option(
            help="How to write times as text: iso, or ns, integers since the epoch. Default: iso in tables, ns in CSV "
            "and JSON. Arrow and Parquet have timestamps."
        ),
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
    raw_csv: Annotated[
        bool, typer.Option("--raw-csv", help="Write texts into CSV exactly as they are, for programs only.")
    ] = False,
    stats: Annotated[bool, typer.Option("--stats", help="Print all counters to standard error at the end.")] = False,
) -> None:
    """Answer one query over captures.

    With bare files every name in FROM means all of them together:

        wiretide query trace.pcap "SELECT srcIP, count(*) AS packets FROM packets GROUP BY srcIP"

    A - is standard input. Windows of live inputs are answered when they are over; Ctrl-C ends with what has been read:

        tcpdump -U -w - | wiretide query - "SELECT count(*) FROM packets [RANGE 10 seconds]"
    """
    from dashboards.output.console import BelowBar, compile_kernels, progress_bar, report, say_live, warn
    from dashboards.output.files import open_output, write_results
    from dashboards.output.run_warnings import plan_warnings

    if on == INLINE:
        sys.meta_path.insert(0, WithoutPandas())
    *files, sql = words
    if not (files or stream):
        if os.path.exists(sql):  # noqa: PTH110  # Path.exists raises where a query is too long for a name
            raise typer.BadParameter(f"got {sql} and no query behind it, expected one such as SELECT count(*) FROM p")
        raise typer.BadParameter("no input: name at least one capture before the query, or bind one with -s NAME=PATH")
    if on not in (INLINE, "local") and not on.startswith(("local[", "spark://")):
        raise typer.BadParameter(f"--on {on}: expected inline, local, or the URL of a Spark master, spark://HOST:PORT")
    if slots is not None and (slots < 8 or slots & (slots - 1)):
        raise typer.BadParameter(f"--slots {slots}: expected a power of two, at least 8")
    kind = _format_of(format, output)
    if raw_csv and kind is not Format.CSV:
        raise typer.BadParameter(f"--raw-csv: got --format {kind}, expected --format csv")
    if kind in BINARY and output is None and sys.stdout.isatty():
        raise typer.BadParameter(f"{kind} is not text: give --output PATH, or send standard output to a file or a pipe")
    if kind in BINARY and times is not None:
        raise typer.BadParameter(f"--times {times} with {kind}: expected table, csv or json; {kind} has timestamps")
    try:
        late = request.allowed_disorder(slack)
    except ValueError as error:
        raise typer.BadParameter(f"--slack: {error}") from error
    try:
        silent = request.idle_rule(lull)
    except ValueError as error:
        raise typer.BadParameter(f"--lull: {error}") from error
    try:
        rates = request.sampling_rates(sampling or [])
    except ValueError as error:
        raise typer.BadParameter(f"--sampling: {error}") from error
    plan, inputs = request.bind(sql, layer, rates, files, bound_names(stream or []), follow)
    if on != INLINE:
        _refuse_inline_options(on, inputs, {"--follow": follow, "--slack": slack, "--lull": lull, "--threads": threads})
        compile_kernels()
    from dashboards.answer import answer
    from dashboards.idle_kernels import IdleKernels
    from dashboards.stop_signals import interrupting
    from queries.pipeline.inputs import can_be_read_once

    # SIGTERM is a request to finish for live inputs, and interrupts everything else.
    live = follow or any(can_be_read_once(each.path) for each in inputs)
    with (
        contextlib.nullcontext() if live else interrupting(),
        answer(plan, inputs, on, slots, threads, late, silent) as found,
    ):
        if found.run is not None:
            compile_kernels(idle=IdleKernels(found.run))
        for warning in plan_warnings(plan):
            warn(warning)
        say_live(found.live)
        growing = found.live and kind is not Format.PARQUET  # which cannot be read before its end
        with (
            found.until_stopped(),
            progress_bar(shown=found.shows_progress, detail=found.pairs) as bar,
            open_output(output, live=growing) as sink,
        ):
            found.show(bar)
            found.warn_of_state(warn if bar is None else bar.warn)
            shared = bar is not None and output is None and sys.stdout.isatty()
            text = cast(BinaryIO, BelowBar(sink, bar)) if shared and bar is not None else sink
            write_results(
                found.batches, plan.schema, kind, text, live=found.live, times=plan.times, style=times, raw_csv=raw_csv
            )
        report(found.samples(), found.warnings(), stats=stats)


def _format_of(format: Format | None, output: Path | None) -> Format:  # noqa: A002
    """Return the format: the one that is given, else that of the output file's suffix, else a table."""
    if format is not None:
        return format
    if output is None or not output.suffix or (output.exists() and not output.is_file()):
        return Format.TABLE
    suffix = output.suffix.lower()
    if suffix in COMPRESSED:
        raise typer.BadParameter(f"--output {output}: results are not compressed, expected a name without {suffix}")
    if suffix not in SUFFIXES:
        known = ", ".join(SUFFIXES)
        raise typer.BadParameter(f"--output {output}: no format has the suffix {suffix}; expected {known}, or --format")
    return SUFFIXES[suffix]


def _refuse_inline_options(on: str, inputs: list[Input], options: Mapping[str, object]) -> None:
    """Refuse what Spark cannot: live inputs, and the options that are about the inline engine."""
    from queries.pipeline.inputs import can_be_read_once

    given = [name for name, value in options.items() if value]
    given += [str(each.path) for each in inputs if can_be_read_once(each.path)]
    if given:
        raise typer.BadParameter(f"--on {on} reads complete files: {given[0]} needs the inline engine, without --on")
