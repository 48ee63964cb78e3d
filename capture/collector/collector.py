"""The collector at work: one thread receives, one writes, one decodes on the side.

    sockets ──recvmmsg──► batch ──kernel──► chunk ──► writer ──► file ──► inspector
                                              ▲                              │
                                              └────────── free chunks ◄──────┘

The receiver does nothing that can wait but for a free chunk. Whatever goes wrong behind it, datagrams are lost in one
place only, the sockets' buffers, where the system counts them.
"""

from __future__ import annotations

import select
import sys
import threading
import time
import traceback
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt

from capture.collector.chunks import BATCH, CHUNK_BYTES, CHUNKS, STRIDE, TIME, Batch, Chunk, ChunkQueue, Receiver
from capture.collector.metrics import (
    BUFFER,
    BUFFER_USED,
    BYTES,
    DATAGRAMS,
    DROPPED,
    EXPORTERS,
    FILES,
    FILES_DELETED,
    FILES_RETRIED,
    NEWEST,
    REFUSED,
    UNINSPECTED,
    UNWRITTEN,
    WAITING,
    WRITTEN,
)
from capture.collector.record_files import RecordFiles
from capture.collector.recorder import Recorder
from capture.collector.recvmmsg import LoopReceiver, RecvmmsgReceiver, supported
from capture.collector.settings import Settings
from capture.collector.sockets import UdpSocket, open_sockets
from capture.errors import WiretideError
from capture.metrics import Samples

FLUSH_SECONDS = 0.2
"""A datagram is in its file so long after it arrived, at most, while the disk keeps up."""

LAST_PATIENCE = 10.0
"""Seconds that a collector that is to stop waits for a free file descriptor, to write what it has received."""

INSPECTED = CHUNKS // 4
"""Chunks that may wait to be inspected; when there are more, the newest are recorded without being looked at."""

MEMORY = CHUNKS * CHUNK_BYTES + BATCH * STRIDE
"""Bytes that a collector's own buffers hold at most, without those of its sockets and its inspector."""


class Inspector(Protocol):
    """Looks at what has been recorded, for counters. It may be slow or fail: recording goes on."""

    def inspect(self, records: npt.NDArray[np.uint8]) -> None:
        """Look at whole records of a pcap file of link type 101 with nanoseconds, little-endian."""
        ...

    def samples(self) -> Samples:
        """Return the counters so far; may be called from another thread."""
        ...

    def close(self) -> None:
        """Keep what the next run needs."""


