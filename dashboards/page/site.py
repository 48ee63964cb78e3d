"""The paths of the live page: its files, the state of the pipeline, charts, windows, queries, and the stream of events.

/                         the page            /api/state     queries, links and counters
/page.js, /page.css, …    its files           /api/chart     a value of a query over a range of windows
/events                   closed windows      /api/window    the rows of a window
/api/query                the answer of a query over the stored windows
/api/alerts               alerts that are firing, and the last ones that have ended
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from threading import Lock
from typing import Any
from urllib.parse import parse_qs

from capture.errors import WiretideError
from capture.metrics import BYTES_READ, PACKETS_DECODED, RECORDS_READ, Metric, Samples
from dashboards.alerts.alerts import Alerts
from dashboards.page.charts import make_chart
from dashboards.page.events import Events
from dashboards.page.history import History, Window
from dashboards.page.metrics import EVENTS_SKIPPED, METRICS, PAGE_QUERIES, STREAMS, STREAMS_REFUSED
from dashboards.page.query_box import QueryBox, QueryTimeError
from dashboards.page.rows import rows_of
from dashboards.prometheus.exporter import Family, family_of
from dashboards.wire_text import escape
from highlevel.metrics import LATE_PARTIALS, LOW_WATERMARK, PUNCTUATION_LAG, RESULT_ROWS, WINDOWS_CLOSED
from highlevel.plan.plan import Plan

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/worker.js": ("worker.js", "text/javascript; charset=utf-8"),
    "/uPlot.iife.min.js": ("uPlot.iife.min.js", "text/javascript; charset=utf-8"),
    "/uPlot.min.css": ("uPlot.min.css", "text/css; charset=utf-8"),
}
"""Files by path: the name in the folder `static`, and the type of the content."""

MAX_STREAMS = 8
"""Largest number of streams of events at the same time."""

MAX_WINDOWS = 2_000
"""Largest number of windows of a chart."""

MAX_MESSAGES = 200
"""Largest number of alerts on the page that are firing, and that have ended."""

MAX_GROUPS = 20
"""Largest number of groups of a chart."""

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; worker-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads only its own files. uPlot sets styles of elements, so inline styles are allowed."""

LINK_METRICS: Mapping[str, Metric] = {"records": RECORDS_READ, "packets": PACKETS_DECODED, "bytes": BYTES_READ}
QUERY_METRICS: Mapping[str, Metric] = {"windows": WINDOWS_CLOSED, "rows": RESULT_ROWS, "late": LATE_PARTIALS}

_LINK = RECORDS_READ.labels.index("link")

Start = Callable[[str, list[tuple[str, str]]], Any]


class RequestError(WiretideError):
    """A request with a wrong parameter."""


