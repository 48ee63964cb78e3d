"""The stream source of Spark: captures as micro-batches of packed partials.

Spark asks a planning process beside the driver how far there is something to read and how to cut it into tasks, and
writes the answer to its log before the first task runs: a micro-batch that failed is read again exactly. The planning
process scans each file once and keeps the index; a restart scans again. An offset is the number of blocks read of
each input, UNREAD before its first promise.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from capture.files.blocks import Index
from capture.files.capture import Capture, open_mapped
from capture.files.recognise import FileFormat
from capture.files.scan import scan
from highlevel.spark.admission import UNREAD, Admission, low_at, split_run
from highlevel.spark.decompressed_inputs import with_damage
from highlevel.spark.feeds import Feeds
from highlevel.spark.reading import SPARK_SCHEMA, Run, read_run
from highlevel.spark.state import replace
from lowlevel.punctuation import BEGINNING

FORMAT = "wiretide_captures"
PACED_BLOCKS = 64
"""With a speed even a short file is cut into about as many blocks, or its link would say nothing until its end."""


@dataclass(frozen=True)
class StreamSpec:
    """All that the source is told. `tasks` is into how many tasks one input's blocks of a micro-batch are cut."""

    feeds: Feeds
    parts: int
    slots: int
    block_records: int
    max_blocks: int
    speed: float | None
    tasks: int

    def save(self, path: Path) -> None:
        """Write to a file: Spark matches long options against a recursive pattern, and its stack overflows."""
        replace(path, pickle.dumps(self))

    @classmethod
    def load(cls, path: Path) -> StreamSpec:
        """Read back."""
        spec = pickle.loads(path.read_bytes())
        assert isinstance(spec, cls)
        return spec


class RunPartition(InputPartition):
    """What a task is given."""

    def __init__(self, run: Run) -> None:
        """Carry a run."""
        self.run = run


class CaptureSource(DataSource):
    """The source as Spark knows it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Take the one option `spec`, the path of a saved StreamSpec."""
        super().__init__(options)
        self.spec = StreamSpec.load(Path(options["spec"]))

    @classmethod
    def name(cls) -> str:
        """Name for `readStream.format`."""
        return FORMAT

    def schema(self) -> str:
        """Rows as `reading` makes them."""
        return SPARK_SCHEMA

    def streamReader(self, schema: StructType) -> CaptureReader:  # noqa: N802
        """Make the reader."""
        return CaptureReader(self.spec)


@dataclass(frozen=True)
class Indexed:
    """What the planner knows of an input: its records' format, its length in bytes, and its index."""

    form: FileFormat
    size: int
    index: Index


class CaptureReader(DataSourceStreamReader):
    """Plans micro-batches; `read` runs in the tasks and uses nothing but its partition and the spec."""

    def __init__(self, spec: StreamSpec) -> None:
        """Scan nothing yet: tasks make readers too."""
        self.spec = spec

    def __getstate__(self) -> dict[str, Any]:
        """Leave the indexes behind."""
        return {"spec": self.spec}

    @cached_property
    def files(self) -> list[Indexed]:
        """What is known of each input."""
        return [index_file(open_mapped(each.path, "the stream engine"), self.spec) for each in self.spec.feeds.inputs]

    @cached_property
    def admission(self) -> Admission:
        """What comes next."""
        return Admission([each.index for each in self.files], self.spec.max_blocks, self.spec.speed)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Nothing read and nothing promised."""
        return dict.fromkeys(self._keys(), UNREAD)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Limits are our own."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Say how far the next micro-batch reads."""
        keys = self._keys()
        places = self.admission.latest([start[key] for key in keys], time.monotonic_ns())
        return dict(zip(keys, places, strict=True))

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """Say how far there is something to read, for progress reports."""
        return {key: len(each.index.blocks) for key, each in zip(self._keys(), self.files, strict=True)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Cut the blocks between two offsets into tasks."""
        runs: list[InputPartition] = []
        for number, key in enumerate(self._keys()):
            file = self.files[number]
            index = file.index
            before, after = start[key], end[key]
            if before == after:
                continue
            place = max(before, 0)
            for blocks in split_run(index.blocks[place:after], self.spec.tasks):
                promise = low_at(index, 0) if before == UNREAD and place == 0 else BEGINNING
                last = place + len(blocks) == len(index.blocks)
                damage = index.damage if last else None
                total = len(index.blocks)
                run = Run(number, place, total, promise, tuple(blocks), file.size, damage, file.form)
                runs.append(RunPartition(run))
                place += len(blocks)
        return runs

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Run one task."""
        assert isinstance(partition, RunPartition)
        spec = self.spec
        return read_run(spec.feeds, partition.run, spec.parts, spec.slots, spec.block_records)

    def commit(self, end: dict[str, int]) -> None:
        """Keep nothing, so there is nothing to let go."""

    def stop(self) -> None:
        """Hold nothing, so there is nothing to close."""

    def _keys(self) -> list[str]:
        return [f"{number} {each.path}" for number, each in enumerate(self.spec.feeds.inputs)]


def index_file(file: Capture, spec: StreamSpec) -> Indexed:
    """Scan a file into blocks of at most `block_records`, and into more of them where the replay is paced."""
    index = scan(file, spec.block_records)
    if spec.speed is not None and 0 < index.records < PACED_BLOCKS * spec.block_records:
        index = scan(file, max(1, index.records // PACED_BLOCKS))
    return Indexed(file.format, len(file.data), with_damage(index, file.path))


def open_stream(spark: SparkSession, spec: StreamSpec, path: Path) -> Any:
    """Return the streaming DataFrame of packed rows; `path` is where the source is told its spec."""
    spec.save(path)
    spark.dataSource.register(CaptureSource)
    return spark.readStream.format(FORMAT).option("spec", str(path)).load()
