"""A live page without a pipeline: results of queries over seeded rows, a history, and a server on a free port."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from capture.metrics import METRICS as CAPTURE_METRICS
from capture.metrics import PACKETS_DECODED, RECORDS_READ, Samples
from capture.units import SECOND
from dashboards.alerts.alerts import Alerts
from dashboards.alerts.evaluation import Evaluation
from dashboards.page.history import History
from dashboards.page.site import Site
from dashboards.page.views import Views
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.server import Server, serve
from highlevel.metrics import METRICS as HIGH_METRICS
from highlevel.plan.plan import Plan
from lowlevel.expressions.types import Type
from queries.gsql import compile_query
from queries.pipeline.file import parse_pipeline

START = 1_700_000_000
QUERIES = {
    "talkers": "SELECT srcIP, count(*) AS n, sum(len) AS bytes, avg(len) AS mean FROM Main [RANGE 10 seconds] "
    "GROUP BY srcIP",
    "pairs": "SELECT srcIP, protocol, destIP, count(*) AS n, sum(len) AS bytes, max(len) AS largest "
    "FROM Main [RANGE 10 seconds] GROUP BY srcIP, protocol, destIP",
    "total": "SELECT count(*) AS packets FROM Main [RANGE 10 seconds]",
    "rows": "SELECT ts, srcIP, len FROM Main WHERE len > 1400",
    "sessions": "SELECT srcIP, count(*) AS n FROM Main [SESSION 5 seconds] GROUP BY srcIP",
    "names": "SELECT getlpmid(srcIP, '{names}') AS name, count(*) AS n FROM Main [RANGE 10 seconds] GROUP BY name",
}


def window_rows(plan: Plan, number: int, rows: list[Mapping[str, Any]]) -> pa.Table:
    """Return rows of a window of 10 s of a query. `number` counts windows from START."""
    start = (START + 10 * number) * SECOND
    bounds = {"window_start": start, "window_end": start + 10 * SECOND}
    return pa.Table.from_pylist([{**bounds, **row} for row in rows], plan.schema)


def drawn_rows(random: Random, plan: Plan, groups: int) -> list[dict[str, Any]]:
    """Return a row for each of `groups` groups, with values of the plan's types."""
    drawn: list[dict[str, Any]] = []
    for group in range(groups):
        row: dict[str, Any] = {}
        for column in plan.root.columns:
            if column.type is Type.ADDRESS:
                row[column.name] = bytes([10, 0, group // 256, group % 256])
            elif column.type is Type.TEXT:
                row[column.name] = f"name {group}"
            elif column.type is Type.FLOAT:
                row[column.name] = random.random() * 1000
            elif not column.name.startswith("window_"):
                row[column.name] = random.randrange(1, 10**6)
        drawn.append(row)
    return drawn


@dataclass
class LivePage:
    """A served page. `history` receives windows."""

    plans: dict[str, Plan]
    exporter: Exporter
    history: History
    site: Site
    server: Server | None
    alerts: Alerts | None = None
    seconds: float = 0.0
    """The time of the page's clock."""

    @property
    def url(self) -> str:
        """URL of the server, with a slash at its end."""
        assert self.server is not None
        return self.server.url


@contextmanager
def live_page(
    folder: Path, *names: str, served: bool = True, keep: int = 10**6 * SECOND, size: int = 1 << 30, rules: str = ""
) -> Iterator[LivePage]:
    """Open a page over the queries `names` of QUERIES, by default talkers and total. The file is in `folder`.

    `rules`: sections of a pipeline file with alerts.
    """
    watchlist = folder / "names.tbl"
    if not watchlist.exists():
        watchlist.write_text("10.0.0.0/8 a\n")
    texts = {name: QUERIES[name].format(names=watchlist) for name in names or ("talkers", "total")}
    plans = {name: compile_query(sql, name) for name, sql in texts.items()}
    exporter = Exporter(plans.values(), (*CAPTURE_METRICS, *HIGH_METRICS))
    samples = Samples()
    samples.set(RECORDS_READ, 1000, "Main")
    samples.set(PACKETS_DECODED, 900, "Main")
    exporter.set_samples(samples)
    history = History(folder / "history.sqlite", list(plans.values()), exporter.series, keep, size, print)
    alerts = None
    if rules:
        queries = "".join(f"[queries.{name}]\nsql = {json.dumps(sql)}\n" for name, sql in texts.items())
        settings = parse_pipeline(f'[links]\nMain = "main.pcap"\n{queries}{rules}', folder).alerts
        evaluated = Evaluation(settings, list(plans.values()), exporter.series)
        alerts = Alerts(settings, evaluated, folder, print)
        alerts.continue_after(0)
    page: LivePage
    site = Site(history, Views(history, lambda: exporter.current_samples, alerts, clock=lambda: page.seconds))
    page = LivePage(plans, exporter, history, site, None, alerts, float(START))
    page.server = server = serve(exporter, port=0, site=site) if served else None
    try:
        yield page
    finally:
        if server is not None:
            server.close()
        if alerts is not None:
            alerts.close()
        history.close()
