"""Objects below a prefix of a bucket, with the protocol of S3.

`pyarrow.fs` cannot write under a condition, so this module uses boto3. Two conditions of a write decide between two
processes: the object must not exist (`If-None-Match: *`), or must be the version that the writer knows (`If-Match`).

A request whose answer is lost may have been executed. So a conditional write carries a random text in its metadata: if
a repetition is refused, and the object contains this text, the first attempt has succeeded.

Requests are repeated for REPEAT_SECONDS if the store cannot be reached or is overloaded. Other errors end at once.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from capture.errors import MissingPackageError
from capture.private_files import make_private_folder, replacing
from highlevel.spark.errors import FolderError

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
"""Longest times without a connection, and without an answer."""

REPEAT_SECONDS = 60.0
"""A request is not repeated later than this after its first failure."""

LONGEST_DELAY = 8.0
"""Longest wait between two attempts, in seconds. The first wait is half a second."""

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

DELETIONS = 8
"""Number of objects that are deleted at the same time."""

CHUNK_BYTES = 1 << 20


class ConflictError(FolderError):
    """The condition of a write was not fulfilled: another process has written the object."""


class ObjectStore:
    """The objects below a URI such as `s3a://BUCKET/PREFIX`. Thread safe.

    Names of objects are relative to the prefix. All methods raise FolderError if the store refuses a request, or does
    not answer in time. Credentials, region and endpoint are those of the environment, as for other programs of AWS.
    """

    def __init__(
        self, uri: str, wait: Callable[[float], object] | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`wait`: waits for seconds, or for `stop`. `clock` returns seconds."""
        try:
            import boto3
            from botocore import exceptions
            from botocore.config import Config
        except ModuleNotFoundError as error:
            raise MissingPackageError("boto3", "s3", f"the folder {uri}") from error
        parts = urlsplit(uri)
        self.uri = uri.rstrip("/")
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        self._stopped = threading.Event()
        self._wait, self._clock = wait or self._stopped.wait, clock
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

    def stop(self) -> None:
        """End the wait of a request that is to be repeated, with an error. Another thread may call this."""
        self._stopped.set()

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
            with replacing(path) as (descriptor, _), open(descriptor, "wb", closefd=False) as file:
                file.writelines(answer["Body"].iter_chunks(CHUNK_BYTES))

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
        with ThreadPoolExecutor(DELETIONS) as threads:
            for _ in threads.map(self._delete, names):
                pass

    def _delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._request("delete_object", name, Key=self._key(name))

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _request(self, operation: str, name: str, **arguments: Any) -> Any:
        return self._repeat(
            operation, name, partial(getattr(self._client, operation), Bucket=self._bucket, **arguments)
        )

    def _repeat(self, operation: str, name: str, request: Callable[[], Any]) -> Any:
        """Return the answer of a request. Repeat it while the store cannot be reached or is overloaded."""
        for delay in self._delays():
            try:
                return request()
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
            if delay is None:
                raise FolderError(
                    f"{self.uri}: cannot {VERBS[operation]} {name or 'objects'}: no answer for {REPEAT_SECONDS:.0f} s: "
                    f"{reason.strip()}; start the run again when the store answers"
                )
            self._wait(delay)
            if self._stopped.is_set():
                raise FolderError(f"{self.uri}: {reason.strip()}; the run was stopped before the next attempt")
        raise AssertionError("the last delay is None")

    def _delays(self) -> Iterator[float | None]:
        """Yield the wait after each failed attempt, then None."""
        yield 0.5
        end, delay = self._clock() + REPEAT_SECONDS, 1.0
        while self._clock() < end:
            yield delay
            delay = min(2 * delay, LONGEST_DELAY)
        yield None

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


def _status_of(error: Any) -> int:
    return int(error.response["ResponseMetadata"].get("HTTPStatusCode", 0))
