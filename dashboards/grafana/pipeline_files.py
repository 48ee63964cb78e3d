"""All files for one pipeline: its dashboards by topic, and the deployment around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capture.interface_path import is_interface
from dashboards.alerts.evaluation import Evaluation
from dashboards.deployment.compose import Containers, make_compose
from dashboards.deployment.monitoring import DASHBOARD_FOLDER, make_monitoring
from dashboards.grafana.disorder_dashboard import make_disorder_dashboard
from dashboards.grafana.health_dashboard import make_health_dashboard
from dashboards.grafana.overview_dashboard import make_overview
from dashboards.grafana.panels import Dashboard, PanelMaker, write_json
from dashboards.grafana.topic_dashboard import make_topic_dashboard
from dashboards.grafana.topics import topic_of
from dashboards.prometheus.names import prometheus_name
from dashboards.prometheus.pipeline_series import make_pipeline_series
from dashboards.prometheus.query_series import QuerySeries
from queries.catalogue.topics import Topic
from queries.pipeline.file import PipelineFile

MAX_UID = 40
"""Maximum length of a uid in Grafana."""

HEALTH, DISORDER = "health", "disorder"


def make_files(
    pipeline: PipelineFile,
    name: str,
    node: str,
    data_source: str,
    has_comparison: bool = False,
    containers: Containers | None = None,
) -> dict[str, str]:
    """Return the text of each file by its relative path.

    `name`: the name of the pipeline, in the titles and uids of its dashboards. `node`: HOST:PORT of the metrics of the
    node. `data_source`: uid of the data source. `has_comparison`: panels of `wiretide compare`. `containers`: the
    compose file also starts the pipeline. Raises PipelineError for a wrong query, or equal names of metrics.
    """
    dashboards = make_dashboards(pipeline, name, data_source, has_comparison=has_comparison)
    targets = [f"{pipeline.host}:{pipeline.port}", *([node] if pipeline.spooled else [])]
    return {
        **{f"{DASHBOARD_FOLDER}/{name}-{kind}.json": write_json(dashboard) for kind, dashboard in dashboards.items()},
        **make_monitoring(targets, data_source, pipeline.alerts),
        **make_compose(pipeline, containers),
    }


def make_dashboards(
    pipeline: PipelineFile, name: str, data_source: str, *, has_comparison: bool
) -> dict[str, Dashboard]:
    """Return the dashboards for which a pipeline has data, by name.

    `overview` and `health` always exist. A topic exists if a query has this topic, and `disorder` if the pipeline has
    several links or live links.
    """
    maker = PanelMaker(data_source)
    queries = group_by_topic(pipeline)
    uids: dict[Topic, str] = {
        topic: make_uid(name, topic) for topic in Topic if topic in queries and topic is not Topic.OVERVIEW
    }
    health = make_uid(name, HEALTH)
    dashboards: dict[str, Dashboard] = {
        Topic.OVERVIEW: make_overview(make_uid(name, Topic.OVERVIEW), name, queries, uids, health, maker)
    }
    for topic, uid in uids.items():
        dashboards[topic] = make_topic_dashboard(uid, name, topic, queries[topic], maker)
    has_interface = any(is_interface(link.capture) for link in pipeline.spooled.values())
    dashboards[HEALTH] = make_health_dashboard(
        health,
        name,
        maker,
        has_node=bool(pipeline.spooled),
        has_interface=has_interface,
        has_alerts=bool(pipeline.alerts.rules),
        has_changes=any(series.is_provisional for of_topic in queries.values() for series in of_topic),
    )
    has_links = len(pipeline.link_names) > 1 or bool(pipeline.spooled)
    if has_links or has_comparison:
        dashboards[DISORDER] = make_disorder_dashboard(
            make_uid(name, DISORDER), name, maker, has_links=has_links, has_comparison=has_comparison
        )
    return dashboards


def group_by_topic(pipeline: PipelineFile) -> Mapping[Topic, Sequence[QuerySeries]]:
    """Return the queries with value columns by topic. Raises PipelineError for wrong queries and rules."""
    series_by_topic: dict[Topic, list[QuerySeries]] = {}
    plans = pipeline.plans()
    all_series = make_pipeline_series(pipeline, plans)
    Evaluation(pipeline.alerts, plans, all_series)  # checks the rules
    for series in all_series:
        if series.values:
            topic = pipeline.queries[series.plan.name].topic or topic_of(series)
            series_by_topic.setdefault(topic, []).append(series)
    return series_by_topic


def make_uid(name: str, dashboard_name: str) -> str:
    """Return a uid that depends only on the arguments, so links to the dashboard stay valid.

    >>> make_uid("Head Office", "talkers")
    'wiretide-head-office-talkers'
    """
    words = prometheus_name(name).replace("_", "-")
    return f"wiretide-{words[: MAX_UID - len(dashboard_name) - len('wiretide--')]}-{dashboard_name}"
