"""The same partials in a spool and in plain Arrow files with the same durability, written and read in turns.

A plain file is an IPC stream of the unchanged batches of one segment, compressed with LZ4. It is synchronised with the
disk before it gets its name. A segment requires more work: narrow types, merged batches, numbers and checksums, in
another thread than the thread that appends. Files are read from the page cache.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

import pyarrow as pa

from bench.partials import LINK, partials_of
from bench.undisturbed import time_step
from lowlevel.punctuation import Item
from lowlevel.spool.folder import SpoolFullError, part_path, segment_path, write_durably
from lowlevel.spool.limits import SpoolLimits
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.writer import SpoolWriter

PLAIN, SPOOL = "plain Arrow", "spool"
WRITTEN, READ = "written", "read"
PLANS = (("pairs", "of the bench"),)
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def measure_files(
    items: list[Item], data: Path, runs: int
) -> tuple[dict[str, int], dict[tuple[str, str], list[float]]]:
    """Return the bytes on disk and the seconds of each form, written and read. The first run is not measured.

    Files are written into `data`, because /tmp is memory on some systems. Raises RuntimeError if partials are missing.
    """
    expected = sum(map(len, partials_of(items)))
    sizes: dict[str, int] = {}
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs + 1):
        for name, write, read in ((PLAIN, write_plain, read_plain), (SPOOL, write_spool, read_spool)):
            with tempfile.TemporaryDirectory(prefix="spool-", dir=data) as made:
                folder = Path(made)
                seconds[name, WRITTEN].append(time_step(partial(write, folder, items)).seconds)
                sizes[name] = sum(path.stat().st_size for path in folder.glob("*.segment"))
                rows: list[int] = []
                seconds[name, READ].append(time_step(partial(read, folder, rows)).processor)
            if sum(rows) != expected:
                raise RuntimeError(f"{name}: got {sum(rows)} partials, expected {expected}")
    return sizes, {key: step_time[1:] for key, step_time in seconds.items()}


def write_plain(folder: Path, items: list[Item]) -> None:
    """Write the unchanged batches."""
    waiting: list[pa.RecordBatch] = []
    for batch in partials_of(items):
        waiting.append(batch)
        if sum(each.nbytes for each in waiting) >= SpoolLimits().segment_bytes:
            _write_file(folder, waiting)
            waiting = []
    _write_file(folder, waiting)


def _write_file(folder: Path, batches: list[pa.RecordBatch]) -> None:
    if batches:
        path = segment_path(folder, len(list(folder.iterdir())))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema, options=OPTIONS) as writer:
            for batch in batches:
                writer.write_batch(batch)
        write_durably(part_path(path), path, [memoryview(sink.getvalue())])


def read_plain(folder: Path, rows: list[int]) -> None:
    """Read and decompress all files. Add the numbers of their rows to `rows`."""
    for path in sorted(folder.iterdir()):
        with pa.ipc.open_stream(pa.py_buffer(path.read_bytes())) as reader:
            rows += map(len, reader)


def write_spool(folder: Path, items: list[Item]) -> None:
    """Write the items. Wait briefly while two segments wait for the disk."""
    writer = SpoolWriter(folder, LINK, PLANS)
    for item in items:
        while not _try_append(writer, item):
            time.sleep(0.0005)
    writer.close(has_ended=True)


def _try_append(writer: SpoolWriter, item: Item) -> bool:
    try:
        writer.append(0, item)
    except SpoolFullError:
        return False
    return True


def read_spool(folder: Path, rows: list[int]) -> None:
    """Read all segments. Add the numbers of their partials to `rows`."""
    for segment in SpoolReader(folder):
        rows += map(len, partials_of([item for _, _, item in segment.new_items]))
