"""The receivers of messages: file, webhook, Alertmanager, syslog and mail.

| kind | form |
| --- | --- |
| file | JSON lines, appended |
| webhook | POST of JSON: `{"messages": [...]}` |
| alertmanager | POST of `/api/v2/alerts` |
| syslog | RFC 5424; TCP frames with octet counts (RFC 6587 §3.4.1) |
| mail | one mail for the messages of one delivery, by SMTP |
"""

from __future__ import annotations

import contextlib
import json
import os
import smtplib
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from capture.errors import WiretideError
from capture.private_files import open_private
from dashboards.alerts.evaluation import Message
from dashboards.prometheus.names import label_name
from dashboards.wire_text import escape_lines
from queries.pipeline.alert_settings import Receiver

TIMEOUT = 5.0
"""Seconds until a receiver must have accepted a connection, and each answer."""

RESEND = 60.0
"""Seconds between two messages to an Alertmanager about an alert that is still firing."""

ALIVE = timedelta(seconds=4 * RESEND)
"""Time after which an Alertmanager ends an alert without further messages."""

RETRIED = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Status codes below 500 after which the same request may succeed later."""

FACILITY = 16
"""The facility of syslog: local0."""

PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6}
"""Severity of syslog by that of the rule; other words are 5, notice."""

SMTP_PORT, SYSLOG_PORT = 25, 514
LONGEST_LINE = 1024
"""Largest number of bytes of a message to syslog, which every receiver over UDP accepts in practice."""

Send = Callable[[Receiver, Sequence[Message]], None]


class DeliveryError(WiretideError):
    """A receiver did not accept messages. If `final`, it will never accept them."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


def send(receiver: Receiver, messages: Sequence[Message]) -> None:
    """Send messages to a receiver, and return when it has accepted them. Raises DeliveryError."""
    try:
        _SENDERS[receiver.kind](receiver, messages)
    except (OSError, smtplib.SMTPException) as error:
        final = isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= 550
        raise DeliveryError(f"receivers.{receiver.name}: {receiver.target}: {error}", final=final) from error


def _append(receiver: Receiver, messages: Sequence[Message]) -> None:
    """Append the messages to a file with one write, so that a line is complete or missing."""
    lines = "".join(json.dumps(message, ensure_ascii=False) + "\n" for message in messages).encode()
    descriptor = open_private(Path(receiver.target), os.O_WRONLY | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, lines) != len(lines):
            os.ftruncate(descriptor, size)
            raise OSError("the file system is full")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _post_webhook(receiver: Receiver, messages: Sequence[Message]) -> None:
    _post(receiver, receiver.target, {"messages": list(messages)})


def _post_alerts(receiver: Receiver, messages: Sequence[Message]) -> None:
    now = datetime.now(UTC)
    _post(receiver, f"{receiver.target}/api/v2/alerts", [alert_of(message, now) for message in messages])


def alert_of(message: Message, now: datetime) -> dict[str, Any]:
    """Return a message as an alert of Alertmanager's API. The labels are the identity, and nothing else is a label."""
    began, ends = datetime.fromisoformat(message["began"]), now + ALIVE
    if message["status"] == "ended":
        ends = max(began, min(now, datetime.fromisoformat(message["ended"])))
    labels = {label_name(name): text for name, text in message["labels"].items() if text}
    annotations = {
        name: message[name] for name in ("summary", "state", "query", "sql", "id", "began", "true_since", "ended")
    }
    annotations |= {"rows": str(message["rows"]), "evidence": json.dumps(message["evidence"], ensure_ascii=False)}
    return {
        "labels": {**labels, "alertname": message["rule"], "severity": message["severity"]},
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": _rfc3339(began),
        "endsAt": _rfc3339(ends),
    }


def _rfc3339(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer that accepts nothing: the token must not reach another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _post(receiver: Receiver, url: str, content: object) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "wiretide"}
    if receiver.token_file is not None:
        headers["Authorization"] = f"Bearer {_secret(receiver.token_file)}"
    request = urllib.request.Request(url, json.dumps(content).encode(), headers, method="POST")
    try:
        with _OPENER.open(request, timeout=TIMEOUT) as answer:
            answer.read(4096)
    except urllib.error.HTTPError as error:
        text = error.read(300).decode(errors="replace").strip()
        reason = f"receivers.{receiver.name}: {url}: status {error.code}{f': {escape_lines(text)}' if text else ''}"
        raise DeliveryError(reason, final=error.code < 500 and error.code not in RETRIED) from error


def _secret(path: Path) -> str:
    return path.read_text("utf-8").strip()


def _send_syslog(receiver: Receiver, messages: Sequence[Message]) -> None:
    parts = urlsplit(receiver.target)
    lines = [_syslog_line(message) for message in messages]
    if parts.scheme == "unix":
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as unix:
            unix.settimeout(TIMEOUT)
            unix.connect(parts.path)
            for line in lines:
                unix.send(line)
        return
    address = (parts.hostname or "", parts.port or SYSLOG_PORT)
    if parts.scheme == "tcp":
        with socket.create_connection(address, TIMEOUT) as tcp:
            tcp.sendall(b"".join(b"%d %s" % (len(line), line) for line in lines))
        return
    family, _, _, _, resolved = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as udp:
        for line in lines:
            udp.sendto(line, resolved)


def _syslog_line(message: Message) -> bytes:
    """Return the message of RFC 5424: its time is the time of the alert."""
    priority = FACILITY * 8 + PRIORITIES.get(message["severity"], 5)
    time = message["ended"] or message["began"]
    labels = "".join(f" {name}={json.dumps(text, ensure_ascii=False)}" for name, text in message["labels"].items())
    text = f"{message['status']} {message['rule']}{labels} id={message['message']} {message['summary']}"
    head = f"<{priority}>1 {time} {socket.gethostname() or '-'} wiretide {os.getpid()} {message['rule'][:32]} - "
    return f"{head}{escape_lines(text)}".encode()[:LONGEST_LINE].decode(errors="ignore").encode()


def _send_mail(receiver: Receiver, messages: Sequence[Message]) -> None:
    parts = urlsplit(receiver.target)
    mail = EmailMessage()
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    mail["Subject"] = escape_lines(f"[{first['status']}] {first['summary']}{more}").replace("\n", " ")[:200]
    mail["From"], mail["To"] = receiver.sender, ", ".join(receiver.to)
    mail["Message-ID"] = f"<{first['message']}@wiretide>"
    mail.set_content("\n\n".join(_mail_text(message) for message in messages))
    with smtplib.SMTP(parts.hostname or "", parts.port or SMTP_PORT, timeout=TIMEOUT) as server:
        if receiver.starttls:
            server.starttls()
        if receiver.user:
            server.login(receiver.user, _secret(receiver.token_file) if receiver.token_file is not None else "")
        server.send_message(mail)


def _mail_text(message: Message) -> str:
    names = ("rule", "severity", "state", "began", "ended", "query", "condition", "message")
    lines = [f"{message['status']}: {message['summary']}", ""]
    lines += [f"{name}: {message[name]}" for name in names if message[name]]
    lines += [f"{name}: {text}" for name, text in message["labels"].items()]
    lines += ["", f"evidence, {len(message['evidence'])} of {message['rows']} rows:"]
    lines += [", ".join(f"{name} {value}" for name, value in row.items()) for row in message["evidence"]]
    return escape_lines("\n".join(lines))


_SENDERS: dict[str, Send] = {
    "file": _append,
    "webhook": _post_webhook,
    "alertmanager": _post_alerts,
    "syslog": _send_syslog,
    "mail": _send_mail,
}
