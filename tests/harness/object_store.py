"""A server with the protocol of S3 on loopback, and faults in the requests of an `ObjectStore`."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from highlevel.spark.remote.run_lock import LOCK_THREAD

BUCKET = "lake"


@contextmanager
def serve_objects() -> Iterator[str]:
    """Yield the URL of a server with an empty bucket. Programs of AWS use it, with credentials that it accepts."""
    moto = pytest.importorskip("moto.server", reason="no package moto")
    import boto3

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    with pytest.MonkeyPatch.context() as patch:
        set_environment(patch, url)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield url
    server.stop()


def set_environment(patch: pytest.MonkeyPatch, url: str) -> None:
    """Let programs of AWS use the server at `url`."""
    credentials = {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b", "EC2_METADATA_DISABLED": "true"}
    for name, value in {**credentials, "REGION": "us-east-1", "DEFAULT_REGION": "us-east-1"}.items():
        patch.setenv(f"AWS_{name}", value)
    patch.setenv("AWS_ENDPOINT_URL_S3", url)


class FakeClock:
    """A clock that only `wait` advances. `on_wait` is called with the number of waits before each of them."""

    def __init__(self, on_wait: Callable[[int], None] = lambda _: None) -> None:
        self.now, self.waits, self.on_wait = 0.0, 0, on_wait

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.on_wait(self.waits)
        self.waits += 1
        self.now += seconds


class RequestHook:
    """Calls a function before and after each request of an `ObjectStore`. If it raises, the caller gets this error.

    The requests that renew a lock from time to time are left out.

    `hook` receives the number of the request, its operation, and whether the store has executed it.
    """

    def __init__(self, store: Any, hook: Callable[[int, str, bool], None]) -> None:
        self.hook, self.count, self.mutex = hook, 0, threading.Lock()
        self.events = store._client.meta.events
        self.events.register("before-call.s3", self.before)
        self.events.register("after-call.s3", self.after)

    def before(self, model: Any, **_: Any) -> None:
        if threading.current_thread().name != LOCK_THREAD:
            with self.mutex:
                self.count += 1
            self.hook(self.count, model.name, False)

    def after(self, model: Any, **_: Any) -> None:
        if threading.current_thread().name != LOCK_THREAD:
            self.hook(self.count, model.name, True)

    def remove(self) -> None:
        """Let all further requests through."""
        self.events.unregister("before-call.s3", self.before)
        self.events.unregister("after-call.s3", self.after)
