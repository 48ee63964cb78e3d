"""The HTTP server: `/metrics` for Prometheus, and for users the live page or a list of the queries.

A run also has `/healthz` and `/readyz`, for supervisors (`dashboards.prometheus.health`).

The server runs in the process that captures, and clients must not disturb this process. So the resources of clients are
limited:

    connections        MAX_CONNECTIONS in total, MAX_PER_CLIENT per address; each has a thread and a file descriptor
    time               CONNECTION_SECONDS from accept to the last byte of the answer, even if bytes arrive often
    size               MAX_REQUEST_LINE_BYTES in the request line, MAX_HEAD_BYTES with all headers; a body is never read
    work               one answer is computed at a time, except for the live page, which has its own limits

The live page holds the connections of its event streams longer than CONNECTION_SECONDS, and limits their number.
If the process has no free file descriptor, the server waits and tries again. `dashboards.http_counts` counts these
waits, and rejected connections and requests.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import ipaddress
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import Any, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app
from prometheus_client.exposition import choose_encoder, gzip_accepted

from capture.descriptors import is_shortage
from dashboards.http_counts import HttpCounts
from dashboards.prometheus.access import Access, Guard
from dashboards.prometheus.exporter import Exporter
from dashboards.prometheus.health import Health
from highlevel.plan.plan import Plan


def render_index_page(plans: Sequence[Plan]) -> bytes:
    """Render the list of queries in UTF-8: plain HTML without scripts and external styles.

    Its only link is `/metrics`.
    """
    queries = "\n".join(
        f"<h2>{escape(plan.name)}</h2>\n<p>from {escape(', '.join(plan.streams))}</p>\n<pre>{escape(plan.sql)}</pre>"
        for plan in plans
    )
    page = f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Wiretide</title>
<style>
body {{ font: 1rem/1.5 sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
h2 {{ margin: 1.5rem 0 0; }}
p {{ margin: 0.25rem 0; }}
pre {{ white-space: pre-wrap; background: #f3f3f3; padding: 0.5rem; }}
</style>
<h1>Wiretide</h1>
<p>The last closed window of each query, and the counters of the pipeline, are at <a href="/metrics">/metrics</a>.</p>
{queries}
</html>
"""
    return page.encode()


CONNECTION_SECONDS = 10.0
"""Maximum time of a connection: the default timeout of Prometheus."""

MAX_CONNECTIONS, MAX_PER_CLIENT = 32, 16
MAX_REQUEST_LINE_BYTES, MAX_HEAD_BYTES = 4096, 16384

ACCEPT_RETRY_SECONDS = 0.2
"""Seconds until the next accept, if there was no free file descriptor."""

PORT = 9464
"""Default port. The Prometheus exporters of OpenTelemetry have the same default."""


OPTION = "port under [metrics] of the pipeline file"
"""The setting of a pipeline file that contains the port."""

OPEN = Access()
"""No conditions: every request is answered."""

HEADERS = [
    ("Server", "wiretide"),
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
]
"""Headers of every answer: a browser must not guess content types, run scripts, or show the page in a frame."""


