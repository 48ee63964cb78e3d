"""The thread that writes the segments of a spool, so that the caller of the writer does not wait for the disk.

Segments are written in the order of their numbers. If a segment cannot be written, later segments wait: a reader that
reads a later segment first counts the earlier segment as lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from capture.descriptors import is_shortage
from capture.lazy_dataclasses import dataclass
from lowlevel.spool import segment
from lowlevel.spool.folder import NO_SPACE_ERRORS, SpoolError, part_path, segment_path, write_durably
from lowlevel.spool.newest_segment import WriterRecord, update_record
from lowlevel.spool.pending import PendingItems, merge_items
from lowlevel.spool.segment import Header, Trailer


@dataclass(slots=True)
class _Job:
    """A segment to write.

    `size`: upper bound of its bytes on the disk. `result_future`: its trailer and size, after it has been written.
    """

    header: Header
    pending: PendingItems
    size: int
    result_future: Future[tuple[Trailer, int]]


class SegmentThread:
    """Writer of the segments of one folder, in another thread. Only one thread may call the methods."""

    def __init__(self, folder: Path) -> None:
        """Start the thread."""
        self.folder = folder
        self.bytes = self.disk = self.rows = 0
        """Totals of the waiting segments: bytes in memory, an upper bound of the bytes on the disk, and rows."""
        self._thread = ThreadPoolExecutor(1, "spool")
        self._jobs: deque[_Job] = deque()
        self._failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def blocking_error(self) -> OSError | None:
        """The error that blocks segments (full disk or no free file descriptor), until `retry` is called."""
        return self._failure if isinstance(self._failure, OSError) and is_transient(self._failure) else None

    def submit(self, header: Header, pending: PendingItems, size: int) -> None:
        """Queue a segment that needs up to `size` bytes of the disk."""
        self.bytes += pending.bytes
        self.disk += size
        self.rows += pending.rows
        self._jobs.append(_Job(header, pending, size, self._thread.submit(self._write, header, pending)))

    def written(self) -> Iterator[tuple[Trailer, int]]:
        """Yield trailer and size of each segment written since the last call. Raises SpoolError if the disk fails."""
        while self._jobs and self._jobs[0].result_future.done():
            job = self._jobs[0]
            error = job.result_future.exception()
            if is_transient(error):
                return
            if isinstance(error, OSError):
                path = segment_path(self.folder, job.header.number)
                raise SpoolError(f"{path}: cannot be written: {error.strerror}") from error
            result = job.result_future.result()
            self._jobs.popleft()
            self.bytes -= job.pending.bytes
            self.disk -= job.size
            self.rows -= job.pending.rows
            yield result

    def retry(self) -> None:
        """Write the blocked segments again."""
        for job in self._jobs:
            job.result_future.exception()  # wait: the thread does not write after a failure
        self._failure = None
        for job in self._jobs:
            job.result_future = self._thread.submit(self._write, job.header, job.pending)

    def wait(self) -> None:
        """Wait until all segments are written or blocked."""
        if self._jobs:
            self._jobs[-1].result_future.exception()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def _write(self, header: Header, pending: PendingItems) -> tuple[Trailer, int]:
        if self._failure is not None:
            raise self._failure
        try:
            stream, trailer = segment.encode(header, merge_items(pending.items), pending.first or 0, pending.last or 0)
            path = segment_path(self.folder, header.number)
            size = write_durably(part_path(path), path, [memoryview(stream), trailer.encode()])
            rows = header.rows_before + trailer.rows
            update_record(self.folder, WriterRecord(header.number, header.epoch, rows, header.shed_before))
            return trailer, size
        except Exception as error:
            self._failure = error
            raise


def is_full(error: BaseException | None) -> bool:
    """Return whether an error means that the disk or a quota is full."""
    return isinstance(error, OSError) and error.errno in NO_SPACE_ERRORS


def is_transient(error: BaseException | None) -> bool:
    """Return whether a later retry of the write can succeed."""
    return is_full(error) or is_shortage(error)
