"""Requests to an object store: conditions, lost answers, repetition in a bounded time, and clear errors. Without Spark.

The server is real (moto). Errors that it does not have come from a server that gives the same answer to each request.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from highlevel.spark.errors import FolderError
from highlevel.spark.remote.object_store import LONGEST_DELAY, REPEAT_SECONDS, ConflictError, ObjectStore
from highlevel.spark.remote.run_lock import RunLock
from tests.harness.object_store import FakeClock, RequestHook, serve_objects, set_environment


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_objects() as url:
        yield url


@contextmanager
def answer_all(status: int, code: str) -> Iterator[str]:
    """Yield the URL of a server that answers every request with an error of S3, or, without a code, with success."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = f"<Error><Code>{code}</Code><Message>Not today.</Message></Error>".encode() if code else b""
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"1"')
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_store(prefix: str, clock: FakeClock | None = None) -> ObjectStore:
    clock = clock or FakeClock()
    return ObjectStore(f"s3a://lake/{prefix}", clock.wait, clock)


def test_objects_are_written_listed_read_and_deleted(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("highlevel.spark.remote.object_store.MAX_KEYS", 2)
    store = make_store("a/b")
    names = [f"x/{number:04}" for number in range(5)]
    for name in names:
        store.create(name, name.encode())
    (tmp_path / "file").write_bytes(bytes(5000))
    version = store.create("y", tmp_path / "file")
    assert store.list("x/0001") == {"x/0001": (6, store.read("x/0001")[1])}
    assert [*store.list("x/")] == names
    assert store.read("x/0002")[0] == b"x/0002"
    store.download("y", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == bytes(5000)
    assert (tmp_path / "new" / "copy").stat().st_mode & 0o777 == 0o600
    assert store.list("y") == {"y": (5000, version)}
    store.delete([*names, "none"])
    assert [*store.list("")] == ["y"]
    for read in (lambda: store.read("x/0002"), lambda: store.download("x/0002", tmp_path / "none")):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_write_fails_if_another_process_has_written(url: str) -> None:
    store = make_store("conditions")
    first = store.create("a", b"1")
    with pytest.raises(ConflictError, match=r"^s3a://lake/conditions: another process has written a$"):
        store.create("a", b"2")
    second = store.replace("a", b"2", first)
    with pytest.raises(ConflictError):
        store.replace("a", b"3", first)
    assert store.read("a") == (b"2", second)


@pytest.mark.parametrize("executed", [False, True])
def test_a_write_whose_answer_is_lost_is_neither_lost_nor_a_conflict(url: str, executed: bool) -> None:
    from botocore.exceptions import ConnectionClosedError

    store, lost = make_store(f"lost-{executed}"), []

    def lose(_: int, operation: str, is_executed: bool) -> None:
        if operation == "PutObject" and is_executed == executed and len(lost) < 2:
            lost.append(operation)
            raise ConnectionClosedError(endpoint_url=url)

    RequestHook(store, lose)
    version = store.create("a", b"1")
    lost.clear()
    store.replace("a", b"2", version)
    assert len(lost) == 2
    assert store.read("a")[0] == b"2"


def test_requests_are_repeated_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with answer_all(503, "SlowDown") as url:
        set_environment(monkeypatch, url)
        clock = FakeClock()
        with pytest.raises(FolderError, match=r"^s3a://lake/x: cannot read y: no answer for 56 s: SlowDown Not today"):
            make_store("x", clock).read("y")
    assert REPEAT_SECONDS - LONGEST_DELAY <= clock.now <= REPEAT_SECONDS
    clock = FakeClock()
    with pytest.raises(FolderError, match=r"^s3a://lake/x: cannot write y: no answer for 56 s: Could not connect to"):
        make_store("x", clock).create("y", b"")  # the server has ended
    assert clock.waits > 5


def test_each_attempt_of_a_slow_store_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with answer_all(503, "SlowDown") as url:
        set_environment(monkeypatch, url)
        clock = FakeClock()
        store = make_store("x", clock)
        RequestHook(store, lambda _request, _operation, executed: clock.wait(20 * executed))
        with pytest.raises(FolderError, match="no answer for 62 s"):
            store.read("y")


def test_a_stop_ends_the_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, "http://127.0.0.1:1")
    clock = FakeClock(on_wait=lambda _: store.stop())
    store = make_store("x", clock)
    with pytest.raises(FolderError, match="the run was stopped before the next attempt"):
        store.read("y")
    assert clock.waits == 1


@pytest.fixture
def hanging_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store whose server accepts connections and never answers."""
    monkeypatch.setattr("highlevel.spark.remote.object_store.STOP_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        set_environment(monkeypatch, f"http://127.0.0.1:{server.getsockname()[1]}")
        yield ObjectStore("s3a://lake/x")


def test_a_stop_ends_a_request_without_an_answer_and_the_release_of_the_lock(
    hanging_store: ObjectStore, tmp_path: Path
) -> None:
    lock, errors = RunLock(hanging_store), []
    lock._version = "1"

    def publish() -> None:
        with pytest.raises(FolderError, match=r"^s3a://lake/x: the run was stopped before the store answered for \w+$"):
            hanging_store.create("a", b"")
        errors.append("publish")

    def renew() -> None:
        with pytest.raises(FolderError, match="the run was stopped before the store answered for lock"):
            lock.renew()
        errors.append("renew")

    threads = [threading.Thread(target=function) for function in (publish, renew)]
    for thread in threads:
        thread.start()
    hanging_store.stop()
    lock.release()
    for thread in threads:
        thread.join()
    assert sorted(errors) == ["publish", "renew"]
    with pytest.raises(FolderError, match="stopped before the store answered for b"):
        hanging_store.download("b", tmp_path / "b")


def test_an_interrupt_ends_parallel_requests_without_an_answer(hanging_store: ObjectStore) -> None:
    def request(number: int) -> None:
        if number == 0:
            raise KeyboardInterrupt
        hanging_store.read(str(number))

    with pytest.raises(KeyboardInterrupt):
        hanging_store.run_parallel(request, range(4))


def test_requests_that_are_answered_after_a_stop_succeed(url: str) -> None:
    store = make_store("stopped")
    store.stop()
    store.stop()
    store.create("a", b"1")
    assert store.read("a")[0] == b"1"


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (
            403,
            "AccessDenied",
            "the store refuses to write y: AccessDenied: Not today; check the credentials, which must",
        ),
        (404, "NoSuchBucket", "got the bucket lake, which does not exist; create it"),
        (501, "NotImplemented", "the store refuses to write y: NotImplemented: Not today"),
    ],
)
def test_errors_that_another_attempt_does_not_solve(
    status: int, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answer_all(status, code) as url:
        set_environment(monkeypatch, url)
        clock = FakeClock()
        with pytest.raises(FolderError, match=f"^s3a://lake/x: {message}"):
            make_store("x", clock).create("y", b"")
    assert clock.waits == 0


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    set_environment(monkeypatch, "http://127.0.0.1:1")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.delenv(f"AWS_{name}")
    for name in ("CONFIG_FILE", "SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(f"AWS_{name}", str(tmp_path / "none"))
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    with pytest.raises(FolderError, match="cannot list objects: Unable to locate credentials"):
        make_store("x").list("")
