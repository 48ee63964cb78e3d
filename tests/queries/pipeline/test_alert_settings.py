"""The sections [alerts] and [receivers] of a pipeline file: values, defaults, and the messages about wrong values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from capture.units import SECOND
from queries.pipeline.alert_settings import AlertRule, AlertSettings, Exclusion, Receiver
from queries.pipeline.file import parse_pipeline
from queries.pipeline.sections import PipelineError

PIPELINE = """
[links]
Main = "main.pcap"
[queries.scans]
sql = "SELECT srcIP, count(*) AS ports FROM Main [RANGE 1 minute] GROUP BY srcIP"
"""
WHOLE = """
[alerts]
silences = "silences.toml"

[alerts.scan]
query = "scans"
where = " ports > 100 "
labels = ["srcIP"]
for = "5m"
keep = "10m"
severity = "critical"
summary = "{srcIP} scans"
receivers = ["log", "hook"]
evidence = 100
exclude = [{ where = "srcIP = '10.0.0.5'", comment = "our scanner" }]

[alerts.silent]
query = "scans"
absent = "90s"
receivers = []

[receivers]
log = { kind = "file", path = "alerts.jsonl" }
hook = { kind = "webhook", url = "https://example.org/hook?a=b", token_file = "token", interval = "10s" }
am = { kind = "alertmanager", url = "http://[::1]:9093/prefix/" }
udp = { kind = "syslog", url = "udp://log.example.org" }
tcp = { kind = "syslog", url = "tcp://127.0.0.1:601" }
unix = { kind = "syslog", url = "unix:///dev/log" }
plain = { kind = "mail", url = "smtp://[::1]:2525", from = "w@example.org", to = ["a@example.org", "b@example.org"] }

