"""`wiretide run`: run a monitoring pipeline on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capture.errors import WiretideError
from dashboards.command_arguments import add_archive_option, parse_conf
from dashboards.command_options import Argument, Option, UsageError
from dashboards.output.log_lines import LogFormat, make_printer, print_document, print_line
from queries.pipeline.spark_settings import MASTER_FORMS, is_master

if TYPE_CHECKING:
    from queries.pipeline.file import PipelineFile

ALLOCATOR = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable that names the allocator of Arrow."""


def run(
    pipeline: Annotated[
        Path, Argument(metavar="PIPELINE.toml", help="The file with links, queries and folders for results.")
    ],
    until_done: Annotated[
        bool,
        Option(
            "--until-done",
            help="Exit at the end of all inputs (an interface never ends). Default: continue until Ctrl-C.",
        ),
    ] = False,
    on: Annotated[
        str | None,
        Option(
            metavar="MASTER",
            help="local (Spark on this machine), or the URL of a Spark master. Replaces `master` in the file.",
        ),
    ] = None,
    conf: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUE",
            help="A setting of Spark; it overrides [spark.conf] in the file (docs/guide/spark.md). Repeatable.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat, Option(help="Format of the log: text, or json (one document per line, for log collectors).")
    ] = LogFormat.TEXT,
    archive: Annotated[
        Path | None,
        Option(metavar="FILE", help="On a cluster: run the tasks in this archive, which `wiretide pack` has built."),
    ] = None,
) -> None:
    """Run a monitoring pipeline on Spark.

    The pipeline file configures the links, the queries, the live page, the metrics for Prometheus, the alerts, and the
    folders for results.

    The state is kept in the pipeline's folder. A run that was stopped or killed continues from this state.
    """
    choose_allocator()
    from dashboards.output.console import compile_kernels
    from queries.pipeline.file import read_pipeline

    if on is not None and not is_master(on):
        raise UsageError(f"--on {on}: expected local, or {MASTER_FORMS}")
    chosen = parse_conf(conf or [])
    settings = read_pipeline(pipeline)
    if on is not None:
        settings = replace(settings, master="local[*]" if on == "local" else on)
    spark_conf = add_archive_option({**settings.spark_conf, **chosen}, archive, settings.master)
    settings = replace(settings, spark_conf=spark_conf)
    compile_kernels()
    try:
        monitor_pipeline(settings, until_done, print_line=make_printer(log_format))
    except WiretideError as error:
        if log_format is LogFormat.TEXT:
            raise
        print_document(str(error), "error")
        sys.exit(error.status)


def monitor_pipeline(
    pipeline: PipelineFile, until_done: bool, print_line: Callable[[str], None] = print_line, **options: str
) -> None:
    """Run a pipeline until its inputs end. Then, if not `until_done`, serve its metrics until Ctrl-C.

    `print_line` receives lines for the user. `options` are passed to `Monitor`.
    """
    from dashboards.monitors.pipeline import Monitor

    with Monitor(pipeline, print_line, **options) as monitor:
        monitor.wait()
        print_line(f"\nall input read\n\n{monitor.summary()}\n")
        if not until_done:
            print_line("serving the metrics of the last windows; Ctrl-C ends")
            monitor.serve_until_stopped()


def choose_allocator() -> None:
    """Let Arrow use the allocator of the system in this process, unless the user has chosen one. Imports pyarrow.

    Call it before anything else imports pyarrow: Arrow reads the variable only once. Arrow's own allocators keep freed
    memory, about 30 MB after the files of large micro-batches. `pyarrow.set_memory_pool` is not enough, because the
    writer of Parquet ignores it. Child processes do not inherit the variable, so tasks keep Arrow's own allocator.
    """
    if ALLOCATOR in os.environ:
        return
    os.environ[ALLOCATOR] = "system"
    try:
        import pyarrow as pa

        pa.default_memory_pool()
    finally:
        del os.environ[ALLOCATOR]
