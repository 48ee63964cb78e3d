"""`[links.NAME]` with `table`: CSV, JSON lines, Parquet or Arrow files with a schema, which Spark reads as a link.

[links.logins]
table = "logins/*.csv"        # a file, a folder or a glob, or a list of them
schema = "my.protocol"        # a file, or the text PROTOCOL … { … }
protocol = "logins"           # left out: the protocol that is called like the link
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from capture.errors import InputError
from capture.lazy_dataclasses import dataclass
from highlevel.inline.engine import Input
from highlevel.inline.table_files import FileStream
from highlevel.inline.table_suffixes import SUFFIXES
from highlevel.plan.plan import Plan
from queries.pipeline.inputs import expand
from queries.pipeline.sections import PipelineError, Section
from queries.plans.subqueries import ReadableQuery
from queries.text.errors import QueryError
from queries.text.schema import Protocol, parse_schema, read_schema

TABLE_KEYS = ("table", "schema", "protocol")


@dataclass(frozen=True, slots=True)
class TableLink:
    """A link whose rows are the rows of files with a protocol.

    `paths`: absolute paths of files and folders, and globs.
    """

    name: str
    paths: tuple[str, ...]
    protocol: Protocol

    @property
    def description(self) -> str:
        """The files in words."""
        return f"the table {', '.join(self.paths)}"

    def readable(self) -> ReadableQuery:
        """Return the rows for queries. No file is opened."""
        stream = self._stream(())
        return ReadableQuery(stream.columns, stream.times, stream.node, Plan(self.name, "", stream.node(None)))

    def inputs(self) -> list[Input]:
        """Return the files as one input, one after the other. Raises InputError if there is no file."""
        return [table_input(self._stream(files_of_table(self.paths)))]

    def _stream(self, files: tuple[Path, ...]) -> FileStream:
        return FileStream.make(self.name, files, self.protocol.columns, self.protocol.times, [])


def table_input(stream: FileStream) -> Input:
    """Return a stream as an input of Spark, with the name of the stream as its link."""
    return Input(stream.name, stream.paths[0], stream.name, table=stream)


def files_of_table(paths: Iterable[str]) -> tuple[Path, ...]:
    """Return the files of paths: folders and globs mean their files with a suffix of SUFFIXES, sorted by name.

    Raises InputError for a file with another suffix, and for a folder or glob without such files.
    """
    files: list[Path] = []
    for path in paths:
        found = expand(path)
        if found != [Path(path)]:
            found = [file for file in found if file.name.lower().endswith(SUFFIXES)]
        wrong = next((file for file in found if not file.name.lower().endswith(SUFFIXES)), None)
        if wrong is not None:
            raise InputError(f"{wrong}: got a file with another suffix, expected one of {', '.join(SUFFIXES)}")
        if not found:
            raise InputError(f"{path}: got no file of a table, expected one of {', '.join(SUFFIXES)}")
        files += found
    return tuple(files)


def table_link(name: str, section: Section, base: Path) -> TableLink:
    """Read a link with `table`. Raises PipelineError for a wrong key, schema or protocol."""
    protocol = read_protocol(name, section, base)
    return TableLink(name, tuple(str(base / path) for path in section.paths("table")), protocol)


def read_protocol(name: str, section: Section, base: Path) -> Protocol:
    """Return the protocol of a link: the keys `schema` and `protocol`. Raises PipelineError."""
    if "schema" not in section.names:
        raise PipelineError(f"{section.prefix}schema is missing: expected a file, or the text PROTOCOL {name} {{ … }}")
    text = section.value("schema", str, "")
    try:
        protocols = parse_schema(read_schema(text if "{" in text else base / text))
    except (InputError, QueryError) as error:
        raise PipelineError(f"{section.prefix}schema: {error}") from error
    protocol = section.value("protocol", str, name)
    if protocol.lower() not in protocols:
        known = ", ".join(each.name for each in protocols.values())
        expected = "one of them" if "protocol" in section.names else f"the key protocol, or PROTOCOL {name}"
        raise PipelineError(
            f"{section.prefix}protocol: {protocol} is no protocol of the schema, which has {known}; expected {expected}"
        )
    return protocols[protocol.lower()]
