"""`[sinks]` of a pipeline file: the other systems that receive results.

[sinks.warehouse]
kind = "sql"
url = "postgresql://wiretide@db.example.org/traffic"    # or sqlite:///PATH
password_file = "db-password"                           # left out: none
queries = ["talkers"]                                   # left out: all

[sinks.lake]
kind = "delta"
path = "/data/lake"                                     # a folder for each query

[sinks.archive]
kind = "s3"
url = "s3://bucket/prefix"                              # also s3a://
endpoint = "https://s3.example.org:9000"                # left out: the endpoint of AWS
region = "eu-west-1"                                    # left out: the region of the environment

[sinks.bus]
kind = "kafka"
brokers = "kafka1:9092,kafka2:9092"
prefix = "wiretide-"                                    # before the name of the query; left out: none
[sinks.bus.conf]                                        # settings of librdkafka
"security.protocol" = "SSL"
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import urlsplit

from capture.lazy_dataclasses import dataclass
from queries.pipeline.folder_uri import OBJECT_PREFIX
from queries.pipeline.kafka_settings import read_brokers, read_conf
from queries.pipeline.sections import PipelineError, Section

OBJECT_KEYS = ("endpoint", "region")
"""Optional keys of a sink for objects."""

KEYS = {
    "sql": ("kind", "queries", "url", "password_file"),
    "delta": ("kind", "queries", "path"),
    "s3": ("kind", "queries", "url", *OBJECT_KEYS),
    "kafka": ("kind", "queries", "brokers", "prefix", "conf"),
}
"""The valid keys of a sink, by the value of its key `kind`."""

NAME = re.compile(r"[A-Za-z][\w-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """One sink. `target`: the URL of a database or of objects, a folder, or the brokers. `queries`: None for all.

    `password`: the file with the password of the database. `prefix` is for Kafka. `conf`: settings of Kafka, or
    `endpoint` and `region` of S3.
    """

    name: str
    kind: str
    target: str
    queries: tuple[str, ...] | None = None
    password: Path | None = None
    prefix: str = ""
    conf: Mapping[str, str] = field(default_factory=dict)

    def receives(self, query: str) -> bool:
        """Return True if the sink receives the results of a query."""
        return self.queries is None or query in self.queries


def sink_settings(file: Section, queries: Collection[str], base: Path) -> tuple[SinkSettings, ...]:
    """Return the sinks of a pipeline file. Relative paths are relative to `base`. Raises PipelineError."""
    section = file.section("sinks")
    return tuple(_sink(section, name, queries, base) for name in section.names)


def _sink(section: Section, name: str, queries: Collection[str], base: Path) -> SinkSettings:
    if not NAME.fullmatch(name):
        expected = "a name that begins with a letter, of letters, digits, - and _, with at most 64 characters"
        raise PipelineError(f"sinks.{name}: got {name!r}, expected {expected}")
    kind = section.section(name).choice("kind", "", KEYS)
    sink = section.section(name, KEYS[kind])
    chosen = None
    if "queries" in sink.names:
        chosen = tuple(sink.value("queries", list, []))
        for query in chosen:
            if query not in queries:
                expected = f"queries of the file: {', '.join(queries)}"
                raise PipelineError(f"{sink.prefix}queries: got {query!r}, expected {expected}")
    if kind == "sql":
        return SinkSettings(name, kind, _database(sink, base), chosen, _file(sink, "password_file", base))
    if kind == "delta":
        return SinkSettings(name, kind, str(base / _required_text(sink, "path", "a folder")), chosen)
    if kind == "s3":
        options: dict[str, str] = {key: sink.value(key, str, "") for key in OBJECT_KEYS if key in sink.names}
        return SinkSettings(name, kind, _object_prefix(sink), chosen, conf=options)
    brokers = read_brokers(sink)
    prefix = sink.value("prefix", str, "")
    if not re.fullmatch(r"[\w.-]{0,100}", prefix, re.ASCII):
        raise PipelineError(f"{sink.prefix}prefix: got {prefix!r}, expected letters, digits, `.`, `-` and `_`")
    return SinkSettings(name, kind, brokers, chosen, prefix=prefix, conf=read_conf(sink, "sink"))


def _required_text(section: Section, key: str, expected: str) -> str:
    text: str = section.value(key, str, "")
    if not text:
        raise PipelineError(f"{section.prefix}{key} is missing: expected {expected}")
    return text


def _file(section: Section, key: str, base: Path) -> Path | None:
    path = section.value(key, str, "")
    return base / path if path else None


def _object_prefix(section: Section) -> str:
    """Return the URL of a prefix with the scheme s3. Raises PipelineError, also for a wrong endpoint or region."""
    forms = "s3://BUCKET/PREFIX or s3a://BUCKET/PREFIX"
    text = _required_text(section, "url", forms)
    match = OBJECT_PREFIX.fullmatch(text)
    if match is None:
        raise PipelineError(f"{section.prefix}url: got {text!r}, expected {forms}")
    endpoint = section.value("endpoint", str, "http://none")
    if not re.fullmatch(r"https?://[\w.\[\]:-]+", endpoint, re.ASCII):
        raise PipelineError(
            f"{section.prefix}endpoint: got {endpoint!r}, expected http://HOST:PORT or https://HOST:PORT"
        )
    region = section.value("region", str, "none")
    if not re.fullmatch(r"[\w-]+", region, re.ASCII):
        raise PipelineError(f"{section.prefix}region: got {region!r}, expected a region such as eu-west-1")
    return f"s3://{match[1]}"


def _database(section: Section, base: Path) -> str:
    """Return the URL of a database; the path of a file of SQLite is absolute in it."""
    forms = "sqlite:///PATH or postgresql://USER@HOST:PORT/DATABASE"
    text = _required_text(section, "url", forms)
    error = PipelineError(f"{section.prefix}url: got {text!r}, expected {forms}")
    try:
        parts = urlsplit(text)
        has_password = parts.password is not None
        _ = parts.port
    except ValueError:
        raise error from None
    if has_password:
        expected = "a URL without a password; password_file names a file with it"
        raise PipelineError(f"{section.prefix}url: got a password in the URL, expected {expected}")
    if parts.scheme == "sqlite" and not parts.netloc and len(parts.path) > 1 and not parts.query:
        if "password_file" in section.names:
            raise PipelineError(f"{section.prefix}password_file: got a password for SQLite, which has none")
        return f"sqlite:///{base / parts.path[1:]}"
    if parts.scheme == "postgresql" and parts.path.strip("/"):
        return text
    raise error
