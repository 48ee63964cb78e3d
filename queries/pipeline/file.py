"""PIPELINE.toml: which links are monitored, by which queries, and where results go.

folder = "state"              # checkpoint, operator state and results; relative to the file
speed = 60                    # capture seconds per second; left out: as fast as possible
functions = "functions.py"    # a Python file that defines functions, or a list of them

[links]
Main1 = "main1.pcap"          # a file, folder or glob, or a list of them
Main2 = ["main2-*.pcap"]

[queries.talkers]
sql = "SELECT srcIP, count(*) AS packets FROM Main1 [RANGE 1 minute, SLIDE 1 minute, WA ts] GROUP BY srcIP"
rank = "packets"              # the groups with the largest values in this column are shown
layer = "inner"               # the IP layer that names without a prefix mean; left out: the outermost
histogram = "size"            # the column of upper bounds, if the groups are classes; left out: no histogram
topic = "talkers"             # the dashboard that shows it; left out: by its ready query or its groups
consistency = "WAIT 2 seconds, REMEMBER 1 hour"   # or STRONG, MIDDLE, WEAK: WITH CONSISTENCY after the text
emit = "changes"              # or "final": EMIT after the text
final = "final-talkers"       # results of this name contain only the final rows of the changes

[queries.hours]               # a query may read the others by their names, in any order
sql = "SELECT srcIP, sum(packets) AS packets FROM talkers [RANGE 1 hour] GROUP BY srcIP"

[metrics]
host = "127.0.0.1"
port = 9464
top = 10                      # groups shown of each query; all other groups are one series `other`
counters = false              # true: values that can be summed over windows are also exported as counters
web_config = "web.yml"        # TLS and users, in the format of Prometheus's exporters; left out: no TLS, no users
token_file = "token"          # a bearer token; left out: none

[page]
enabled = true                # the live page
keep = "6h"                   # time of the windows that the page keeps
size = "512 MiB"              # and their size in bytes

[results]
keep = "30d"                  # time for which result files stay; left out: results are not deleted

[spark]
master = "local[*]"
partitions = 2                # parts of the operators' state; left out: as in the last run, or the cores of the master
[spark.conf]                  # settings of Spark
"spark.executor.memory" = "4g"

`[sinks]` are described in `queries.pipeline.sink_settings`.

`[alerts]` and `[receivers]` are described in `queries.pipeline.alert_settings`.

A link may also be a TOML table. `queries.pipeline.table_settings` describes links to files with a schema,
`queries.pipeline.topic_settings` links to topics of Kafka. The packets of other such links are pre-aggregated by a
node, a separate process with only the low level. `[node]` configures the node (`queries.pipeline.node_settings`).
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from capture.units import MEBIBYTE, SECOND, parse_size
from highlevel.inline.engine import Input
from highlevel.plan.automaton_nodes import RowsOfRuns
from highlevel.plan.nodes import Leaf
from highlevel.plan.plan import Plan, named_leaves
from highlevel.results.stored_files import has_folder_name
from highlevel.speculation.consistency import FOREVER
from lowlevel.durations import parse_duration
from lowlevel.expressions.user_functions import load
from lowlevel.kinds import TABLE
from lowlevel.layers import Layer
from queries.binding.watchlists import paths_from
from queries.catalogue.catalogue import ready_query
from queries.catalogue.topics import TOPICS, Topic
from queries.gsql import compile_query
from queries.pipeline.alert_settings import AlertSettings, alert_settings
from queries.pipeline.folder_uri import RunFolder, parse_run_folder
from queries.pipeline.inputs import bind_streams, bound_kinds, check_streams
from queries.pipeline.node_settings import (
    LINK_KEYS,
    NODE_KEYS,
    NodeSettings,
    SpooledLink,
    absolute_path,
    check_spools,
    node_settings,
    spooled_link,
)
from queries.pipeline.sections import PipelineError, Section
from queries.pipeline.sink_settings import SinkSettings, sink_settings
from queries.pipeline.sinks import check_row_keys, check_sinks
from queries.pipeline.spark_settings import MASTER_FORMS, is_master, settings_of
from queries.pipeline.table_settings import TABLE_KEYS, TableLink, table_link
from queries.pipeline.topic_settings import TOPIC_KEYS, TopicLink, topic_link
from queries.plans.subqueries import ReadableQuery
from queries.plans.table_lookup import NamedQuery
from queries.query_text import SUFFIXES, query_text
from queries.text.consistency import LEVELS
from queries.text.errors import QueryError


@dataclass(frozen=True, slots=True)
class QueryText:
    """One query of the file: its text, the column that ranks its groups (or None), and the IP layer of its names.

    Relative paths of watchlists are relative to `base`; None is the working directory. `topic`: the dashboard of the
    query; None if its plan determines it. `histogram`: the column with the upper bounds of its histogram; None for
    none. `clauses`: WITH CONSISTENCY and EMIT, which follow the text. `final`: the name of the results that contain
    only the final rows of a query with changes; None for none.
    """

    sql: str
    rank: str | None = None
    layer: str = Layer.OUTER
    topic: Topic | None = None
    histogram: str | None = None
    clauses: str = ""
    final: str | None = None
    base: Path | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The text of the query with its clauses."""
        return f"{self.sql.rstrip().removesuffix(';')}\n{self.clauses}" if self.clauses else self.sql

    def plan(
        self,
        name: str,
        queries: Mapping[str, NamedQuery] | None = None,
        links: Collection[str] | None = None,
        tables: Mapping[str, ReadableQuery] | None = None,
    ) -> Plan:
        """Compile the query under its name. Raises PipelineError with the position in the text.

        The query may read `queries` by name, and `tables`, by their names in lower case. `links` are all other names
        that FROM may contain. None allows any name.
        """
        text = self.text
        try:
            with paths_from(self.base or Path.cwd()):
                plan = compile_query(text, name, self.layer, queries=queries, links=links, tables=tables)
        except QueryError as error:
            is_clause = bool(self.clauses) and error.sql == text and error.position >= len(text) - len(self.clauses)
            key = "consistency, emit" if is_clause else "sql"
            raise PipelineError(f"queries.{name}.{key}: {error}") from error
        if self.final is not None and not plan.has_changes:
            expected = 'a query with EMIT CHANGES (emit = "changes"): the rows of other queries are final'
            raise PipelineError(f"queries.{name}.final: got {self.final!r}, expected {expected}")
        return plan


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The live page. It stores windows that end at most `keep` ns before the newest window, in at most `size` bytes."""

    enabled: bool = True
    keep: int = 6 * 3600 * SECOND
    size: int = 512 * MEBIBYTE

    def __post_init__(self) -> None:
        """Raise PipelineError for a time or size without a window."""
        if self.keep <= 0:
            raise PipelineError(f"page.keep: got {self.keep} ns, expected a time of more than 0")
        if self.size < MEBIBYTE:
            raise PipelineError(f"page.size: got {self.size:,} bytes, expected at least 1 MiB")


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """The content of a pipeline file. Paths are absolute.

    The process that runs the pipeline reads the files of `links` and of `tables`. A node reads the captures of
    `spooled`, and the process reads its spools. `folder_uri`: the URI of a folder in an object store, of which `folder`
    is the copy on this machine; empty for another folder.
    """

    folder: Path
    links: Mapping[str, list[str]]
    queries: Mapping[str, QueryText]
    folder_uri: str = ""
    speed: float | None = None
    host: str = "127.0.0.1"
    port: int = 9464
    top: int = 10
    counters: bool = False
    web_config: Path | None = None
    token_file: Path | None = None
    master: str = "local[*]"
    partitions: int | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    spooled: Mapping[str, SpooledLink] = field(default_factory=dict)
    tables: Mapping[str, TableLink | TopicLink] = field(default_factory=dict)
    node: NodeSettings = field(default_factory=NodeSettings)
    functions: tuple[Path, ...] = ()
    page: PageSettings = field(default_factory=PageSettings)
    keep_results: int | None = None
    alerts: AlertSettings = field(default_factory=AlertSettings)
    sinks: tuple[SinkSettings, ...] = ()

    @property
    def link_names(self) -> list[str]:
        """The names of all links."""
        return [*self.links, *self.spooled, *self.tables]

    @property
    def read_paths(self) -> list[str]:
        """The paths of captures and tables that the process of the pipeline reads."""
        paths = [path for paths in self.links.values() for path in paths]
        return [*paths, *(path for link in self.tables.values() for path in link.paths)]

    @property
    def histograms(self) -> dict[str, str]:
        """The columns with the bounds of histograms, by the name of the query."""
        return {name: query.histogram for name, query in self.queries.items() if query.histogram is not None}

    @property
    def final_results(self) -> dict[str, str]:
        """The names of the results that contain only final rows, by the name of the query with changes."""
        return {name: query.final for name, query in self.queries.items() if query.final is not None}

    @property
    def ranks(self) -> dict[str, str]:
        """The columns that rank groups, by the name of the query. Queries without such a column are left out."""
        return {name: query.rank for name, query in self.queries.items() if query.rank}

    def plans(self) -> list[Plan]:
        """Load the functions and compile the queries.

        Raises FunctionError for a function that cannot be loaded. Raises PipelineError for a wrong query, for a query
        without results before the end of its input, and for rows of runs with a file of arcs: a restart with another
        version of this file would begin without the state of the query.

        Rows of a spooled link may be late. If the file has such a link, all plans count their rows, so that the node
        and the reader of the spool have the same plan.
        """
        for path in self.functions:
            load(path)
        named = {name: NamedQuery(query.text, query.layer) for name, query in self.queries.items()}
        tables = {name.lower(): link.readable() for name, link in self.tables.items()}
        plans = [query.plan(name, named, self.link_names, tables) for name, query in self.queries.items()]
        plans = [plan.with_row_counts().with_filled_lulls() for plan in plans] if self.spooled else plans
        check_sinks(plans)
        check_row_keys(plans, self.sinks)
        for plan in plans:
            for node in plan.nodes:
                if isinstance(node, RowsOfRuns) and node.arcs_file:
                    raise PipelineError(
                        f"queries.{plan.name}.sql: got ALL ROWS PER MATCH of an automaton with ARCS FROM "
                        f"{node.arcs_file}, which is read once; expected ONE ROW PER MATCH, or ARC clauses"
                    )
            if self.spooled and any(leaf.low.slack == FOREVER for leaf in plan.leaves):
                raise PipelineError(
                    f"queries.{plan.name}: got REMEMBER FOREVER, or LATE EMIT and EMIT CHANGES without REMEMBER, over "
                    "a link with a spool: the state of all windows would be kept; expected for example REMEMBER 1 hour"
                )
            if plan.waiting_reason is not None:
                raise PipelineError(
                    f"queries.{plan.name}.sql {plan.waiting_reason}, so it would have no results before the end; "
                    f"expected for example {plan.waiting_remedy}"
                )
        return plans

    def require_captures(self) -> None:
        """Raise PipelineError for a link that is not a finished capture. No broker is contacted."""
        for name in self.spooled:
            raise PipelineError(
                f"links.{name}.spool: a spool is not a finished capture; expected links with files only"
            )
        for name, link in self.tables.items():
            raise PipelineError(f"links.{name}: got {link.description}, expected links with captures only")

    def final_plans(self) -> list[Plan]:
        """Return the plans of the final results, for commands over finished captures.

        Raises the same errors as `plans`.
        """
        return [plan.with_final_rows() for plan in self.plans()]

    @staticmethod
    def leaves(plans: Iterable[Plan]) -> list[Leaf]:
        """Return the leaves of `plans` for a low-level node, which reads no tables.

        Raises PipelineError if two leaves have the same name.
        """
        leaves = [leaf for plan in plans for leaf in named_leaves(plan) if leaf.low.kind != TABLE]
        names = [leaf.name for leaf in leaves]
        if twice := [name for name in names if names.count(name) > 1]:
            raise PipelineError(
                f"queries: got {twice[0]!r} as the name of a query and of a part of another query in a node, expected "
                "different names; rename the query"
            )
        return leaves

    def inputs(self, plans: Sequence[Plan]) -> list[Input]:
        """Return the captures, tables and topics. Raises InputError for a link or a name in FROM without a file."""
        inputs = [replace(source, bound_kinds=self.bound_kinds) for source in bind_streams(self.links)]
        inputs += [input_ for link in self.tables.values() for input_ in link.inputs()]
        check_streams(plans, [*inputs, *self.spools])
        return inputs

    @property
    def spools(self) -> list[Input]:
        """The spooled links as inputs; the path of such an input is its spool."""
        kinds = self.bound_kinds
        return [Input(name, link.spool, name, spool=True, bound_kinds=kinds) for name, link in self.spooled.items()]

    @property
    def folder_name(self) -> str:
        """The folder as users know it: its path or URI."""
        return self.folder_uri or str(self.folder)

    def require_local_folder(self, product: str) -> None:
        """Raise PipelineError if the folder is in an object store: a `product` cannot contain its credentials."""
        if self.folder_uri:
            raise PipelineError(
                f"folder: got {self.folder_uri}, expected a folder on this machine: {product} contain no credentials "
                "of an object store; write them for a local folder, and then add the credentials and the URI"
            )

    @property
    def bound_kinds(self) -> frozenset[str]:
        """The kinds of rows that are also names of links."""
        return bound_kinds([*self.links, *self.spooled])


_TOP_LEVEL_KEYS = (
    "folder",
    "speed",
    "functions",
    "links",
    "queries",
    "metrics",
    "page",
    "results",
    "alerts",
    "receivers",
    "sinks",
    "spark",
    "node",
)


def read_pipeline(path: Path) -> PipelineFile:
    """Read and check a pipeline file. Raises InputError if it cannot be read, PipelineError for wrong values."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: got a file that is no text, expected a pipeline in TOML") from error
    try:
        return parse_pipeline(text, path.absolute().parent)
    except (tomllib.TOMLDecodeError, PipelineError) as error:
        raise PipelineError(f"{path}: {error}") from error


