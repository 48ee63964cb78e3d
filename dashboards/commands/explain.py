"""`wiretide explain`: show the plan of a query or a pipeline file, measure a query, or show the content of a spool."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capture.errors import InputError, WiretideError
from dashboards.command_arguments import NO_INPUT, check_engine_name, load_functions, parse_bindings, parse_params
from dashboards.command_options import Argument, Option, UsageError
from dashboards.request import INLINE
from lowlevel.layers import Layer

if TYPE_CHECKING:
    from dashboards.measured_plan import Analysis


IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp")
"""Suffixes of image formats that are not supported."""


class PlanFormat(StrEnum):
    """The format of an explanation."""

    TEXT = "text"
    SVG = "svg"
    DOT = "dot"


class ExplainError(WiretideError):
    """Arguments that cannot be combined."""

    status = 2


def explain_text(text: str, layer: Layer | None = None, params: Mapping[str, object] | None = None) -> str:
    """Return the explanation of a query, or of the pipeline file or spool at a path.

    A query is SQL, the path of a `.gsql` file, or `@name` of a ready query.

    `text` is a path if it exists as a file or folder, ends in `.toml`, or is a single word without `@`. A query in SQL
    has several words. `params` are values of parameters.
    Raises InputError if the path does not exist, otherwise PipelineError, QueryError or SpoolError.
    """
    path = Path(text)
    if not _is_path(text):
        from queries.explain.plan import explain
        from queries.gsql import compile_query
        from queries.query_text import query_text

        return explain(compile_query(query_text(text, params), layer=layer or Layer.OUTER))
    if layer is not None:
        raise ExplainError(f"{path} and --layer: --layer needs a query; in a pipeline file each query has its layer")
    if params:
        raise ExplainError(f"{path} and --param: --param needs a query with parameters")
    try:
        return _explain_path(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _explain_path(path: Path) -> str:
    if path.is_dir():
        return _explain_spool(path)
    if not path.exists() and path.suffix != ".toml":
        raise InputError(f"{path}: no such file or folder; expected a query, PIPELINE.toml or the folder of a spool")
    from dashboards.monitors.pipeline_lines import pipeline_lines
    from queries.pipeline.file import read_pipeline

    return "\n".join(pipeline_lines(read_pipeline(path)))


def _explain_spool(folder: Path) -> str:
    from lowlevel.spool.folder import LOCK_NAME, segment_numbers
    from lowlevel.spool.inspection import inspect

    names = {entry.name for entry in folder.iterdir()}
    if names and LOCK_NAME not in names and not segment_numbers(folder):
        raise InputError(f"{folder}: the folder has no segments; expected the folder of a spool, or PIPELINE.toml")
    return "\n".join(inspect(folder).lines())


def _is_path(text: str) -> bool:
    if text.startswith("@") or text.endswith(".gsql"):
        return False
    if text.endswith(".toml") or len(text.split()) == 1:
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long for a file name, or contains NUL
        return False


def explain(
    words: Annotated[
        list[str],
        Argument(
            metavar="SQL|@NAME|PIPELINE.toml|SPOOL",
            help="A query, a ready query, a pipeline file, or the folder of a spool. With --analyze: the inputs, then "
            "the query.",
        ),
    ],
    analyze: Annotated[
        bool,
        Option("--analyze", help="Run the query over the inputs, and add the measured figures of each operator."),
    ] = False,
    stream: Annotated[
        list[str] | None,
        Option("--stream", "-s", metavar="NAME=INPUT", help="With --analyze: bind a name in FROM to an input."),
    ] = None,
    format: Annotated[  # noqa: A002
        PlanFormat,
        Option(help="text; svg: a drawing of the plan of a query; or dot: the automata of a query, for Graphviz."),
    ] = PlanFormat.TEXT,
    output: Annotated[
        Path | None, Option("--output", "-o", help="Write to this file. With the suffix .svg or .dot: in this format.")
    ] = None,
    threads: Annotated[
        int | None, Option(min=1, help="With --analyze: number of reading threads. Default: one per core.")
    ] = None,
    on: Annotated[
        str,
        Option(
            metavar="ENGINE",
            help="With --analyze: inline (this process), local or local[N] (Spark on this machine, in N threads), or "
            "the URL of a Spark master.",
        ),
    ] = INLINE,
    micro_batches: Annotated[
        bool,
        Option(
            "--micro-batches",
            help="With --analyze and --on: run the query as `wiretide run` does, in micro-batches with state.",
        ),
    ] = False,
    layer: Annotated[Layer | None, Option(help="IP layer of plain column names of a query. Default: outer.")] = None,
    param: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Set a parameter of @NAME, or of PARAM in the query. Repeatable."),
    ] = None,
    functions: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Load functions from a Python file (docs/guide/functions.md). Repeatable."),
    ] = None,
) -> None:
    """Show the plan of a query or a pipeline file, or inspect a spool.

    Query: the parts that run in the low level and in the high level, and the reasons.

    Pipeline file: also the links with their readers, watermarks and flush policies, and the memory of the tables. No
    input is opened.

    Spool: its segments, commits, watermarks, losses and damage. The spool may be in use.

    --analyze: the query runs over files, and its results are not printed. The figures are the rows and bytes between
    the operators, the time and the largest state of each operator, and the work of the low level. On Spark, the figures
    are sums over all tasks. The query then runs as one job, or with --micro-batches as a stream that reads the files to
    their ends.

    \b
    wiretide explain "SELECT srcIP, count(*) FROM packets GROUP BY srcIP"
    wiretide explain --analyze trace.pcap @top-talkers
    wiretide explain --analyze -o plan.svg trace.pcap @unanswered
    wiretide explain --format dot scan.gsql | dot -Tsvg > scan.svg
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.output.writers import open_output
    from dashboards.wire_text import escape_lines

    if output is not None and output.suffix.lower() in IMAGES:
        expected = ".svg for a drawing, .dot for Graphviz, or .txt"
        raise UsageError(f"--output {output}: got {output.suffix}, expected {expected}")
    check_engine_name(on)
    if threads is not None and on != INLINE:
        raise UsageError(f"--threads and --on {on}: expected --on local[{threads}], or --on inline")
    if micro_batches and (not analyze or on == INLINE):
        raise UsageError("--micro-batches needs --analyze and a Spark engine, for example --on local")
    load_functions(functions or [])
    params = parse_params(param or [])
    suffix = "" if output is None else output.suffix.lower().removeprefix(".")
    shown = PlanFormat(suffix) if suffix in (PlanFormat.SVG, PlanFormat.DOT) else format
    draws = shown is not PlanFormat.TEXT
    if analyze and shown is PlanFormat.DOT:
        raise UsageError("--analyze of automata for Graphviz: expected --format svg, a drawing with measured figures")
    if analyze:
        analysis = _analyze(words, stream or [], threads, on, layer, params, micro_batches=micro_batches)
        text = analysis.drawing() if draws else escape_lines(analysis.text())
    elif stream or threads or on != INLINE:
        raise UsageError("--stream, --threads and --on need --analyze, which runs the query")
    elif len(words) > 1:
        raise UsageError(f"got {len(words)} words, expected one query; --analyze reads inputs before the query")
    elif draws:
        text = _drawing(words[0], layer, params, shown)
    else:
        text = escape_lines(explain_text(words[0], layer, params))
    with open_output(output) as sink:
        sink.write(text.encode() if draws else f"{text}\n".encode())


