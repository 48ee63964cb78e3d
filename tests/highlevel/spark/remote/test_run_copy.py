"""A run whose folder is in an object store, killed at any request, and continued on the same or on another machine.

The run is a model without Spark: it plans offsets, updates state, writes results, fills a sink and commits, in the
order of `highlevel.spark.stream`, and with the modules that write these files. Each plan takes a random number of input
rows, so a plan that is lost after a sink has stored its rows leads to rows that are lost or doubled. Crashes happen
before and after the execution of requests. The tests detect a wrong order of writes, a missing file, and a process that
continues after another one has taken over.
"""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from highlevel.results.stored_files import list_files
from highlevel.spark.checkpoint import check_checkpoint, offsets_checksum, read_run_id
from highlevel.spark.errors import FolderError
from highlevel.spark.remote import run_copy
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import RunCopy, list_results, read_manifest, write_copy
from highlevel.spark.remote.run_lock import RunLock
from highlevel.spark.result_files import write_results
from highlevel.spark.state import PartitionState
from highlevel.spark.totals import Totals, TotalsFiles
from tests.harness.object_store import FakeClock, RequestHook, serve_objects

ROWS = 150
SECOND = 10**9


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with serve_objects():
        yield


class CrashError(Exception):
    """The process ends here."""


class Process:
    """A process that runs the model. `sink` is another system: rows by run and micro-batch, each stored once."""

    def __init__(self, uri: str, home: Path, sink: dict[tuple[str, int], list[int]], random: Random) -> None:
        clock = FakeClock()
        self.store = ObjectStore(uri, clock.wait, clock)
        self.copy = RunCopy(
            self.store, home, lambda _: None, ("alerts.sqlite",), RunLock(self.store, clock, clock.wait)
        )
        self.folder, self.sink, self.random = self.copy.folder, sink, random

    def start(self) -> None:
        self.copy.open()
        self.next_batch = check_checkpoint(self.folder, None)
        self.copy.publish(self.next_batch - 1)

    def step(self) -> bool:
        """Process one micro-batch. Return False at the end of the input."""
        batch, checkpoint = self.next_batch, self.folder / "checkpoint"
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        if not (checkpoint / "metadata").exists():
            (checkpoint / "metadata").write_text(json.dumps({"id": str(self.random.random())}))
        state = PartitionState(self.folder / "state", 0)
        stored = state.load(batch - 1, {"0.0": False})["0.0"]
        start = stored["rows"].num_rows if stored else 0
        if start == ROWS:
            return False
        if not (checkpoint / "offsets" / str(batch)).exists():
            end = min(ROWS, start + self.random.randrange(1, 40))
            (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps({'end': end})}")
        self.copy.publish_plan(batch)
        end = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])["end"]
        rows = [*range(start, end)]
        new = pa.table({"n": rows, "content": [bytes(200)] * len(rows)})
        state.save(batch, {"0.0": {"rows": pa.concat_tables([stored["rows"], new]) if stored else new}})
        times = pa.array([row * 800 * SECOND for row in rows], pa.timestamp("ns", "UTC"))  # two days
        results = pa.table({"n": rows, "window_end": times})
        write_results(self.folder / "output", batch, {"q": results}, repeated={})
        totals = Totals(query_ids={"q": 0}, offsets=offsets_checksum(checkpoint, batch))
        TotalsFiles(self.folder / "totals").save(batch, totals)
        with sqlite3.connect(self.folder / "alerts.sqlite") as alerts:
            alerts.execute("CREATE TABLE IF NOT EXISTS batches (batch INTEGER PRIMARY KEY)")
            alerts.execute("INSERT OR IGNORE INTO batches VALUES (?)", [batch])
        alerts.close()
        self.copy.check()
        self.sink.setdefault((read_run_id(self.folder), batch), rows)
        self.copy.publish(batch)
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")
        self.next_batch = batch + 1
        return True

    def die(self) -> None:
        """Release what the operating system releases at the end of a process."""
        self.copy._run_lock._ended.set()
        self.copy._locks.release()


def rows_in(folder: Path) -> Counter[int]:
    return Counter(n for path in list_files(folder / "output" / "q") for n in pq.read_table(path)["n"].to_pylist())


