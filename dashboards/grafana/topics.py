"""The topic of each query of a pipeline, and the titles of the dashboards of topics."""

from __future__ import annotations

from collections.abc import Mapping

from dashboards.prometheus.query_series import QuerySeries
from lowlevel.expressions.tree import columns_of
from lowlevel.expressions.types import Type
from queries.catalogue.topics import Topic

TITLES: Mapping[Topic, tuple[str, str]] = {
    Topic.OVERVIEW: ("overview", "The traffic of all links, and the most important query of each topic."),
    Topic.TALKERS: ("talkers", "Which hosts and networks send and receive most."),
    Topic.PROTOCOLS: ("protocols", "Protocols, ports, sizes and layers."),
    Topic.HANDSHAKES: ("handshakes and resets", "Connection requests, their answers, resets and repeated segments."),
    Topic.SECURITY: ("scans and floods", "Scans, floods, guessed passwords and other signs of attacks."),
    Topic.FLOWS: ("flows", "Flow exports: exporters, talkers, interfaces and delays."),
}
"""Title and description of the dashboard of each topic."""

FLOW_KINDS = ("flows", "samples")
ADDRESSES = (Type.ADDRESS, Type.MAC)


def topic_of(series: QuerySeries) -> Topic:
    """Determine the topic of a query from its rows, conditions and groups, if the pipeline file states no topic.

    The first match decides: rows of flow exports, a condition on TCP flags (handshakes), groups with addresses
    (talkers), groups with other columns than the link (protocols). Otherwise the topic is overview.
    """
    plan = series.plan
    if any(leaf.low.kind in FLOW_KINDS for leaf in plan.leaves):
        return Topic.FLOWS
    conditions = [leaf.low.where for leaf in plan.leaves if leaf.low.where is not None]
    if any("flag" in column.name for condition in conditions for column in columns_of(condition)):
        return Topic.HANDSHAKES
    groups = [column for column in plan.root.columns if column.name in series.key_columns and column.name != "link"]
    if any(column.type in ADDRESSES for column in groups):
        return Topic.TALKERS
    return Topic.PROTOCOLS if groups else Topic.OVERVIEW
