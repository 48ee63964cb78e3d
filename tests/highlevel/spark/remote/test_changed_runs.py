"""Runs in an object store that start again with other queries or with another number of partitions.

Folders, tasks and the driver are those of the product; only Spark is missing. The answer of the inline engine is the
truth. The tests detect a start that needs state of removed queries or partitions, and state that is not stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pytest

from highlevel.inline.engine import Input
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
from highlevel.spark.micro_batch import BatchProcessor
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import RunCopy, read_manifest
from highlevel.spark.run_folder.result_files import read_results
from highlevel.spark.run_folder.state import list_state_folders
from highlevel.spark.stream import StreamRun
from highlevel.spark.tasks.host import LevelTask
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.object_store import serve_objects
from tests.harness.stream_steps import hosted, inline, same_rows, source_rows
from tests.references.graph_step_plans import QUERIES as GRAPHS
from tests.references.window_queries import QUERIES

SIMPLE = compile_query(QUERIES[0].gsql, QUERIES[0].name)
TWO_LEVELS = compile_query(GRAPHS["by another"], "by another")


class Rows:
    """Stands for the DataFrame of a micro-batch."""

    def __init__(self, batches: list[pa.RecordBatch]) -> None:
        self.batches, self.partitions = batches, 0

    def repartitionById(self, partitions: int, _: str) -> Rows:
        self.partitions = partitions
        return self

    def mapInArrow(self, host: LevelTask, _: str) -> Rows:
        return Rows(hosted(host, self.batches, self.partitions).to_batches())

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


def read_offsets(path: Path) -> dict[str, int]:
    return json.loads(path.read_text().splitlines()[-1])


def start_and_run(
    uri: str, home: Path, plans: Sequence[Plan], inputs: Sequence[Input], partitions: int, batches: int
) -> Path:
    """Start a run and process at most `batches` micro-batches. Return the copy of its folder."""
    copy = RunCopy(ObjectStore(uri), home, lambda _: None)
    copy.open()
    unused: Any = None
    run = StreamRun(unused, plans, inputs, copy.folder, partitions=partitions, say=lambda _: None, copy=copy)
    run.prepare()
    spec = StreamSpec(run.assignment, slots=1 << 12, block_records=300, max_blocks=1, speed=None, task_count=1)
    reader = CaptureReader(spec, index_captures(spec))
    processor = BatchProcessor(
        copy.folder, run.assignment, row_limits={}, keep_results=None, measure=False, say=lambda _: None
    )
    checkpoint = copy.folder / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "metadata").write_text('{"id": "x"}')
    for batch_id in range(run.next_batch, run.next_batch + batches):
        path = checkpoint / "offsets" / str(batch_id)
        start = read_offsets(path.with_name(str(batch_id - 1))) if batch_id else reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            break
        path.write_text(f"v1\n{{}}\n{json.dumps(end)}")
        copy.publish_plan(batch_id)
        rows: Any = Rows(source_rows(reader, start, end))
        processor.process(rows, batch_id, is_repeated=False)
        run._publish(batch_id)
        copy.add_commit()
    expected = list_state_folders(run.assignment, 10**9)
    manifest = read_manifest(copy.store)
    assert manifest is not None
    states = {PurePosixPath(path).parent.as_posix() for path in manifest.files if path.startswith("state/")}
    assert batches == 0 or states == {*expected}
    run.stop()
    copy.close()
    return copy.folder


@pytest.mark.parametrize(
    ("first", "second", "partitions"),
    [
        ([SIMPLE, TWO_LEVELS], [SIMPLE], (2, 2)),
        ([SIMPLE], [SIMPLE, TWO_LEVELS], (2, 2)),
        ([SIMPLE], [SIMPLE], (3, 2)),
        ([SIMPLE], [SIMPLE], (2, 3)),
    ],
    ids=["a level less", "a level more", "a partition less", "a partition more"],
)
def test_a_run_continues_with_other_queries_and_partitions(
    first: list[Plan], second: list[Plan], partitions: tuple[int, int], tmp_path: Path
) -> None:
    inputs, uri = write_links(tmp_path, 3), f"s3a://lake/{len(first)}-{len(second)}-{partitions[0]}-{partitions[1]}"
    with serve_objects():
        start_and_run(uri, tmp_path / "a", first, inputs, partitions[0], batches=2)
        start_and_run(uri, tmp_path / "a", second, inputs, partitions[1], batches=0)
        start_and_run(uri, tmp_path / "b", second, inputs, partitions[1], batches=1)
        folder = start_and_run(uri, tmp_path / "a", second, inputs, partitions[1], batches=10**6)
    want, _ = inline([SIMPLE], inputs)
    found = read_results(folder / "output", SIMPLE)
    assert same_rows(found, want[SIMPLE.name])
    assert found.num_rows > 10