class Collector:
    """A running collector. Use it in a `with`; leaving it stops, and raises what the recording failed with."""

    def __init__(
        self, settings: Settings, inspector: Inspector | None = None, stop: threading.Event | None = None
    ) -> None:
        """Open sockets and folder, InputError where they cannot be had, and begin. `stop` is set when it fails."""
        self.settings = settings
        self.inspector = inspector
        self._batch = Batch()
        self._receiver: Receiver = RecvmmsgReceiver(self._batch) if supported() else LoopReceiver(self._batch)
        self._recorder = Recorder(settings, self._batch)
        self._queue = ChunkQueue()
        self._inspect: SimpleQueue[Chunk | None] = SimpleQueue()
        self._chunk: Chunk | None = None
        self._filled_since = 0.0
        self._stop_at: int | None = None
        self._failure: BaseException | None = None
        self._stop = stop or threading.Event()
        self._unwritten = self._uninspected = 0
        self._lock = threading.Lock()
        self._closed = False
        self.sockets = open_sockets(settings.listen, settings.receive_buffer)
        try:
            self.files = RecordFiles(settings.folder, settings.rotate_size, settings.keep)
        except WiretideError:
            for udp in self.sockets:
                udp.close()
            raise
        self._by_descriptor = {udp.socket.fileno(): udp for udp in self.sockets}
        self._threads = [
            threading.Thread(target=self._receive_all, name="receive"),
            threading.Thread(target=self._write_all, name="write"),
            threading.Thread(target=self._inspect_all, name="inspect"),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Take what has arrived until now, write it, stop; raise what the recording failed with. Again does nothing."""
        if self._closed:
            return
        self._stop_at = self._stop_at or time.time_ns()
        self.files.patient_until = time.monotonic() + LAST_PATIENCE
        for thread in self._threads:
            thread.join()
        self.samples()  # the last word of the sockets
        with self._lock:  # whoever asks for counters now does not ask sockets that are closed
            self._closed = True
        for udp in self.sockets:
            udp.close()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Collector:
        """Begin has been made."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()

    def samples(self) -> Samples:
        """Return all counters and gauges, those of one moment."""
        found = Samples()
        with self._lock:
            exporters = self._recorder.exporters.copy()
            found.set(EXPORTERS, self._recorder.known)
            found.add(REFUSED, self._recorder.refused, "not_allowed")
            found.add(UNWRITTEN, self._unwritten)
            found.add(UNINSPECTED, self._uninspected)
            for udp in self.sockets:
                found.set(BUFFER, udp.granted, udp.name)
                if not self._closed and (used := udp.memory()) is not None:
                    found.set(BUFFER_USED, used, udp.name)
                if udp.dropped is not None:
                    found.add(DROPPED, udp.dropped, udp.name)
        for exporter, counts in exporters.snapshot().items():
            found.add(DATAGRAMS, counts.datagrams, exporter)
            found.add(BYTES, counts.bytes, exporter)
            found.set(NEWEST, counts.newest / 1e9, exporter)
        found.set(WAITING, self._queue.waiting)
        found.add(WRITTEN, self.files.bytes)
        found.add(FILES, self.files.files)
        found.add(FILES_DELETED, self.files.deleted)
        found.add(FILES_RETRIED, self.files.retries)
        if self.inspector is not None:
            found.update(self.inspector.samples())
        return found

    def _receive_all(self) -> None:
        """Receive until somebody stops it or something fails."""
        poll = select.poll()
        for descriptor in self._by_descriptor:
            poll.register(descriptor, select.POLLIN)
        try:
            while self._stop_at is None:
                for descriptor, _ in poll.poll(self._patience() * 1000):
                    self._receive(self._by_descriptor[descriptor])
                if self._chunk is not None and self._patience() <= 0:
                    self._hand_over()
            for udp in self.sockets:
                # What had arrived when the stop was asked for is taken; who goes on sending cannot keep us here.
                while (count := self._receive(udp)) and self._batch.rows[count - 1, TIME] <= self._stop_at:
                    pass
        except BaseException as error:  # handed to whoever closes the collector
            self._fail(error)
        finally:
            self._hand_over(end=True)

    def _patience(self) -> float:
        """Seconds until the chunk that is being filled is due, or until another look at whether to stop."""
        if self._chunk is None:
            return FLUSH_SECONDS
        return max(0.0, self._filled_since + FLUSH_SECONDS - time.monotonic())

    def _receive(self, udp: UdpSocket) -> int:
        """Take and record what one socket holds, up to a batch; return how many datagrams that were."""
        count = self._receiver.receive(udp)
        first = 0
        while first < count:
            if self._chunk is None:
                self._chunk = self._queue.take_free()
                self._filled_since = time.monotonic()
            with self._lock:
                first = self._recorder.record(udp, first, count, self._chunk)
            if first < count:
                starts = self._recorder.begin_file(first) if self._recorder.file_due else None
                self._hand_over()
                self._chunk = self._queue.take_free(starts)
                self._filled_since = time.monotonic()
        if self._chunk is not None and not self._chunk.used:  # all were refused
            self._hand_over()
        return count

    def _hand_over(self, *, end: bool = False) -> None:
        """Give the chunk that is being filled to the writer, or back where it is empty."""
        chunk, self._chunk = self._chunk, None
        if end:
            chunk = chunk or self._queue.take_free()
            chunk.end = True
        if chunk is not None:
            self._queue.put(chunk)

    def _write_all(self) -> None:
        """Write chunks until the last; after a failure only count what can no longer be written."""
        broken = False
        while True:
            chunk = self._queue.take_full()
            if not broken:
                try:
                    self._write(chunk)
                except BaseException as error:  # handed to whoever closes the collector
                    broken = True
                    self._fail(error)
            if broken:
                with self._lock:
                    self._unwritten += chunk.datagrams
            last = chunk.end
            self._pass_on(chunk, inspect=not broken)
            if last:
                break
        self._inspect.put(None)
        try:
            self.files.close()
        except WiretideError as error:
            self._fail(error)

    def _write(self, chunk: Chunk) -> None:
        if chunk.starts is not None:
            self.files.start(chunk.starts)
        if chunk.used:
            self.files.append(chunk.data.data[: chunk.used])

    def _pass_on(self, chunk: Chunk, *, inspect: bool) -> None:
        """Let a written chunk be inspected where there is time for that, else let it be filled again."""
        if inspect and self.inspector is not None:
            if self._inspect.qsize() < INSPECTED:
                self._inspect.put(chunk)
                return
            with self._lock:
                self._uninspected += chunk.datagrams
        self._queue.put_free(chunk)

    def _inspect_all(self) -> None:
        """Inspect until the last chunk has been written; what goes wrong is told and does not touch the recording."""
        working = self.inspector is not None
        while (chunk := self._inspect.get()) is not None:
            if working and self.inspector is not None:
                try:
                    self.inspector.inspect(chunk.data[: chunk.used])
                except Exception:  # whatever exporters sent, they are recorded
                    working = False
                    print("wiretide: decoding on the side has failed; recording goes on without it:", file=sys.stderr)
                    traceback.print_exc()
            if not working:
                with self._lock:
                    self._uninspected += chunk.datagrams
            self._queue.put_free(chunk)
        if self.inspector is not None:
            self.inspector.close()

    def _fail(self, error: BaseException) -> None:
        """Remember the first failure, and stop."""
        self._failure = self._failure or error
        self._stop_at = self._stop_at or time.time_ns()
        self._stop.set()
