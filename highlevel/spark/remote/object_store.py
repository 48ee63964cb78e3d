"""Objects below a prefix of a bucket, with the protocol of S3.

`pyarrow.fs` cannot write under a condition, so this module uses boto3. Two conditions of a write decide between two
processes: the object must not exist (`If-None-Match: *`), or must be the version that the writer knows (`If-Match`).

A request whose answer is lost may have been executed. So a conditional write carries a random text in its metadata: if
a repetition is refused, and the object contains this text, the first attempt has succeeded.

Requests are repeated for REPEAT_SECONDS if the store cannot be reached or is overloaded. Other errors end at once.

Another thread executes each request, because a request that waits for an answer cannot be interrupted. After `stop` a
request without an answer is given up after STOP_SECONDS. Its thread may still execute it, as if the answer was lost.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from capture.errors import MissingPackageError
from capture.private_files import make_private_folder, open_replacement
from highlevel.spark.errors import FolderError

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Longest times without a connection, and without an answer, in seconds."""

REPEAT_SECONDS = 60.0
"""No attempt of a request begins later than this after its first attempt."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 8.0
"""Shortest and longest wait between two attempts, in seconds."""

STOP_SECONDS = 3.0
"""Longest time without an answer after `stop`."""

OVERLOADED = ("ConditionalRequestConflict", "OperationAborted", "RequestTimeout", "SlowDown", "Throttling")
"""Errors below status 500 that another attempt may solve."""

NOT_IMPLEMENTED = 501
"""Status of a store that does not know a header of a request, such as a condition."""

VERBS = {
    "put_object": "write",
    "get_object": "read",
    "head_object": "read",
    "list_objects_v2": "list",
    "delete_object": "delete",
}
"""The verb for each operation of boto3 in error messages."""

WRITER = "wiretide-writer"
"""Name of the metadata with the random text of a write."""

MAX_KEYS = 1000
"""Largest number of objects that one request lists."""

PARALLEL_REQUESTS = 8
"""Number of requests at the same time."""

CHUNK_BYTES = 1 << 20
"""Bytes of a large file or object that are in memory at the same time."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class ConflictError(FolderError):
    """The condition of a write was not fulfilled: another process has written the object."""


