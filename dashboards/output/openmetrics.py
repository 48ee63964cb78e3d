"""Answers as OpenMetrics: samples with the times of the windows, as `wiretide backfill` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

import pyarrow as pa

from capture.errors import WiretideError
from dashboards.output.console import warn
from dashboards.prometheus.backfill import Backfill, render_samples
from dashboards.prometheus.query_series import QuerySeries
from highlevel.plan.plan import Plan

TOP = 10
"""Maximum number of groups per value column: the default of `wiretide run`."""


class OpenMetricsError(WiretideError):
    """An answer that has no samples."""

    status = 2


def write_openmetrics(plan: Plan, batches: Iterable[pa.RecordBatch], sink: BinaryIO) -> None:
    """Write an answer after its last batch. Samples that Prometheus would drop are omitted, with a warning.

    Raises OpenMetricsError for an answer without windows of time, and for names that Prometheus does not accept.
    """
    try:
        backfill = Backfill(QuerySeries(plan, TOP))
    except ValueError as error:
        raise OpenMetricsError(f"--format openmetrics: {error}; expected for example [RANGE 1 minute]") from error
    for batch in batches:
        backfill.add(pa.Table.from_batches([batch]))
    backfill.complete()
    text, _ = render_samples(backfill.families(), {})
    sink.write(text)
    sink.flush()
    for warning in backfill.warnings():
        warn(warning)