def _drawing(text: str, layer: Layer | None, params: Mapping[str, object], form: PlanFormat) -> str:
    """Return the plan of a query as SVG, or its automata as DOT.

    Raises ExplainError for a pipeline file and for a spool, and with DOT for a query without automata.
    """
    if _is_path(text):
        raise ExplainError(f"{text} as a drawing: expected a query; pipeline files and spools are explained as text")
    from queries.gsql import compile_query
    from queries.query_text import query_text

    plan = compile_query(query_text(text, params), layer=layer or Layer.OUTER)
    if form is PlanFormat.SVG:
        from queries.explain.drawing import draw

        return draw(plan)
    from queries.explain.automaton_graph import automaton_graph, automaton_nodes

    if not automaton_nodes(plan):
        expected = "a query with MATCH_RECOGNIZE or AUTOMATON; --format svg draws every plan"
        raise ExplainError(f"got a query without automata for Graphviz, expected {expected}")
    return automaton_graph(plan)


def _analyze(
    words: list[str],
    stream: list[str],
    threads: int | None,
    on: str,
    layer: Layer | None,
    params: Mapping[str, object],
    *,
    micro_batches: bool,
) -> Analysis:
    """Run a query over its inputs, and return its figures."""
    from dashboards import request
    from dashboards.idle_kernels import IdleKernels
    from dashboards.measured_plan import BatchAnalysis, InlineAnalysis, StreamAnalysis
    from dashboards.output.console import compile_kernels, progress_bar, warn
    from dashboards.stop_signals import interrupt_at_sigterm
    from queries.pipeline.inputs import is_live

    *files, sql = words
    if not (files or stream):
        raise UsageError(NO_INPUT)
    plan, inputs = request.bind(sql, layer or Layer.OUTER, None, files, parse_bindings(stream), False, params)
    live = [str(source.path) for source in inputs if is_live(source)]
    if live:
        raise UsageError(f"--analyze reads complete files: got {live[0]}")
    analysis: Analysis
    if on == INLINE:
        analysis = inline = InlineAnalysis(plan, inputs, threads=threads)
        compile_kernels(is_idle=IdleKernels(inline.run))
        with interrupt_at_sigterm(), progress_bar(detail=lambda: "measuring") as bar:
            inline.run.progress = bar
            inline.complete()
    else:
        analysis = (StreamAnalysis if micro_batches else BatchAnalysis)(plan, inputs, on)
        compile_kernels()
        with interrupt_at_sigterm():
            analysis.complete()
    for warning in analysis.warnings():
        warn(warning)
    return analysis