[receivers.mail]
kind = "mail"
url = "smtp://mail.example.org:587"
from = "w@example.org"
to = ["ops@example.org"]
user = "wiretide"
password_file = "/etc/password"
starttls = true
interval = "5m"
"""


def settings(text: str, base: Path = Path("/base")) -> AlertSettings:
    return parse_pipeline(PIPELINE + text, base).alerts


def test_all_keys() -> None:
    parsed = settings(WHOLE)
    base = Path("/base")
    scan, silent = parsed.rules
    assert scan == AlertRule(
        "scan", "scans", "ports > 100", None, ("srcIP",), 300 * SECOND, 600 * SECOND, "critical", "{srcIP} scans",
        ("log", "hook"), 100, (Exclusion("srcIP = '10.0.0.5'", "our scanner"),),
    )  # fmt: skip
    assert silent == AlertRule("silent", "scans", absent=90 * SECOND, keep=86_400 * SECOND, receivers=())
    addresses = ("a@example.org", "b@example.org")
    assert {**parsed.receivers} == {
        "log": Receiver("log", "file", "/base/alerts.jsonl"),
        "hook": Receiver("hook", "webhook", "https://example.org/hook?a=b", base / "token", interval=10 * SECOND),
        "am": Receiver("am", "alertmanager", "http://[::1]:9093/prefix"),
        "udp": Receiver("udp", "syslog", "udp://log.example.org"),
        "tcp": Receiver("tcp", "syslog", "tcp://127.0.0.1:601"),
        "unix": Receiver("unix", "syslog", "unix:///dev/log"),
        "plain": Receiver(
            "plain", "mail", "smtp://[::1]:2525", None, "", "w@example.org", addresses, interval=60 * SECOND
        ),
        "mail": Receiver(
            "mail", "mail", "smtp://mail.example.org:587", Path("/etc/password"), "wiretide", "w@example.org",
            ("ops@example.org",), True, 300 * SECOND,
        ),
    }  # fmt: skip
    assert (parsed.silences, parsed.base) == (base / "silences.toml", base)


def test_messages_name_a_receiver_without_the_path_of_its_url() -> None:
    places = {name: receiver.destination for name, receiver in settings(WHOLE).receivers.items()}
    assert (places["hook"], places["am"]) == ("https://example.org", "http://[::1]:9093")
    assert (places["log"], places["unix"], places["tcp"]) == (
        "/base/alerts.jsonl", "unix:///dev/log", "tcp://127.0.0.1:601",
    )  # fmt: skip


def test_a_rule_needs_only_a_query() -> None:
    (rule,) = settings('[alerts.any]\nquery = "scans"\n').rules
    assert rule == AlertRule("any", "scans")
    assert all(rule.sends_to(name) for name in ("a", "b"))
    assert settings("").rules == ()


RULE = '[alerts.scan]\nquery = "scans"\n'
HOOK = '[receivers.hook]\nkind = "webhook"\n'
MAIL = '[receivers.m]\nkind = "mail"\nurl = "smtp://h"\nfrom = "w@e.org"\nto = ["a@e.org"]\n'

WRONG = {
    '[alerts.scan]\nwhere = "a"': "alerts.scan.query: got '', expected a query of the file: scans",
    '[alerts.scan]\nquery = "scan"': "alerts.scan.query: got 'scan', expected a query of the file: scans",
    "[alerts]\nscan = 5": "alerts.scan: got 5, expected a section",
    "[alerts.silences]": "alerts.silences: got {}, expected text",
    "[alerts.5x]": "alerts.5x: got '5x', expected a name that begins with a letter, of letters, digits, - and _, with "
    "at most 64 characters",
    RULE + "foo = 1": "alerts.scan.foo is not known; valid here: query, where, absent, labels, for, keep, severity, "
    "summary, receivers, evidence, exclude, final",
    RULE + "where = 5": "alerts.scan.where: got 5, expected text",
    RULE + 'for = "5"': "alerts.scan.for: expected a duration such as 500ms, 10s or 2 minutes",
    RULE + 'keep = "-5s"': "alerts.scan.keep: expected a duration such as 500ms, 10s or 2 minutes",
    RULE + 'absent = "0"': "alerts.scan.absent: got 0, expected a time of more than 0",
    RULE + 'absent = "5m"\nfor = "5m"': "alerts.scan.for: got `for` together with `absent`, expected one of them",
    RULE + 'labels = "srcIP"': "alerts.scan.labels: got 'srcIP', expected a list",
    RULE + "labels = [1]": "alerts.scan.labels: got [1], expected a list of columns, or [] for one alert",
    RULE + 'severity = "very bad"': "alerts.scan.severity: got 'very bad', expected a word such as warning or critical",
    RULE + "evidence = 101": "alerts.scan.evidence: got 101, expected a whole number, 1 to 100",
    RULE + 'receivers = "log"': "alerts.scan.receivers: got 'log', expected a list",
    RULE + 'receivers = ["log"]': "alerts.scan.receivers: got 'log', expected names of sections [receivers.NAME]",
    RULE + 'receivers = ["log"]\n' + HOOK + 'url = "http://h"': "alerts.scan.receivers: got 'log', expected one of: "
    "hook",
    RULE + "exclude = [5]": 'alerts.scan.exclude[1]: got 5, expected { where = "CONDITION", comment = "REASON" }',
    RULE + 'exclude = [{ where = "a", comment = "b" }, { where = "a" }]': "alerts.scan.exclude[2].comment is missing: "
    'expected { where = "CONDITION", comment = "REASON" }',
    RULE + 'exclude = [{ comment = "b" }]': 'alerts.scan.exclude[1].where is missing: expected { where = "CONDITION", '
    'comment = "REASON" }',
    RULE + 'exclude = [{ wher = "b" }]': "alerts.scan.exclude[1].wher is not known; valid here: where, comment",
    '[receivers."a b"]\nkind = "file"': "receivers.a b: got 'a b', expected a name that begins with a letter, of "
    "letters, digits, - and _, with at most 64 characters",
    "[receivers.log]": "receivers.log.kind: got '', expected file or webhook or alertmanager or syslog or mail",
    '[receivers.log]\nkind = "file"': "receivers.log.path is missing: expected the path of a file",
    '[receivers.log]\nkind = "file"\nurl = "x"': "receivers.log.url is not known; valid here: kind, path, final",
    HOOK: "receivers.hook.url: got '', expected http://HOST:PORT or https://HOST:PORT",
    HOOK + 'url = "ftp://h"': "receivers.hook.url: got 'ftp://h', expected http://HOST:PORT or https://HOST:PORT",
    HOOK + 'url = "http://h:99999"': "receivers.hook.url: got 'http://h:99999', expected http://HOST:PORT or "
    "https://HOST:PORT",
    HOOK + 'url = "http://h/a b"': "receivers.hook.url: got 'http://h/a b', expected http://HOST:PORT or "
    "https://HOST:PORT",
    HOOK + 'url = "http://h\\r\\nX: y"': "receivers.hook.url: got 'http://h\\r\\nX: y', expected http://HOST:PORT or "
    "https://HOST:PORT",
    HOOK + 'url = "http://u:p@h"': "receivers.hook.url: got the user 'u' in the URL, expected a URL without a user; "
    "secrets are in files",
    HOOK.replace("webhook", "alertmanager")
    + 'url = "http://h/?a"': "receivers.hook.url: got 'http://h/?a', expected a URL without ?",
    '[receivers.s]\nkind = "syslog"\nurl = "udp://h/x"': "receivers.s.url: got 'udp://h/x', expected "
    "udp://HOST:PORT or tcp://HOST:PORT or unix:///PATH",
    '[receivers.s]\nkind = "syslog"\nurl = "unix://dev/log"': "receivers.s.url: got 'unix://dev/log', expected "
    "udp://HOST:PORT or tcp://HOST:PORT or unix:///PATH",
    MAIL.replace("w@e.org", "W <w@e.org>"): "receivers.m.from: got 'W <w@e.org>', expected an address such as "
    "ops@example.org",
    MAIL.replace('["a@e.org"]', "[]"): "receivers.m.to: got '', expected an address such as ops@example.org",
    MAIL.replace(
        "a@e.org", "a@e.org\\nBcc: b@e.org"
    ): "receivers.m.to: got 'a@e.org\\nBcc: b@e.org', expected an address such as ops@example.org",
    MAIL + 'user = "w"': "receivers.m.password_file is missing: expected both or none",
    MAIL + 'password_file = "p"': "receivers.m.user is missing: expected both or none",
    MAIL + 'user = "w"\npassword_file = "p"': "receivers.m.user: expected starttls = true or smtps://, which encrypt "
    "the password",
    MAIL.replace("smtp://", "smtps://")
    + "starttls = true": "receivers.m.starttls: got true with smtps://, expected one of them",
    MAIL + 'interval = "x"': "receivers.m.interval: expected a duration such as 500ms, 10s or 2 minutes",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_wrong_values_have_a_message_with_the_key_and_the_valid_choices(text: str, message: str) -> None:
    with pytest.raises(PipelineError, match=f"^{re.escape(message)}$") as error:
        settings(text)
    assert error.value.status == 2
