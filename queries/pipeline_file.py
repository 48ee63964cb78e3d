"""PIPELINE.toml: which links are monitored, by which queries, and where results go.

folder = "state"              # checkpoint, operator state and results; relative to the file
speed = 60                    # capture seconds per second; left out: as fast as possible

[links]
Main1 = "main1.pcap"          # a file, folder or glob, or a list of them
Main2 = ["main2-*.pcap"]

[queries.talkers]
sql = "SELECT srcIP, count(*) AS packets FROM Main1 [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP"
rank = "packets"              # the column that chooses the groups shown
layer = "inner"               # the IP layer that plain names mean; left out: the outermost

[metrics]
host = "127.0.0.1"
port = 9464
top = 10                      # groups shown of each query; the rest is one series `other`

[spark]
master = "local[*]"
partitions = 2                # parts of the operators' state
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capture.errors import InputError, WiretideError
from highlevel.inline import Input
from highlevel.plan import QueryPlan
from lowlevel.layers import Layer
from queries.bindings import bind_streams, check_streams
from queries.gsql import compile_query


class PipelineError(WiretideError):
    """A pipeline file that says something impossible: fix the file. The message names the file and the place in it."""

    status = 2


@dataclass(frozen=True, slots=True)
class QueryText:
    """One query of the file: its GSQL, where given the column its groups are ranked by, and the layer of its names."""

    sql: str
    rank: str | None = None
    layer: str = Layer.OUTER


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """What a pipeline file says. Paths are absolute."""

    folder: Path
    links: Mapping[str, list[str]]
    queries: Mapping[str, QueryText]
    speed: float | None = None
    host: str = "127.0.0.1"
    port: int = 9464
    top: int = 10
    master: str = "local[*]"
    partitions: int = 2

    @property
    def ranks(self) -> dict[str, str]:
        """The column that ranks the groups, for the queries that name one."""
        return {name: query.rank for name, query in self.queries.items() if query.rank}

    def plans(self) -> list[QueryPlan]:
        """Compile the queries; raises QueryError, or PipelineError for a query that would never end a window."""
        plans = [compile_query(query.sql, name, query.layer) for name, query in self.queries.items()]
        for plan in plans:
            if not plan.windowed:
                raise PipelineError(
                    f"queries.{plan.name}.sql has no window, so nothing would be shown before the end; "
                    "expected for example [RANGE 1 minute, SLIDE 1 minute, WA ts]"
                )
        return plans

    def inputs(self, plans: list[QueryPlan]) -> list[Input]:
        """Find the links' files; raises InputError where a link or a name in FROM has none."""
        inputs = bind_streams(self.links)
        check_streams(plans, inputs)
        return inputs


def read_pipeline(path: Path) -> PipelineFile:
    """Read and check a pipeline file; raises InputError where it cannot be read, PipelineError where it is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        return parse_pipeline(text, path.absolute().parent)
    except (tomllib.TOMLDecodeError, PipelineError) as error:
        raise PipelineError(f"{path}: {error}") from error


def parse_pipeline(text: str, base: Path) -> PipelineFile:
    """Parse the text of a pipeline file whose relative paths begin at `base`."""
    top = _Section("", tomllib.loads(text), ("folder", "speed", "links", "queries", "metrics", "spark"))
    metrics = top.section("metrics", ("host", "port", "top"))
    spark = top.section("spark", ("master", "partitions"))
    queries = {
        name: _query(name, top.section("queries").value(name, dict, {})) for name in top.section("queries").names
    }
    if not queries:
        raise PipelineError('no query: expected at least one section [queries.NAME] with sql = "…"')
    links = top.section("links")
    if not links.names:
        raise PipelineError('no link: expected a section [links] with NAME = "PATH" for each')
    return PipelineFile(
        folder=base / top.value("folder", str, "state"),
        links={name: [str(base / each) for each in links.texts(name)] for name in links.names},
        queries=queries,
        speed=top.number("speed", float, None, "more than 0, finite", lambda speed: 0 < speed <= sys.float_info.max),
        host=metrics.value("host", str, "127.0.0.1"),
        port=metrics.number("port", int, 9464, "0 (any free port) to 65535", lambda port: 0 <= port <= 65535),
        top=metrics.number("top", int, 10, "at least 1", lambda groups: groups >= 1),
        master=spark.value("master", str, "local[*]"),
        partitions=spark.number("partitions", int, 2, "at least 1", lambda parts: parts >= 1),
    )


def _query(name: str, values: dict[str, Any]) -> QueryText:
    section = _Section(f"queries.{name}.", values, ("sql", "rank", "layer"))
    sql = section.value("sql", str, "")
    if not sql.strip():
        raise PipelineError(f"queries.{name}.sql is missing: expected the text of a query")
    layer = section.value("layer", str, Layer.OUTER)
    if layer not in list(Layer):
        raise PipelineError(f"queries.{name}.layer: got {layer!r}, expected {' or '.join(Layer)}")
    return QueryText(sql, section.value("rank", str, "") or None, layer)


class _Section:
    """A table of the file, read key by key; `names` are its keys."""

    def __init__(self, prefix: str, values: dict[str, Any], valid: tuple[str, ...] | None = None) -> None:
        self.prefix = prefix
        self.values = values
        self.names = list(values)
        unknown = [name for name in values if valid is not None and name not in valid]
        if unknown:
            raise PipelineError(f"{prefix}{unknown[0]} is not known; valid here: {', '.join(valid or ())}")

    def section(self, name: str, valid: tuple[str, ...] | None = None) -> _Section:
        return _Section(f"{self.prefix}{name}.", self.value(name, dict, {}), valid)

    def value(self, name: str, kind: type, default: Any) -> Any:
        value = self.values.get(name, default)
        if not isinstance(value, kind):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}")
        return value

    def number(self, name: str, kind: type, default: Any, expected: str, fits: Callable[[Any], bool]) -> Any:
        value = self.values.get(name, default)
        if value is default:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, kind)) or not fits(value):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected {_KINDS[kind]}, {expected}")
        return kind(value)

    def texts(self, name: str) -> list[str]:
        value = self.values[name]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
            raise PipelineError(f"{self.prefix}{name}: got {value!r}, expected a path or a list of paths")
        return texts


_KINDS = {str: "text", dict: "a section", int: "a whole number", float: "a number"}
