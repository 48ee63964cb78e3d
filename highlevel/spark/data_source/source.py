"""The data source `wiretide`: captures as a DataFrame or a stream in the session of a Spark user.

spark.read.format("wiretide").load("archive")                  rows of captures (`capture_rows`)
spark.read.format("wiretide").option("sql", …).load("archive") rows of a query (`query_reader`)
spark.readStream.format("wiretide").load("archive")            rows of new captures (`capture_stream`)
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from capture.errors import InputError
from highlevel.plan.plan import Plan
from highlevel.spark.data_source.capture_rows import BindFiles, CaptureReader, plan_ranges
from highlevel.spark.data_source.capture_stream import CaptureStreamReader
from highlevel.spark.data_source.options import FORMAT, SourceOptions
from highlevel.spark.data_source.query_reader import QueryReader
from highlevel.spark.data_source.row_condition import compile_condition
from highlevel.spark.session.session import use_this_python
from lowlevel.expressions.tree import Expression

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

CompileQuery = Callable[[str], Plan]
"""Function that returns the plan of the text of a query."""


class CaptureTable(DataSource):
    """Data source for Spark. `register_source` makes a subclass with the attributes for one session.

    `bind_files` returns the inputs for paths, `compile_query` returns the plan of a query, and `cores` is the number of
    tasks that run at the same time.
    """

    bind_files: BindFiles
    compile_query: CompileQuery
    cores: int

    @classmethod
    def name(cls) -> str:
        """Name for `read.format`."""
        return FORMAT

    @property
    def parsed(self) -> SourceOptions:
        """The options. Raises ValueError."""
        return SourceOptions.parse(self.options)

    def schema(self) -> StructType:
        """Schema of the rows. Raises InputError for a path that does not exist, before the job."""
        parsed = self.parsed
        check_paths(parsed.paths)
        self._condition(parsed)
        return parsed.schema_of(parsed.columns if parsed.sql is None else self._plan(parsed.sql).root.columns)

    def _plan(self, sql: str) -> Plan:
        return type(self).compile_query(sql)

    def _condition(self, options: SourceOptions) -> Expression | None:
        if options.where is None:
            return None
        return compile_condition(options.where, options.kind, type(self).compile_query)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a DataFrame.

        Raises ValueError for a schema with other columns or types, and for wrong options.
        """
        parsed = self.parsed
        if parsed.max_files is not None:
            raise ValueError("option maxFilesPerTrigger: got the option with spark.read, expected spark.readStream")
        bind_files = type(self).bind_files
        if parsed.sql is None:
            return TableReader(parsed, parsed.select(schema), bind_files, self.cores, self._condition(parsed))
        plan = self._plan(parsed.sql)
        if schema != parsed.schema_of(plan.root.columns):
            raise ValueError(f"schema: got {schema.simpleString()}, expected no schema: the query selects the columns")
        return QueryReader(parsed, plan, bind_files)

    def streamReader(self, schema: StructType) -> CaptureStreamReader:  # noqa: N802
        """Make the reader of a stream. Raises ValueError as `reader` does."""
        parsed = self.parsed
        if parsed.sql is not None:
            raise ValueError("option sql: got a query with spark.readStream, expected spark.read, or `wiretide run`")
        if parsed.kind == "flows" and parsed.link is not None:
            raise ValueError(
                "option link: got one link for all files of flows with spark.readStream, expected none: templates of "
                "earlier files are not known"
            )
        bind_files, where = type(self).bind_files, self._condition(parsed)
        return CaptureStreamReader(parsed, parsed.select(schema), bind_files, self.cores, where)


def check_paths(paths: Sequence[str]) -> None:
    """Raise InputError for a path that is neither a file nor a folder nor a glob."""
    for path in paths:
        if not (Path(path).exists() or glob.has_magic(path)):
            raise InputError(f"{path}: got no file or folder of this name, expected a capture, a folder or a glob")


class TableReader(CaptureReader, DataSourceReader):
    """Plan the tasks of a DataFrame. `read` runs in the tasks."""

    def partitions(self) -> list[InputPartition]:
        """Divide the captures into byte ranges. Raises InputError for a file that is not a capture."""
        return plan_ranges(self.bind_files(self.options.paths), self.options, self.cores, self.where)


def register_source(spark: object, bind_files: BindFiles, compile_query: CompileQuery) -> None:
    """Make the format `wiretide` known to a session, classic or of Spark Connect. Raises ValueError for another object.

    Workers of a classic session on this machine run the Python executable of this process, because another Python may
    lack Wiretide. PYSPARK_PYTHON and `spark.pyspark.python` have priority. A Spark Connect server runs its own Python,
    in which Wiretide must be installed.
    """
    attributes: dict[str, Any] = {
        "bind_files": staticmethod(bind_files),
        "compile_query": staticmethod(compile_query),
    }
    if isinstance(spark, SparkSession):
        use_this_python(spark.sparkContext)
        attributes["cores"] = spark.sparkContext.defaultParallelism
    elif is_connected(spark):
        attributes["cores"] = count_cores(spark)
    else:
        got = f"{type(spark).__module__}.{type(spark).__qualname__}"
        raise ValueError(f"got {got}, expected a pyspark.sql.SparkSession or a session of Spark Connect")
    spark.dataSource.register(type("BoundCaptureTable", (CaptureTable,), attributes))


def is_connected(spark: object) -> TypeGuard[ConnectSession]:
    """Return True for a session of Spark Connect.

    The package of Spark Connect is not imported, because it needs grpcio.
    """
    return type(spark).__module__ == "pyspark.sql.connect.session"


def count_cores(spark: ConnectSession) -> int:
    """Return the number of tasks that run at the same time on the server. A small job determines it."""
    parts = spark.range(1 << 16).select(spark_partition_id().alias("part")).distinct()
    return max(1, parts.count())
