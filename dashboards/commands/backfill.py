"""`wiretide backfill`: write the windows of captures for Prometheus at their own time."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer


def backfill(
    pipeline: Annotated[
        Path, typer.Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for OpenMetrics files, one for each day.")
    ],
    blocks: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also convert them to blocks in this folder, the data of a Prometheus."),
    ] = None,
    job: Annotated[str, typer.Option(help="The label `job` of all series.")] = "wiretide",
    instance: Annotated[
        str | None, typer.Option(help="The label `instance`. Default: HOST:PORT of the metrics in the pipeline file.")
    ] = None,
) -> None:
    """Write the windows of captures for Prometheus at their own time.

    The queries of the pipeline file are answered over its files. The series are those of `wiretide run`, so the
    dashboards of `wiretide dashboards` show them, at the date of the capture:

    wiretide backfill pipeline.toml -o samples --blocks /var/lib/prometheus
    """
    from dashboards.answer import answer_all
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar, report, warn
    from dashboards.prometheus.backfill import Backfill, BackfillError, create_blocks, write_days
    from dashboards.prometheus.query_series import QuerySeries
    from dashboards.stop_signals import interrupting
    from queries.pipeline.file import read_pipeline
    from queries.pipeline.sections import PipelineError

    promtool = shutil.which("promtool")
    if blocks is not None and promtool is None:
        raise BackfillError("--blocks needs promtool, which is not on the PATH (Debian package prometheus)")
    settings = read_pipeline(pipeline)
    if settings.spooled:
        name = next(iter(settings.spooled))
        raise PipelineError(f"links.{name}.spool: a spool is no finished capture; expected links with files only")
    plans = settings.plans()
    collected: dict[int, Backfill] = {}
    for index, plan in enumerate(plans):
        if plan.windowed and plan.window.timed:
            try:
                collected[index] = Backfill(QuerySeries(plan, settings.top, settings.ranks.get(plan.name)))
            except ValueError as error:
                raise PipelineError(str(error)) from None
        else:
            warn(f"query {plan.name} has no windows of time, so it has no series")
    if not collected:
        raise PipelineError("queries: got no query with windows of time; expected for example [RANGE 1 minute]")
    chosen = [plans[index] for index in collected]
    backfills = [*collected.values()]
    with interrupting(), answer_all(chosen, settings.inputs(chosen)) as result:
        assert result.run is not None
        compile_kernels(idle=IdleKernels(result.run))
        with progress_bar(shown=result.shows_progress) as bar:
            result.report_progress(bar)
            import pyarrow as pa

            for index, batch in result.batches:
                backfills[index].add(pa.Table.from_batches([batch]))
        for each in backfills:
            each.complete()
        report(result.samples(), result.warnings(), stats=False)
    extra = {"job": job, "instance": instance or f"{settings.host}:{settings.port}"}
    output.mkdir(parents=True, exist_ok=True)
    for path, count in write_days(backfills, extra, output):
        line = f"{path}: {count:,} samples"
        if blocks is not None and promtool is not None:
            made = create_blocks(promtool, path, blocks, count)
            line += f", {made} block{'' if made == 1 else 's'} in {blocks}"
        print(line)
    for each in backfills:
        name = each.series.plan.name
        if each.too_early:
            warn(f"query {name}: {each.too_early:,} samples before 1970 are left out: Prometheus has no such times")
        if each.too_close:
            warn(f"query {name}: {each.too_close:,} samples are left out: Prometheus has one sample per millisecond")
    sys.stdout.flush()
