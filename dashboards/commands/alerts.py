"""`wiretide alerts`: evaluate the alert rules of a pipeline over finished captures."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dashboards.alerts.evaluation import Evaluation, Message
    from queries.pipeline.file import PipelineFile


class AlertFormat(StrEnum):
    """The forms of the answer."""

    TABLE = "table"
    JSONL = "jsonl"


COLUMNS = ("began", "ended", "severity", "rule", "silenced", "rows", "summary")


def alerts(
    pipeline: Annotated[
        Path, typer.Argument(metavar="PIPELINE.toml", help="The file with the links, queries and alerts.")
    ],
    format_: Annotated[
        AlertFormat, typer.Option("--format", help="A table, or one JSON object with evidence for each alert.")
    ] = AlertFormat.TABLE,
) -> None:
    """Evaluate the alert rules of a pipeline over its captures.

    The queries of the rules are answered over the files of the links. Each alert is printed with the time of the
    packets: when it began, when it ended, and its labels. Nothing is sent to receivers, so this command tries a rule,
    or finds the alerts of last year:

    wiretide alerts pipeline.toml
    """
    from dashboards.alerts.alerts import read_alerts
    from dashboards.output.table import align_table
    from dashboards.wire_text import escape, escape_json
    from queries.pipeline.file import read_pipeline
    from queries.pipeline.sections import PipelineError

    settings = read_pipeline(pipeline)
    if not settings.alerts.rules:
        raise PipelineError(f"{pipeline}: alerts: got no rule, expected a section [alerts.NAME]")
    if settings.spooled:
        name = next(iter(settings.spooled))
        raise PipelineError(f"links.{name}.spool: a spool is no finished capture; expected links with files only")
    found = read_alerts(find_alerts(settings))
    if format_ is AlertFormat.JSONL:
        for alert in found:
            print(escape_json(json.dumps(alert, ensure_ascii=False)))
        return
    rows = [
        [alert["began"], alert["ended"] or "", alert["severity"], alert["rule"], "yes" if alert["silenced"] else "",
         f"{alert['rows']:,}", alert["summary"]]
        for alert in found
    ]  # fmt: skip
    if rows:
        print(align_table(list(COLUMNS), [[escape(text) for text in row] for row in rows]))
    print(f"{len(found):,} alert{'' if len(found) == 1 else 's'} of {len(settings.alerts.rules)} rules")


def find_alerts(settings: PipelineFile) -> list[Message]:
    """Answer the queries of the rules over the files of a pipeline; return the messages of alerts, in order."""
    import pyarrow as pa

    from dashboards.alerts.evaluation import Evaluation, make_message
    from dashboards.alerts.silences import Silences
    from dashboards.answer import answer_all
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar, report, warn
    from dashboards.prometheus.pipeline_series import make_pipeline_series
    from dashboards.stop_signals import interrupting

    plans = settings.plans()
    evaluation: Evaluation = Evaluation(settings.alerts.rules, plans, make_pipeline_series(settings, plans))
    silences = Silences(settings.alerts.silences, [rule.name for rule in settings.alerts.rules], warn)
    asked = {evaluated.plan.name for evaluated in evaluation.rules}
    chosen = [plan for plan in plans if plan.name in asked]
    batches: dict[str, list[pa.RecordBatch]] = {plan.name: [] for plan in chosen}
    with interrupting(), answer_all(chosen, settings.inputs(chosen)) as result:
        if result.run is not None:
            compile_kernels(idle=IdleKernels(result.run))
        with progress_bar(shown=result.shows_progress) as bar:
            result.report_progress(bar)
            for index, batch in result.batches:
                batches[chosen[index].name].append(batch)
        report(result.samples(), result.warnings(), stats=False)
    results = {plan.name: pa.Table.from_batches(batches[plan.name], plan.schema) for plan in chosen}
    ends = [rows["window_end"].to_numpy().max() for rows in results.values() if rows.num_rows]
    # All windows up to the last one of any query have closed. So a query without rows since then is absent.
    watermarks = {name: int(max(ends)) for name in results} if ends else {}
    messages = []
    for evaluated, change in evaluation.evaluate(results, watermarks):
        silenced = silences.covers(evaluated.rule.name, change.group.labels, change.group.fired or change.group.last)
        messages.append({**make_message(evaluated, change), "silenced": silenced})
    return messages
