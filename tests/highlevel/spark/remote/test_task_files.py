"""A run whose tasks read and write objects, because they see no folder of the driver. Tasks and drivers end anywhere.

Planning, tasks and the driver are those of the product; only Spark is missing. Each task is pickled, and runs on one of
two executors, which have separate scratch folders. An attempt may end at any request to the store, then the task is
repeated; so may the driver, then another process continues on one of two machines. The answer of the inline engine is
the truth. The tests detect a task that needs a file of the driver, rows and state of attempts that failed, and objects
that no process deletes.
"""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from highlevel.results.row_limit import RowLimit
from highlevel.results.stored_files import list_files
from highlevel.spark.errors import FolderError
from highlevel.spark.inputs.assignment import InputAssignment
from highlevel.spark.inputs.source import CaptureReader, StreamSpec, index_captures
from highlevel.spark.micro_batch import BatchProcessor
from highlevel.spark.remote import run_copy, task_files
from highlevel.spark.remote.file_entries import TASKS, make_task_name
from highlevel.spark.remote.object_store import ObjectStore, open_store
from highlevel.spark.remote.run_copy import COMMIT, RunCopy, read_manifest
from highlevel.spark.remote.run_lock import RunLock
from highlevel.spark.remote.task_files import ATTEMPT_PREFIX, SCRATCH, TaskFiles
from highlevel.spark.run_folder import state
from highlevel.spark.run_folder.checkpoint import check_checkpoint
from highlevel.spark.run_folder.result_files import read_results
from highlevel.spark.tasks.host import LevelTask
from queries.gsql import compile_query
from tests.harness.links import write_links
from tests.harness.object_store import FakeClock, RequestHook, serve_objects
from tests.harness.stream_steps import inline, same_rows, source_rows
from tests.references.graph_step_plans import QUERIES as GRAPHS
from tests.references.window_queries import QUERIES

PLANS = [
    *(compile_query(query.gsql, query.name) for query in QUERIES[:2]),
    compile_query(GRAPHS["by another"], "by another"),
]
PARTITIONS = 2


class DriverEndError(Exception):
    """The driver ends here."""


class ExecutorEndError(Exception):
    """The executor ends here."""


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    open_store.cache_clear()
    with serve_objects():
        yield
    open_store.cache_clear()


@pytest.fixture(autouse=True)
def _small_files_are_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 2000)
    monkeypatch.setattr(task_files, "INLINE_BYTES", 2000)
    monkeypatch.setattr(state, "MAX_PACKED_BYTES", 500)


