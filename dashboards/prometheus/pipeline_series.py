"""The series of a pipeline's queries, for commands that write dashboards and back-fill files."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.prometheus.exporter import make_series
from dashboards.prometheus.query_series import QuerySeries
from highlevel.inline.engine import ALL_METRICS
from highlevel.plan.plan import Plan
from queries.pipeline.file import PipelineFile
from queries.pipeline.sections import PipelineError


def make_pipeline_series(pipeline: PipelineFile, plans: Sequence[Plan]) -> list[QuerySeries]:
    """Return the series that `wiretide run` serves for the plans of a pipeline.

    Raises PipelineError for equal names, a wrong rank, and a query that cannot have a histogram.
    """
    try:
        return make_series(
            plans, ALL_METRICS.values(), pipeline.top, pipeline.ranks, pipeline.counters, pipeline.histograms
        )
    except ValueError as error:
        raise PipelineError(str(error)) from None
