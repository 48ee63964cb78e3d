"""`wiretide run`: a monitoring pipeline on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from queries.pipeline.file import PipelineFile


def run(
    pipeline: Annotated[Path, typer.Argument(metavar="PIPELINE.toml", help="Links, queries and where results go.")],
    until_done: Annotated[
        bool, typer.Option("--until-done", help="End when the inputs have ended, instead of serving until Ctrl-C.")
    ] = False,
) -> None:
    """Run a monitoring pipeline on Spark.

    The pipeline file names links, queries, metrics for Prometheus, and folders for results. The state is kept in the
    pipeline's folder: a run that was stopped or killed continues where it ended.
    """
    from dashboards.output.console import compile_kernels
    from queries.pipeline.file import read_pipeline

    described = read_pipeline(pipeline)
    compile_kernels()
    monitored(described, until_done)


def monitored(pipeline: PipelineFile, until_done: bool, **options: str) -> None:
    """Monitor a pipeline until its inputs have ended, or until Ctrl-C. `options` are those of `Monitor`."""
    from dashboards.monitors.pipeline import Monitor, say_line

    with Monitor(pipeline, say_line, **options) as monitor:
        monitor.wait()
        say_line(f"\nall input read\n\n{monitor.summary()}\n")
        if not until_done:
            say_line("serving the last windows; Ctrl-C ends")
            monitor.serve_until_stopped()
