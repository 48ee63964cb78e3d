"""Servers that receive messages about alerts: HTTP, syslog over UDP, TCP and a local socket, and mail."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default as default_policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword

Answer = tuple[int, Mapping[str, str], bytes]
"""Status, headers and content of an answer."""


@dataclass
class HttpReceiver:
    """A server that records requests. It gives the answers in turn, and accepts all requests after the last one."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    """Path, headers and JSON of each request."""


@contextmanager
def http_receiver(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[HttpReceiver]:
    """Run an HTTP server on a free port."""
    receiver = HttpReceiver("", list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.requests.append((self.path, dict(self.headers), json.loads(content)))
            status, headers, text = receiver.answers.pop(0) if receiver.answers else (200, {}, b"ok")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        receiver.url = f"{'http' if tls is None else 'https'}://localhost:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def datagram_receiver(path: Path | None = None) -> Iterator[tuple[str, socket.socket]]:
    """Open a socket for datagrams: UDP on a free port, or a local one at `path`. Yield its URL and the socket."""
    family = socket.AF_INET if path is None else socket.AF_UNIX
    with socket.socket(family, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0) if path is None else str(path))
        receiver.settimeout(60)
        yield (f"udp://127.0.0.1:{receiver.getsockname()[1]}" if path is None else f"unix://{path}"), receiver


@contextmanager
def stream_receiver(*, reset: bool = False) -> Iterator[tuple[str, list[bytes]]]:
    """Accept TCP connections on a free port. Yield the URL, and a list to which the bytes of each are added.

    With `reset` each connection is closed before its bytes are read, as by a server that is killed.
    """
    received: list[bytes] = []

    def accept() -> None:
        with contextlib.suppress(OSError):  # of a listener that is shut down
            while True:
                connection, _ = listener.accept()
                with connection:
                    if reset:
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        continue
                    content = b""
                    while part := connection.recv(4096):
                        content += part
                    received.append(content)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}", received
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@dataclass
class MailReceiver:
    """A mail server that records mails. It refuses recipients with the texts in `refusals`."""

    url: str = ""
    mails: list[tuple[str, list[str], EmailMessage]] = field(default_factory=list)
    """Sender, recipients and content of each mail."""
    refusals: dict[str, str] = field(default_factory=dict)
    data_answer: str = "250 OK"
    is_encrypted: bool = False
    logins: list[tuple[str, str, bool]] = field(default_factory=list)
    """User, password, and whether the connection was encrypted, of each login."""

    async def handle_RCPT(self, server: Any, session: Any, envelope: Envelope, address: str, options: Any) -> str:
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        if self.data_answer.startswith("250"):
            mail = BytesParser(EmailMessage, policy=default_policy).parsebytes(content)
            self.mails.append((str(envelope.mail_from), list(envelope.rcpt_tos), mail))
        return self.data_answer

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: LoginPassword) -> AuthResult:
        user, password = data.login.decode(), data.password.decode()
        self.logins.append((user, password, self.is_encrypted or session.ssl is not None))
        return AuthResult(success=password == "secret", handled=False)


@contextmanager
def mail_receiver(tls: ssl.SSLContext | None = None, *, implicit: bool = False) -> Iterator[MailReceiver]:
    """Run a mail server on a free port. With `tls` it requires a login, which it offers after STARTTLS.

    `implicit`: connections are encrypted from the beginning.
    """
    receiver = MailReceiver(is_encrypted=implicit)
    options: dict[str, Any] = {"hostname": "localhost"}
    if tls is not None:
        options |= {"authenticator": receiver.authenticate, "auth_required": True}
        options |= {"auth_require_tls": not implicit, "tls_context": None if implicit else tls}
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        factory = functools.partial(SMTP, receiver, loop=loop, **options)
        server = await loop.create_server(factory, "127.0.0.1", 0, ssl=tls if implicit else None)
        port = server.sockets[0].getsockname()[1]
        receiver.url = f"{'smtps' if implicit else 'smtp'}://localhost:{port}"
        async with server:
            ready.set()
            await stopped.wait()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    stopped = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()
