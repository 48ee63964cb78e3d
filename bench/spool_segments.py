"""The cost of a start with many small segments, as after a long absence of the reader; the cost of small batches."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from bench.partials import LINK
from bench.spool_files import PLANS
from bench.undisturbed import time_step
from lowlevel.spool import segment
from lowlevel.spool.folder import segment_path
from lowlevel.spool.limits import SpoolLimits
from lowlevel.spool.pending import merge_items, pack
from lowlevel.spool.reader import SpoolReader
from lowlevel.spool.writer import SpoolWriter

SMALL = 1000
START, FIRST_LIST, NEXT_LIST = "a writer's start", "a reader's first look: every checksum", "its next look"
APPEND, PACK = "one append", "encoding the same batch"
UNMERGED, MERGED = "a segment of all batches, as they are", "a segment of all batches, merged"
ONE_SEGMENT = SpoolLimits(segment_bytes=1 << 28)
"""Size of a segment: so large that no thread encodes while appends are measured."""


def measure_segments(batches: list[pa.RecordBatch], data: Path, runs: int, count: int) -> dict[str, list[float]]:
    """Return the seconds of each step in turns, without the first turn; with `count` segments in `data`."""
    small = small_batches(batches, count)
    header = segment.Header(LINK, 0, 0, PLANS, (0,))
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="spool-", dir=data) as made:
        held, other = Path(made) / "held", Path(made) / "other"
        write_segments(held, small)
        for _ in range(runs + 1):
            reader = SpoolReader(held)
            writer = SpoolWriter(other, LINK, PLANS, ONE_SEGMENT)
            work: dict[str, Callable[[], object]] = {
                START: lambda: SpoolWriter(held, LINK, PLANS).abandon(),
                FIRST_LIST: reader.segments,
                NEXT_LIST: reader.segments,
                APPEND: lambda writer=writer: [writer.append(0, batch) for batch in small],  # type: ignore[misc]
                PACK: lambda: [pack([batch]) for batch in small],
                UNMERGED: lambda: segment.encode(header, [(0, batch) for batch in small], 0, 0),
                MERGED: lambda: segment.encode(header, merge_items((0, batch) for batch in small), 0, 0),
            }
            for name, each in work.items():
                seconds[name].append(time_step(each).processor / (count if name in (APPEND, PACK) else 1))
            writer.abandon()
    return {name: step_time[1:] for name, step_time in seconds.items()}


def small_batches(batches: list[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Copy partials into `count` batches of SMALL rows. A slice would keep the buffers of the whole batch."""
    whole = pa.concat_batches(batches)
    starts = [SMALL * (number % (len(whole) // SMALL)) for number in range(count)]
    return [whole.take(pa.array(range(start, start + SMALL))) for start in starts]


def write_segments(folder: Path, batches: list[pa.RecordBatch]) -> None:
    """Write a spool with one segment per batch, without waiting for the disk."""
    folder.mkdir()
    for number, batch in enumerate(batches):
        header = segment.Header(LINK, number, 0, PLANS, (0,), rows_before=number * SMALL)
        stream, trailer = segment.encode(header, [(0, batch)], 0, 0)
        segment_path(folder, number).write_bytes(stream.to_pybytes() + trailer.encode())
