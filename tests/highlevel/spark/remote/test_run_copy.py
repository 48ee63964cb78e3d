"""A run whose folder is in an object store, killed at any request, and continued on the same or on another machine.

The run is a model without Spark: it plans offsets, updates state, writes results, fills a sink and commits, in the
order of `highlevel.spark.stream`, and with the modules that write these files. Each plan takes a random number of input
rows, so a plan that is lost after a sink has stored its rows leads to rows that are lost or doubled. Crashes happen
before and after the execution of requests. The tests detect a wrong order of writes, a missing file, and a process that
continues after another one has taken over.
"""

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from highlevel.results.stored_files import list_files
from highlevel.spark.errors import FolderError
from highlevel.spark.remote import inspection, run_copy
from highlevel.spark.remote.file_entries import write_copy
from highlevel.spark.remote.inspection import summarise_stored, verify_stored
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_copy import COMMIT, RunCopy, list_unknown, read_manifest
from highlevel.spark.remote.run_lock import RunLock
from highlevel.spark.run_folder.checked_files import encode_document
from highlevel.spark.run_folder.checkpoint import check_checkpoint, offsets_checksum, read_run_id
from highlevel.spark.run_folder.result_files import delete_old, write_results
from highlevel.spark.run_folder.state import PartitionState
from highlevel.spark.run_folder.totals import Totals, TotalsFiles
from tests.harness.object_store import FakeClock, RequestHook, serve_objects

ROWS = 150
STATE_FOLDERS = ["state/0"]
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
        self.copy.publish(self.next_batch - 1, STATE_FOLDERS)

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
        self.copy.publish(batch, STATE_FOLDERS)
        (checkpoint / "commits" / str(batch)).write_bytes(COMMIT)
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
        write_copy(store, manifest.files, tmp_path / "read")
        assert rows_in(tmp_path / "read") == Counter(range(ROWS))
        with sqlite3.connect(tmp_path / "read" / "alerts.sqlite") as alerts:
            assert alerts.execute("SELECT count(*) FROM batches").fetchone() == (process.next_batch,)
        alerts.close()
        shutil.rmtree(tmp_path / "read")
        assert {*store.list("")} == {"lock", "newest", *manifest.objects}


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
    first.copy._run_lock._ended.clear()
    before = second.store.list("")
    with pytest.raises(FolderError, match=r"suspended: another run has taken over"):
        first.copy.publish(0, STATE_FOLDERS)  # the lock is renewed before results are written
    assert second.store.list("") == before
    first.copy._run_lock.renew = lambda: None  # as if it was suspended after the renewal
    with pytest.raises(FolderError, match=r"suspended: another run has taken over"):
        first.copy.publish(0, STATE_FOLDERS)
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


def stored_rows(store: ObjectStore, folder: Path) -> Counter[int]:
    """Return the rows of the results that the newest manifest names."""
    write_copy(store, read_manifest(store).files, folder)
    rows = rows_in(folder)
    shutil.rmtree(folder)
    return rows


def end_process(process: Process) -> None:
    while process.step():
        pass
    process.copy.close()


def test_a_start_that_another_process_overtakes_at_any_request_changes_nothing(
    tmp_path: Path, soak: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 2000)
    for number in range(1, 100) if soak else (6, *range(8, 100, 5)):  # 6: between the newest manifest and the list
        uri, sink, overtaken = f"s3a://lake/overtaken-{number}", {}, []
        first = Process(uri, tmp_path / f"{number}-a", sink, Random(1))
        first.start()
        first.step()
        first.copy.close()
        slow, fast, other = (Process(uri, tmp_path / f"{number}-{name}", sink, Random(2)) for name in "bcd")

        def overtake(
            request: int,
            _: str,
            executed: bool,
            number: int = number,
            slow: Process = slow,
            fast: Process = fast,
            overtaken: list[int] = overtaken,
        ) -> None:
            if request == number and not executed:
                overtaken.append(request)
                slow.copy._run_lock._ended.set()  # it has no connection for a long time
                fast.start()
                fast.step()

        hook, error = RequestHook(slow.store, overtake), ""
        try:
            slow.start()
        except FolderError as failure:
            error = str(failure)
        hook.remove()
        if error:
            assert error.startswith((f"{uri}: another run has taken over", f"{uri} is in use by another run"))
        slow.die()
        fast.die()
        other.start()
        end_process(other)
        assert stored_rows(other.store, tmp_path / "read") == Counter(range(ROWS))
        assert Counter(row for rows in sink.values() for row in rows) == Counter(range(ROWS))
        assert {*other.store.list("")} == {"lock", "newest", *read_manifest(other.store).objects}
        if not overtaken:
            break
    assert 10 < number < 99