def _path(section: Section, key: str, base: Path) -> Path | None:
    text = section.value(key, str, "")
    return base / text if text else None


def parse_pipeline(text: str, base: Path) -> PipelineFile:
    """Parse the text of a pipeline file. Its paths are relative to `base`."""
    top = Section("", tomllib.loads(text), _TOP_LEVEL_KEYS)
    metrics = top.section("metrics", ("host", "port", "top", "counters", "web_config", "token_file"))
    page, defaults = top.section("page", ("enabled", "keep", "size")), PageSettings()
    spark = top.section("spark", ("master", "partitions", "conf"))
    queries = {
        name: _query(name, top.section("queries").value(name, dict, {}), base) for name in top.section("queries").names
    }
    if not queries:
        raise PipelineError('no query: expected at least one section [queries.NAME] with sql = "…"')
    links, spooled, tables = _links(top.section("links"), base)
    _check_names(queries, [*links, *spooled, *tables])
    _check_final_names(queries)
    folder = _folder(top, base)
    return PipelineFile(
        folder=folder.path,
        folder_uri=folder.uri,
        links=links,
        queries=queries,
        speed=top.number("speed", float, None, "more than 0, finite", lambda speed: 0 < speed <= sys.float_info.max),
        host=metrics.value("host", str, "127.0.0.1"),
        port=metrics.number("port", int, 9464, "0 (any free port) to 65535", lambda port: 0 <= port <= 65535),
        top=metrics.number("top", int, 10, "at least 1", lambda groups: groups >= 1),
        counters=metrics.value("counters", bool, False),
        web_config=_path(metrics, "web_config", base),
        token_file=_path(metrics, "token_file", base),
        master=_master(spark),
        partitions=spark.number("partitions", int, None, "at least 1", lambda parts: parts >= 1),
        spark_conf=_spark_conf(spark),
        spooled=spooled,
        tables=tables,
        node=node_settings(top.section("node", NODE_KEYS)),
        functions=tuple(base / path for path in top.paths("functions"))
        if top.values.get("functions", []) != []
        else (),
        page=PageSettings(
            page.value("enabled", bool, True),
            page.parsed_value("keep", defaults.keep, parse_duration),
            page.parsed_value("size", defaults.size, parse_size),
        ),
        keep_results=_keep_results(top.section("results", ("keep",))),
        alerts=alert_settings(top, queries, base),
        sinks=sink_settings(top, queries, base),
    )


