"""All files for one pipeline: its dashboards, and the deployment around them."""

from __future__ import annotations

from dashboards.alerts.evaluation import Evaluation
from dashboards.grafana.deployment import DASHBOARD_FOLDER, make_deployment
from dashboards.grafana.health_dashboard import make_health_dashboard
from dashboards.grafana.panels import PanelMaker, write_json
from dashboards.grafana.query_dashboard import make_query_dashboard
from dashboards.prometheus.names import prometheus_name
from dashboards.prometheus.pipeline_series import make_pipeline_series
from queries.pipeline.file import PipelineFile

MAX_UID = 40
"""Largest length of a uid in Grafana."""


def make_files(pipeline: PipelineFile, name: str, node: str, data_source: str) -> dict[str, str]:
    """Return the text of each file by its relative path.

    `name`: the name of the pipeline, in the titles and uids of its dashboards. `node`: HOST:PORT of the metrics of the
    node. `data_source`: uid of the data source. Raises PipelineError for wrong queries and rules, and equal names of
    metrics.
    """
    plans = pipeline.plans()
    series = make_pipeline_series(pipeline, plans)
    Evaluation(pipeline.alerts, plans, series)  # checks the rules
    maker = PanelMaker(data_source)
    queries = make_query_dashboard(_make_uid(name, "queries"), f"Wiretide: queries of {name}", series, maker)
    health = make_health_dashboard(
        _make_uid(name, "health"),
        f"Wiretide: health of {name}",
        maker,
        has_node=bool(pipeline.spooled),
        has_alerts=bool(pipeline.alerts.rules),
    )
    targets = [f"{pipeline.host}:{pipeline.port}", *([node] if pipeline.spooled else [])]
    return {
        f"{DASHBOARD_FOLDER}/{name}-queries.json": write_json(queries),
        f"{DASHBOARD_FOLDER}/{name}-health.json": write_json(health),
        **make_deployment(targets, data_source, pipeline.alerts),
    }


def _make_uid(name: str, kind: str) -> str:
    """Return a uid, which is the same at each call: links to the dashboard stay valid.

    >>> _make_uid("Head Office", "queries")
    'wiretide-head-office-queries'
    """
    words = prometheus_name(name).replace("_", "-")
    return f"wiretide-{words[: MAX_UID - len(kind) - len('wiretide--')]}-{kind}"
