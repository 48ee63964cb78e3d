"""The sinks of a pipeline: the effect of a correction on each, and the key by which it finds the corrected rows.

A sink that stores changes needs no key, because a change contains the row that it withdraws. A sink that replaces rows
needs a key, like ON CONFLICT in SQL. The key of a query with changes is the time column of its results. A sink replaces
all rows of one time together, so a reader never finds two versions of a row. Gauges and alerts show windows, so their
key is the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from capture.lazy_dataclasses import dataclass
from highlevel.plan.keys import stored_key
from highlevel.plan.plan import Plan
from queries.pipeline.sections import PipelineError
from queries.pipeline.sink_settings import SinkSettings


class SinkKey(StrEnum):
    """The key by which a sink finds the rows of a correction."""

    NONE = "none"
    TIME = "time"
    """The time column of the results: the end of the window, or the time of a row."""
    WINDOW = "window"
    """The window and the columns of the group."""
    ROW = "row"
    """The columns that identify a row (`highlevel.plan.keys`)."""


@dataclass(frozen=True, slots=True)
class Sink:
    """A sink, its key, and the effect of a correction, also for results without windows."""

    name: str
    key: SinkKey
    effect: str
    effect_without_windows: str = "the same"


SINKS = (
    Sink("result files", SinkKey.NONE, "the change is appended"),
    Sink("results that the key `final` names", SinkKey.TIME, "none: a row is written once, when it is final"),
    Sink("`wiretide compact`", SinkKey.TIME, "the row is replaced"),
    Sink("gauges", SinkKey.WINDOW, "the row is replaced", "no series"),
    Sink("counters and histograms", SinkKey.WINDOW, "none: final windows are counted", "no series"),
    Sink("live page", SinkKey.WINDOW, "the window is replaced", "none: final rows are shown"),
    Sink("console", SinkKey.WINDOW, "a line with the window", "a line with the numbers of rows"),
    Sink("alerts", SinkKey.WINDOW, "messages are updated or withdrawn", "refused"),
    Sink("sinks of kind `sql`", SinkKey.ROW, "the row is replaced or deleted"),
    Sink("sinks of kind `delta` or `s3`", SinkKey.NONE, "the change is appended"),
    Sink("sinks of kind `kafka`", SinkKey.NONE, "a message with the change"),
)
"""All sinks of a pipeline. docs/guide/consistency.md contains this table."""


def check_sinks(plans: Sequence[Plan]) -> None:
    """Raise PipelineError for a query with changes whose sinks cannot find the rows of a correction."""
    for plan in plans:
        if plan.has_changes and plan.time_column is None:
            names = ", ".join(sink.name.replace("`", "") for sink in SINKS if sink.key is SinkKey.TIME)
            columns = ", ".join(plan.schema.names[:-2])
            raise PipelineError(
                f"queries.{plan.name}.sql: got EMIT CHANGES of results without a time ({columns}): {names} would not "
                "find the rows of a correction; expected window_end or the time of the rows in the select list"
            )


def key_of_sink(plan: Plan) -> tuple[str, ...] | None:
    """Return the columns that identify a row of a query in another system; None if two rows may be equal."""
    aggregation = plan.aggregation
    has_second_rows = aggregation is not None and aggregation.emit_late
    return None if has_second_rows else stored_key(plan.root) or None


def check_row_keys(plans: Sequence[Plan], sinks: Sequence[SinkSettings]) -> None:
    """Raise PipelineError for a query with changes that a SQL database cannot correct, because rows have no key."""
    for sink in sinks:
        for plan in plans:
            if sink.kind == "sql" and sink.receives(plan.name) and plan.has_changes and key_of_sink(plan) is None:
                raise PipelineError(
                    f"sinks.{sink.name}: got changes of the query {plan.name}, whose select list does not identify a "
                    "row; expected window_end and all columns of the groups in it, or `queries` without this query"
                )