def _folder(section: Section, base: Path) -> RunFolder:
    try:
        return parse_run_folder(section.value("folder", str, "state"), base)
    except ValueError as error:
        raise PipelineError(f"folder: {error}") from error


def _master(section: Section) -> str:
    master: str = section.value("master", str, "local[*]")
    if not is_master(master):
        raise PipelineError(f"spark.master: got {master!r}, expected {MASTER_FORMS}")
    return master


def _keep_results(section: Section) -> int | None:
    """Return the time for which results stay, in ns; None if not given."""
    keep: int = section.parsed_value("keep", 0, parse_duration)
    if keep <= 0 and "keep" in section.values:
        raise PipelineError(f"results.keep: got {section.values['keep']!r}, expected a time of more than 0")
    return keep or None


def _spark_conf(section: Section) -> dict[str, str]:
    try:
        return settings_of(section.value("conf", dict, {}))
    except ValueError as error:
        raise PipelineError(f"spark.conf: {error}") from error


def _check_names(queries: Iterable[str], links: Iterable[str]) -> None:
    """Raise PipelineError if a query and a link, or two queries, have the same name in lower case.

    The name of a query must also be a valid name of a folder.
    """
    keys_of_names = {link.lower(): f"links.{link}" for link in links}
    for query in queries:
        if not has_folder_name(query):
            raise PipelineError(f"queries: got the name {query!r}, expected for example 'users'")
        earlier_key = keys_of_names.setdefault(query.lower(), f"queries.{query}")
        if earlier_key != f"queries.{query}":
            raise PipelineError(f"queries.{query} is called like {earlier_key}; expected names that differ in FROM")


