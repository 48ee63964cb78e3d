"""One run of the stream engine step by step, without a JVM: planning, tasks and hosts are called directly."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pyarrow as pa

from highlevel.inline.engine import InlineRun, Input
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
from highlevel.spark.inputs.topic_reading import find_newest_times
from highlevel.spark.run_folder.totals import Totals
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from queries.gsql import compile_query
from tests.references.window_queries import QUERIES

PLANS = [compile_query(query.gsql, query.name) for query in QUERIES]


def spec(inputs: list[Input], random: Random, plans: Sequence[Plan] = PLANS) -> StreamSpec:
    block_records, max_blocks = random.choice([(1, 400), (10, 9), (100, 1), (100, 3), (5000, 100)])
    return StreamSpec(
        InputAssignment.of(plans, inputs, partitions=random.choice([1, 2, 5])),
        slots=random.choice([8, 64, 1 << 12]),
        block_records=block_records,
        max_blocks=max_blocks,
        speed=None,
        task_count=random.choice([1, 3]),
    )


def source_rows(reader: CaptureReader, start: dict[str, int], end: dict[str, int]) -> list[pa.RecordBatch]:
    return [batch for run in reader.partitions(start, end) for batch in reader.read(run)]


def hosted(host: LevelTask, batches: list[pa.RecordBatch], parts: int) -> pa.Table:
    """The rows of all partitions, each from a task of its own, as a shuffle by `part` would spread them."""
    rows = pa.Table.from_batches(batches)
    tasks = [
        rows.filter(pa.array([part % parts == each for part in rows["part"].to_pylist()])) for each in range(parts)
    ]
    return pa.Table.from_batches([batch for task in tasks for batch in host(iter(task.to_batches()))])


def steps(spec: StreamSpec, folder: Path, random: Random) -> Iterator[tuple[dict[str, pa.Table], Totals]]:
    """Run to the end; every micro-batch may be done again, on a restarted planner, in another order of its rows."""
    reader = CaptureReader(spec, index_captures(spec))
    start, batch_id, totals = reader.initialOffset(), 0, Totals()
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for _ in range(random.choice([1, 1, 2])):
            batches = source_rows(reader, start, end)
            newest_times = find_newest_times(spec.assignment, totals)
            for level in range(spec.assignment.levels):
                random.shuffle(batches)
                host = LevelTask(spec.assignment, folder, batch_id, level, newest_times=newest_times)
                answers = hosted(host, batches, spec.assignment.partitions)
                batches = answers.to_batches()
            reader = CaptureReader(spec, index_captures(spec))
        results: dict[str, pa.Table] = {}
        counters: dict[bool, list[bytes]] = {True: [], False: []}
        for part, query, payload in zip(*(answers[name].to_pylist() for name in answers.column_names), strict=True):
            if query == COUNTERS:
                counters[part == COUNTERS].append(payload)
            else:
                name = spec.assignment.plans[query].name
                results[name] = pa.concat_tables(
                    [each for each in (results.get(name), unpack(payload)) if each is not None]
                )
        totals.add(spec.assignment, counters[True], counters[False])
        yield results, totals
        start, batch_id = end, batch_id + 1


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    order = [(name, "ascending") for name in one.column_names]
    return one.sort_by(order).equals(other.sort_by(order))


def inline(plans: Sequence[Plan], inputs: list[Input]) -> tuple[dict[str, pa.Table], InlineRun]:
    run = InlineRun(plans, inputs)
    found: dict[str, list[pa.RecordBatch]] = {plan.name: [] for plan in plans}
    for number, batch in run.results():
        found[plans[number].name].append(batch)
    return {plan.name: pa.Table.from_batches(found[plan.name], plan.schema) for plan in plans}, run
