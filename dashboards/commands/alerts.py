"""`wiretide alerts`: evaluate the alert rules of a pipeline over finished captures."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dashboards.command_options import Argument, Option

if TYPE_CHECKING:
    from dashboards.alerts.messages import Message
    from queries.pipeline.alert_settings import AlertSettings
    from queries.pipeline.file import PipelineFile


class AlertFormat(StrEnum):
    """The formats of the answer."""

    TABLE = "table"
    JSON = "json"


def alerts(
    pipeline: Annotated[Path, Argument(metavar="PIPELINE.toml", help="The file with the links, queries and alerts.")],
    format_: Annotated[
        AlertFormat, Option("--format", help="A table, or one JSON object with evidence for each alert.")
    ] = AlertFormat.TABLE,
    test: Annotated[
        bool, Option("--test", help="Send a test message to each receiver instead, and read no capture.")
    ] = False,
) -> None:
    """Evaluate the alert rules of a pipeline over its captures.

    The queries of the rules are answered over the files of the links. Each alert is printed with its begin, its end
    (both in the time of the packets) and its labels. Nothing is sent to receivers. So this command can test a rule, or
    find the alerts of last year:

    wiretide alerts pipeline.toml
    """
    from queries.pipeline.file import read_pipeline
    from queries.pipeline.sections import PipelineError

    settings = read_pipeline(pipeline)
    if not settings.alerts.rules:
        raise PipelineError(f"{pipeline}: alerts: got no rule, expected a section [alerts.NAME]")
    if test:
        try_receivers(settings)
        return
    settings.require_captures()
    print_alerts(find_alerts(settings), settings.alerts, format_)


def print_alerts(messages: list[Message], settings: AlertSettings, format_: AlertFormat) -> None:
    """Print alerts. The table has a column for silences if there is a file with silences."""
    from dashboards.output.table import align_table
    from dashboards.wire_text import escape, escape_json

    if format_ is AlertFormat.JSON:
        for message in messages:
            print(escape_json(json.dumps(message, ensure_ascii=False)))
        return
    names = ["began", "ended", "severity", "rule", *(["silenced"] if settings.silences else []), "summary"]
    texts = [
        {**message, "ended": message["ended"] or "", "silenced": "yes" if message["silenced"] else ""}
        for message in messages
    ]
    if texts:
        print(align_table(names, [[escape(text[name]) for name in names] for text in texts], names))
    print(f"{_count_text(len(messages), 'alert')} of {_count_text(len(settings.rules), 'rule')}")


def _count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def find_alerts(settings: PipelineFile) -> list[Message]:
    """Answer the queries of the rules over the files of a pipeline. Return the alerts in the order of their begins."""
    from dashboards.alerts.evaluation import Evaluation
    from dashboards.alerts.past_alerts import PastAlerts
    from dashboards.alerts.silences import Silences
    from dashboards.answer import answer_all
    from dashboards.idle_kernels import IdleKernels
    from dashboards.output.console import compile_kernels, progress_bar, report, warn
    from dashboards.prometheus.pipeline_series import make_pipeline_series
    from dashboards.stop_signals import interrupt_at_sigterm

    plans = settings.final_plans()
    evaluation = Evaluation(settings.alerts, plans, make_pipeline_series(settings, plans))
    past = PastAlerts(evaluation)
    silences = Silences(settings.alerts.silences, evaluation.labels, warn)
    chosen = [plan for plan in plans if past.reads(plan)]
    with interrupt_at_sigterm(), answer_all(chosen, settings.inputs(chosen)) as result:
        assert result.run is not None, "the inline engine answers several queries"
        compile_kernels(is_idle=IdleKernels(result.run))
        with progress_bar(is_shown=result.shows_progress) as bar:
            result.report_progress(bar)
            for index, batch in result.batches:
                past.add(chosen[index], batch)
        report(result.samples(), result.warnings(), stats=False)
        newest = result.run.newest_time
    past.finish(newest)
    return [
        {**alert.message, "silenced": silences.covers(alert.rule, alert.group.labels, alert.began)}
        for alert in past.alerts
    ]


def try_receivers(settings: PipelineFile) -> None:
    """Send a test message to each receiver. Then raise DeliveryError if a receiver did not accept it."""
    from datetime import UTC, datetime

    from dashboards.alerts.messages import make_test_message
    from dashboards.alerts.receivers import DeliveryError, send
    from dashboards.output.console import warn
    from queries.pipeline.sections import PipelineError

    receivers = settings.alerts.receivers.values()
    if not receivers:
        raise PipelineError("receivers: got no receiver, expected a section [receivers.NAME]")
    failures = 0
    for receiver in receivers:
        try:
            send(receiver, [make_test_message(datetime.now(UTC))])
        except DeliveryError as error:
            failures += 1
            warn(str(error))
        else:
            print(f"receivers.{receiver.name}: {receiver.kind} {receiver.destination} accepted the test message")
    if failures:
        raise DeliveryError(f"{failures} of {_count_text(len(receivers), 'receiver')} did not accept the test message")