def _check_final_names(queries: Mapping[str, QueryText]) -> None:
    """Raise PipelineError if results with final rows are called like a query, or like other results."""
    keys_of_names = {query.lower(): f"queries.{query}" for query in queries}
    for name, query in queries.items():
        if query.final is None:
            continue
        earlier_key = keys_of_names.setdefault(query.final.lower(), f"queries.{name}.final")
        if earlier_key != f"queries.{name}.final":
            expected = "another name: both are tables of the results"
            raise PipelineError(
                f"queries.{name}.final: got {query.final!r}, the name of {earlier_key}; expected {expected}"
            )


def _links(
    section: Section, base: Path
) -> tuple[dict[str, list[str]], dict[str, SpooledLink], dict[str, TableLink | TopicLink]]:
    """Return the links that this process reads from captures, the spooled links, and the links with a schema."""
    if not section.names:
        raise PipelineError('no link: expected a section [links] with NAME = "PATH" for each')
    links: dict[str, list[str]] = {}
    spooled: dict[str, SpooledLink] = {}
    tables: dict[str, TableLink | TopicLink] = {}
    for name in section.names:
        if not isinstance(section.values[name], dict):
            links[name] = [absolute_path(path, base) for path in section.paths(name)]
            continue
        if "table" in section.values[name]:
            tables[name] = table_link(name, section.section(name, TABLE_KEYS), base)
            continue
        if "topic" in section.values[name]:
            tables[name] = topic_link(name, section.section(name, TOPIC_KEYS), base)
            continue
        link = spooled_link(name, section.section(name, LINK_KEYS), base)
        if isinstance(link, SpooledLink):
            spooled[name] = link
        else:
            links[name] = [link]
    check_spools(spooled.values())
    return links, spooled, tables


