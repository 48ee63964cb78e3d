"""Alerts of a pipeline file: the rules over results of queries, and the receivers of messages.

[alerts]
silences = "silences.toml"             # a file that may change while the pipeline runs

[alerts.scan]
query = "scans"                        # a query of this file with windows of time
where = "ports > 100"                  # a condition on a row, as in WHERE; left out: every row satisfies it
labels = ["srcIP"]                     # the identity of an alert; left out: the columns of the query's groups
for = "5m"                             # how long the condition must be true
keep = "10m"                           # how long it must be false before the alert ends
severity = "critical"                  # a word that messages contain
summary = "{srcIP} scans {ports} ports"
receivers = ["log"]                    # left out: all receivers
evidence = 5                           # rows of the window in a message
final = false                          # true: provisional results of a query with changes raise no alert
exclude = [{ where = "srcIP = '10.0.0.5'", comment = "our scanner" }]

[alerts.silent]
query = "volume"
absent = "10m"                         # alert if no row has satisfied the condition for this time

[receivers.log]
kind = "file"                          # or alertmanager, webhook, syslog, mail
path = "alerts.jsonl"
final = false                          # true: no messages about provisional results
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from lowlevel.durations import parse_duration
from queries.pipeline.sections import PipelineError, Section

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
"""Names of rules and receivers, and severities."""

MAIL_ADDRESS = re.compile(r"[^\s@<>(),;:\\\"\[\]]+@[^\s@<>(),;:\\\"\[\]]+", re.ASCII)
"""Mail addresses."""

MAX_EVIDENCE = 100
"""Maximum number of rows of evidence in one message."""

DEFAULT_FORGET_TIME = 86_400 * SECOND
"""Default time in ns after which an absent group is forgotten."""

DEFAULT_MAIL_INTERVAL = 60 * SECOND
"""Default time in ns between two mails."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows for which the condition `where` is true raise no alert. `comment` contains the reason."""

    where: str
    comment: str


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule over the rows of one query. Times are in ns.

    Without `absent` an alert begins if, for the time `hold` (`for` in the file), each window contained a row with its
    labels that satisfies `where`. It ends after the time `keep` without such a row. With `absent` an alert begins after
    this time without such a row, and ends with the next such row. If no such row follows for the further time `keep`,
    its labels are forgotten. Without `where` every row satisfies the condition.

    `labels`: columns of the result, or None for the columns of its groups. `receivers`: None for all. `final`: only
    final results raise alerts.
    """

    name: str
    query: str
    where: str | None = None
    absent: int | None = None
    labels: tuple[str, ...] | None = None
    hold: int = 0
    keep: int = 0
    severity: str = "warning"
    summary: str = ""
    receivers: tuple[str, ...] | None = None
    evidence: int = 5
    exclude: tuple[Exclusion, ...] = ()
    final: bool = False

    def sends_to(self, receiver: str) -> bool:
        """Return True if messages of this rule go to a receiver."""
        return self.receivers is None or receiver in self.receivers


@dataclass(frozen=True, slots=True)
class Receiver:
    """A destination of messages.

    `target`: the path of a file, or a URL: `http(s)://` of a webhook or an Alertmanager, `udp://`, `tcp://` or
    `unix:///PATH` of syslog, `smtp(s)://` of a mail server. `secret` is a file with the bearer token of a webhook or an
    Alertmanager, or the password of `user` at the mail server. `interval` is the shortest time in ns between two
    deliveries. A `final` receiver receives no messages about provisional results, which may be withdrawn.
    """

    name: str
    kind: str
    target: str
    secret: Path | None = None
    user: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()
    starttls: bool = False
    interval: int = 0
    final: bool = False

    @property
    def destination(self) -> str:
        """The target as messages show it: without the path of a URL, which may contain a secret."""
        parts = urlsplit(self.target)
        return f"{parts.scheme}://{parts.netloc}" if self.kind != "file" and parts.netloc else self.target


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The rules and receivers of a pipeline, and the file of silences."""

    rules: tuple[AlertRule, ...] = ()
    receivers: Mapping[str, Receiver] = field(default_factory=dict)
    silences: Path | None = None
    base: Path = Path()
    """The folder of the pipeline file, where relative paths in conditions begin."""


