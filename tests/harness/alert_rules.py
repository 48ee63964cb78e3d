"""A pipeline with alert rules, its evaluation, and rows of its windows."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa

from capture.units import SECOND
from dashboards.alerts.evaluation import Evaluation
from dashboards.prometheus.pipeline_series import make_pipeline_series
from queries.pipeline.file import PipelineFile, parse_pipeline

MINUTE = 60 * SECOND

QUERIES = """
[links]
Main = "main.pcap"
[metrics]
port = 0
[queries.scans]
sql = "SELECT srcIP, count(*) AS packets, sum(len) AS bytes FROM Main [RANGE 1 minute] GROUP BY srcIP"
[queries.sessions]
sql = "SELECT srcIP, count(*) AS n FROM Main [SESSION 30 seconds] GROUP BY srcIP"
"""

Row = tuple[int, str, int, int]
"""A row of the query `scans`: the minute in which its window ends, the source address, packets and bytes."""


def pipeline(alerts: str, base: Path) -> PipelineFile:
    """Return the pipeline with the sections `alerts`."""
    return parse_pipeline(QUERIES + alerts, base)


def evaluation(alerts: str, base: Path) -> Evaluation:
    """Return the evaluation of the rules in `alerts`, without state."""
    return evaluation_of(pipeline(alerts, base))


def evaluation_of(file: PipelineFile) -> Evaluation:
    """Return the evaluation of the rules of a pipeline, without state."""
    plans = file.plans()
    return Evaluation(file.alerts, plans, make_pipeline_series(file, plans))


def scans(evaluated: Evaluation, rows: Iterable[Row]) -> dict[str, pa.Table]:
    """Return results of the query `scans`."""
    (plan,) = {rule.plan for rule in evaluated.rules if rule.plan.name == "scans"}
    records = [
        {
            "window_start": (minute - 1) * MINUTE,
            "window_end": minute * MINUTE,
            "srcIP": ip_address(address).packed,
            "packets": packets,
            "bytes": size,
        }
        for minute, address, packets, size in rows
    ]
    return {"scans": pa.Table.from_pylist(records, plan.schema)}


def messages(evaluated: Evaluation, rows: Iterable[Row], until: int | None = None) -> list[dict[str, Any]]:
    """Return the messages of the rules about windows, and about all windows up to the minute `until`."""
    watermarks = {} if until is None else {"scans": until * MINUTE}
    changes = evaluated.evaluate(scans(evaluated, rows), watermarks)
    return [rule.message(change) for rule, change in changes]
