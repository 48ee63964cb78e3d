"""The receivers of messages: file, webhook, Alertmanager, syslog and mail.

| kind | form |
| --- | --- |
| file | JSON lines, appended |
| webhook | POST of JSON: `{"messages": [...]}` |
| alertmanager | POST of `/api/v2/alerts` |
| syslog | RFC 5424 over UDP, and over TCP with octet counts (RFC 6587 §3.4.1); local sockets as in syslog(3) |
| mail | one mail for the messages of one delivery, by SMTP |

Any text in a message may come from captured packets, so it may contain any character. JSON keeps texts exactly. Syslog
lines and mails contain escaped control characters.
"""

from __future__ import annotations

import contextlib
import json
import os
import smtplib
import socket
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from capture.errors import WiretideError
from capture.private_files import SHARED_FILE_MODE
from dashboards.alerts.messages import ENDED, Message, rfc3339
from dashboards.prometheus.names import label_name
from dashboards.wire_text import escape, escape_json
from queries.pipeline.alert_settings import Receiver

TIMEOUT = 5.0
"""Seconds within which a receiver must accept a connection, and within which each of its answers must arrive."""

RESEND = 60.0
"""Seconds between two messages to an Alertmanager about an alert that is still firing."""

ALERT_LIFETIME = timedelta(seconds=4 * RESEND)
"""If an Alertmanager receives no message about an alert for this time, it ends the alert."""

MAX_MESSAGES = {"mail": 1_000}
"""Maximum number of messages of one delivery, by kind of receiver; 100 for the other kinds."""

DETAILED_MESSAGES = 20
"""Number of messages in a mail that have labels and evidence. Each further message is one line."""