class Site:
    """Answers the requests of the page over a history. `samples` returns the counters of the pipeline. Thread safe."""

    def __init__(
        self, history: History, samples: Callable[[], Mapping[Any, float]], alerts: Alerts | None = None
    ) -> None:
        self.history = history
        self._alerts = alerts
        self._samples = samples
        self._static = {path: _static(name) for path, (name, _) in FILES.items()}
        self._box = QueryBox(history)
        self._events = Events(history, self._count_skipped)
        self._lock = Lock()
        self._streams = 0
        self._counts: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def close(self) -> None:
        """End all streams of events."""
        self._events.close()

    def serves(self, path: str) -> bool:
        """Return True if the page has this path."""
        return path in FILES or path == "/events" or path.startswith("/api/")

    def respond(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer a GET request for one of the paths."""
        path = environ["PATH_INFO"]
        if path in FILES:
            start("200 OK", [("Content-Type", FILES[path][1]), ("Content-Security-Policy", CONTENT_POLICY)])
            return [self._static[path]]
        if environ.get("HTTP_SEC_FETCH_SITE") not in (None, "same-origin", "none"):
            return _error(
                start, "403 Forbidden", "another web site sent this request; expected the page of this server"
            )
        if path == "/events":
            return self._respond_events(environ, start)
        parameters = {name: values[-1] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        try:
            answer = self._answer(path, parameters)
        except WiretideError as error:
            return _error(start, "400 Bad Request", str(error))
        except sqlite3.Error as error:
            return _error(start, "500 Internal Server Error", f"{self.history.path}: cannot be read: {error}")
        if answer is None:
            return _error(start, "404 Not Found", f"unknown path {path}, or a window that is not stored any more")
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def _answer(self, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        if path == "/api/state":
            return self._state()
        if path == "/api/chart":
            return self._chart(parameters)
        if path == "/api/window":
            window = self.history.window(_number(parameters, "id", 0, 2**62))
            return None if window is None else self._window(window)
        if path == "/api/newest":
            window = self.history.newest_of(self._plan(parameters).name)
            return {"rows": []} if window is None else self._window(window)
        if path == "/api/alerts":
            return self._list_alerts()
        if path == "/api/query":
            return self._query(parameters.get("sql", ""))
        return None

    def _plan(self, parameters: Mapping[str, str]) -> Plan:
        name = parameters.get("query", "")
        if name not in self.history.plans:
            raise RequestError(f"got the query {name!r}, expected one of: {', '.join(self.history.plans)}")
        return self.history.plans[name]

    def _state(self) -> dict[str, Any]:
        """Return the queries and links with their counters, and the ID of the newest window."""
        samples = Samples(self._samples())
        queries = []
        for name, plan in self.history.plans.items():
            series = self.history.series.get(name)
            queries.append(
                {
                    "name": name,
                    "sql": plan.sql,
                    "links": list(plan.streams),
                    "windowed": self.history.has_windows(name),
                    "values": [value.column for value in series.values] if series is not None else [],
                    "rank": series.rank if series is not None else None,
                    **{title: samples.total(metric, query=name) for title, metric in QUERY_METRICS.items()},
                }
            )
        names = {labels[-1] for name, labels in samples if name == LOW_WATERMARK.name}
        names |= {labels[_LINK] for name, labels in samples if name == RECORDS_READ.name}
        links = [
            {
                "name": link,
                **{title: samples.total(metric, link=link) for title, metric in LINK_METRICS.items()},
                "watermark": min(_values_of(samples, LOW_WATERMARK, link), default=None),
                "lag": max(_values_of(samples, PUNCTUATION_LAG, link), default=None),
            }
            for link in sorted(names)
        ]
        return {"queries": queries, "links": links, "newest": self.history.newest, "alerts": self._alerts is not None}

    def _list_alerts(self) -> dict[str, Any]:
        """Return the alerts that are firing, and those that have ended, the newest first, with a limit for both.

        A summary mixes words of the rule with texts from the wire, which must not change their order. So it is escaped.
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

    def _chart(self, parameters: Mapping[str, str]) -> dict[str, Any]:
        plan = self._plan(parameters)
        series = self.history.series.get(plan.name)
        if series is None or not self.history.has_windows(plan.name) or series.rank is None:
            raise RequestError(f"the query {plan.name} has no values in windows, expected a query with both")
        seconds = _number(parameters, "seconds", 1, 10**9)
        groups = _number(parameters, "groups", 1, MAX_GROUPS)
        windows = self.history.range(plan.name, seconds * 10**9, MAX_WINDOWS)
        try:
            chart = make_chart(series, parameters.get("column") or series.rank, windows, groups)
        except ValueError as error:
            raise RequestError(str(error)) from error
        return {
            "column": chart.column,
            "ends": [end / 1e9 for end in chart.ends],
            "lines": [{"name": name, "values": values} for name, values in chart.lines],
            "other": chart.other,
        }

    def _window(self, window: Window) -> dict[str, Any]:
        plan = self.history.plans[window.query]
        bounds = {"start": window.start and window.start / 1e9, "end": window.end and window.end / 1e9}
        return {
            "id": window.id,
            "query": window.query,
            **bounds,
            "groups": window.groups,
            **rows_of(window.rows, plan.times, self.history.values_of(window.query)),
        }

    def _query(self, sql: str) -> dict[str, Any]:
        try:
            answer = self._box.answer(sql)
        except QueryTimeError:
            self._count(PAGE_QUERIES, "time")
            raise
        except WiretideError:
            self._count(PAGE_QUERIES, "wrong")
            raise
        self._count(PAGE_QUERIES, "answered")
        rows = rows_of(answer.rows, answer.plan.times, answer.values)
        return {**rows, "cut": answer.is_cut, "windows": answer.windows}

    def _respond_events(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        with self._lock:
            is_full = self._streams >= MAX_STREAMS
            if not is_full:
                self._streams += 1
        if is_full:
            self._count(STREAMS_REFUSED)
            return _error(start, "503 Service Unavailable", f"{MAX_STREAMS} pages receive events; close one of them")
        environ["wiretide.hold"]()
        given = environ.get("HTTP_LAST_EVENT_ID") or parse_qs(environ.get("QUERY_STRING", "")).get("last", [""])[-1]
        last_id = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
        start("200 OK", [("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no")])
        return _Stream(self._events.stream(last_id), self._end_stream)

    def _end_stream(self) -> None:
        with self._lock:
            self._streams -= 1

    def _count_skipped(self, windows: int) -> None:
        self._count(EVENTS_SKIPPED, amount=windows)

    def _count(self, metric: Metric, *labels: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[metric, labels] += amount

    def describe(self) -> Iterator[Family]:
        """Yield every metric family of the page without samples."""
        return (family_of(metric) for metric in METRICS)

    def collect(self) -> Iterator[Family]:
        """Yield every metric family of the page with its samples."""
        samples = Samples()
        self.history.count_samples(samples)
        with self._lock:
            samples.set(STREAMS, self._streams)
            for (metric, labels), amount in self._counts.items():
                samples.set(metric, amount, *labels)
        for metric in METRICS:
            family = family_of(metric)
            for (name, labels), value in samples.items():
                if name == metric.name:
                    family.add_metric(labels, value)
            yield family


class _Stream:
    """A stream of events as the body of an answer. The server closes it when the browser has disconnected."""

    def __init__(self, events: Iterable[bytes], end: Callable[[], None]) -> None:
        self._events = iter(events)
        self._end = end

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> bytes:
        return next(self._events)

    def close(self) -> None:
        self._end()


def _values_of(samples: Mapping[Any, float], metric: Metric, link: str) -> Iterator[float]:
    """Yield the values of a metric with the labels `query, link`, for a link."""
    return (value for (name, labels), value in samples.items() if name == metric.name and labels[-1] == link)


def _static(name: str) -> bytes:
    return (files("dashboards.page") / "static" / name).read_bytes()


def _error(start: Start, status: str, text: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "application/json")])
    return [json.dumps({"error": text}).encode()]


def _number(parameters: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = parameters.get(name, "")
    if text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most:
        return int(text)
    raise RequestError(f"got {name} = {text!r}, expected a whole number from {least} to {most}")
