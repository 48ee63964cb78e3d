"""Each kind of receiver against a real server: forms, repetitions, secrets, and texts from the wire.

Every test compares the whole message that a server has received.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dashboards.alerts import receivers as receivers_module
from dashboards.alerts.messages import Message
from dashboards.alerts.receivers import DeliveryError, alert_of, make_mail, send
from queries.pipeline.alert_settings import Receiver
from tests.harness.alert_receivers import Answer, datagram_receiver, http_receiver, mail_receiver, stream_receiver
from tests.harness.alert_rules import evaluation, messages
from tests.harness.certificates import server_context

HOSTILE = 'a\r\nBcc: b@e.org\n.\n\x1b[2J\u202e\x85"<script>{{x}} é 😀'
"""A text of a sender: line breaks, a header, the end of a mail, a terminal sequence, markup, other letters."""


@pytest.fixture
def alert(tmp_path: Path) -> tuple[Message, Message]:
    """The messages that an alert is firing and that it has ended."""
    rule = '[alerts.scan]\nquery = "scans"\nwhere = "packets > 100"\nseverity = "critical"\nsummary = "{srcIP} scans"\n'
    begin, end = messages(evaluation(rule, tmp_path), [(1, "10.0.0.1", 200, 7)], until=2)
    return begin, end


def hostile(message: Message) -> Message:
    """The message with a text of a sender in every place that can have one."""
    evidence = [{**message["evidence"][0], "srcIP": HOSTILE, HOSTILE: HOSTILE}]
    return {**message, "summary": HOSTILE, "labels": {"name": HOSTILE}, "evidence": evidence}


def failure(receiver: Receiver, sent: Sequence[Message]) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        send(receiver, sent)
    return error.value


# File


def test_a_file_receives_lines_of_json_and_may_be_renamed(alert: tuple[Message, Message], tmp_path: Path) -> None:
    path = tmp_path / "alerts.jsonl"
    receiver = Receiver("log", "file", str(path))
    send(receiver, alert)
    path.rename(tmp_path / "alerts.jsonl.1")
    send(receiver, alert[1:])
    assert [json.loads(line) for line in (tmp_path / "alerts.jsonl.1").read_text().splitlines()] == [*alert]
    assert [json.loads(line) for line in path.read_text().splitlines()] == [alert[1]]


def test_a_file_keeps_its_mode_and_a_text_from_the_wire_is_one_line(
    alert: tuple[Message, Message], tmp_path: Path
) -> None:
    path = tmp_path / "alerts.jsonl"
    path.touch(0o640)
    path.chmod(0o640)
    send(Receiver("log", "file", str(path)), [hostile(alert[0])])
    (line,) = path.read_text("utf-8").splitlines()
    assert json.loads(line) == hostile(alert[0])
    assert all(character.isprintable() for character in line)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_written_is_tried_again(alert: tuple[Message, Message], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("none/alerts", "No such file or directory"),
        ("", "Is a directory"),
        ("pipe", "No such device or address"),
    ):
        path = tmp_path / name
        error = failure(Receiver("log", "file", str(path)), alert)
        assert (str(error), error.final) == (f"receivers.log: file {path}: {reason}", False)
    if Path("/dev/full").exists():
        error = failure(Receiver("log", "file", "/dev/full"), alert)
        assert str(error) == "receivers.log: file /dev/full: got a pipe or device, expected a regular file"


# Webhook


def test_a_webhook_receives_all_messages_in_one_request(alert: tuple[Message, Message], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with http_receiver() as server:
        sent = [alert[0], hostile(alert[1])]
        send(Receiver("hook", "webhook", f"{server.url}/hook?a=b", tmp_path / "token"), sent)
    ((path, headers, content),) = server.requests
    assert (path, content) == ("/hook?a=b", {"messages": sent})
    expected = {"Content-Type": "application/json", "User-Agent": "wiretide", "Authorization": "Bearer secret"}
    assert expected.items() <= headers.items()


@pytest.mark.parametrize(
    ("answer", "reason", "final", "wait"),
    [
        ((500, {}, b""), "status 500", False, 0),
        ((503, {"Retry-After": "7"}, b"busy"), "status 503: busy", False, 7),
        ((429, {"Retry-After": "3600"}, b""), "status 429", False, 600),
        ((408, {}, b""), "status 408", False, 0),
        ((400, {}, b"bad\n\x1b[2J" + b"x" * 1000), "status 400: bad\\n\\x1b[2J" + "x" * 292, True, 0),
        ((401, {}, b""), "status 401", True, 0),
        ((404, {}, b""), "status 404", True, 0),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), "status 302", True, 0),
    ],
)
def test_answers_of_a_webhook_decide_about_repetitions(
    answer: Answer, reason: str, final: bool, wait: float, alert: tuple[Message, Message]
) -> None:
    with http_receiver(answer) as server:
        error = failure(Receiver("hook", "webhook", f"{server.url}/secret/path"), alert)
    assert str(error) == f"receivers.hook: webhook {server.url}: {reason}"
    assert (error.final, error.wait, len(server.requests)) == (final, wait, 1)


def test_an_unreachable_webhook_is_tried_again(alert: tuple[Message, Message]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = failure(Receiver("hook", "webhook", f"http://127.0.0.1:{port}/path"), alert)
    assert str(error) == f"receivers.hook: webhook http://127.0.0.1:{port}: Connection refused"
    assert not error.final


def test_a_server_without_http_is_tried_again(alert: tuple[Message, Message]) -> None:
    with stream_receiver(reset=True) as (url, _):
        error = failure(Receiver("hook", "webhook", url.replace("tcp", "http")), alert)
    assert not error.final


def test_a_server_without_an_answer_is_tried_again(
    alert: tuple[Message, Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers_module, "TIMEOUT", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for kind, scheme in (("webhook", "http"), ("alertmanager", "http"), ("mail", "smtp")):
            receiver = Receiver("r", kind, f"{scheme}://{address}", sender="w@e.org", to=("a@e.org",))
            error = failure(receiver, alert)
            assert str(error).startswith(f"receivers.r: {kind} {scheme}://{address}: ")
            assert str(error).endswith("timed out")
            assert not error.final


def test_certificates_of_servers_are_verified(
    alert: tuple[Message, Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_receiver(tls=server_context(tmp_path)) as server:
        receiver = Receiver("hook", "webhook", server.url)
        error = failure(receiver, alert)
        assert "certificate verify failed" in str(error)
        assert not error.final
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        send(receiver, alert)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("content", "reason"), [(None, " cannot be read: No such file or directory"),
                                                 (b"a\nX: y", ": expected one line of text"),
                                                 (b" \n", ": expected one line of text"),
                                                 (b"\xff", (" cannot be read: 'utf-8' codec can't decode byte 0xff in "
                                                  "position 0: invalid start byte"))])  # fmt: skip
def test_a_wrong_file_of_a_token_is_tried_again(
    content: bytes | None, reason: str, alert: tuple[Message, Message], tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    error = failure(Receiver("hook", "webhook", "http://127.0.0.1:9", tmp_path / "token"), alert)
    assert str(error) == f"receivers.hook: webhook http://127.0.0.1:9: {tmp_path}/token{reason}"
    assert not error.final


# Alertmanager


def test_an_alert_of_alertmanager_has_the_identity_in_labels_and_the_rest_in_annotations(
    alert: tuple[Message, Message],
) -> None:
    begin, end = alert
    now = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
    expected = {
        "labels": {"alertname": "scan", "severity": "critical", "src_ip": "10.0.0.1"},
        "annotations": {
            "id": begin["id"],
            "summary": "10.0.0.1 scans",
            "state": "final",
            "reason": "true",
            "query": "scans",
            "sql": begin["sql"],
            "condition": "packets > 100",
            "began": "1970-01-01T00:01:00Z",
            "since": "1970-01-01T00:00:00Z",
            "rows": "1",
            "window": '{"start": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:01:00Z"}',
            "evidence": json.dumps(begin["evidence"]),
        },
        "startsAt": "1970-01-01T00:01:00Z",
        "endsAt": "2026-11-24T12:04:00Z",
    }
    assert alert_of(begin, now) == expected
    ended = {**expected["annotations"], "reason": "false", "ended": "1970-01-01T00:02:00Z"}
    assert alert_of(end, now) == {**expected, "annotations": ended, "endsAt": "1970-01-01T00:02:00Z"}


@pytest.mark.parametrize(
    ("began", "ended", "starts_at", "ends_at"),
    [
        (-60, None, -60, 240),
        (60, None, 0, 240),  # a wrong clock of the capture: an Alertmanager refuses alerts that end before they begin
        (-60, -30, -60, -30),
        (-60, 60, -60, 0),
        (60, 120, 0, 0),
    ],
)
def test_times_of_alertmanager_are_not_in_the_future_and_an_alert_lives_for_several_repetitions(
    began: int, ended: int | None, starts_at: int, ends_at: int, alert: tuple[Message, Message]
) -> None:
    now = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)

    def text(seconds: int) -> str:
        return (now + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    message = {**alert[0 if ended is None else 1], "began": text(began)}
    if ended is not None:
        message["ended"] = text(ended)
    made = alert_of(message, now)
    assert (made["startsAt"], made["endsAt"]) == (text(starts_at), text(ends_at))


def test_alertmanager_receives_all_alerts_in_one_request(alert: tuple[Message, Message], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with http_receiver() as server:
        send(Receiver("am", "alertmanager", f"{server.url}/prefix", tmp_path / "token"), [*alert, hostile(alert[0])])
    ((path, headers, content),) = server.requests
    assert (path, headers["Authorization"]) == ("/prefix/api/v2/alerts", "Bearer secret")
    assert [item["annotations"]["summary"] for item in content] == ["10.0.0.1 scans", "10.0.0.1 scans", HOSTILE]
    assert content[2]["labels"] == {"alertname": "scan", "severity": "critical", "name": HOSTILE}


# Syslog

LINE = re.compile(
    rb"<(\d+)>1 (\S+) (\S+) wiretide \d+ (\S+) - (firing|ended) scan srcIP=\"10\.0\.0\.1\" began=\S+(?: ended=\S+)? "
    rb"id=(\S+) 10\.0\.0\.1 scans"
)


def check_lines(lines: Sequence[bytes], alert: tuple[Message, Message]) -> None:
    """Check that lines have the form of RFC 5424, and the times and IDs of the alert."""
    matches = [LINE.fullmatch(line) for line in lines]
    host = socket.gethostname().encode()
    assert [match.groups() if match else None for match in matches] == [
        (b"130", b"1970-01-01T00:01:00Z", host, b"scan", b"firing", alert[0]["message"].encode()),
        (b"130", b"1970-01-01T00:02:00Z", host, b"scan", b"ended", alert[1]["message"].encode()),
    ]


def test_syslog_over_udp_receives_a_datagram_for_each_message(alert: tuple[Message, Message]) -> None:
    with datagram_receiver() as (url, server):
        send(Receiver("log", "syslog", url), alert)
        check_lines([server.recv(65_536), server.recv(65_536)], alert)


def test_syslog_over_tcp_receives_frames_with_octet_counts(alert: tuple[Message, Message]) -> None:
    with stream_receiver() as (url, received):
        send(Receiver("log", "syslog", url), alert)
    check_lines(frames(received[0]), alert)


def frames(content: bytes) -> list[bytes]:
    lines = []
    while content:
        length, _, content = content.partition(b" ")
        lines.append(content[: int(length)])
        content = content[int(length) :]
    return lines


def test_a_local_syslog_receives_lines_as_of_syslog_3(alert: tuple[Message, Message], tmp_path: Path) -> None:
    with datagram_receiver(tmp_path / "log") as (url, server):
        send(Receiver("log", "syslog", url), alert)
        lines = [server.recv(65_536), server.recv(65_536)]
    pattern = rb"<130>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d wiretide\[\d+\]: (firing|ended) scan srcIP=.*"
    assert [match[1] for line in lines if (match := re.fullmatch(pattern, line))] == [b"firing", b"ended"]


@pytest.mark.parametrize(("severity", "priority"), [("critical", 130), ("error", 131), ("warning", 132), ("info", 134),
                                                    ("page-me", 133)])  # fmt: skip
def test_severities_of_syslog(severity: str, priority: int, alert: tuple[Message, Message]) -> None:
    with datagram_receiver() as (url, server):
        send(Receiver("log", "syslog", url), [{**alert[0], "severity": severity}])
        assert server.recv(65_536).startswith(b"<%d>1 " % priority)


def test_a_text_from_the_wire_is_one_line_of_ascii_in_syslog(alert: tuple[Message, Message], tmp_path: Path) -> None:
    long = {**alert[0], "summary": "é" * 3000}
    with datagram_receiver() as (url, server), datagram_receiver(tmp_path / "log") as (local_url, local):
        for target in (url, local_url):
            send(Receiver("log", "syslog", target), [hostile(alert[0]), long])
        lines = [server.recv(65_536), server.recv(65_536), local.recv(65_536), local.recv(65_536)]
    with stream_receiver() as (url, received):
        send(Receiver("log", "syslog", url), [hostile(alert[0]), long])
    lines += frames(received[0])
    assert all(line.decode("ascii").isprintable() for line in lines)
    assert [len(line) for line in lines[1::2]] == [2048] * 3
    assert all(rb"a\r\nBcc: b@e.org\n.\n\x1b[2J\u202e\x85" in line for line in lines[::2])


def test_a_syslog_server_that_ends_before_it_has_read_is_tried_again(alert: tuple[Message, Message]) -> None:
    with stream_receiver(reset=True) as (url, _):
        error = failure(Receiver("log", "syslog", url), alert)
    assert (error.final, str(error).partition(": syslog ")[0]) == (False, "receivers.log")


def test_a_missing_local_socket_is_tried_again(alert: tuple[Message, Message], tmp_path: Path) -> None:
    error = failure(Receiver("log", "syslog", f"unix://{tmp_path}/none"), alert)
    assert (str(error), error.final) == (
        f"receivers.log: syslog unix://{tmp_path}/none: No such file or directory", False,
    )  # fmt: skip


# Mail

MAIL: Mapping[str, Any] = {"sender": "wiretide@example.org", "to": ("a@example.org", "b@example.org")}


def test_a_mail_contains_all_messages_with_their_evidence(alert: tuple[Message, Message]) -> None:
    with mail_receiver() as server:
        send(Receiver("mail", "mail", server.url, **MAIL), alert)
    ((sender, recipients, mail),) = server.mails
    assert (sender, recipients) == ("wiretide@example.org", ["a@example.org", "b@example.org"])
    headers = {name: mail[name] for name in ("Subject", "From", "To", "Message-ID", "Auto-Submitted")}
    assert headers == {
        "Subject": "[firing] 10.0.0.1 scans and 1 more",
        "From": "wiretide@example.org",
        "To": "a@example.org, b@example.org",
        "Message-ID": f"<{alert[0]['message']}@wiretide>",
        "Auto-Submitted": "auto-generated",
    }
    lines = mail.get_content().replace("\r\n", "\n")
    assert (
        lines
        == f"""\
