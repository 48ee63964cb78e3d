"""The lock of a run in an object store: one owner at a time, and the owner notices that it has lost the lock.

Without Spark. The clocks are fake; the store is a real server.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from highlevel.spark.errors import FolderError
from highlevel.spark.remote.object_store import ObjectStore
from highlevel.spark.remote.run_lock import LOCK_SECONDS, NAME, RunLock, check_unused
from tests.harness.object_store import FakeClock, RequestHook, serve_objects


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with serve_objects():
        yield


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(f"s3a://lake/{request.node.name}")


def make_file(folder: Path, name: str) -> Path:
    file = folder / name
    file.touch()
    return file


def test_the_second_of_two_runs_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    first, said = RunLock(store), []
    first.take(make_file(tmp_path, "a"), said.append)
    clock = FakeClock(on_wait=lambda waits: first._renew() if waits == 3 else None)
    with pytest.raises(FolderError, match=r"is in use by another run, process \d+ on .+; take another folder, or stop"):
        RunLock(store, clock, clock.wait).take(make_file(tmp_path, "b"), said.append)
    assert clock.waits == 4
    assert len(said) == 1
    assert said[0].startswith(f"{store.uri}: waiting up to 30 s for the end of the run on ")
    first.check()
    first.release()
    second = RunLock(store, clock := FakeClock(), clock.wait)
    second.take(make_file(tmp_path, "b"), said.append)
    assert (clock.waits, len(said)) == (0, 1)
    second.release()


def test_a_lock_that_is_not_renewed_ends_and_its_owner_notices_it(store: ObjectStore, tmp_path: Path) -> None:
    clock = FakeClock()
    first, second = RunLock(store, clock, clock.wait), RunLock(store, clock, clock.wait)
    first.take(make_file(tmp_path, "a"), print)
    first._ended.set()  # as if its process was suspended
    second.take(make_file(tmp_path, "b"), print)
    assert LOCK_SECONDS <= clock.now < LOCK_SECONDS + 3
    first._ended.clear()
    for _ in range(2):
        with pytest.raises(FolderError, match="another run has taken over this folder; stop one of them"):
            first.check()
    second.check()
    first.release()
    second._renew()  # the second run still has the lock
    second.check()
    second.release()


def test_a_lock_that_is_deleted_and_written_meanwhile_is_in_use(store: ObjectStore, tmp_path: Path) -> None:
    first, clock = RunLock(store), FakeClock()
    second = RunLock(store, clock, clock.wait)
    first.take(make_file(tmp_path, "a"), print)

    def delete_and_take(request: int, _: str, executed: bool) -> None:
        if request == 2 and not executed:  # after the second run has found the lock, before it reads it
            first._store.delete([NAME])
        if request == 3 and not executed:  # after the second run has not found it
            first._version = first._store.create(NAME, first._encode())

    other = ObjectStore(store.uri)
    first._store, second._store = other, store
    hook = RequestHook(store, delete_and_take)
    clock.on_wait = lambda waits: first._renew() if waits == 1 else None
    with pytest.raises(FolderError, match=r"is in use by another run, process \d+ on .+; take another folder, or stop"):
        second.take(make_file(tmp_path, "b"), print)
    hook.remove()
    first.release()


@pytest.mark.parametrize("content", [b"", b"[1]", b"notes"])
def test_an_object_of_another_program_is_no_lock(content: bytes, store: ObjectStore, tmp_path: Path) -> None:
    store.create(NAME, content)
    message = rf"^{re.escape(store.uri)}/lock: got \d bytes of another program, expected the lock of a run"
    for use in (lambda: RunLock(store).take(make_file(tmp_path, "a"), print), lambda: check_unused(store)):
        with pytest.raises(FolderError, match=message):
            use()


def test_a_process_that_has_locked_the_file_of_the_owner_does_not_wait(store: ObjectStore, tmp_path: Path) -> None:
    clock, file = FakeClock(), make_file(tmp_path, "a")
    RunLock(store).take(file, print)
    lock = RunLock(store, clock, clock.wait)
    lock.take(file, print)
    assert clock.waits == 0
    lock.release()


def test_a_lock_that_is_released_meanwhile_is_taken(store: ObjectStore, tmp_path: Path) -> None:
    first = RunLock(store)
    first.take(make_file(tmp_path, "a"), print)
    clock = FakeClock(on_wait=lambda _: first.release())
    second = RunLock(store, clock, clock.wait)
    second.take(make_file(tmp_path, "b"), print)
    assert clock.waits == 1
    second.release()


def test_an_owner_renews_a_lock_that_is_nearly_too_old(store: ObjectStore, tmp_path: Path) -> None:
    clock = FakeClock()
    lock = RunLock(store, clock, clock.wait)
    lock.take(make_file(tmp_path, "a"), print)
    version = store.list(NAME)[NAME]
    lock.check()
    assert store.list(NAME)[NAME] == version
    clock.now += LOCK_SECONDS
    lock.check()
    assert store.list(NAME)[NAME] != version
    lock.release()


@pytest.mark.parametrize("condition", ["IfNoneMatch", "IfMatch"])
def test_a_store_that_ignores_a_condition_is_refused(
    condition: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = store._write

    def ignore(name: str, content: bytes, conditions: dict[str, str]) -> str:
        return write(name, content, {key: value for key, value in conditions.items() if key != condition})

    monkeypatch.setattr(store, "_write", ignore)
    with pytest.raises(FolderError, match=f"the store ignores the condition {condition.replace('If', 'If-', 1)[:5]}"):
        RunLock(store).take(make_file(tmp_path, "a"), print)


def test_an_owner_whose_write_had_no_answer_keeps_the_lock(tmp_path: Path) -> None:
    from botocore.exceptions import ConnectionClosedError

    clock = FakeClock()
    store = ObjectStore("s3a://lake/no-answer", clock.wait, clock)
    lock, executed_writes = RunLock(store, clock, clock.wait), []
    lock.take(make_file(tmp_path, "a"), print)

    def lose(_: int, operation: str, executed: bool) -> None:
        if operation == "PutObject" and executed:
            executed_writes.append(operation)
        if operation == "HeadObject" or executed or executed_writes:
            raise ConnectionClosedError(endpoint_url="http://store")

    hook = RequestHook(store, lose)
    with pytest.raises(FolderError, match="no answer for 56 s"):
        lock._renew()
    hook.remove()
    assert executed_writes == ["PutObject"]
    lock._renew()
    lock.check()
    lock.release()


def test_a_folder_is_unused_if_its_lock_does_not_change(store: ObjectStore, tmp_path: Path) -> None:
    check_unused(store)
    lock = RunLock(store)
    lock.take(make_file(tmp_path, "a"), print)
    lock._ended.set()
    clock = FakeClock()
    check_unused(store, clock, clock.wait)
    assert clock.waits > 5
    lock._ended.clear()
    clock = FakeClock(on_wait=lambda _: lock._renew())
    with pytest.raises(FolderError, match="is in use by another run"):
        check_unused(store, clock, clock.wait)
    lock.release()
