"""Alerts of a pipeline file: the rules over results of queries, and the receivers of messages.

[alerts.scan]
query = "scans"                        # a query of this file with windows of time
where = "ports > 100"                  # a condition on a row, as in WHERE; previous_X is X in the window before
labels = ["srcIP"]                     # the identity of an alert; left out: the columns of the query's groups
for = "5m"                             # how long the condition must be true
keep = "10m"                           # how long it must be false before the alert ends
severity = "critical"                  # a word for receivers
summary = "{srcIP} asked for {ports} ports"
receivers = ["log"]                    # left out: all receivers
evidence = 5                           # rows of the window in a message
exclude = [{ where = "srcIP = '10.0.0.5'", comment = "our scanner" }]

[alerts.silent]
query = "volume"
absent = "10m"                         # alert if no row has satisfied the condition for this time

[receivers.log]
kind = "file"                          # or alertmanager, webhook, syslog, mail
path = "alerts.jsonl"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from lowlevel.durations import parse_duration
from queries.pipeline.sections import PipelineError, Section

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
"""The names of rules and receivers."""

MOST_EVIDENCE = 100
"""Largest number of rows of a message."""

FORGET = 86_400 * SECOND
"""Default time in ns after which a group that is absent is forgotten."""

KINDS = ("file", "webhook", "alertmanager", "syslog", "mail")
"""The kinds of receivers."""


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Rows for which a condition of SQL is true raise no alert. The comment tells why."""

    where: str
    comment: str


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule over the rows of one query. Times are in ns.

    Without `absent` an alert begins when rows of its labels satisfied `where` in all windows of the time `hold`
    (`for` in the file), and ends after `keep` without such a row. With `absent` it begins after this time without such
    a row, and ends with the next one; after the further time `keep` its labels are forgotten.

    `labels`: columns of the result, or None for the columns of its groups. `receivers`: None for all.
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


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where messages go.

    `target`: the path of a file, the URL of a webhook or an Alertmanager, `udp://HOST:PORT`, `tcp://HOST:PORT` or
    `unix:///PATH` of syslog, `smtp://HOST:PORT` of a mail server. `token_file` has the bearer token of a webhook or an
    Alertmanager, or the password of `user` at the mail server.
    """

    name: str
    kind: str
    target: str
    token_file: Path | None = None
    user: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()
    starttls: bool = False


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """The rules and receivers of a pipeline, and the file of silences, which may change while it runs."""

    rules: tuple[AlertRule, ...] = ()
    receivers: Mapping[str, Receiver] | None = None
    silences: Path | None = None


_RULE_KEYS = (
    "query", "where", "absent", "labels", "for", "keep", "severity", "summary", "receivers", "evidence", "exclude",
)  # fmt: skip
_SCHEMES = {"syslog": ("udp", "tcp", "unix"), "mail": ("smtp",)}
_RECEIVER_KEYS = {
    "file": ("kind", "path"),
    "webhook": ("kind", "url", "token_file"),
    "alertmanager": ("kind", "url", "token_file"),
    "syslog": ("kind", "url"),
    "mail": ("kind", "url", "from", "to", "user", "password_file", "starttls"),
}


def alert_settings(top: Section, queries: Mapping[str, Any], base: Path) -> AlertSettings:
    """Return the alerts of a pipeline file. Relative paths are relative to `base`. Raises PipelineError."""
    receivers_section = top.section("receivers")
    receivers = {name: _receiver(receivers_section, name, base) for name in receivers_section.names}
    section = top.section("alerts")
    rules = tuple(_rule(section, name, queries, receivers) for name in section.names if name != "silences")
    if receivers and not rules:
        raise PipelineError("receivers: got receivers without a rule, expected a section [alerts.NAME]")
    silences = section.value("silences", str, "")
    return AlertSettings(rules, receivers, base / silences if silences else None)


def _rule(section: Section, name: str, queries: Mapping[str, Any], receivers: Mapping[str, Receiver]) -> AlertRule:
    _check_name(f"alerts.{name}", name)
    values = section.section(name, _RULE_KEYS)
    query = values.value("query", str, "")
    if query not in queries:
        raise PipelineError(f"alerts.{name}.query: got {query!r}, expected one of: {', '.join(queries)}")
    absent = values.parsed("absent", None, parse_duration)
    where = values.value("where", str, "") or None
    if where is None and absent is None:
        raise PipelineError(f'alerts.{name}: expected where = "CONDITION", absent = "TIME", or both')
    if absent is not None and ("for" in values.names or absent == 0):
        raise PipelineError(f"alerts.{name}.absent: expected a time of more than 0, and no key `for`")
    named = tuple(values.texts("receivers")) if "receivers" in values.names else None
    for receiver in named or ():
        if receiver not in receivers:
            known = ", ".join(receivers) or "none"
            raise PipelineError(f"alerts.{name}.receivers: got {receiver!r}, expected receivers of the file: {known}")
    severity = values.value("severity", str, "warning")
    if not NAME.fullmatch(severity):
        raise PipelineError(f"alerts.{name}.severity: got {severity!r}, expected a word such as warning or critical")
    return AlertRule(
        name=name,
        query=query,
        where=where,
        absent=absent,
        labels=_columns(values) if "labels" in values.names else None,
        hold=values.parsed("for", 0, parse_duration),
        keep=values.parsed("keep", 0 if absent is None else FORGET, parse_duration),
        severity=severity,
        summary=values.value("summary", str, ""),
        receivers=named,
        evidence=values.number("evidence", int, 5, f"1 to {MOST_EVIDENCE}", lambda rows: 1 <= rows <= MOST_EVIDENCE),
        exclude=tuple(_exclusions(values)),
    )


def _columns(values: Section) -> tuple[str, ...]:
    labels = values.values["labels"]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise PipelineError(f"{values.prefix}labels: got {labels!r}, expected a list of columns, [] for one alert")
    return tuple(labels)


def _exclusions(values: Section) -> list[Exclusion]:
    listed = values.value("exclude", list, [])
    exclusions = []
    for number, item in enumerate(listed, 1):
        key = f"{values.prefix}exclude[{number}]."
        if not isinstance(item, dict):
            raise PipelineError(f'{key}: got {item!r}, expected {{ where = "CONDITION", comment = "REASON" }}')
        one = Section(key, item, ("where", "comment"))
        where, comment = one.value("where", str, "").strip(), one.value("comment", str, "").strip()
        if not where or not comment:
            raise PipelineError(f"{key}{'comment' if where else 'where'} is missing: expected a condition and a reason")
        exclusions.append(Exclusion(where, comment))
    return exclusions


def _receiver(section: Section, name: str, base: Path) -> Receiver:
    _check_name(f"receivers.{name}", name)
    kind = section.section(name).choice("kind", "", KINDS)
    values = section.section(name, _RECEIVER_KEYS[kind])
    if kind == "file":
        path = values.value("path", str, "")
        if not path:
            raise PipelineError(f"{values.prefix}path is missing: expected the path of a file")
        return Receiver(name, kind, str(base / path))
    url = values.value("url", str, "")
    parts = urlsplit(url)
    schemes = _SCHEMES.get(kind, ("http", "https"))
    is_complete = parts.path if parts.scheme == "unix" else parts.hostname
    if parts.scheme not in schemes or not is_complete or parts.password:
        expected = " or ".join(f"{scheme}://…" for scheme in schemes)
        raise PipelineError(f"{values.prefix}url: got {url!r}, expected {expected} without a password")
    secret = values.value("password_file" if kind == "mail" else "token_file", str, "")
    sender, to = values.value("from", str, ""), tuple(values.texts("to")) if "to" in values.names else ()
    if kind == "mail" and not (sender and to):
        raise PipelineError(f'{values.prefix}: expected from = "ADDRESS" and to = ["ADDRESS"]')
    return Receiver(
        name, kind, url.rstrip("/"), base / secret if secret else None, values.value("user", str, ""), sender, to,
        values.value("starttls", bool, False),
    )  # fmt: skip


def _check_name(key: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise PipelineError(f"{key}: expected a name of letters, digits, - and _, with at most 64 characters")
