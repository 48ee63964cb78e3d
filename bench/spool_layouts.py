"""Possible forms of a segment's stream: their compression, and the speed of encoding and decoding."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import pyarrow as pa

from bench.figure import figure
from bench.traffic import MILLION
from bench.undisturbed import time_step
from lowlevel.spool.pending import pack, unpack

ROWS = 100_000
LAYOUTS = {
    "narrowed, not compressed": None,
    "narrowed, LZ4 (a segment)": "lz4",
    "narrowed, Zstandard level 1": pa.Codec("zstd", 1),
    "narrowed, Zstandard level 3": pa.Codec("zstd", 3),
}
SCHEMA = pa.schema([("partials", pa.binary())])


def measure_layouts(batches: list[pa.RecordBatch], runs: int) -> list[tuple[str, ...]]:
    """Measure each layout with the first rows, in turns. Return a row of the report for each layout.

    The first turn is not measured. Raises RuntimeError if the decoded partials differ from the encoded ones.
    """
    batch = pa.concat_batches(batches).slice(0, ROWS)
    sizes: dict[str, int] = {}
    seconds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(runs + 1):
        for name, codec in LAYOUTS.items():
            streams: list[pa.Buffer] = []
            found: list[pa.RecordBatch] = []
            options = pa.ipc.IpcWriteOptions(compression=codec)
            seconds[name, "encode"].append(time_step(partial(encode, batch, options, streams)).processor)
            seconds[name, "decode"].append(time_step(partial(decode, streams[0], found)).processor)
            sizes[name] = streams[0].size
            if found != [batch]:
                raise RuntimeError(f"{name}: the decoded partials differ from the encoded partials")
    amount = len(batch) / MILLION
    return [
        (
            name,
            f"{sizes[name] / len(batch):.1f}",
            str(figure(seconds[name, "encode"][1:]).rate(amount)),
            str(figure(seconds[name, "decode"][1:]).rate(amount)),
        )
        for name in LAYOUTS
    ]


def encode(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions, streams: list[pa.Buffer]) -> None:
    """Write partials into a stream as in a segment, with other options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as writer:
        column = pa.array([pack([batch]).to_pybytes()], pa.binary())
        writer.write_batch(pa.RecordBatch.from_arrays([column], schema=SCHEMA))
    streams.append(sink.getvalue())


def decode(stream: pa.Buffer, found: list[pa.RecordBatch]) -> None:
    """Read the partials as a reader of segments does."""
    with pa.ipc.open_stream(stream) as reader:
        found.append(unpack(reader.read_next_batch().column(0)[0].as_buffer()))