RETRIED_STATUSES = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""Status codes below 500 after which the same request may succeed later."""

MAX_RETRY_SECONDS = 600.0
"""Maximum number of seconds that a receiver may request with Retry-After."""

FACILITY = 16
"""The facility of syslog: local0."""

PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6}
"""Syslog severities by the severity of the rule. All other words are sent as 5, notice."""

MAX_LINE_BYTES = 2048
"""Maximum bytes of a message to syslog. Receivers should accept messages of this size (RFC 5424 §6.1)."""

SMTP_PORTS, SYSLOG_PORT = {"smtp": 25, "smtps": 465}, 514

Send = Callable[[Receiver, Sequence[Message]], None]


class DeliveryError(WiretideError):
    """A receiver did not accept messages. `final`: True if it never will. Otherwise try again after `wait` seconds."""

    def __init__(self, text: str, *, final: bool = False, wait: float = 0.0) -> None:
        super().__init__(text)
        self.final, self.wait = final, wait


def send(receiver: Receiver, messages: Sequence[Message]) -> None:
    """Send messages to a receiver, and return when it has accepted them. Raises DeliveryError."""
    try:
        _SENDERS[receiver.kind](receiver, messages)
    except (OSError, HTTPException, smtplib.SMTPException) as error:
        raise _make_error(receiver, _reason(error), final=_is_final(error)) from error


def _make_error(receiver: Receiver, reason: str, *, final: bool = False, wait: float = 0.0) -> DeliveryError:
    text = f"receivers.{receiver.name}: {receiver.kind} {receiver.destination}: {escape(reason)}"
    return DeliveryError(text, final=final, wait=wait)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError):
        return _reason(error.reason) if isinstance(error.reason, Exception) else str(error.reason)
    if isinstance(error, smtplib.SMTPResponseException):
        text = error.smtp_error
        return f"status {error.smtp_code}: {text.decode(errors='replace') if isinstance(text, bytes) else text}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _describe_refusals(error.recipients)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _append(receiver: Receiver, messages: Sequence[Message]) -> None:
    """Append the messages to a file with one write, so that each line is either complete or missing.

    The file is opened for each delivery, so a program may rename it. It is created with the user's umask.
    """
    lines = "".join(escape_json(json.dumps(message, ensure_ascii=False)) + "\n" for message in messages).encode()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(receiver.target, flags, SHARED_FILE_MODE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("got a pipe or device, expected a regular file")
        if os.write(descriptor, lines) != len(lines):
            os.ftruncate(descriptor, status.st_size)
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
    """Return a message as an alert of Alertmanager's API.

    Alertmanager identifies an alert by its labels: the labels of the message, the rule and the severity. Everything
    else is an annotation. Alertmanager refuses an alert that begins after its end, so a begin in the future is
    replaced by the current time.
    """
    began = min(now, datetime.fromisoformat(message["began"]))
    ends = now + ALERT_LIFETIME
    if message["status"] == ENDED:
        ends = max(began, min(now, datetime.fromisoformat(message["ended"])))
    labels = {label_name(name): text for name, text in message["labels"].items() if text}
    annotations = {
        name: message[name]
        for name in ("id", "summary", "state", "reason", "query", "sql", "condition", "began", "since", "ended")
    }
    for name in ("rows", "window", "evidence"):
        annotations[name] = json.dumps(message[name], ensure_ascii=False)
    return {
        "labels": {**labels, "alertname": message["rule"], "severity": message["severity"]},
        "annotations": {name: text for name, text in annotations.items() if text},
        "startsAt": rfc3339(began),
        "endsAt": rfc3339(ends),
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error, because the token must not reach another server."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(receiver: Receiver, url: str, content: object) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "wiretide"}
    if receiver.secret is not None:
        headers["Authorization"] = f"Bearer {_read_secret(receiver.secret)}"
    request = urllib.request.Request(url, json.dumps(content).encode(), headers, method="POST")
    try:
        # The opener is made for each request, so that a renewed file of certificates has an effect.
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
            answer.read(4096)
    except urllib.error.HTTPError as error:
        with error:
            text = error.read(300).decode(errors="replace").strip()
            is_final = error.code < 500 and error.code not in RETRIED_STATUSES
            reason = f"status {error.code}" + (f": {text}" if text else "")
            wait = _retry_after(error.headers.get("Retry-After", ""), datetime.now(UTC))
            raise _make_error(receiver, reason, final=is_final, wait=wait) from error


def _retry_after(value: str, now: datetime) -> float:
    """Return the seconds of the header Retry-After, a number or a date (RFC 9110 §10.2.3); 0 for other texts.

    >>> now = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
    >>> [_retry_after(value, now) for value in ("7", "Tue, 24 Nov 2026 12:01:30 GMT", "86400", "soon", "-5")]
    [7.0, 90.0, 600.0, 0.0, 0.0]
    """
    try:
        seconds = float(value) if value.isdecimal() else (parsedate_to_datetime(value) - now).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_SECONDS)


def _read_secret(path: Path) -> str:
    try:
        secret = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"{path} cannot be read: {_reason(error)}") from error
    if not secret.isprintable() or not secret:
        raise OSError(f"{path}: expected one line of text")
    return secret


def _send_syslog(receiver: Receiver, messages: Sequence[Message]) -> None:
    parts = urlsplit(receiver.target)
    if parts.scheme == "unix":
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as local:
            local.settimeout(TIMEOUT)
            local.connect(parts.path)
            for message in messages:
                local.send(_local_line(message))
        return
    lines = [_syslog_line(message) for message in messages]
    address = (parts.hostname or "", parts.port or SYSLOG_PORT)
    if parts.scheme == "tcp":
        _send_frames(address, lines)
        return
    family, _, _, _, resolved = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)[0]
    with contextlib.closing(socket.socket(family, socket.SOCK_DGRAM)) as udp:
        for line in lines:
            udp.sendto(line, resolved)


def _send_frames(address: tuple[str, int], lines: Sequence[bytes]) -> None:
    """Send frames over a connection, and wait until the receiver closes it.

    Syslog has no answers. If a receiver ends before it has read everything, it resets the connection, which is an
    error. A receiver that keeps the connection open for TIMEOUT seconds has read the frames.
    """
    with socket.create_connection(address, TIMEOUT) as tcp:
        tcp.sendall(b"".join(b"%d %s" % (len(line), line) for line in lines))
        tcp.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            while tcp.recv(4096):
                pass


def _syslog_line(message: Message) -> bytes:
    """Return a message as a line of RFC 5424. Its timestamp is the time of the alert."""
    head = f"<{_priority(message)}>1 {message['ended'] or message['began']} {_host_name()} wiretide {os.getpid()}"
    return _truncate_line(f"{head} {message['rule'][:32]} - {_syslog_text(message)}")


def _local_line(message: Message) -> bytes:
    """Return a message as a line of syslog(3), because the local socket does not accept RFC 5424."""
    now = time.strftime("%b %e %H:%M:%S")
    return _truncate_line(f"<{_priority(message)}>{now} wiretide[{os.getpid()}]: {_syslog_text(message)}")


def _priority(message: Message) -> int:
    return FACILITY * 8 + PRIORITIES.get(message["severity"], 5)


def _syslog_text(message: Message) -> str:
    labels = "".join(f" {name}={json.dumps(text, ensure_ascii=False)}" for name, text in message["labels"].items())
    times = f" began={message['began']}" + (f" ended={message['ended']}" if message["ended"] else "")
    return f"{message['status']} {message['rule']}{labels}{times} id={message['message']} {message['summary']}"


def _truncate_line(line: str) -> bytes:
    """Return a line as ASCII of at most MAX_LINE_BYTES, because RFC 5424 requires a byte order mark for other texts."""
    return escape(line).encode("ascii", "backslashreplace")[:MAX_LINE_BYTES]


def _host_name() -> str:
    name = socket.gethostname()
    return name[:255] if name and name.isascii() and name.isprintable() and " " not in name else "-"


def _send_mail(receiver: Receiver, messages: Sequence[Message]) -> None:
    mail = make_mail(receiver, messages)
    parts = urlsplit(receiver.target)
    address = (parts.hostname or "", parts.port or SMTP_PORTS[parts.scheme])
    context = ssl.create_default_context() if receiver.starttls or parts.scheme == "smtps" else None
    server = (
        smtplib.SMTP_SSL(*address, timeout=TIMEOUT, context=context)
        if parts.scheme == "smtps"
        else smtplib.SMTP(*address, timeout=TIMEOUT)
    )
    with server:
        if receiver.starttls:
            server.starttls(context=context)
        if receiver.secret is not None:
            server.login(receiver.user, _read_secret(receiver.secret))
        refused = server.send_message(mail)
    if refused:  # by some recipients only: the mail is not repeated, because the others have accepted it
        raise _make_error(
            receiver, f"{_describe_refusals(refused)}; the other recipients accepted the mail", final=True
        )


def make_mail(receiver: Receiver, messages: Sequence[Message]) -> EmailMessage:
    """Return a mail about messages: the first DETAILED_MESSAGES with labels and evidence, one line for each other."""
    mail = EmailMessage()
    first = messages[0]
    more = f" and {len(messages) - 1:,} more" if len(messages) > 1 else ""
    mail["Subject"] = f"[{first['status']}] {escape(first['summary'])[:150]}{more}"
    mail["From"], mail["To"] = receiver.sender, ", ".join(receiver.to)
    mail["Date"] = datetime.now(UTC)
    mail["Message-ID"] = f"<{first['message']}@wiretide>"
    mail["Auto-Submitted"] = "auto-generated"
    paragraphs = ["\n".join(_mail_lines(message)) for message in messages[:DETAILED_MESSAGES]]
    if further := messages[DETAILED_MESSAGES:]:
        paragraphs.append("\n".join(f"{message['began']} {_headline(message)}" for message in further))
    mail.set_content("\n\n".join(paragraphs) + "\n", cte="quoted-printable")
    return mail


def _headline(message: Message) -> str:
    return f"{message['status']}: {escape(message['summary'])}"


def _mail_lines(message: Message) -> list[str]:
    """Return the lines about a message. Line breaks in texts are escaped, so no text can imitate a line."""
    names = ("rule", "severity", "state", "reason", "began", "ended", "query", "condition", "absent", "message")
    values = {**{name: message[name] for name in names if message[name]}, **message["labels"]}
    lines = [_headline(message), *(escape(f"{name}: {value}") for name, value in values.items())]
    if message["evidence"]:
        lines.append(f"evidence, {len(message['evidence'])} of {message['rows']} rows:")
        rows = (", ".join(f"{name} {value}" for name, value in row.items()) for row in message["evidence"])
        lines += [f"  {escape(row)}" for row in rows]
    return lines


def _describe_refusals(recipients: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(
        f"recipient {name} refused with status {code}: {text.decode(errors='replace')}"
        for name, (code, text) in recipients.items()
    )


def _is_final(error: Exception) -> bool:
    """Return True if a mail server will never accept a mail: an error of a recipient or of the mail itself."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 550 for code, _ in error.recipients.values())
    return isinstance(error, smtplib.SMTPSenderRefused | smtplib.SMTPDataError) and error.smtp_code >= 550


_SENDERS: dict[str, Send] = {
    "file": _append,
    "webhook": _post_webhook,
    "alertmanager": _post_alerts,
    "syslog": _send_syslog,
    "mail": _send_mail,
}