@pytest.mark.parametrize(
    ("lost", "damage"),
    [
        ("checkpoint/metadata", "missing"),
        ("state", "missing"),
        ("output", "missing"),
        ("alerts.sqlite", "missing"),
        ("checkpoint", "empty"),
        ("state", "empty"),
        ("output", "empty"),
    ],
)
def test_a_damaged_copy_is_repaired_from_the_store(
    lost: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 2000)
    uri, sink = f"s3a://lake/repaired-{lost}-{damage}", {}
    process = Process(uri, tmp_path / "a", sink, Random(1))
    process.start()
    for _ in range(3):
        process.step()
    process.copy.close()
    before, objects = read_manifest(process.store), process.store.list("")
    for path in [process.folder / lost, *(process.folder / lost).rglob("*")]:
        if path.is_file():
            path.unlink() if damage == "missing" else path.write_bytes(b"")
    again = Process(uri, tmp_path / "a", sink, Random(1))
    again.start()
    after, stored = read_manifest(again.store), again.store.list("")
    assert after.files == before.files
    assert {name: stored[name] for name in objects.keys() - {"lock", "newest", before.name}}.items() <= objects.items()
    end_process(again)
    other = Process(uri, tmp_path / "b", sink, Random(1))
    other.start()
    assert rows_in(other.folder) == Counter(row for rows in sink.values() for row in rows) == Counter(range(ROWS))
    other.copy.close()


def test_an_intact_copy_is_not_copied_again(tmp_path: Path) -> None:
    process = Process("s3a://lake/intact", tmp_path / "a", {}, Random(1))
    process.start()
    end_process(process)
    again, said = Process("s3a://lake/intact", tmp_path / "a", {}, Random(1)), []
    again.copy._say = said.append
    again.start()
    assert said == []
    again.copy.close()


def test_results_that_another_program_deletes_are_read_again(tmp_path: Path) -> None:
    process, said = Process("s3a://lake/deleted", tmp_path / "home", {}, Random(1)), []
    process.copy._say = said.append
    process.start()
    while process.step():
        pass
    files = list_files(process.folder / "output" / "q")
    assert len(files) == 2
    files[0].unlink()
    process.copy.publish(process.next_batch - 1, STATE_FOLDERS)
    assert said == [f"warning: {files[0]} was deleted by another program; it was read from s3a://lake/deleted again"]
    assert rows_in(process.folder) == stored_rows(process.store, tmp_path / "read") == Counter(range(ROWS))
    process.copy.close()


def test_results_that_are_too_old_or_renamed_leave_the_store(tmp_path: Path) -> None:
    process = Process("s3a://lake/expired", tmp_path / "home", {}, Random(1))
    process.start()
    while process.step():
        pass
    output = process.folder / "output"
    delete_old(output / "q", "window_end", 86_400 * SECOND, process.next_batch)
    kept = rows_in(process.folder)
    assert 0 < kept.total() < ROWS
    process.copy.publish(process.next_batch - 1, STATE_FOLDERS)
    assert rows_in(process.folder) == stored_rows(process.store, tmp_path / "read") == kept
    (output / "q").rename(output / "q until 3")
    process.copy.publish(process.next_batch - 1, STATE_FOLDERS)
    results = [*process.store.list("output/")]
    assert len(results) == 2  # the file, and the time of the deletion
    assert all(name.startswith("output/q until 3/") for name in results)
    process.copy.close()


def test_a_micro_batch_visits_only_results_in_changed_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process("s3a://lake/visited", tmp_path / "home", {}, Random(1))
    process.start()
    while process.step():
        pass
    first, second = list_files(process.folder / "output" / "q")
    for path in (first, second):
        for folder in (path.parent, path.parent.parent, process.folder / "output"):
            os.utime(folder, (1, 1))
    process.copy.publish(process.next_batch - 1, STATE_FOLDERS)
    second.write_bytes(second.read_bytes())
    second.rename(second.with_name("part-00000900.parquet"))
    visited = []
    monkeypatch.setattr(run_copy, "_signature", lambda path: visited.append(path) or (1, 2, 3))
    process.copy.publish(process.next_batch - 1, STATE_FOLDERS)
    assert [path.name for path in visited if path.is_relative_to(process.folder / "output")] == [
        "part-00000900.parquet"
    ]
    assert stored_rows(process.store, tmp_path / "read") == Counter(range(ROWS))
    process.copy.close()


def test_a_run_remembers_only_the_files_of_its_manifest(tmp_path: Path) -> None:
    process = Process("s3a://lake/remembered", tmp_path / "home", {}, Random(1))
    process.start()
    while process.step():
        pass
    assert process.next_batch > 4
    manifest = read_manifest(process.store)
    assert {*process.copy._signatures} == {*process.copy._entries} <= {*manifest.files}
    assert f"totals/{process.next_batch - 1}.json" in process.copy._signatures
    process.copy.close()


