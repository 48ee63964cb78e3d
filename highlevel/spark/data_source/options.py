"""The options of the Spark data source `wiretide`, checked, and the schema of its DataFrames.

    spark.read.format("wiretide").option("kind", "packets").option("columns", "ts, srcIP, len").load("archive/*.pcap")

Spark passes the values of options as texts, and their names in lower case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from capture.lazy_dataclasses import dataclass
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.kinds import KINDS
from lowlevel.rows.batches import named_columns

FORMAT = "wiretide"
"""Name for `spark.read.format`."""


class Times(StrEnum):
    """The type of times in the DataFrame."""

    TIMESTAMP = "timestamp"
    NANOSECONDS = "ns"


class Damage(StrEnum):
    """What happens if a capture is damaged: the job fails, or only the rows before the damage are read."""

    ERROR = "error"
    STOP = "stop"


class Ranges(StrEnum):
    """How the boundaries of byte ranges are found: guessed and verified, or by a scan of the capture before the job."""

    GUESSED = "guessed"
    EXACT = "exact"


CHOICES: dict[str, tuple[str, ...]] = {
    "kind": KINDS,
    "times": tuple(Times),
    "damage": tuple(Damage),
    "ranges": tuple(Ranges),
}
"""The valid values of options that have a fixed set of values."""

MAX_FILES = "maxfilespertrigger"

OPTIONS = ("path", "paths", "columns", "link", "sql", "where", MAX_FILES, *CHOICES)
"""Names of the options, in lower case. Spark sets `path` or `paths` from the arguments of `load`."""

SELECTING = ("columns", "kind", "link", "ranges", "where")
"""Options that a query replaces."""

LOCAL_PREFIX = re.compile(r"file:(?://)?(?=/)")
"""Scheme of a path in the local file system, as Spark writes it."""

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")

SPARK_TYPES: dict[Type, DataType] = {
    Type.INT: LongType(),
    Type.TIME: TimestampType(),
    Type.FLOAT: DoubleType(),
    Type.BOOL: BooleanType(),
    Type.ADDRESS: StringType(),
    Type.TEXT: StringType(),
    Type.MAC: StringType(),
    Type.BYTES: BinaryType(),
}
"""Spark types of columns. Addresses and MACs are texts, as in all results. A Spark timestamp has a resolution of 1
µs.
"""


@dataclass(frozen=True)
class SourceOptions:
    """The options of one DataFrame. Raises ValueError for an unknown kind, column or choice.

    * `paths`: captures, folders or globs. `link`: the link of all captures; by default each file is a separate link.
    * `names`: names of columns, None for all columns that `*` selects.
    * `times`, `damage`, `ranges`: see their classes.
    * `sql`: the query whose results are the rows; None for the rows of captures.
    * `where`: the condition that rows must pass, as in a query; None for all rows.
    * `max_files`: maximum number of files in a micro-batch of a stream, None for all files.
    """

    paths: tuple[str, ...]
    kind: str = "packets"
    names: tuple[str, ...] | None = None
    link: str | None = None
    times: str = Times.TIMESTAMP
    damage: str = Damage.ERROR
    ranges: str = Ranges.GUESSED
    sql: str | None = None
    where: str | None = None
    max_files: int | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"option {name}: got {value!r}, expected {', '.join(choices[:-1])} or {choices[-1]}")
        if self.link == "":
            raise ValueError("option link: got an empty text, expected the name of a link")
        _ = self.columns

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse the options of Spark. Raises ValueError for an unknown option or a wrong value."""
        for name in options:
            if name not in OPTIONS:
                known = ", ".join(option for option in OPTIONS if not option.startswith("path"))
                raise ValueError(f"option {name}: unknown; the options of the format {FORMAT} are {known}")
        if "sql" in options and (others := [name for name in options if name in SELECTING]):
            raise ValueError(f"option {others[0]}: got it with the option sql; the query selects rows and columns")
        paths = json.loads(options["paths"]) if "paths" in options else []
        if "path" in options:
            paths.insert(0, options["path"])
        if not paths:
            raise ValueError(
                f"got no path, expected a capture, a folder or a glob: spark.read.format({FORMAT!r}).load(…)"
            )
        names = None
        if "columns" in options:
            names = tuple(name.strip() for name in options["columns"].split(","))
            if not all(names):
                raise ValueError(f"option columns: got {options['columns']!r}, expected names separated by commas")
        values = {name: options[name].strip() for name in ("link", "where", *CHOICES) if name in options}
        max_files = None
        if MAX_FILES in options:
            text = options[MAX_FILES].strip()
            if not text.isdecimal() or int(text) == 0:
                raise ValueError(f"option maxFilesPerTrigger: got {text!r}, expected a number of files from 1")
            max_files = int(text)
        return cls(tuple(map(local_path, paths)), names=names, sql=options.get("sql"), max_files=max_files, **values)

    @property
    def guesses(self) -> bool:
        """True if boundaries are guessed.

        With `damage` = `stop` they are not, because no rows after the damage may be read.
        """
        return self.damage == Damage.ERROR and self.ranges == Ranges.GUESSED

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in the order of the option."""
        try:
            columns = tuple(named_columns(self.kind, self.names))
        except ValueError as error:
            raise ValueError(f"option columns: {error}") from None
        doubled = {column.name for column in columns if columns.count(column) > 1}
        if doubled:
            raise ValueError(f"option columns: got {', '.join(sorted(doubled))} twice, expected each column once")
        return columns

    def spark_type(self, column: Column) -> DataType:
        """Return the type of a column in the DataFrame."""
        is_number = column.type is Type.TIME and self.times == Times.NANOSECONDS
        return LongType() if is_number else SPARK_TYPES[column.type]

    def schema_of(self, columns: Iterable[Column]) -> StructType:
        """Return the schema of a DataFrame with these columns."""
        return StructType([StructField(column.name, self.spark_type(column)) for column in columns])

    def select(self, schema: StructType) -> tuple[Column, ...]:
        """Return the columns of a schema, which may come from the user.

        Raises ValueError for an unknown name or another type.
        """
        columns = tuple(named_columns(self.kind, schema.fieldNames()))
        for column, field in zip(columns, schema.fields, strict=True):
            expected = self.spark_type(column)
            if field.dataType != expected or field.name != column.name:
                got = f"{field.name} {field.dataType.simpleString()}"
                raise ValueError(f"schema: got {got}, expected {column.name} {expected.simpleString()}")
        return columns


def local_path(text: str) -> str:
    """Return a path without the scheme `file:`. Raises ValueError for another scheme.

    >>> local_path("file:/a.pcap"), local_path("folder/a.pcap")
    ('/a.pcap', 'folder/a.pcap')
    """
    path = LOCAL_PREFIX.sub("", text, count=1)
    scheme: Any = SCHEME.match(path)
    if scheme is not None:
        raise ValueError(f"got the path {text}, expected a file that every executor can read at the same path")
    return path