_QUERY_KEYS = ("sql", "rank", "layer", "topic", "params", "histogram", "consistency", "emit", "final")


def _query(name: str, values: dict[str, Any], base: Path) -> QueryText:
    section = Section(f"queries.{name}.", values, _QUERY_KEYS)
    sql = section.value("sql", str, "")
    if not sql.strip():
        raise PipelineError(f"queries.{name}.sql is missing: expected the text of a query")
    topic = Topic(section.choice("topic", Topic.OVERVIEW, Topic)) if "topic" in values else None
    try:
        if topic is None and sql.strip().startswith("@"):
            topic = TOPICS[ready_query(sql.strip()).name]
        sql = query_text(str(base / sql) if sql.endswith(SUFFIXES) else sql, section.value("params", dict, {}))
    except QueryError as error:
        raise PipelineError(f"queries.{name}.sql: {error}") from error
    layer = section.value("layer", str, Layer.OUTER)
    if layer not in list(Layer):
        raise PipelineError(f"queries.{name}.layer: got {layer!r}, expected {' or '.join(Layer)}")
    histogram = section.value("histogram", str, "") or None
    return QueryText(
        sql,
        section.value("rank", str, "") or None,
        layer,
        topic,
        histogram,
        _clauses(section),
        section.value("final", str, "") or None,
        base,
    )


def _clauses(section: Section) -> str:
    """Return WITH CONSISTENCY and EMIT from the keys of a query."""
    consistency, clauses = section.value("consistency", str, "").strip(), []
    if consistency.upper() in LEVELS:
        clauses.append(f"WITH {consistency} CONSISTENCY")
    elif consistency:
        clauses.append(f"WITH CONSISTENCY ({consistency})")
    if "emit" in section.names:
        clauses.append(f"EMIT {section.choice('emit', '', ('changes', 'final')).upper()}")
    return " ".join(clauses)