class Site(Protocol):
    """A page for users. It is also a prometheus-client collector."""

    def serves(self, path: str) -> bool:
        """Return True if the page answers this path."""

    def respond(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a GET request. `environ["wiretide.hold"]()` removes the time limit of the connection."""

    def close(self) -> None:
        """End all event streams. No other event ends them."""

    def describe(self) -> Iterator[Any]:
        """Yield every metric family without samples."""

    def collect(self) -> Iterator[Any]:
        """Yield every metric family with its samples."""


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

BUSY = b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Server:
    """A running server. `url` ends in a slash; metrics are at `url` + `metrics`.

    Must be closed; it is a context manager.
    """

    def __init__(self, http: _HTTPServer, url: str, exporter: Exporter, site: Site | None) -> None:
        self.url = url
        self._registry = exporter.registry
        self._collectors: list[Any] = [http.counts, *([site] if site is not None else [])]
        for collector in self._collectors:
            self._registry.register(collector)
        self._site = site
        self.port: int = http.server_port
        self._http = http
        self._lock = Lock()
        self._closed = False
        # shutdown() waits up to the poll interval. The default of half a second would delay Ctrl-C.
        self._thread = Thread(target=http.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server. On return the port is free and all threads have ended. May be called again."""
        with self._lock:
            if not self._closed:
                self._http.shutdown()
                self._thread.join()
                if self._site is not None:
                    self._site.close()
                self._http.end_connections()
                self._http.server_close()
                for collector in self._collectors:
                    self._registry.unregister(collector)
                self._closed = True

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def serve(
    exporter: Exporter,
    host: str = "127.0.0.1",
    port: int = PORT,
    option: str = OPTION,
    connection_seconds: float = CONNECTION_SECONDS,
    site: Site | None = None,
    access: Access = OPEN,
    health: Health | None = None,
) -> Server:
    """Serve `exporter` on `host` (a name, an IPv4 or an IPv6 address) and `port` (0: any free port).

    * `option`: the name of the port setting in messages. `connection_seconds`: maximum time of a connection.
    * `site`: the live page; by default `/` is a list of the queries.
    * `access`: TLS and authentication, for all paths. `health`: the answers about the health of a run.

    Raises OSError with host and port if the server cannot use them, ValueError for a number that is not a port.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"got the port {port}, expected 0 (any free port) to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        http = _HTTPServer(family, (str(address[0]), port), connection_seconds, access.tls)
    except OSError as error:
        advice = "choose another address to serve metrics on"
        if error.errno == errno.EADDRINUSE:
            advice = f"another program uses this port: choose another port with {option}, or 0 for any free port"
        raise OSError(error.errno, f"cannot serve metrics on {host} port {port}: {error.strerror}; {advice}") from error
    local = host if _is_loopback(str(address[0])) else None
    http.set_app(_make_application(exporter, http.counts, local, site, access, health))
    # A client cannot connect to the address that means all interfaces.
    reachable = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    scheme = "http" if access.tls is None else "https"
    host_text = f"[{reachable}]" if ":" in reachable else reachable
    return Server(http, f"{scheme}://{host_text}:{http.server_port}/", exporter, site)


def _make_application(
    exporter: Exporter, counts: HttpCounts, local: str | None, site: Site | None, access: Access, health: Health | None
) -> Application:
    """Return the WSGI application. `local` is the configured host if it is a loopback address, otherwise None."""
    selected = make_wsgi_app(exporter.registry)
    page = render_index_page(exporter.plans)
    one_at_a_time = Lock()
    guard = Guard(access)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], *exception_info: Any) -> Any:
            given = {name for name, _ in headers}
            common = [(name, value) for name, value in HEADERS if name not in given]
            return start_response(status, [*headers, *common], *exception_info)

        def respond(status: str, text: str, *headers: tuple[str, str]) -> Iterable[bytes]:
            start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
            return [text.encode()]

        if environ["REQUEST_METHOD"] != "GET":
            counts.reject("method")
            return respond("405 Method Not Allowed", "expected GET\n", ("Allow", "GET"))
        if local is not None and not is_local_name(environ.get("HTTP_HOST"), local):
            counts.reject("host")
            return respond("403 Forbidden", "the header Host names another machine: expected localhost or an address\n")
        if not guard.allows(environ.get("HTTP_AUTHORIZATION")):
            counts.reject("authorization")
            return respond("401 Unauthorized", "expected a user or a token\n", ("WWW-Authenticate", access.challenge))
        path = environ["PATH_INFO"]
        if path == "/metrics":
            with one_at_a_time:
                if "name[]" in environ.get("QUERY_STRING", "") or "name%5B%5D" in environ.get("QUERY_STRING", ""):
                    return selected(environ, start)
                encode, content_type = choose_encoder(environ.get("HTTP_ACCEPT", ""))
                text = exporter.exposition(encode, content_type)
            headers = [("Content-Type", content_type)]
            if gzip_accepted(environ.get("HTTP_ACCEPT_ENCODING", "")):
                # The text is repetitive, so the fastest level gives nearly the smallest size, in a fifth of the time.
                text = gzip.compress(text, 1)
                headers.append(("Content-Encoding", "gzip"))
            start("200 OK", headers)
            return [text]
        if site is not None and site.serves(path):
            return site.respond(environ, start)
        if health is not None and (answer := health.respond(path)) is not None:
            return respond(*answer)
        if path in ("", "/"):
            start("200 OK", [("Content-Type", "text/html; charset=utf-8")])
            return [page]
        return respond("404 Not Found", "unknown path: expected / or /metrics\n")

    return app


def is_local_name(header: str | None, configured: str) -> bool:
    """Return True if the header Host of a request to a loopback address names this machine.

    The name of a web site may resolve to 127.0.0.1. Then the pages of the site can read the answers of a server on this
    machine (DNS rebinding). In this attack, the header contains the name of the web site. So names other than
    `localhost` and `configured` are refused, and all addresses are accepted.

    >>> [is_local_name(name, "127.0.0.1") for name in ("localhost:9464", "[::1]:9464", "127.0.0.1", None)]
    [True, True, True, True]
    >>> is_local_name("attacker.example:9464", "127.0.0.1")
    False
    """
    if header is None:  # the client is not a browser, because all browsers send the header
        return True
    name = header.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.rstrip(".")
    if name == configured.lower() or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


class _Handler(WSGIRequestHandler):
    """Reads one request with a bounded head, and answers it."""

    server: _HTTPServer

    def setup(self) -> None:
        """Limit each wait for the client. The server also limits the time of the whole connection, which is shorter."""
        self.timeout = 2 * self.server.seconds  # type: ignore[misc]
        super().setup()

    def handle(self) -> None:
        """Read the head, then answer the request."""
        head = bytearray()
        line = b""
        while line not in (b"\r\n", b"\n"):
            line = self.rfile.readline((MAX_HEAD_BYTES if head else MAX_REQUEST_LINE_BYTES) - len(head) + 1)
            if not line:
                return  # the client has disconnected, or the time of the connection is over
            too_long = len(head) + len(line) > (MAX_HEAD_BYTES if head else MAX_REQUEST_LINE_BYTES)
            if too_long:
                self._refuse(431 if head else 414)
                return
            head += line
        connection, self.rfile = self.rfile, io.BytesIO(head)
        try:
            super().handle()
        finally:
            self.rfile = connection

    def _refuse(self, status: int) -> None:
        self.server.counts.reject("size")
        self.requestline, self.request_version, self.command = "", "HTTP/1.0", "GET"
        self.send_error(status)

    def get_environ(self) -> dict[str, Any]:
        """Return the WSGI environment, with a function that removes the time limit of the connection."""
        return super().get_environ() | {"wiretide.hold": lambda: self.server.hold(self.connection)}

    def version_string(self) -> str:
        """Return the header `Server` of error answers, without the version of Python."""
        return "wiretide"

    def end_headers(self) -> None:
        """Add the common headers to error answers too, because the application does not create these answers."""
        for name, value in HEADERS[1:]:
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *args: Any, **named: Any) -> None:
        """Do not log requests, because Prometheus sends a request every few seconds for months."""


class _HTTPServer(ThreadingMixIn, WSGIServer):
    """Serves each connection in a thread. Closing the server joins the threads."""

    daemon_threads = False
    block_on_close = True
    # With reuse, two programs could share a port, and each would receive a part of the scrapes.
    allow_reuse_port = False
    request_queue_size = 64

    def __init__(self, family: int, address: tuple[str, int], seconds: float, tls: ssl.SSLContext | None) -> None:
        self.address_family = family
        self._tls = tls
        self.counts = HttpCounts()
        self.seconds = seconds
        self._deadlines: dict[socket.socket, float] = {}  # end of the allowed time (monotonic) by connection
        self._client_by_connection: dict[socket.socket, str] = {}
        self._clients: Counter[str] = Counter()
        self._lock = Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind the address without looking up the name of this machine, because that can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. If the process has no free descriptor, wait, and leave the connection in the queue."""
        try:
            connection = super().get_request()
        except OSError as error:
            if is_shortage(error):
                self.counts.retry()
                time.sleep(ACCEPT_RETRY_SECONDS)
            raise
        self.counts.accept()
        return connection

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Add a connection to the open connections, or refuse it if there are too many."""
        client = str(client_address[0])
        with self._lock:
            cause = None
            if len(self._deadlines) >= MAX_CONNECTIONS:
                cause = "connections"
            elif self._clients[client] >= MAX_PER_CLIENT:
                cause = "client"
            else:
                self._deadlines[request] = time.monotonic() + self.seconds
                self._client_by_connection[request] = client
                self._clients[client] += 1
        if cause is not None:
            self.counts.refuse(cause)
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(BUSY)
        return cause is None

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the requests of a connection in a separate thread. So a slow TLS handshake delays no other client."""
        try:
            if self._tls is not None:
                request = self._add_tls(request, self._tls)
                request.do_handshake()
            self.finish_request(request, client_address)
        except Exception as error:
            if isinstance(error, ssl.SSLError):
                self.counts.reject("tls")
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)

    def _add_tls(self, request: Any, tls: ssl.SSLContext) -> ssl.SSLSocket:
        """Return the connection with TLS, before its handshake.

        `request` cannot be used any more.
        """
        request.settimeout(2 * self.seconds)
        with self._lock:
            secured = tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
            if request in self._deadlines:
                self._deadlines[secured] = self._deadlines.pop(request)
                self._client_by_connection[secured] = self._client_by_connection.pop(request)
        return secured

    def service_actions(self) -> None:
        """End the connections whose time is over. The server calls this several times per second."""
        now = time.monotonic()
        with self._lock:
            expired = [request for request, deadline in self._deadlines.items() if deadline <= now]
            for request in expired:
                self._deadlines[request] = float("inf")  # end the connection only once; its thread removes the entry
        for request in expired:
            self.counts.reject("deadline")
            _shut_down(request)

    def hold(self, request: Any) -> None:
        """Remove the time limit of a connection.

        The limit of each wait still ends a connection to a client that does not receive.
        """
        with self._lock:
            if request in self._deadlines:
                self._deadlines[request] = float("inf")

    def shutdown_request(self, request: Any) -> None:
        """Remove a connection from the open connections, and close it."""
        with self._lock:
            self._deadlines.pop(request, None)
            client = self._client_by_connection.pop(request, None)
            if client is not None:
                self._clients[client] -= 1
                if not self._clients[client]:
                    del self._clients[client]
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """End all connections. Otherwise closing would wait for idle connections, which browsers keep open."""
        with self._lock:
            connections = list(self._deadlines)
        for request in connections:
            _shut_down(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors of the server. A client that disconnects or stops sending is not an error."""
        error = sys.exception()
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            self.counts.refuse("threads")
        elif not isinstance(error, OSError):
            super().handle_error(request, client_address)


def _shut_down(request: socket.socket) -> None:
    try:
        request.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        if error.errno not in (errno.ENOTCONN, errno.EBADF):
            raise
