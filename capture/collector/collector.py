"""The collector: one thread receives datagrams, one writes them to files, and one decodes them for counters.

    sockets ──recvmmsg──► batch ──kernel──► chunk ──► writer ──► file ──► inspector
                                              ▲                              │
                                              └────────── free chunks ◄──────┘

The receiver waits only for free chunks. While it waits, datagrams that do not fit into the buffers of the sockets are
lost, and the system counts them. After a failure of the disk, the collector counts the unwritten datagrams and stops.
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

from capture.collector.chunks import (
    BATCH_DATAGRAMS,
    CHUNK_BYTES,
    CHUNK_COUNT,
    SLOT_STRIDE,
    TIME,
    Batch,
    Chunk,
    ChunkQueue,
    Receiver,
)
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
from capture.collector.recvmmsg import LoopReceiver, RecvmmsgReceiver, recvmmsg_is_supported
from capture.collector.settings import Settings
from capture.collector.sockets import UdpSocket, open_sockets
from capture.errors import WiretideError
from capture.metrics import Samples

FLUSH_SECONDS = 0.2
"""Maximum seconds from the arrival of a datagram until it is in its file, while the disk keeps up."""

MAX_STOP_SECONDS = 10.0
"""Maximum seconds for which a stopping collector waits for a free file descriptor, which it needs to write the
received datagrams."""

MAX_WAITING_INSPECTIONS = CHUNK_COUNT // 4
"""Maximum number of chunks that wait for inspection. If more wait, new chunks are recorded without inspection."""

MAX_BUFFER_BYTES = CHUNK_COUNT * CHUNK_BYTES + BATCH_DATAGRAMS * SLOT_STRIDE
"""Maximum bytes of a collector's buffers, without the buffers of its sockets and its inspector."""


class Inspector(Protocol):
    """Interface of inspectors, which decode recorded datagrams for counters. They may be slow or fail."""

    def inspect(self, records: npt.NDArray[np.uint8]) -> None:
        """Inspect whole records of a pcap file (link type 101, nanoseconds, little-endian)."""
        ...

    def samples(self) -> Samples:
        """Return the counters so far. Other threads may call this."""
        ...

    def close(self) -> None:
        """Store the announcements of exporters for the next run."""


