"""`wiretide backfill`: write the windows of captures for Prometheus at their own time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dashboards.alerts.past_alerts import PastAlerts
    from dashboards.prometheus.backfill import Backfill
    from queries.pipeline.file import PipelineFile


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
    dashboards of `wiretide dashboards` show them, at the date of the capture. With alert rules, so is the number of
    alerts that were firing:

    wiretide backfill pipeline.toml -o samples --blocks /var/lib/prometheus
    """
    from dashboards.alerts.past_alerts import MAX_SAMPLES
    from dashboards.output.console import warn
    from dashboards.prometheus.backfill import create_blocks, require_promtool, write_days
    from queries.pipeline.file import read_pipeline
    from queries.pipeline.sections import PipelineError

    promtool = require_promtool() if blocks is not None else None
    settings = read_pipeline(pipeline)
    if settings.spooled:
        name = next(iter(settings.spooled))
        raise PipelineError(f"links.{name}.spool: a spool is no finished capture; expected links with files only")
    backfills, past = _answer_queries(settings)
    extra = {"job": job, "instance": instance or f"{settings.host}:{settings.port}"}
    output.mkdir(parents=True, exist_ok=True)
    for path, count in write_days([*backfills, past], extra, output):
        line = f"{path}: {count:,} samples"
        if blocks is not None and promtool is not None:
            made = create_blocks(promtool, path, blocks, count)
            line += f", {made} block{'' if made == 1 else 's'} in {blocks}"
        print(line)
    for backfilled in backfills:
        query = f"query {backfilled.series.plan.name}"
        if early := backfilled.too_early:
            warn(f"{query}: {early:,} samples before 1970 are left out: Prometheus has no such times")
        if close := backfilled.too_close:
            warn(f"{query}: {close:,} samples are left out: Prometheus has one sample per millisecond")
    if past.samples_cut:
        warn(f"alerts: {past.samples_cut:,} samples are left out: a rule has at most {MAX_SAMPLES:,}")


def _answer_queries(settings: PipelineFile) -> tuple[list[Backfill], PastAlerts]:
    """Answer the queries of a pipeline with windows of time in one pass; return their samples, and its alerts."""
    import pyarrow as pa

    from dashboards.alerts.evaluation import Evaluation
    from dashboards.alerts.past_alerts import PastAlerts
    from dashboards.answer import answer_all
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar, report, warn
    from dashboards.prometheus.backfill import Backfill
    from dashboards.prometheus.pipeline_series import make_pipeline_series
    from dashboards.stop_signals import interrupting
    from queries.pipeline.sections import PipelineError

    plans = settings.plans()
    pipeline_series = make_pipeline_series(settings, plans)
    past = PastAlerts(Evaluation(settings.alerts, plans, pipeline_series))
    backfills = [Backfill(series) for series in pipeline_series if series.plan.windowed and series.plan.window.timed]
    chosen = [backfill.series.plan for backfill in backfills]
    for plan in plans:
        if plan not in chosen:
            warn(f"query {plan.name} has no windows of time, so it has no series")
    if not backfills:
        raise PipelineError("queries: got no query with windows of time; expected for example [RANGE 1 minute]")
    with interrupting(), answer_all(chosen, settings.inputs(chosen)) as result:
        assert result.run is not None
        compile_kernels(idle=IdleKernels(result.run))
        with progress_bar(shown=result.shows_progress) as bar:
            result.report_progress(bar)
            for index, batch in result.batches:
                backfills[index].add(pa.Table.from_batches([batch]))
                past.add(chosen[index], batch)
        report(result.samples(), result.warnings(), stats=False)
        past.finish(result.run.newest)
    for backfill in backfills:
        backfill.complete()
    return backfills, past
