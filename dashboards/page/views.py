"""The data of the live page as JSON: the state of the pipeline, the panel of a query, rows of a window, answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

from capture.errors import WiretideError
from capture.metrics import Metric, Samples
from dashboards.alerts.alerts import Alerts
from dashboards.page.charts import Line, make_chart
from dashboards.page.flows import make_flows, stages_of
from dashboards.page.history import History
from dashboards.page.links import LinkStates
from dashboards.page.query_box import QueryBox
from dashboards.page.rows import rows_of
from dashboards.page.stored_windows import KEPT_ROWS, Window
from dashboards.prometheus.query_series import SUM
from dashboards.units import unit_of
from dashboards.wire_text import escape
from highlevel.metrics import LATE_PARTIALS, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.plan.plan import Plan

MAX_WINDOWS = 2_000
"""Maximum number of windows of a chart."""

MAX_GROUPS = 20
"""Maximum number of groups of a chart."""

MAX_FLOWS = 50
"""Maximum number of flows of a diagram."""

MAX_MESSAGES = 200
"""Maximum number of firing alerts on the page, and of ended alerts."""

QUERY_METRICS: Mapping[str, Metric] = {"windows": WINDOWS_CLOSED, "rows": RESULT_ROWS, "late": LATE_PARTIALS}

Parameters = Mapping[str, str]


class RequestError(WiretideError):
    """A request with a wrong parameter."""


class Views:
    """Answers the requests of the page over a history.

    `samples` returns the counters of the pipeline, `clock` returns seconds since the epoch. `links`: names of links
    that are shown even before they have counters. Thread safe.
    """

    def __init__(
        self,
        history: History,
        samples: Callable[[], Mapping[Any, float]],
        alerts: Alerts | None = None,
        links: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._history = history
        self._samples = samples
        self._alerts = alerts
        self._clock = clock
        self._box = QueryBox(history)
        self._links = LinkStates()
        self._link_names = links
        self._lock = Lock()

    def plan(self, parameters: Parameters) -> Plan:
        """Return the plan that a request names. Raises RequestError for an unknown query."""
        name = parameters.get("query", "")
        if name not in self._history.plans:
            raise RequestError(f"got the query {name!r}, expected one of: {', '.join(self._history.plans)}")
        return self._history.plans[name]

    def state(self, _: Parameters) -> dict[str, Any]:
        """Return the queries and links with their counters, and the ID of the newest window."""
        samples, now = Samples(self._samples()), self._clock()
        with self._lock:
            links = self._links.observe(self._link_names, samples, now)
        return {
            "queries": [self._query_state(plan, samples) for plan in self._history.plans.values()],
            "links": links,
            "now": now,
            "newest": self._history.newest,
            "alerts": self._alerts is not None,
        }

    def _query_state(self, plan: Plan, samples: Samples) -> dict[str, Any]:
        series = self._history.series.get(plan.name)
        values = series.values if series is not None else ()
        return {
            "name": plan.name,
            "sql": plan.sql,
            "links": list(plan.streams),
            "windowed": self._history.has_windows(plan.name),
            "values": [
                {"name": value.column, "unit": unit_of(value.column).symbol, "adds": value.fold == SUM}
                for value in values
            ],
            "rank": series.rank if series is not None else None,
            "stages": list(stages_of(series)) if series is not None else [],
            **self._counts(plan, samples),
        }

    def _counts(self, plan: Plan, samples: Samples) -> dict[str, float]:
        return {title: samples.total(metric, query=plan.name) for title, metric in QUERY_METRICS.items()}

    def panel(self, parameters: Parameters) -> dict[str, Any]:
        """Return the panel of a query: its newest window, and for windows with values the chart of a range."""
        plan = self.plan(parameters)
        newest = self._history.stored.newest_of(plan.name)
        panel: dict[str, Any] = {
            "newest": None if newest is None else self._window(newest),
            "counts": self._counts(plan, Samples(self._samples())),
        }
        series = self._history.series.get(plan.name)
        if series is None or series.rank is None or not self._history.has_windows(plan.name):
            return panel
        seconds = number_of(parameters, "seconds", 1, 10**9)
        groups = number_of(parameters, "groups", 1, MAX_GROUPS)
        windows = self._history.stored.range(plan.name, seconds * 10**9, MAX_WINDOWS)
        try:
            chart = make_chart(series, parameters.get("column") or series.rank, windows, groups)
            panel["chart"] = {
                "column": chart.column,
                "ends": [end / 1e9 for end in chart.ends],
                "lines": [_line(line) for line in chart.lines],
                "other": None if chart.other is None else _line(chart.other),
            }
            if "flows" in parameters:
                flows = make_flows(series, chart.column, windows, number_of(parameters, "flows", 1, MAX_FLOWS))
                panel["flows"] = {
                    "column": flows.column,
                    "stages": flows.stages,
                    "paths": flows.paths,
                    "values": flows.values,
                    "other": flows.other,
                }
        except ValueError as error:
            raise RequestError(str(error)) from error
        return panel

    def window(self, parameters: Parameters) -> dict[str, Any] | None:
        """Return `count` rows of a window, beginning with the row `first`; None if the window is not stored."""
        window = self._history.stored.window(number_of(parameters, "id", 0, 2**62))
        if window is None:
            return None
        first = number_of(parameters, "first", 0, KEPT_ROWS)
        return self._window(window, first, number_of(parameters, "count", 1, KEPT_ROWS))

    def _window(self, window: Window, first: int = 0, count: int = KEPT_ROWS) -> dict[str, Any]:
        plan = self._history.plans[window.query]
        bounds = {"start": window.start and window.start / 1e9, "end": window.end and window.end / 1e9}
        return {
            "id": window.id,
            "query": window.query,
            **bounds,
            "final": self._history.is_final(window.query, window.end),
            "groups": window.groups,
            "stored": min(window.groups, KEPT_ROWS),
            "first": first,
            **rows_of(window.rows.slice(first, count), plan.times, self._history.values_of(window.query)),
        }

    def alerts(self, _: Parameters) -> dict[str, Any]:
        """Return the firing alerts and the ended alerts, at most MAX_MESSAGES of each, the newest first.

        A summary contains texts from packets, whose control characters could change the displayed order. So it is
        escaped.
        """
        if self._alerts is None:
            return {"total": 0, "firing": [], "ended": []}
        firing = sorted(self._alerts.firing_messages(), key=lambda message: message["began"], reverse=True)
        ended = self._alerts.ended_messages(MAX_MESSAGES)
        lists = {"firing": firing[:MAX_MESSAGES], "ended": ended}
        shown = {
            name: [{**message, "summary": escape(message["summary"])} for message in messages]
            for name, messages in lists.items()
        }
        return {"total": len(firing), **shown}

    def query(self, parameters: Parameters) -> dict[str, Any]:
        """Return the answer of a query over the stored windows."""
        answer = self._box.answer(parameters.get("sql", ""))
        rows = rows_of(answer.rows, answer.plan.times, answer.values)
        return {**rows, "cut": answer.is_truncated, "windows": answer.windows}


def _line(line: Line) -> dict[str, Any]:
    return {"name": line.name, "values": line.values, "total": line.total}


def number_of(parameters: Parameters, name: str, minimum: int, maximum: int) -> int:
    """Return a whole number of a request. Raises RequestError."""
    text = parameters.get(name, "")
    if text.isascii() and text.isdigit() and len(text) < 20 and minimum <= int(text) <= maximum:
        return int(text)
    raise RequestError(f"got {name} = {text!r}, expected a whole number from {minimum} to {maximum}")