def test_a_run_that_crashes_at_any_request_loses_and_doubles_no_row(
    tmp_path: Path, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 2000)
    for seed in range(200 if soak else 2):
        print(f"seed {seed}")
        random, sink = Random(seed), {}
        uri, homes = f"s3a://lake/crashes-{seed}", [tmp_path / f"{seed}-{machine}" for machine in range(2)]
        crashes = 0
        for attempt in count():
            process = Process(uri, random.choice(homes), sink, random)
            number, moment = random.randrange(3, 30) if attempt < 8 else 10**9, random.random() < 0.5

            def crash(request: int, _: str, executed: bool, number: int = number, moment: bool = moment) -> None:
                if request > number or (request == number and executed == moment):
                    raise CrashError

            hook = RequestHook(process.store, crash)
            try:
                process.start()
                while process.step():
                    pass
            except CrashError:
                crashes += 1
                process.die()
            else:
                break
            finally:
                hook.remove()
        assert crashes > 3
        assert Counter(row for rows in sink.values() for row in rows) == Counter(range(ROWS))
        assert len({run for run, _ in sink}) == 1
        assert rows_in(process.folder) == Counter(range(ROWS))
        process.die()
        store = ObjectStore(uri)
        manifest = read_manifest(store)
        write_copy(store, manifest, tmp_path / "read", results := list_results(store, manifest))
        assert rows_in(tmp_path / "read") == Counter(range(ROWS))
        with sqlite3.connect(tmp_path / "read" / "alerts.sqlite") as alerts:
            assert alerts.execute("SELECT count(*) FROM batches").fetchone() == (process.next_batch,)
        alerts.close()
        shutil.rmtree(tmp_path / "read")
        needed = {"lock", "newest", manifest.name, *manifest.objects, *results}
        assert {*store.list("")} == needed


def test_a_process_that_was_suspended_ends_and_changes_nothing(tmp_path: Path) -> None:
    random, sink = Random(3), {}
    first, second = (Process("s3a://lake/suspended", tmp_path / name, sink, random) for name in ("a", "b"))
    first.start()
    first.step()
    first.copy._run_lock._ended.set()
    second.start()
    second.step()
    found = second.store.list("")
    (first.folder / "checkpoint" / "offsets" / "1").write_text("other offsets")
    with pytest.raises(FolderError, match=r"suspended: another run has taken over this folder"):
        first.copy.publish_plan(1)  # the manifest has a condition
    first.copy._run_lock.check = lambda: None  # as if it was suspended after the check
    with pytest.raises(
        FolderError, match=r"suspended(: another run has taken over|/output/.* another program has chang)"
    ):
        first.copy.publish(0)
    stored = second.store.list("")
    assert {name: stored[name] for name in found} == found  # the first process has only added objects
    while second.step():
        pass
    assert rows_in(second.folder) == Counter(range(ROWS))
    first.die()
    second.copy.close()


def test_a_second_run_on_this_machine_is_refused_at_once(tmp_path: Path) -> None:
    first, second = (Process("s3a://lake/twice", tmp_path / "home", {}, Random(1)) for _ in range(2))
    first.start()
    with pytest.raises(FolderError, match=r"^s3a://lake/twice is in use by another run; take another folder, or stop"):
        second.start()
    first.copy.close()
    second.start()
    second.copy.close()


def test_a_copy_that_was_deleted_is_written_again(tmp_path: Path) -> None:
    process = Process("s3a://lake/no-copy", tmp_path / "home", {}, Random(1))
    process.start()
    process.step()
    process.copy.close()
    rows = rows_in(process.folder)
    shutil.rmtree(process.folder)
    other = Process("s3a://lake/no-copy", tmp_path / "home", {}, Random(1))
    other.start()
    assert other.next_batch == 1
    assert rows_in(other.folder) == rows != Counter()
    other.copy.close()


def test_deleted_results_disappear_from_the_store(tmp_path: Path) -> None:
    process = Process("s3a://lake/deleted", tmp_path / "home", {}, Random(1))
    process.start()
    while process.step():
        pass
    files = list_files(process.folder / "output" / "q")
    assert len(files) == 2
    files[0].unlink()
    process.copy.publish(process.next_batch - 1)
    assert [*process.store.list("output/")] == [files[1].relative_to(process.folder).as_posix()]
    process.copy.close()


@pytest.mark.parametrize("kind", ["objects", "manifests", "output"])
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_damage_is_named_on_another_machine(
    kind: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 100)
    uri = f"s3a://lake/{kind}-{damage}"
    process = Process(uri, tmp_path / "a", {}, Random(1))
    process.start()
    process.step()
    process.copy.close()
    name = min(process.store.list(kind))
    content, _ = process.store.read(name)
    process.store.delete([name])
    if damage == "changed":
        process.store.create(name, bytes([content[0] ^ 1, *content[1:]]))
    other = Process(uri, tmp_path / "b", {}, Random(1))
    if kind == "output":
        other.start()  # readers of results verify them, and a micro-batch without rows has no file
        other.copy.close()
        return
    with pytest.raises(FolderError, match=f"{uri}/{name}: (damaged|missing)"):
        other.start()
