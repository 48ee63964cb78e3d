"""`wiretide backfill`: write the windows of captures for Prometheus, with the times of the capture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dashboards.command_options import Argument, Option, UsageError

if TYPE_CHECKING:
    from dashboards.alerts.past_alerts import PastAlerts
    from dashboards.prometheus.backfill import Backfill, Families
    from queries.pipeline.file import PipelineFile


def backfill(
    pipeline: Annotated[Path, Argument(metavar="PIPELINE.toml", help="The file with the links, queries and metrics.")],
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="The folder for OpenMetrics files, one for each day."),
    ] = None,
    blocks: Annotated[
        Path | None,
        Option(metavar="DIR", help="Also convert the files to blocks in this folder, the data folder of a Prometheus."),
    ] = None,
    remote_write: Annotated[
        str | None,
        Option(metavar="URL", help="Send the samples to a server that receives remote write, such as Mimir."),
    ] = None,
    token_file: Annotated[
        Path | None, Option(metavar="FILE", help="A file with the bearer token for --remote-write.")
    ] = None,
    job: Annotated[str, Option(help="The label `job` of all series.")] = "wiretide",
    instance: Annotated[
        str | None, Option(help="The label `instance`. Default: HOST:PORT of the metrics in the pipeline file.")
    ] = None,
) -> None:
    """Write the windows of captures for Prometheus, with the times of the capture.

    The queries of the pipeline file are answered over its files. The series have the same names as in `wiretide run`,
    so the dashboards of `wiretide dashboards` show them, at the date of the capture. If the file has alert rules, the
    number of firing alerts is written too:

    \b
    wiretide backfill pipeline.toml -o samples --blocks /var/lib/prometheus
    wiretide backfill pipeline.toml --remote-write http://127.0.0.1:9090/api/v1/write
    """  # noqa: D301  # click needs the character \b: the paragraph keeps its lines
    from dashboards.alerts.past_alerts import MAX_SAMPLES
    from dashboards.output.console import progress_bar, warn
    from dashboards.prometheus.backfill import create_blocks, require_promtool, write_daily_files
    from dashboards.prometheus.remote_write import RemoteWrite
    from dashboards.stop_signals import interrupt_at_sigterm
    from queries.pipeline.file import read_pipeline

    if output is None and remote_write is None:
        raise UsageError("got no target, expected --output DIR or --remote-write URL")
    if output is None and blocks is not None:
        raise UsageError(f"--blocks {blocks}: got no folder of samples, expected --output DIR too")
    receiver = None if remote_write is None else RemoteWrite(remote_write, token_file)
    promtool = require_promtool() if blocks is not None else None
    settings = read_pipeline(pipeline)
    settings.require_captures()
    backfills, past = _answer_queries(settings)
    extra = {"job": job, "instance": instance or f"{settings.host}:{settings.port}"}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for path, count in write_daily_files([*backfills, past], extra, output):
            line = f"{path}: {count:,} samples"
            if blocks is not None and promtool is not None:
                block_count = create_blocks(promtool, path, blocks, count)
                line += f", {block_count} block{'' if block_count == 1 else 's'} in {blocks}"
            print(line)
    if receiver is not None:
        sources: list[Families] = [*backfills, past]
        families = [family for source in sources for family in source.families()]
        with interrupt_at_sigterm(), progress_bar("samples") as bar:
            sent = receiver.send(families, extra, bar)
        print(f"{remote_write}: {sent:,} samples")
    for backfilled in backfills:
        for warning in backfilled.warnings():
            warn(warning)
    if past.omitted_samples:
        warn(f"alerts: {past.omitted_samples:,} samples are left out: a rule has at most {MAX_SAMPLES:,}")


def _answer_queries(settings: PipelineFile) -> tuple[list[Backfill], PastAlerts]:
    """Answer the queries of a pipeline that have windows of time, in one pass. Return their samples, and the alerts."""
    import pyarrow as pa

    from dashboards.alerts.evaluation import Evaluation
    from dashboards.alerts.past_alerts import PastAlerts
    from dashboards.answer import answer_all
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar, report, warn
    from dashboards.prometheus.backfill import Backfill
    from dashboards.prometheus.pipeline_series import make_pipeline_series
    from dashboards.stop_signals import interrupt_at_sigterm
    from queries.pipeline.sections import PipelineError

    plans = settings.final_plans()
    pipeline_series = make_pipeline_series(settings, plans)
    past = PastAlerts(Evaluation(settings.alerts, plans, pipeline_series))
    backfills = [Backfill(series) for series in pipeline_series if series.plan.windowed and series.plan.window.timed]
    chosen = [backfill.series.plan for backfill in backfills]
    for plan in plans:
        if plan not in chosen:
            warn(f"query {plan.name} has no windows of time, so it has no series")
    if not backfills:
        raise PipelineError("queries: got no query with windows of time; expected for example [RANGE 1 minute]")
    with interrupt_at_sigterm(), answer_all(chosen, settings.inputs(chosen)) as result:
        assert result.run is not None
        compile_kernels(is_idle=IdleKernels(result.run))
        with progress_bar(is_shown=result.shows_progress) as bar:
            result.report_progress(bar)
            for index, batch in result.batches:
                backfills[index].add(pa.Table.from_batches([batch]))
                past.add(chosen[index], batch)
        report(result.samples(), result.warnings(), stats=False)
        past.finish(result.run.newest_time)
    for backfill in backfills:
        backfill.complete()
    return backfills, past