class Collector:
    """A running collector, used as a context manager. At the end of the block it stops and raises any failure."""

    def __init__(
        self, settings: Settings, inspector: Inspector | None = None, stop: threading.Event | None = None
    ) -> None:
        """Open the sockets and the folder, and start the threads. Raises InputError if something cannot be opened.

        A later failure sets `stop`.
        """
        self.settings = settings
        self.inspector = inspector
        self._batch = Batch()
        self._receiver: Receiver = (
            RecvmmsgReceiver(self._batch) if recvmmsg_is_supported() else LoopReceiver(self._batch)
        )
        self._recorder = Recorder(settings, self._batch)
        self._queue = ChunkQueue()
        self._to_inspect: SimpleQueue[Chunk | None] = SimpleQueue()
        self._chunk: Chunk | None = None
        self._chunk_start_time = 0.0
        self._stop_time: int | None = None
        self._failure: BaseException | None = None
        self._stop = stop or threading.Event()
        self._unwritten = self._uninspected = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self.sockets = open_sockets(settings.listen, settings.receive_buffer)
        try:
            self.files = RecordFiles(settings.folder, settings.rotate_size, settings.keep)
        except WiretideError:
            for udp in self.sockets:
                udp.close()
            raise
        self._socket_by_descriptor = {udp.socket.fileno(): udp for udp in self.sockets}
        self._threads = [
            threading.Thread(target=self._receive_all, name="receive"),
            threading.Thread(target=self._write_all, name="write"),
            threading.Thread(target=self._inspect_all, name="inspect"),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Write all datagrams that have arrived, then stop. Raises a thread's failure. Repeated calls do nothing."""
        if self._is_closed:
            return
        self._stop_time = self._stop_time or time.time_ns()
        self.files.wait_until = time.monotonic() + MAX_STOP_SECONDS
        for thread in self._threads:
            thread.join()
        self.samples()  # reads the last counters of the sockets
        with self._lock:  # later calls of samples() must not use the closed sockets
            self._is_closed = True
        for udp in self.sockets:
            udp.close()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Collector:
        """Return the collector, which is already running."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.close()

    def samples(self) -> Samples:
        """Return all counters and gauges of one moment."""
        samples = Samples()
        with self._lock:
            exporters = self._recorder.exporters.copy()
            samples.set(EXPORTERS, self._recorder.exporter_count)
            samples.add(REFUSED, self._recorder.refused, "not_allowed")
            samples.add(UNWRITTEN, self._unwritten)
            samples.add(UNINSPECTED, self._uninspected)
            for udp in self.sockets:
                samples.set(BUFFER, udp.granted_bytes, udp.name)
                if not self._is_closed and (used := udp.read_memory()) is not None:
                    samples.set(BUFFER_USED, used, udp.name)
                if udp.dropped is not None:
                    samples.add(DROPPED, udp.dropped, udp.name)
        for exporter, counts in exporters.snapshot().items():
            samples.add(DATAGRAMS, counts.datagrams, exporter)
            samples.add(BYTES, counts.bytes, exporter)
            samples.set(NEWEST, counts.newest / 1e9, exporter)
        samples.set(WAITING, self._queue.waiting)
        samples.add(WRITTEN, self.files.bytes)
        samples.add(FILES, self.files.file_count)
        samples.add(FILES_DELETED, self.files.deleted_count)
        samples.add(FILES_RETRIED, self.files.retries)
        if self.inspector is not None:
            samples.update(self.inspector.samples())
        return samples

    def _receive_all(self) -> None:
        """Receive until the collector is stopped or fails."""
        poll = select.poll()
        for descriptor in self._socket_by_descriptor:
            poll.register(descriptor, select.POLLIN)
        try:
            while self._stop_time is None:
                for descriptor, _ in poll.poll(self._seconds_until_due() * 1000):
                    self._receive(self._socket_by_descriptor[descriptor])
                if self._chunk is not None and self._seconds_until_due() <= 0:
                    self._put_chunk()
            for udp in self.sockets:
                # Read the datagrams that arrived before the stop request. Later datagrams must not delay the stop.
                while (count := self._receive(udp)) and self._batch.rows[count - 1, TIME] <= self._stop_time:
                    pass
        except BaseException as error:  # close() raises it
            self._fail(error)
        finally:
            self._put_chunk(is_last=True)

    def _seconds_until_due(self) -> float:
        """Return the seconds until the current chunk must be written, or until the next check for a stop request."""
        if self._chunk is None:
            return FLUSH_SECONDS
        return max(0.0, self._chunk_start_time + FLUSH_SECONDS - time.monotonic())

    def _receive(self, udp: UdpSocket) -> int:
        """Receive and record up to one batch from a socket. Return the number of datagrams received."""
        count = self._receiver.receive(udp)
        next_datagram = 0
        while next_datagram < count:
            if self._chunk is None:
                self._chunk = self._queue.take_free()
                self._chunk_start_time = time.monotonic()
            with self._lock:
                next_datagram = self._recorder.record(udp, next_datagram, count, self._chunk)
            if next_datagram < count:
                file_time = self._recorder.begin_file(next_datagram) if self._recorder.file_due else None
                self._put_chunk()
                self._chunk = self._queue.take_free(file_time)
                self._chunk_start_time = time.monotonic()
        if self._chunk is not None and not self._chunk.used_bytes:  # all datagrams were refused
            self._put_chunk()
        return count

    def _put_chunk(self, *, is_last: bool = False) -> None:
        """Pass the current chunk to the writer, or free it if it is empty."""
        chunk, self._chunk = self._chunk, None
        if is_last:
            chunk = chunk or self._queue.take_free()
            chunk.is_last = True
        if chunk is not None:
            self._queue.put(chunk)

    def _write_all(self) -> None:
        """Write chunks up to the last one. After a failure, only count the unwritten datagrams."""
        has_failed = False
        while True:
            chunk = self._queue.take_full()
            if not has_failed:
                try:
                    self._write(chunk)
                except BaseException as error:  # close() raises it
                    has_failed = True
                    self._fail(error)
            if has_failed:
                with self._lock:
                    self._unwritten += chunk.datagram_count
            last = chunk.is_last
            self._inspect_or_free(chunk, inspect=not has_failed)
            if last:
                break
        self._to_inspect.put(None)
        try:
            self.files.close()
        except WiretideError as error:
            self._fail(error)

    def _write(self, chunk: Chunk) -> None:
        """Append a chunk to its file."""
        if chunk.file_time is not None:
            self.files.start(chunk.file_time)
        if chunk.used_bytes:
            self.files.append(chunk.data.data[: chunk.used_bytes])

    def _inspect_or_free(self, chunk: Chunk, *, inspect: bool) -> None:
        """Pass a written chunk to the inspector, or free it if too many chunks wait for inspection."""
        if inspect and self.inspector is not None:
            if self._to_inspect.qsize() < MAX_WAITING_INSPECTIONS:
                self._to_inspect.put(chunk)
                return
            with self._lock:
                self._uninspected += chunk.datagram_count
        self._queue.put_free(chunk)

    def _inspect_all(self) -> None:
        """Inspect chunks until the writer ends. Errors are printed and do not affect the recording."""
        is_decoding = self.inspector is not None
        while (chunk := self._to_inspect.get()) is not None:
            if is_decoding and self.inspector is not None:
                try:
                    self.inspector.inspect(chunk.data[: chunk.used_bytes])
                except Exception:  # recording must continue, whatever exporters send
                    is_decoding = False
                    print("wiretide: decoding for counters has failed; recording continues:", file=sys.stderr)
                    traceback.print_exc()
            if not is_decoding:
                with self._lock:
                    self._uninspected += chunk.datagram_count
            self._queue.put_free(chunk)
        if self.inspector is not None:
            self.inspector.close()

    def _fail(self, error: BaseException) -> None:
        """Store the first failure, and stop."""
        self._failure = self._failure or error
        self._stop_time = self._stop_time or time.time_ns()
        self._stop.set()