RULE_KEYS = (
    "query", "where", "absent", "labels", "for", "keep", "severity", "summary", "receivers", "evidence", "exclude",
    "final",
)  # fmt: skip
RECEIVER_KEYS = {
    "file": ("kind", "path", "final"),
    "webhook": ("kind", "url", "token_file", "interval", "final"),
    "alertmanager": ("kind", "url", "token_file", "final"),
    "syslog": ("kind", "url", "final"),
    "mail": ("kind", "url", "from", "to", "user", "password_file", "starttls", "interval", "final"),
}
"""The valid keys of a receiver, by the value of its key `kind`."""

_EXCLUSION_FORM = '{ where = "CONDITION", comment = "REASON" }'


def alert_settings(file: Section, queries: Mapping[str, Any], base: Path) -> AlertSettings:
    """Return the alerts of a pipeline file. Relative paths are relative to `base`. Raises PipelineError."""
    receivers_section, alerts_section = file.section("receivers"), file.section("alerts")
    receivers = {name: _receiver(receivers_section, name, base) for name in receivers_section.names}
    rules = tuple(
        _rule(alerts_section, name, queries, receivers) for name in alerts_section.names if name != "silences"
    )
    silences = alerts_section.value("silences", str, "")
    return AlertSettings(rules, receivers, base / silences if silences else None, base)


def _rule(section: Section, name: str, queries: Mapping[str, Any], receivers: Mapping[str, Receiver]) -> AlertRule:
    _check_name(f"alerts.{name}", name)
    rule = section.section(name, RULE_KEYS)
    query = rule.value("query", str, "")
    if query not in queries:
        raise PipelineError(f"{rule.prefix}query: got {query!r}, expected a query of the file: {', '.join(queries)}")
    absent = rule.parsed_value("absent", None, parse_duration)
    where = rule.value("where", str, "").strip() or None
    if absent == 0:
        raise PipelineError(f"{rule.prefix}absent: got 0, expected a time of more than 0")
    if absent is not None and "for" in rule.names:
        raise PipelineError(f"{rule.prefix}for: got `for` together with `absent`, expected one of them")
    chosen_receivers = rule.value("receivers", list, []) if "receivers" in rule.names else None
    for receiver in chosen_receivers or ():
        if receiver not in receivers:
            expected = f"one of: {', '.join(receivers)}" if receivers else "names of sections [receivers.NAME]"
            raise PipelineError(f"{rule.prefix}receivers: got {receiver!r}, expected {expected}")
    severity = rule.value("severity", str, "warning")
    if not NAME.fullmatch(severity):
        raise PipelineError(f"{rule.prefix}severity: got {severity!r}, expected a word such as warning or critical")
    return AlertRule(
        name=name,
        query=query,
        where=where,
        absent=absent,
        labels=_labels(rule) if "labels" in rule.names else None,
        hold=rule.parsed_value("for", 0, parse_duration),
        keep=rule.parsed_value("keep", 0 if absent is None else DEFAULT_FORGET_TIME, parse_duration),
        severity=severity,
        summary=rule.value("summary", str, ""),
        receivers=None if chosen_receivers is None else tuple(chosen_receivers),
        evidence=rule.number("evidence", int, 5, f"1 to {MAX_EVIDENCE}", lambda rows: 1 <= rows <= MAX_EVIDENCE),
        exclude=tuple(_exclusions(rule)),
        final=rule.value("final", bool, False),
    )


def _labels(rule: Section) -> tuple[str, ...]:
    labels = rule.value("labels", list, [])
    if not all(isinstance(label, str) for label in labels):
        raise PipelineError(f"{rule.prefix}labels: got {labels!r}, expected a list of columns, or [] for one alert")
    return tuple(labels)


def _exclusions(rule: Section) -> list[Exclusion]:
    exclusions = []
    for position, entry in enumerate(rule.value("exclude", list, []), 1):
        key = f"{rule.prefix}exclude[{position}]"
        if not isinstance(entry, dict):
            raise PipelineError(f"{key}: got {entry!r}, expected {_EXCLUSION_FORM}")
        section = Section(f"{key}.", entry, ("where", "comment"))
        where, comment = (section.value(name, str, "").strip() for name in ("where", "comment"))
        if not where or not comment:
            missing = "comment" if where else "where"
            raise PipelineError(f"{key}.{missing} is missing: expected {_EXCLUSION_FORM}")
        exclusions.append(Exclusion(where, comment))
    return exclusions


