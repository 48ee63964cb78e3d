"""The paths of the live page: its files, data as JSON, the stream of events, and exports.

/                         the page            /api/state     queries, links and counters
/page.js, /page.css, …    its files           /api/panel     the newest window of a query, its chart and its diagram
/events                   closed windows      /api/window    rows of a window
/export                   stored windows      /api/query     the answer of a query over the stored windows
                                              /api/alerts    alerts that are firing, and those that have ended
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, quote

from capture.errors import WiretideError
from capture.metrics import Metric, Samples
from dashboards.page.events import Events
from dashboards.page.exports import TYPES, Export
from dashboards.page.history import History
from dashboards.page.metrics import (
    EVENTS_SKIPPED,
    EXPORTS,
    METRICS,
    PAGE_QUERIES,
    STREAMS,
    STREAMS_REFUSED,
)
from dashboards.page.query_box import QueryTimeError
from dashboards.page.views import Parameters, RequestError, Views, number_of
from dashboards.prometheus.exporter import Family, family_of
from dashboards.prometheus.names import prometheus_name

SCRIPTS = (
    *("page.js", "text.js", "table.js", "chart.js", "flows.js", "links.js", "panel.js", "worker.js"),
    "uPlot.iife.min.js",
)
STYLES = ("page.css", "uPlot.min.css")
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in SCRIPTS},
    **{f"/{name}": (name, "text/css; charset=utf-8") for name in STYLES},
}
"""Files by path: the name in the folder `static`, and the type of the content."""

MAX_STREAMS = 8
"""Maximum number of simultaneous streams of events."""

MAX_EXPORTS = 2
"""Maximum number of simultaneous exports."""

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; worker-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page loads only its own files. uPlot sets styles of elements, so inline styles are allowed."""

Start = Callable[[str, list[tuple[str, str]]], Any]


class Site:
    """Answers the requests of the page with `views` over `history`. Thread safe."""

    def __init__(self, history: History, views: Views) -> None:
        self.history = history
        self._static = {path: _read_static_file(name) for path, (name, _) in FILES.items()}
        self._views = views
        self._events = Events(history, self._count_skipped)
        self._answers: Mapping[str, Callable[[Parameters], dict[str, Any] | None]] = {
            "/api/state": self._views.state,
            "/api/panel": self._views.panel,
            "/api/window": self._views.window,
            "/api/alerts": self._views.alerts,
            "/api/query": self._query,
        }
        self._lock = Lock()
        self._streams = self._exports = 0
        self._counts: Counter[tuple[Metric, tuple[str, ...]]] = Counter()

    def close(self) -> None:
        """End all streams of events."""
        self._events.close()

    def serves(self, path: str) -> bool:
        """Return True if the page has this path."""
        return path in FILES or path in ("/events", "/export") or path.startswith("/api/")

    def respond(self, environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        """Answer a GET request for one of the paths."""
        path = environ["PATH_INFO"]
        if path in FILES:
            start("200 OK", [("Content-Type", FILES[path][1]), ("Content-Security-Policy", CONTENT_POLICY)])
            return [self._static[path]]
        if environ.get("HTTP_SEC_FETCH_SITE") not in (None, "same-origin", "none"):
            return _respond_error(
                start, "403 Forbidden", "another web site sent this request; expected the page of this server"
            )
        parameters = {name: values[-1] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        if path == "/events":
            return self._respond_events(environ, parameters, start)
        try:
            if path == "/export":
                return self._respond_export(environ, parameters, start)
            answer = self._answers[path](parameters) if path in self._answers else None
        except WiretideError as error:
            return _respond_error(start, "400 Bad Request", str(error))
        except sqlite3.Error as error:
            return _respond_error(start, "500 Internal Server Error", f"{self.history.path}: cannot be read: {error}")
        if answer is None:
            return _respond_error(
                start, "404 Not Found", f"unknown path {path}, or a window that is not stored any more"
            )
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]

    def _query(self, parameters: Parameters) -> dict[str, Any]:
        try:
            answer = self._views.query(parameters)
        except QueryTimeError:
            self._count(PAGE_QUERIES, "time")
            raise
        except WiretideError:
            self._count(PAGE_QUERIES, "wrong")
            raise
        self._count(PAGE_QUERIES, "answered")
        return answer

    def _respond_events(self, environ: dict[str, Any], parameters: Parameters, start: Start) -> Iterable[bytes]:
        with self._lock:
            is_full = self._streams >= MAX_STREAMS
            if not is_full:
                self._streams += 1
        if is_full:
            self._count(STREAMS_REFUSED)
            return _respond_error(
                start, "503 Service Unavailable", f"{MAX_STREAMS} pages receive events; close one of them"
            )
        environ["wiretide.hold"]()
        given = environ.get("HTTP_LAST_EVENT_ID") or parameters.get("last", "")
        last_id = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
        start("200 OK", [("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no")])
        return _Body(self._events.stream(last_id), self._end_stream)

    def _end_stream(self) -> None:
        with self._lock:
            self._streams -= 1

    def _respond_export(self, environ: dict[str, Any], parameters: Parameters, start: Start) -> Iterable[bytes]:
        plan = self._views.plan(parameters)
        kind = next((kind for kind in TYPES if kind == parameters.get("format", "")), None)
        if kind is None:
            raise RequestError(f"got format = {parameters.get('format', '')!r}, expected one of: {', '.join(TYPES)}")
        length = number_of(parameters, "seconds", 1, 10**9) * 10**9 if "seconds" in parameters else None
        with self._lock:
            is_full = self._exports >= MAX_EXPORTS
            if not is_full:
                self._exports += 1
        if is_full:
            self._count(EXPORTS, "refused")
            return _respond_error(
                start, "503 Service Unavailable", f"{MAX_EXPORTS} exports are running; try again later"
            )
        try:
            export = Export(self.history, plan.name, length, kind)
        except OSError as error:
            self._end_export(None)
            return _respond_error(start, "503 Service Unavailable", f"the export cannot begin: {error.strerror}")
        environ["wiretide.hold"]()
        suffix, content_type = TYPES[kind]
        name = f"{prometheus_name(plan.name)}.{suffix}"
        disposition = f"attachment; filename=\"{name}\"; filename*=UTF-8''{quote(plan.name, safe='')}.{suffix}"
        start("200 OK", [("Content-Type", content_type), ("Content-Disposition", disposition)])
        return _Body(export, lambda: self._end_export(export))

    def _end_export(self, export: Export | None) -> None:
        if export is not None:
            export.close()
        with self._lock:
            self._exports -= 1
        self._count(EXPORTS, "complete" if export is not None and export.is_complete else "broken")

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


class _Body:
    """The body of an answer that may last long. The server closes it when the browser has disconnected."""

    def __init__(self, chunks: Iterable[bytes], end: Callable[[], None]) -> None:
        self._chunks = iter(chunks)
        self._end = end

    def __iter__(self) -> _Body:
        return self

    def __next__(self) -> bytes:
        return next(self._chunks)

    def close(self) -> None:
        self._end()


def _read_static_file(name: str) -> bytes:
    return (files("dashboards.page") / "static" / name).read_bytes()


def _respond_error(start: Start, status: str, text: str) -> Iterable[bytes]:
    start(status, [("Content-Type", "application/json")])
    return [json.dumps({"error": text}).encode()]
