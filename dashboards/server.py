"""The exporter over HTTP: `/metrics` for Prometheus, `/` for people."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterable
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import make_wsgi_app

from dashboards.exporter import Exporter
from dashboards.index_page import index_page

IDLE_SECONDS = 10
"""A connection that says nothing for so long is closed, so that silent clients cannot pile up threads."""

PORT = 9464
"""The port OpenTelemetry's Prometheus exporters use by default; free on most machines."""


OPTION = "--port, or port under [metrics] of the pipeline file"
"""How pipelines are told which port to take."""


class Server:
    """A running server; `url` ends in a slash, metrics are at `url` + `metrics`. Close it, or use it in a `with`."""

    def __init__(self, http: _HTTPServer, url: str) -> None:
        self.url = url
        self.port: int = http.server_port
        self._http = http
        self._lock = Lock()
        self._closed = False
        # shutdown() is noticed within the poll interval; half a second, the default, would be felt at Ctrl-C.
        self._thread = Thread(target=http.serve_forever, args=(0.05,), name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; the port is free and no thread is left when this returns. Closing again does nothing."""
        with self._lock:
            if not self._closed:
                self._http.shutdown()
                self._thread.join()
                self._http.hang_up()
                self._http.server_close()
                self._closed = True

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def serve(exporter: Exporter, host: str = "127.0.0.1", port: int = PORT, option: str = OPTION) -> Server:
    """Serve `exporter` on `host` (a name, an IPv4 or an IPv6 address) and `port`; port 0 takes any free one.

    `option` is what a user chooses another port with. Raises OSError, naming both, where they cannot be had, and
    ValueError for what is no port.
    """
    if not 0 <= port <= 65535:
        raise ValueError(f"a port is 0 (any free one) to 65535, got {port}")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        http = _HTTPServer(family, (str(address[0]), port))
    except OSError as error:
        advice = "choose another address to serve metrics on"
        if error.errno == errno.EADDRINUSE:
            advice = f"another program has it: choose another with {option}; 0 takes any that is free"
        raise OSError(error.errno, f"cannot serve metrics on {host} port {port}: {error.strerror}; {advice}") from error
    http.set_app(_routes(exporter))
    # All interfaces are no address to connect to.
    named = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
    return Server(http, f"http://{f'[{named}]' if ':' in named else named}:{http.server_port}/")


def _routes(exporter: Exporter) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    metrics = make_wsgi_app(exporter.registry)
    page = index_page(exporter.plans)

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return metrics(environ, start_response)
        found = path in ("", "/")
        kind = "text/html" if found else "text/plain"
        start_response("200 OK" if found else "404 Not Found", [("Content-Type", f"{kind}; charset=utf-8")])
        return [page if found else f"nothing at {path}; there are / and /metrics\n".encode()]

    return app


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, *args: Any, **named: Any) -> None:
        """Log nothing: a request every few seconds for months is no news."""


class _HTTPServer(ThreadingMixIn, WSGIServer):
    """A thread per connection, each of them joined when the server closes."""

    daemon_threads = False
    block_on_close = True
    # Two programs on one port would each get a part of the scrapes.
    allow_reuse_port = False

    def __init__(self, family: int, address: tuple[str, int]) -> None:
        self.address_family = family
        self._open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, which can take seconds and is not needed."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection until it is closed."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End all connections: a browser keeps some open without asking anything, and their threads would wait."""
        for request in self._open.copy():
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError as error:
                if error.errno not in (errno.ENOTCONN, errno.EBADF):
                    raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors of ours; a client that went away or fell silent is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
