"""Both Spark engines without a JVM: their task functions, called in the order in which Spark calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa

from capture.open import open_finite
from highlevel.inline.engine import Input
from highlevel.plan.fragments import cut
from highlevel.plan.plan import Plan, leaves_of
from highlevel.spark.inputs import byte_ranges
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.source import StreamSpec
from highlevel.spark.tasks.finite_host import FiniteLevelTask
from highlevel.spark.tasks.packing import unpack
from tests.harness.stream_steps import steps

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def batch_answer(plan: Plan, inputs: Sequence[Input], parts: int, random: Random) -> pa.Table:
    """Return the answer of the batch engine, whose stages have `parts` partitions."""
    return batch_answers([plan], inputs, parts, random)[plan.name]


def batch_answers(plans: Sequence[Plan], inputs: Sequence[Input], parts: int, random: Random) -> dict[str, pa.Table]:
    """Return the answers of the batch engine to several queries in one job, by the names of the plans."""
    read = [each for each in inputs if any(each.feeds(leaf) for leaf in leaves_of(plans))]
    parts = parts if any(cut(plan).partitioned for plan in plans) else 1
    files = [open_finite(each.path, "a test") for each in read]
    tasks = tuple(byte_ranges.make_whole_tasks(files))
    feeds = InputAssignment.of(plans, read, parts)
    reader = byte_ranges.RangeReader(feeds, tuple(map(byte_ranges.input_size, files)), tasks, 64)
    batches = [batch for number in range(len(tasks)) for batch in reader(iter([pa.record_batch({"id": [number]})]))]
    stages: list[Task] = [FiniteLevelTask(feeds, level) for level in range(feeds.levels)]
    for stage in stages:
        batches = through_partitions(stage, batches, parts, random)
    tables = [[plan.schema.empty_table()] for plan in plans]
    for batch in batches:
        for query, payload in zip(batch["query"].to_pylist(), batch["payload"].to_pylist(), strict=True):
            if query != COUNTERS:
                tables[query].append(unpack(payload))
    return {plan.name: pa.concat_tables(answer) for plan, answer in zip(plans, tables, strict=True)}


def through_partitions(
    stage: Task, batches: Sequence[pa.RecordBatch], parts: int, random: Random
) -> list[pa.RecordBatch]:
    """Call `stage` with the rows of each of `parts` partitions, as a shuffle by `part` does, even if they are empty."""
    found = []
    rows = random.sample(list(batches), len(batches))
    for number in range(parts):
        mine = [batch.filter(pa.array(batch["part"].to_numpy() % parts == number)) for batch in rows]
        found += stage(iter([batch for batch in mine if batch.num_rows]))
    assert len({batch.schema for batch in found}) <= 1, "Spark requires the declared types, also of no rows"
    return found


def stream_answers(
    plans: Sequence[Plan], inputs: Sequence[Input], parts: int, folder: Path, random: Random
) -> dict[str, pa.Table]:
    """Return the answers of the stream engine over captures, in many micro-batches, by the names of the plans."""
    spec = StreamSpec(
        InputAssignment.of(plans, inputs, parts), 64, int(np.clip(random.randrange(40), 1, 40)), 2, None, 2
    )
    found = {plan.name: [plan.schema.empty_table()] for plan in plans}
    for results, _ in steps(spec, folder, random):
        for name, table in results.items():
            found[name].append(table)
    return {name: pa.concat_tables(tables) for name, tables in found.items()}