def _receiver(section: Section, name: str, base: Path) -> Receiver:
    _check_name(f"receivers.{name}", name)
    kind = section.section(name).choice("kind", "", RECEIVER_KEYS)
    values = section.section(name, RECEIVER_KEYS[kind])
    return replace(_RECEIVERS[kind](values, name, base), final=values.value("final", bool, False))


def _file(section: Section, name: str, base: Path) -> Receiver:
    path = section.value("path", str, "")
    if not path:
        raise PipelineError(f"{section.prefix}path is missing: expected the path of a file")
    return Receiver(name, "file", str(base / path))


def _webhook(section: Section, name: str, base: Path) -> Receiver:
    url = _url(section, ("http", "https"))
    return Receiver(name, "webhook", url, _secret(section, "token_file", base), interval=_interval(section, 0))


def _alertmanager(section: Section, name: str, base: Path) -> Receiver:
    url = _url(section, ("http", "https"))
    if "?" in url:
        raise PipelineError(f"{section.prefix}url: got {url!r}, expected a URL without ?")
    return Receiver(name, "alertmanager", url.rstrip("/"), _secret(section, "token_file", base))


def _syslog(section: Section, name: str, _: Path) -> Receiver:
    return Receiver(name, "syslog", _url(section, ("udp", "tcp", "unix")))


def _mail(section: Section, name: str, base: Path) -> Receiver:
    url = _url(section, ("smtp", "smtps"))
    sender, to = section.value("from", str, ""), section.value("to", list, [])
    for key, addresses in (("from", [sender]), ("to", to or [""])):
        for address in addresses:
            if not isinstance(address, str) or not MAIL_ADDRESS.fullmatch(address):
                expected = "an address such as ops@example.org"
                raise PipelineError(f"{section.prefix}{key}: got {address!r}, expected {expected}")
    user, secret = section.value("user", str, ""), _secret(section, "password_file", base)
    starttls = section.value("starttls", bool, False)
    if bool(user) != (secret is not None):
        raise PipelineError(f"{section.prefix}{'password_file' if user else 'user'} is missing: expected both or none")
    is_encrypted = url.startswith("smtps:")
    if starttls and is_encrypted:
        raise PipelineError(f"{section.prefix}starttls: got true with smtps://, expected one of them")
    if user and not (starttls or is_encrypted):
        raise PipelineError(f"{section.prefix}user: expected starttls = true or smtps://, which encrypt the password")
    return Receiver(
        name, "mail", url, secret, user, sender, tuple(to), starttls, _interval(section, DEFAULT_MAIL_INTERVAL)
    )  # fmt: skip


_RECEIVERS: dict[str, Callable[[Section, str, Path], Receiver]] = {
    "file": _file, "webhook": _webhook, "alertmanager": _alertmanager, "syslog": _syslog, "mail": _mail,
}  # fmt: skip


def _url(section: Section, schemes: Sequence[str]) -> str:
    """Return the value of `url`. Raises PipelineError if it is no URL with one of the schemes."""
    text = section.value("url", str, "")
    valid_forms = [f"{scheme}:///PATH" if scheme == "unix" else f"{scheme}://HOST:PORT" for scheme in schemes]
    error = PipelineError(f"{section.prefix}url: got {text!r}, expected {' or '.join(valid_forms)}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise error
    try:
        parts = urlsplit(text)
        is_complete = parts.path not in ("", "/") and not parts.netloc if parts.scheme == "unix" else parts.hostname
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise error from None
    if parts.scheme not in schemes or not is_complete or not has_port or parts.fragment:
        raise error
    if parts.scheme not in ("http", "https", "unix") and (parts.path.strip("/") or parts.query):
        raise error
    if parts.username is not None:
        expected = "a URL without a user; secrets are in files"
        raise PipelineError(f"{section.prefix}url: got the user {parts.username!r} in the URL, expected {expected}")
    return text


def _secret(section: Section, key: str, base: Path) -> Path | None:
    path = section.value(key, str, "")
    return base / path if path else None


def _interval(section: Section, default: int) -> int:
    return section.parsed_value("interval", default, parse_duration)


def _check_name(key: str, name: str) -> None:
    if not NAME.fullmatch(name):
        expected = "a name that begins with a letter, of letters, digits, - and _, with at most 64 characters"
        raise PipelineError(f"{key}: got {name!r}, expected {expected}")