def test_objects_of_an_older_format_are_refused(tmp_path: Path) -> None:
    store = ObjectStore("s3a://lake/older")
    store.create("newest", encode_document({"manifest": "manifests/3", "files": {}}))
    store.create("manifests/3", encode_document({"batch": 3, "files": {}}))
    message = r"^s3a://lake/older contains the state of another version of Wiretide: got the format 1 of the object new"
    for use in (
        Process(store.uri, tmp_path, {}, Random(1)).start,
        lambda: summarise_stored(store.uri),
        lambda: next(verify_stored(store.uri)),
    ):
        with pytest.raises(FolderError, match=message):
            use()


def test_a_run_that_starts_during_a_verification_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_copy, "INLINE_BYTES", 100)
    uri = "s3a://lake/verified"
    process = Process(uri, tmp_path / "a", {}, Random(1))
    process.start()
    process.step()
    process.copy.close()
    parts = verify_stored(uri)
    assert next(parts)[1] is None
    other = Process(uri, tmp_path / "a", {}, Random(1))
    other.start()
    end_process(other)
    with pytest.raises(FolderError, match=f"^{uri} is in use by a run, whose objects change; stop it$"):
        list(parts)


def test_a_verification_copies_one_file_of_results_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, counts = Process("s3a://lake/one-by-one", tmp_path / "a", {}, Random(1)), []
    process.start()
    (process.folder / "run.json").write_text("{}")
    end_process(process)

    def count_files(path: Path) -> None:
        counts.append(len(list_files(path.parent.parent)))

    monkeypatch.setattr(inspection, "verify", lambda folder: [(folder / "run.json", None)])
    monkeypatch.setattr(inspection, "verify_results", count_files)
    assert [problem for _, problem in verify_stored(process.store.uri)] == [None] * 3
    assert counts == [1, 1]


@pytest.mark.parametrize("lost", ["run.json", "checkpoint/metadata", "checkpoint/offsets/0", "totals/0.json", "state"])
def test_a_copy_that_lacks_files_is_not_stored(lost: str, tmp_path: Path) -> None:
    process = Process(f"s3a://lake/lacks-{lost}", tmp_path / "home", {}, Random(1))
    process.start()
    (process.folder / "run.json").write_text("{}")
    process.step()
    process.copy.publish(0, STATE_FOLDERS)
    path, before = process.folder / lost, process.store.list("")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(FolderError, match=rf"{path}.*: missing; s3a://lake/lacks-.* still has the last complete micro"):
        process.copy.publish(0, STATE_FOLDERS)
    assert {**process.store.list(""), "lock": before["lock"]} == before
    process.copy.close()


def test_objects_of_other_programs_are_never_changed(tmp_path: Path) -> None:
    outer = Process("s3a://lake/outer", tmp_path / "outer", {}, Random(1))
    outer.start()
    outer.step()
    inner = Process("s3a://lake/outer/output", tmp_path / "inner", {}, Random(1))
    inner.start()
    inner.step()
    outer.store.create("output/q/notes.txt", b"by hand")
    found = {name for name in inner.store.list("").items() if not name[0].startswith(("q/date=", "lock"))}
    end_process(outer)
    again = Process("s3a://lake/outer", tmp_path / "outer", {}, Random(1))
    again.start()
    again.copy.close()
    assert found <= {*inner.store.list("").items()}
    assert {f"output/{name}" for name, _ in found} <= list_unknown(again.store, read_manifest(again.store)).keys()
    assert rows_in(again.folder) == Counter(range(ROWS))
    end_process(inner)
    assert rows_in(inner.folder) == Counter(range(ROWS))


def test_a_result_that_the_store_has_lost_is_written_again(tmp_path: Path) -> None:
    process = Process("s3a://lake/lost-result", tmp_path / "home", {}, Random(1))
    process.start()
    end_process(process)
    process.store.delete([min(process.store.list("output/"))])
    again = Process("s3a://lake/lost-result", tmp_path / "home", {}, Random(1))
    again.start()
    assert stored_rows(again.store, tmp_path / "read") == Counter(range(ROWS))
    again.copy.close()


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
    before = process.store.list("")
    other = Process(uri, tmp_path / "b", {}, Random(1))
    with pytest.raises(FolderError, match=f"{uri}/{name}: (damaged|missing)"):
        other.start()
    stored = process.store.list("")
    assert before.keys() == stored.keys()
    if kind != "manifests":
        with closing(verify_stored(uri)) as parts:
            assert f"{uri}/{name}: " in next(problem for _, problem in parts if problem is not None)