class ObjectStore:
    """The objects below a URI such as `s3a://BUCKET/PREFIX`. Thread safe.

    Names of objects are relative to the prefix. All methods raise FolderError if the store refuses a request, or does
    not answer in time. Credentials, region and endpoint are those of the environment, as for other programs of AWS.
    """

    def __init__(
        self,
        uri: str,
        pause: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        repeat_seconds: float = REPEAT_SECONDS,
    ) -> None:
        """`pause`: waits for seconds, or for `stop`. `clock` returns seconds."""
        try:
            import boto3
            from botocore import exceptions
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise MissingPackageError("boto3", "s3", f"the folder {uri}") from error
        parts = urlsplit(uri)
        self.uri = uri.rstrip("/")
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._stop: Future[None] = Future()
        self._gave_up = False
        self._pause, self._clock = pause or self._wait_for_stop, clock
        self._repeat_seconds = repeat_seconds
        self._exceptions: Any = exceptions
        self._unreachable = exceptions.ConnectionError, exceptions.HTTPClientError, exceptions.IncompleteReadError
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"total_max_attempts": 1},
            # Other stores may not know the checksums that newer versions of boto3 add.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            self._client: Any = boto3.client("s3", config=config)
        except (exceptions.BotoCoreError, ValueError) as error:
            raise FolderError(f"{self.uri}: {error}") from error

    def __reduce__(self) -> tuple[Callable[[str], ObjectStore], tuple[str]]:
        """Pickle only the URI: another process has its own credentials, and a connection for all copies."""
        return open_store, (self.uri,)

    def stop(self) -> None:
        """End all waits: no request is repeated, and one without an answer is given up after STOP_SECONDS.

        If a request is given up, all later ones fail at once. Another thread may call this.
        """
        with suppress(InvalidStateError):  # already stopped
            self._stop.set_result(None)

    def run_parallel(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call a function that sends requests with each item, in threads. Ctrl-C stops the store."""
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as threads:
            try:
                return list(threads.map(function, items))
            except KeyboardInterrupt:
                self.stop()  # the end of the threads is awaited
                raise

    def list(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return the size in bytes and the version (ETag) of each object whose name begins with `prefix`."""
        start = f"{self._key('')}{prefix}"
        objects: dict[str, tuple[int, str]] = {}
        following: dict[str, str] = {}
        while True:
            answer = self._request("list_objects_v2", prefix, Prefix=start, MaxKeys=MAX_KEYS, **following)
            for entry in answer.get("Contents", ()):
                objects[entry["Key"][len(self._key("")) :]] = entry["Size"], entry["ETag"]
            if not answer.get("IsTruncated"):
                return objects
            following = {"ContinuationToken": answer["NextContinuationToken"]}

    def read(self, name: str) -> tuple[bytes, str]:
        """Return the content and the version of an object. Raises FileNotFoundError."""

        def get() -> tuple[bytes, str]:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            return answer["Body"].read(), answer["ETag"]

        return self._repeat("get_object", name, get)

    def download(self, name: str, path: Path) -> None:
        """Write an object into a new private file. Raises FileNotFoundError."""

        def get() -> None:
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key(name))
            with open_replacement(path) as (descriptor, _), open(descriptor, "wb", closefd=False) as file:
                file.writelines(answer["Body"].iter_chunks(CHUNK_BYTES))
                if self._gave_up:
                    raise self._make_stopped_error(name)  # the caller may have released its locks

        make_private_folder(path.parent)
        self._repeat("get_object", name, get)

    def create(self, name: str, content: bytes | Path) -> str:
        """Write a new object and return its version. Raises ConflictError if the object exists."""
        return self._write(name, content, {"IfNoneMatch": "*"})

    def replace(self, name: str, content: bytes | Path, version: str) -> str:
        """Replace an object and return its new version. Raises ConflictError if its version is not `version`."""
        return self._write(name, content, {"IfMatch": version})

    def _write(self, name: str, content: bytes | Path, condition: dict[str, str]) -> str:
        writer, attempts = uuid.uuid4().hex, 0

        def put() -> str:
            nonlocal attempts
            attempts += 1
            arguments = {"Bucket": self._bucket, "Key": self._key(name), "Metadata": {WRITER: writer}, **condition}
            try:
                if isinstance(content, bytes):
                    return str(self._client.put_object(Body=content, **arguments)["ETag"])
                with content.open("rb") as file:
                    return str(self._client.put_object(Body=file, **arguments)["ETag"])
            except self._exceptions.ClientError as error:
                if attempts > 1 and _status_of(error) == 412:
                    found = self._client.head_object(Bucket=self._bucket, Key=self._key(name))
                    if found["Metadata"].get(WRITER) == writer:
                        return str(found["ETag"])
                raise

        return self._repeat("put_object", name, put)

    def delete(self, names: Iterable[str]) -> None:
        """Delete objects. It is not an error if they do not exist.

        Each has its own request: a request for several objects needs a checksum that boto3 and stores disagree about.
        """
        self.run_parallel(self._delete, names)

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._request("delete_object", name, Key=self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _request(self, operation: str, name: str, **arguments: Any) -> Any:
        return self._repeat(
            operation, name, partial(getattr(self._client, operation), Bucket=self._bucket, **arguments)
        )

    def _repeat(self, operation: str, name: str, request: Callable[[], Result]) -> Result:
        """Return the answer of a request. Repeat it while the store cannot be reached or is overloaded."""
        begin, delay = self._clock(), FIRST_DELAY
        while True:
            try:
                return self._execute(name, request)
            except self._exceptions.ClientError as error:
                code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
                status = _status_of(error)
                if (status < 500 or status == NOT_IMPLEMENTED) and code not in OVERLOADED:
                    raise self._convert(operation, name, status, code, message) from error
                reason = f"{code} {message}"
            except self._unreachable as error:
                reason = str(error)
            except self._exceptions.BotoCoreError as error:  # for example no credentials
                raise FolderError(f"{self.uri}: cannot {VERBS[operation]} {name or 'objects'}: {error}") from error
            seconds = self._clock() - begin
            if seconds + delay > self._repeat_seconds:
                raise FolderError(
                    f"{self.uri}: cannot {VERBS[operation]} {name or 'objects'}: no answer for {seconds:.0f} s: "
                    f"{reason.strip()}; start the run again when the store answers"
                )
            self._pause(delay)
            delay = min(2 * delay, LONGEST_DELAY)
            if self._stop.done():
                raise FolderError(f"{self.uri}: {reason.strip()}; the run was stopped before the next attempt")

    def _execute(self, name: str, request: Callable[[], Result]) -> Result:
        """Return the answer of one attempt, which another thread executes."""
        if self._gave_up:
            raise self._make_stopped_error(name)
        answer: Future[Result] = Future()
        thread = threading.current_thread().name
        threading.Thread(target=_complete, args=(answer, request), name=thread, daemon=True).start()
        events: tuple[Future[Any], Future[Any]] = answer, self._stop
        wait(events, return_when=FIRST_COMPLETED)
        if not wait((answer,), STOP_SECONDS).done:
            self._gave_up = True
            raise self._make_stopped_error(name)
        try:
            return answer.result()
        finally:
            del answer, events  # otherwise an error refers to itself, and connections are closed late

    def _wait_for_stop(self, seconds: float) -> None:
        wait((self._stop,), seconds)

    def _make_stopped_error(self, name: str) -> FolderError:
        return FolderError(f"{self.uri}: the run was stopped before the store answered for {name or 'the list'}")

    def _convert(self, operation: str, name: str, status: int, code: str, message: str) -> Exception:
        if status == 412:
            return ConflictError(f"{self.uri}: another process has written {name}")
        if code == "NoSuchBucket":
            return FolderError(f"{self.uri}: got the bucket {self._bucket}, which does not exist; create it")
        if status == 404:
            return FileNotFoundError(2, "No such object", f"{self.uri}/{name}")
        return FolderError(self._describe(operation, name, code, message))

    def _describe(self, operation: str, name: str, code: str, message: str) -> str:
        return (
            f"{self.uri}: the store refuses to {VERBS[operation]} {name or 'objects'}: {code}: {message.rstrip('.')}; "
            "check the credentials, which must allow to list, read, write and delete objects"
        )


@cache
def open_store(uri: str) -> ObjectStore:
    """Return the store of a URI in this process."""
    return ObjectStore(uri)


def _status_of(error: Any) -> int:
    return int(error.response["ResponseMetadata"].get("HTTPStatusCode", 0))


def _complete(answer: Future[Result], request: Callable[[], Result]) -> None:
    try:
        answer.set_result(request())
    except BaseException as error:
        answer.set_exception(error)
    finally:
        del answer  # as in `_execute`
