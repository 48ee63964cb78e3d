"""The lock of a run whose folder is in an object store: an object that its owner writes again every few seconds.

    lock    {"owner": random text, "host": …, "process": …, "file": …, "renewed": 12}

Each write has a condition: the object must not exist, or must be the version that this process has written or read. So
of two processes that take the lock at the same time, one fails. A lock that has not changed for LOCK_SECONDS belongs to
a process that has ended or has lost its connection. Only the clock of the reader measures this time, so clocks of
different machines are never compared. `file` identifies the local file that the owner has locked: a process that has
locked the same file knows that the owner has ended, and does not wait. At its end the owner writes `released`: stores
may ignore the condition of a deletion, so the object is never deleted.

An owner that is suspended for a long time does not know that it has lost the lock. So the lock only prevents work that
is done twice. The versions of the other objects protect the state (`highlevel.spark.remote.run_copy`).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from highlevel.spark.errors import FolderError
from highlevel.spark.remote.object_store import ConflictError, ObjectStore

NAME = "lock"
"""Name of the object."""

OTHER_VERSION = '"00000000000000000000000000000000"'
"""A version that the lock never has."""

LOCK_THREAD = "wiretide-run-lock"
"""Name of the thread that renews the lock."""

RENEW_SECONDS = 5.0
LOCK_SECONDS = 30.0
POLL_SECONDS = 2.0
"""Time between two writes of the owner, time after which an unchanged lock is free, and time between two reads."""


def identify_file(path: Path) -> str:
    """Return a text that identifies a local file, on this machine and since its last start.

    Copies of a suspended virtual machine have the same text. So a run on one of them takes the lock of the other
    without waiting, and the other run ends at its next request.
    """
    status = path.stat()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:  # not Linux: the file is never recognised, so a new owner waits
        boot = uuid.uuid4().hex
    return f"{boot} {status.st_dev} {status.st_ino}"


class RunLock:
    """The lock of one run. `clock` returns seconds, `wait` waits for seconds."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Create an object without the lock."""
        self._store, self._clock, self._wait = store, clock, wait
        self._owner = uuid.uuid4().hex
        self._content: dict[str, Any] = {}
        self._version: str | None = None
        self._renewed = 0.0
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def take(self, file: Path, say: Callable[[str], None]) -> None:
        """Take the lock, and keep it with a thread until `release`. `file`: a file that this process has locked.

        Raises FolderError if another process has the lock, or if the store ignores conditions of writes.
        """
        identity = identify_file(file)
        self._content = {"owner": self._owner, "host": socket.gethostname(), "process": os.getpid(), "file": identity}
        version = None
        while version is None:  # it may be deleted between two requests
            try:
                version = self._store.create(NAME, self._encode())
            except ConflictError:
                with contextlib.suppress(FileNotFoundError):
                    version = self._take_over(identity, say)
        self._version, self._renewed = version, self._clock()
        self._check_condition("If-None-Match", lambda: self._store.create(NAME, self._encode()))
        self._check_condition("If-Match", lambda: self._store.replace(NAME, self._encode(), OTHER_VERSION))
        threading.Thread(target=self._keep, name=LOCK_THREAD, daemon=True).start()

    def _check_condition(self, condition: str, write: Callable[[], object]) -> None:
        """Raise FolderError if the store executes a write whose condition is not fulfilled."""
        try:
            write()
        except ConflictError:
            return
        raise FolderError(
            f"{self._store.uri}: the store ignores the condition {condition} of a write, so two runs could destroy "
            "the state of each other; expected a store with conditional writes"
        )

    def _take_over(self, identity: str, say: Callable[[str], None]) -> str:
        """Replace the lock of a process that has ended. Return the new version.

        Raises FileNotFoundError if the lock has been deleted, FolderError if its owner still runs.
        """
        owner, version = read_lock(self._store)
        if owner.get("file") != identity and not owner.get("released"):
            say(
                f"{self._store.uri}: waiting up to {LOCK_SECONDS:.0f} s for the end of the run on "
                f"{owner.get('host')}, process {owner.get('process')}"
            )
            version = self._watch(owner, version)
        try:
            return self._store.replace(NAME, self._encode(), version)
        except ConflictError:
            raise make_in_use_error(self._store.uri, owner) from None

    def _watch(self, owner: dict[str, Any], version: str) -> str:
        """Return the version of the lock when it is released, or was unchanged for LOCK_SECONDS.

        Raises FolderError if its owner renews it, FileNotFoundError if it is deleted.
        """
        end = self._clock() + LOCK_SECONDS
        while self._clock() < end:
            self._wait(POLL_SECONDS)
            content, current = read_lock(self._store)
            if content.get("released"):
                return current
            if current != version:
                raise make_in_use_error(self._store.uri, owner)
        return version

    def check(self) -> None:
        """Raise FolderError if another process has taken the lock. A lock that may soon be too old is renewed first."""
        if self._clock() - self._renewed > LOCK_SECONDS / 2:
            self.renew()
        elif self._version is None:
            raise self._make_taken_error()

    def renew(self) -> None:
        """Write the lock again. Raises FolderError if another process has taken it."""
        with contextlib.suppress(ConflictError):
            self._renew()
        if self._version is None:
            raise self._make_taken_error()

    def _make_taken_error(self) -> FolderError:
        return FolderError(f"{self._store.uri}: another run has taken over this folder; stop one of them")

    def _renew(self) -> None:
        with self._mutex:
            if self._version is None or self._ended.is_set():
                return
            now = self._clock()
            self._content["renewed"] = self._content.get("renewed", 0) + 1
            try:
                self._version = self._store.replace(NAME, self._encode(), self._version)
            except (ConflictError, FileNotFoundError) as error:
                self._version = self._read_own_version()
                if self._version is None:
                    raise ConflictError(str(error)) from error
            self._renewed = now

    def _read_own_version(self) -> str | None:
        """Return the version of the lock if this process has written it without receiving an answer, else None."""
        try:
            owner, version = read_lock(self._store)
        except FileNotFoundError:
            return None
        return version if owner.get("owner") == self._owner else None

    def _keep(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                self._renew()
            except ConflictError:
                return
            except FolderError:  # the store does not answer; `check` reports it
                continue

    def release(self) -> None:
        """Give the lock back. Does nothing without a lock. If the store does not answer, the lock ends by itself."""
        self._ended.set()
        with self._mutex:
            version, self._version = self._version, None
        if version is not None:
            self._content["released"] = True
            with contextlib.suppress(FolderError, FileNotFoundError):
                self._store.replace(NAME, self._encode(), version)

    def _encode(self) -> bytes:
        return json.dumps(self._content).encode()


def read_lock(store: ObjectStore) -> tuple[dict[str, Any], str]:
    """Return the content and the version of a lock. Raises FileNotFoundError, and FolderError for another content."""
    content, version = store.read(NAME)
    try:
        owner = json.loads(content)
    except ValueError:
        owner = None
    if not isinstance(owner, dict):
        raise FolderError(
            f"{store.uri}/{NAME}: got {len(content)} bytes of another program, expected the lock of a run; take "
            "another folder, or delete this object if no run uses the folder"
        )
    return owner, version


def check_unused(
    store: ObjectStore, clock: Callable[[], float] = time.monotonic, wait: Callable[[float], object] = time.sleep
) -> None:
    """Raise FolderError if a process renews the lock. Waits some seconds if there is a lock."""
    end, first = clock() + 3 * RENEW_SECONDS, None
    while clock() < end:
        try:
            owner, version = read_lock(store)
        except FileNotFoundError:
            return
        if owner.get("released"):
            return
        if first not in (None, version):
            raise make_in_use_error(store.uri, owner)
        first = version
        wait(POLL_SECONDS)


def make_in_use_error(uri: str, owner: dict[str, Any]) -> FolderError:
    """Return the error that a process has the lock. `owner`: the content of the lock."""
    return FolderError(
        f"{uri} is in use by another run, process {owner.get('process')} on {owner.get('host')}; take another folder, "
        "or stop that run"
    )