firing: 10.0.0.1 scans
rule: scan
severity: critical
state: final
reason: true
began: 1970-01-01T00:01:00Z
query: scans
condition: packets > 100
message: {alert[0]["message"]}
srcIP: 10.0.0.1
evidence, 1 of 1 rows:
  window_start 1970-01-01T00:00:00Z, window_end 1970-01-01T00:01:00Z, srcIP 10.0.0.1, packets 200, bytes 7

ended: 10.0.0.1 scans
rule: scan
severity: critical
state: final
reason: false
began: 1970-01-01T00:01:00Z
ended: 1970-01-01T00:02:00Z
query: scans
condition: packets > 100
message: {alert[1]["message"]}
srcIP: 10.0.0.1
evidence, 1 of 1 rows:
  window_start 1970-01-01T00:00:00Z, window_end 1970-01-01T00:01:00Z, srcIP 10.0.0.1, packets 200, bytes 7
"""
    )


def test_a_text_from_the_wire_is_no_header_and_no_line_of_a_mail(alert: tuple[Message, Message]) -> None:
    plain, changed = alert[0], hostile(alert[0])
    with mail_receiver() as server:
        for message in (plain, changed):
            send(Receiver("mail", "mail", server.url, **MAIL), [message])
    (_, _, mail), (_, recipients, hostile_mail) = server.mails
    assert recipients == ["a@example.org", "b@example.org"]
    assert hostile_mail.keys() == mail.keys()
    assert hostile_mail["Subject"].startswith(r"[firing] a\r\nBcc: b@e.org\n.\n\x1b[2J\u202e\x85")
    lines = hostile_mail.get_content().splitlines()
    assert len(lines) == len(mail.get_content().splitlines())
    assert all(line.isprintable() for line in lines)


def test_a_mail_about_many_alerts_has_details_of_the_first_and_lines_of_the_others(
    alert: tuple[Message, Message],
) -> None:
    many = [{**alert[0], "summary": f"alert {number}"} for number in range(1000)]
    mail = make_mail(Receiver("mail", "mail", "smtp://h", **MAIL), many)
    lines = mail.get_content().splitlines()
    assert mail["Subject"] == "[firing] alert 0 and 999 more"
    assert sum(line.startswith("evidence") for line in lines) == 20
    assert lines[-980:] == [f"1970-01-01T00:01:00Z firing: alert {number}" for number in range(20, 1000)]
    assert len(bytes(mail)) < 100_000


@pytest.mark.filterwarnings("ignore:Requiring AUTH", "ignore:Session.login_data")  # of the mail server
@pytest.mark.parametrize("implicit", [False, True])
def test_a_password_is_sent_only_over_a_verified_connection(
    implicit: bool, alert: tuple[Message, Message], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("secret\n")
    options = {**MAIL, "user": "wiretide", "secret": tmp_path / "password", "starttls": not implicit}
    with mail_receiver(server_context(tmp_path), implicit=implicit) as server:
        receiver = Receiver("mail", "mail", server.url, **options)
        error = failure(receiver, alert)
        assert "certificate verify failed" in str(error)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        send(receiver, alert)
        (tmp_path / "password").write_text("wrong")
        error = failure(receiver, alert)
        assert "status 535" in str(error)
        assert not error.final  # the user can correct the file
    assert {*server.logins} == {("wiretide", "secret", True), ("wiretide", "wrong", True)}
    assert len(server.mails) == 1


def test_a_server_without_starttls_receives_nothing(alert: tuple[Message, Message]) -> None:
    with mail_receiver() as server:
        error = failure(Receiver("mail", "mail", server.url, **MAIL, starttls=True), alert)
    assert str(error) == f"receivers.mail: mail {server.url}: STARTTLS extension not supported by server."
    assert (error.final, server.mails) == (False, [])


@pytest.mark.parametrize(
    ("refusals", "data_answer", "reason", "final", "mails"),
    [
        ({"a@example.org": "550 no such user"}, "250 OK", ("recipient a@example.org refused with status 550: no such "
         "user; the other recipients accepted the mail"), True, 1),
        ({"a@example.org": "550 no", "b@example.org": "550 no"}, "250 OK", ("recipient a@example.org refused with "
         "status 550: no; recipient b@example.org refused with status 550: no"), True, 0),
        ({"a@example.org": "450 later", "b@example.org": "450 later"}, "250 OK", ("recipient a@example.org refused "
         "with status 450: later; recipient b@example.org refused with status 450: later"), False, 0),
        ({}, "451 try again", "status 451: try again", False, 0),
        ({}, "554 spam", "status 554: spam", True, 0),
    ],
)  # fmt: skip
def test_answers_of_a_mail_server_decide_about_repetitions(
    refusals: dict[str, str], data_answer: str, reason: str, final: bool, mails: int, alert: tuple[Message, Message]
) -> None:
    with mail_receiver() as server:
        server.refusals, server.data_answer = refusals, data_answer
        error = failure(Receiver("mail", "mail", server.url, **MAIL), alert)
    assert (str(error), error.final) == (f"receivers.mail: mail {server.url}: {reason}", final)
    assert len(server.mails) == mails
