"""Runs under random faults, step by step and without a JVM: the rows are those of an undisturbed run.

Faults are a full disk at any write, the end of a task at any write, a task that works again after its micro-batch, a
new planner, and steps of the wall clock. `test_spool_steps` has damaged and missing segments, whose rows are counted.
`make soak` does the same with the processes of `wiretide run` (`tests.harness.fault_rounds`).
"""

import errno
import os
import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from capture import private_files
from highlevel.groups import merge_buffer
from highlevel.plan.plan import Plan
from highlevel.spark.inputs.reading import COUNTERS
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
from highlevel.spark.run_folder.totals import TotalsFiles
from highlevel.spark.tasks.host import LevelTask
from highlevel.spark.tasks.packing import unpack
from tests.harness.links import write_links
from tests.harness.stream_steps import PLANS, hosted, inline, same_rows, source_rows, spec

SOME = PLANS[::3]


class Killed(BaseException):
    """The end of a process."""


class Faults:
    """Lets writes of files fail, and the wall clock step."""

    def __init__(self, random: Random, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.random, self.folder, self.share = random, folder, 0.0
        self.counts = {"full disk": 0, "killed": 0, "late": 0, "planner": 0}
        create, clock = private_files.create_temporary, time.time_ns

        def create_or_fail(path: Path, *arguments: Any, **options: Any) -> Any:
            if self.random.random() < self.share and self.folder in path.parents:
                if self.random.random() < 0.5:
                    self.counts["full disk"] += 1
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self.counts["killed"] += 1
                path.with_name(f".{path.name}.part").write_bytes(b"half")  # what a killed process leaves
                raise Killed
            return create(path, *arguments, **options)

        patch.setattr(private_files, "create_temporary", create_or_fail)
        patch.setattr(time, "time_ns", lambda: clock() + self.random.choice([0, 3600, -86_400]) * 10**9)


def answer(run: StreamSpec, folder: Path, batch_id: int, batches: list[pa.RecordBatch]) -> pa.Table:
    """Run the operator tasks of a micro-batch."""
    for level in range(run.assignment.levels):
        task = LevelTask(run.assignment, folder / "state", batch_id, level)
        answers = hosted(task, batches, run.assignment.partitions)
        batches = answers.to_batches()
    return answers


def rows_of(run: StreamSpec, answers: pa.Table) -> list[tuple[str, pa.Table]]:
    pairs = zip(answers["query"].to_pylist(), answers["payload"].to_pylist(), strict=True)
    return [(run.assignment.plans[query].name, unpack(payload)) for query, payload in pairs if query != COUNTERS]


def play(run: StreamSpec, folder: Path, faults: Faults) -> list[tuple[str, pa.Table]]:
    """Play a run under faults, and return its results."""
    random = faults.random
    reader = CaptureReader(run, index_captures(run))
    start, batch_id, results = reader.initialOffset(), 0, []
    late: tuple[int, list[pa.RecordBatch]] | None = None
    files = TotalsFiles(folder / "totals")
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batches = source_rows(reader, start, end)
        while True:
            random.shuffle(batches)
            faults.share = 0.03
            try:
                answers = answer(run, folder, batch_id, batches)
                totals = files.load(batch_id - 1)
                counters: dict[bool, list[bytes]] = {True: [], False: []}
                for part, query, payload in zip(
                    *(answers[name].to_pylist() for name in ("part", "query", "payload")), strict=True
                ):
                    if query == COUNTERS:
                        counters[part == COUNTERS].append(payload)
                totals.add(run.assignment, counters[True], counters[False])
                files.save(batch_id, totals)
                break
            except (OSError, Killed):
                continue
            finally:
                faults.share = 0.0
        if late is not None:
            faults.counts["late"] += 1
            answer(run, folder, *late)  # a task that Spark has given up
        late = (batch_id, list(batches)) if random.random() < 0.3 else None
        if random.random() < 0.3:
            faults.counts["planner"] += 1
            reader = CaptureReader(run, index_captures(run))
        results += rows_of(run, answers)
        start, batch_id = end, batch_id + 1
    return results


def gather(plan: Plan, results: list[tuple[str, pa.Table]]) -> pa.Table:
    return pa.concat_tables([plan.schema.empty_table(), *(rows for name, rows in results if name == plan.name)])


def test_a_run_under_faults_has_the_rows_of_an_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[str, int] = {}
    for seed in range(3):  # together they have every fault
        random = Random(f"chaos {seed}")
        folder = tmp_path / str(seed)
        (folder / "inputs").mkdir(parents=True, mode=0o700)
        folder.chmod(0o700)
        inputs = write_links(folder / "inputs", seed)
        expected, _ = inline(SOME, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(merge_buffer, "FEW_ROWS", random.choice([0, 4096]))
            patch.setattr(merge_buffer, "SIMILAR_PIECES", random.choice([2, 16]))
            run = spec(inputs, random, SOME)
            faults = Faults(random, folder, patch)
            results = play(run, folder, faults)
        for plan in SOME:
            assert same_rows(gather(plan, results), expected[plan.name]), (seed, plan.name)
        for fault, count in faults.counts.items():
            counts[fault] = counts.get(fault, 0) + count
    assert all(count > 0 for count in counts.values()), counts