class Executors:
    """Runs tasks as the executors of a cluster do. An attempt may end before and after each request."""

    def __init__(self, folder: Path, random: Random, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.random, self.patch = folder, random, patch
        self.ended, self.events, self.next_end = 0, count(), 5
        self.late: list[tuple[bytes, pa.Table]] = []

    def run(self, host: LevelTask, rows: pa.Table) -> list[pa.RecordBatch]:
        """Run a task until one of its attempts succeeds. Sometimes Spark gives up an attempt that has succeeded.

        Sometimes another attempt ends after the manifest of the micro-batch (`end_late_attempts`).
        """
        pickled = cloudpickle.dumps(host)
        if self.random.random() < 0.2:
            self.late.append((pickled, rows))
        while True:
            batches = self.attempt(pickled, rows)
            if batches is not None and self.random.random() > 0.05:
                return batches

    def attempt(self, pickled: bytes, rows: pa.Table) -> list[pa.RecordBatch] | None:
        """Run an attempt of a task. Return None if its executor ends."""
        scratch = self.folder / f"executor {self.random.randrange(2)}"
        scratch.mkdir(exist_ok=True)
        self.patch.setenv(SCRATCH, f"{scratch},/nowhere")
        task = pickle.loads(pickled)
        hook = RequestHook(task.files.store, self.end)
        try:
            return list(task(iter(rows.to_batches())))
        except ExecutorEndError:
            self.ended += 1
            return None
        finally:
            hook.remove()

    def end_late_attempts(self) -> None:
        """Run the attempts that Spark has not killed yet. The state that they read may no longer exist."""
        for pickled, rows in self.late:
            with suppress(FolderError):
                self.attempt(pickled, rows)
        self.late.clear()

    def end(self, *_: object) -> None:
        if next(self.events) >= self.next_end:
            self.next_end += self.random.randrange(2, 60)
            raise ExecutorEndError


class Rows:
    """Stands for the DataFrame of a micro-batch."""

    def __init__(self, batches: list[pa.RecordBatch], executors: Executors) -> None:
        self.batches, self.executors = batches, executors

    def repartitionById(self, partitions: int, column: str) -> Rows:
        assert (partitions, column) == (PARTITIONS, "part")
        return self

    def mapInArrow(self, host: LevelTask, _: str) -> Rows:
        rows = pa.Table.from_batches(self.batches)
        tasks = [
            rows.filter(pa.array([part % PARTITIONS == task for part in rows["part"].to_pylist()]))
            for task in range(PARTITIONS)
        ]
        return Rows([batch for task in tasks for batch in self.executors.run(host, task)], self.executors)

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


class Driver:
    """A driver on one machine, in the order of `highlevel.spark.stream`."""

    def __init__(self, uri: str, home: Path, reader: CaptureReader, executors: Executors) -> None:
        clock = FakeClock()
        self.store = ObjectStore(uri, clock.wait, clock)
        self.copy = RunCopy(self.store, home, lambda _: None, lock=RunLock(self.store, clock, clock.wait))
        self.reader, self.executors = reader, executors

    def run(self) -> None:
        """Process all micro-batches."""
        self.copy.open()
        folder, checkpoint = self.copy.folder, self.copy.folder / "checkpoint"
        batch_id = check_checkpoint(folder, None)
        assignment = self.reader.spec.assignment
        self.copy.publish(batch_id - 1, state.list_state_folders(assignment, batch_id - 1))
        processor = BatchProcessor(
            folder,
            assignment,
            row_limits={plan.name: RowLimit(rows=2) for plan in PLANS},
            keep_results=None,
            measure=False,
            say=lambda _: None,
        )
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text('{"id": "x"}')
        is_repeated = True
        while (offsets := self.plan(checkpoint / "offsets", batch_id)) is not None:
            self.executors.end_late_attempts()  # after the last manifest, so the next one has to delete their objects
            for is_again in (False, True) if batch_id % 3 == 2 else (False,):  # the query fails before the manifest
                self.copy.publish_plan(batch_id)
                rows = Rows(source_rows(self.reader, *offsets), self.executors)
                files = self.copy.make_task_files(batch_id)
                batch = processor.process(rows, batch_id, is_repeated=is_repeated or is_again, task_files=files)
            self.copy.check()
            self.copy.publish(batch_id, state.list_state_folders(assignment, batch_id), batch.task_state)
            if batch_id % 3 != 1:
                (checkpoint / "commits" / str(batch_id)).write_bytes(COMMIT)
            else:
                self.copy.add_commit()  # the query fails here, and the same process starts it again
            batch_id, is_repeated = check_checkpoint(folder, None), False

    def plan(self, folder: Path, batch_id: int) -> tuple[dict[str, int], dict[str, int]] | None:
        """Return the offsets of a micro-batch, which an earlier driver may have planned; None at the end."""
        path = folder / str(batch_id)
        start = read_offsets(folder / str(batch_id - 1)) if batch_id else self.reader.initialOffset()
        if not path.exists():
            end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
            if end == start:
                return None
            path.write_text(f"v1\n{{}}\n{json.dumps(end)}")
        return start, read_offsets(path)

    def die(self) -> None:
        """Release what the operating system releases at the end of a process."""
        self.copy._run_lock._ended.set()
        self.copy._locks.release()


def read_offsets(path: Path) -> dict[str, int]:
    return json.loads(path.read_text().splitlines()[-1])


def test_no_row_is_lost_or_doubled_if_executors_and_drivers_end_at_any_request(
    tmp_path: Path, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(100 if soak else 1):
        print(f"seed {seed}")
        random, folder, uri, ends = Random(seed), tmp_path / str(seed), f"s3a://lake/tasks-{seed}", 0
        folder.mkdir()
        inputs = write_links(folder, seed)
        assignment = InputAssignment.of(PLANS, inputs, PARTITIONS)
        spec = StreamSpec(assignment, slots=1 << 12, block_records=300, max_blocks=1, speed=None, task_count=1)
        reader = CaptureReader(spec, index_captures(spec))
        executors = Executors(folder, random, monkeypatch)
        while True:
            driver = Driver(uri, folder / random.choice("ab"), reader, executors)
            number, moment = random.randrange(3, 60) if ends < 8 else 10**9, random.random() < 0.5

            def end(request: int, _: str, executed: bool, number: int = number, moment: bool = moment) -> None:
                if request > number or (request == number and executed == moment):
                    raise DriverEndError

            hook = RequestHook(driver.store, end)
            try:
                driver.run()
                break
            except DriverEndError:
                ends += 1
                driver.die()
            finally:
                hook.remove()
        driver.copy.close()
        assert executors.ended > 3
        assert ends > 3
        want, _ = inline(PLANS, inputs)
        for plan in PLANS:
            found = read_results(driver.copy.folder / "output", plan)
            assert same_rows(found, want[plan.name]), plan.name
            assert found.num_rows > 10
        paths = list_files(driver.copy.folder / "output" / PLANS[0].name)
        assert any(path.stem.count("-") == 2 for path in paths), "no file of a partition"
        manifest = read_manifest(driver.store)
        assert manifest is not None
        assert any(name.startswith(TASKS) for name in manifest.objects)
        assert {*driver.store.list("")} == {"lock", "newest", *manifest.objects}


def test_objects_of_attempts_that_end_late_are_deleted_by_the_next_start(tmp_path: Path) -> None:
    uri = "s3a://lake/late-tasks"
    store = ObjectStore(uri)
    first = RunCopy(store, tmp_path, print)
    first.open()
    first.publish(-1, [])
    late, foreign = make_task_name(uri, 3, "state/0/3.json"), make_task_name("s3a://lake", 3, "state/0/3.json")
    for name in (late, foreign):
        store.create(name, b"")
    first.close()
    again = RunCopy(store, tmp_path, print)
    again.open()
    assert {late, foreign} <= store.list("").keys(), "nothing is deleted before a manifest of this process"
    again.publish(-1, [])
    assert {*store.list(TASKS)} == {foreign}
    again.close()


def make_state(folder: Path, batch: int, rows: int) -> None:
    table = pa.table({"n": range(rows), "content": [bytes(200)] * rows})
    old = state.PartitionState(folder, 0)
    stored = old.load(batch - 1, {"0.0": batch == 0})["0.0"]
    old.save(batch, {"0.0": {**stored, f"window {batch}": table}})


def test_an_executor_reads_each_object_once_and_keeps_only_those_of_the_newest_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    store, files = ObjectStore("s3a://lake/cache"), {}
    requests: list[str] = []
    hook = RequestHook(store, lambda _, operation, executed: requests.append(operation) if executed else None)
    for batch in range(3):
        tasks = TaskFiles(store, batch, files)
        with tasks.open_state("state/level 1", 0) as folder:
            make_state(folder, batch, 100)
            files = tasks.store_state(folder, "state/level 1", 0)
    objects = {entry["object"] for entry in files.values() if "object" in entry}
    assert len(objects) == 3
    assert {path.rpartition("/")[0] for path in files} == {"state/level 1/0"}
    assert requests == ["PutObject"] * 3
    cache = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in cache) == sorted(name.rpartition("-")[2] for name in objects)
    for path in cache:
        path.unlink()  # as on another executor
    with TaskFiles(store, 3, files).open_state("state/level 1", 0) as folder:
        tables = state.PartitionState(folder, 0).load(2, {"0.0": False})["0.0"]
    assert {name: table.num_rows for name, table in tables.items()} == {f"window {batch}": 100 for batch in range(3)}
    assert sorted(requests[3:]) == ["GetObject"] * 3
    hook.remove()


@pytest.mark.parametrize("damage", ["changed", "truncated"])
def test_an_executor_reads_an_object_again_if_its_file_is_damaged(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    store = ObjectStore(f"s3a://lake/cache-{damage}")
    tasks = TaskFiles(store, 0, {})
    with tasks.open_state("state", 0) as folder:
        make_state(folder, 0, 100)
        files = tasks.store_state(folder, "state", 0)
    (cached,) = (path for path in tmp_path.rglob("*") if path.is_file())
    content = cached.read_bytes()
    cached.write_bytes(bytes([content[0] ^ 1, *content[1:]]) if damage == "changed" else content[:100])
    with TaskFiles(store, 1, files).open_state("state", 0) as folder:
        tables = state.PartitionState(folder, 0).load(0, {"0.0": False})["0.0"]
    assert tables["window 0"].num_rows == 100
    assert cached.read_bytes() == content, "the next task reads it from the cache"


def test_the_folder_of_a_killed_attempt_is_removed_by_the_next_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    tasks = TaskFiles(ObjectStore("s3a://lake/killed"), 0, {})
    killed = (
        "import os, signal, sys; from pathlib import Path; from highlevel.spark.session.scratch import ScratchFolder\n"
        "scratch = ScratchFolder.create(sys.argv[1], Path(sys.argv[2]))\n"
        "(scratch.path / 'state').mkdir(); (scratch.path / 'state' / 'table').touch()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    attempt = subprocess.run([sys.executable, "-c", killed, ATTEMPT_PREFIX, str(tmp_path)], check=False)
    assert attempt.returncode == -signal.SIGKILL
    (abandoned,) = tmp_path.glob(f"{ATTEMPT_PREFIX}*")
    assert (abandoned / "state" / "table").exists()
    with tasks.open_state("state", 1) as other, tasks.open_state("state", 0) as level:
        assert not abandoned.exists()
        assert other.exists()
        assert level.parent.parent == tmp_path
    assert not list(tmp_path.glob(f"{ATTEMPT_PREFIX}*"))


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damaged_objects_are_named(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SCRATCH, raising=False)  # a session of other tests has set it
    store = ObjectStore(f"s3a://lake/damaged-{damage}")
    tasks = TaskFiles(store, 0, {})
    with tasks.open_state("state", 0) as folder:
        make_state(folder, 0, 100)
        files = tasks.store_state(folder, "state", 0)
    entries = [tasks.store_rows(0, pa.table({"n": [1, 2]})), *(entry for entry in files.values() if "object" in entry)]
    assert len(entries) == 2
    for entry in entries:
        content, _ = store.read(entry["object"])
        store.delete([entry["object"]])
        if damage == "changed":
            store.create(entry["object"], bytes([content[0] ^ 1, *content[1:]]))
    problem = rf"^{store.uri}/{TASKS}0/.*: {'damaged' if damage == 'changed' else 'missing'}"
    with pytest.raises(FolderError, match=problem), TaskFiles(store, 1, files).open_state("state", 0):
        pass
    with pytest.raises(FolderError, match=problem):
        tasks.read_rows(entries[0])
