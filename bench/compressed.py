"""Queries over compressed captures, compared with decompression only, which is the lower bound of the time.

The decompression uses the same library and pieces of the same size, and drops its output. Both take turns in this
process, on all cores. A query decompresses in a separate thread, so a second core decodes at the same time. The packets
in the answer are counted.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lz4.frame
import pyarrow as pa
import pyarrow.compute as pc

from bench.figure import figure, quotient
from bench.query_text import PAIRS
from bench.report import Report
from bench.setting import Setting
from bench.traffic import MILLION, address_pairs, generate_cached, read_into_cache
from capture.files.decompressed import CODECS, INPUT_BYTES, OUTPUT_BYTES, Codec
from capture.files.stream import StreamedCapture
from capture.open import open_capture
from highlevel.inline.engine import InlineRun, Input
from queries.gsql import compile_query

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

JUDGED = ("gzip", "zstd")
STEPS = ("decompressor alone", "records", "query")
FEWER = {"bzip2": 10, "xz": 10}
"""Slow codecs are measured on a part of the packets."""


def run(setting: Setting) -> Report:
    """Measure every codec."""
    report = Report("compressed")
    rows, shares = [], []
    for codec in CODECS:
        packets = setting.packets(5 * MILLION) // FEWER.get(codec.name, 1)
        plain = generate_cached(address_pairs(packets), setting.data)
        path = compress(plain, codec.name)
        size, whole = read_into_cache(path), plain.stat().st_size
        seconds = measure(path, codec, packets, setting.runs(5))
        rates = {name: figure(step_time).rate(whole / MILLION) for name, step_time in seconds.items()}
        for name in STEPS:
            share = quotient(rates[name], rates["decompressor alone"]).median
            per_packet = rates[name].median * packets / whole
            rows.append(
                (codec.name, name, f"{whole / size:.1f}", str(rates[name]), f"{per_packet:.2f}", f"{share:.0%}")
            )
        if codec.name in JUDGED:
            ratio = quotient(rates["query"], rates["decompressor alone"]).median
            report.add_criterion(
                f"{codec.name}: query / decompressor alone", ratio, ">= 0.65", judged=not setting.quick
            )
            shares.append(f"{ratio:.0%}")
    report.add_headline("the same capture in gzip, in zstd", f"{', '.join(shares)} of the decompressor alone")
    report.table(
        "the same capture by every codec, all cores",
        ("codec", "step", "ratio", "MB/s decompressed (min..max)", "M packets/s", "of the decompressor"),
        rows,
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    report.notes += [
        f"{cores} cores; bzip2 and xz have a tenth of the packets; the files are in the page cache",
        "records: decompressed and cut into blocks; query: decoded, reduced and answered by the inline engine as well",
    ]
    return report


def measure(path: Path, codec: Codec, packets: int, runs: int) -> dict[str, list[float]]:
    """Return the seconds of each step in `runs` runs. The steps take turns."""
    work: dict[str, Callable[[], object]] = {
        "decompressor alone": partial(decompress, path, codec),
        "records": partial(count_records, path),
        "query": partial(query, path, packets),
    }
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for each in work.values():
        each()
    for _ in range(runs):
        for name, each in work.items():
            begin = time.perf_counter()
            each()
            seconds[name].append(time.perf_counter() - begin)
    return dict(seconds)


def decompress(path: Path, codec: Codec) -> int:
    """Decompress a file of one member, discard the output, and return its number of bytes."""
    decompressor, _ = codec.make_decompressor()
    total = 0
    with path.open("rb", buffering=0) as file:
        while not decompressor.eof:
            total += len(
                decompressor.decompress(file.read(INPUT_BYTES) if decompressor.needs_input else b"", OUTPUT_BYTES)
            )
    return total


def count_records(path: Path) -> int:
    """Read the blocks of a compressed capture. Return the number of records."""
    file = open_capture(path)
    assert isinstance(file, StreamedCapture)
    found = sum(block.records for block in file.blocks() if block is not None)
    file.close()
    return found


def query(path: Path, packets: int) -> None:
    """Answer the query. Raises RuntimeError if packets are missing."""
    plan = compile_query(PAIRS)
    batches = [batch for _, batch in InlineRun([plan], [Input("link", path)]).results()]
    counted = pc.sum(pa.Table.from_batches(batches)["packets"]).as_py()
    if counted != packets:
        raise RuntimeError(f"{path}: got {counted} packets in the answer, expected {packets}")


def compress(plain: Path, codec: str) -> Path:
    """Compress a capture with the default level of the usual tool, into the same folder, unless the file exists."""
    target = plain.with_name(f"{plain.name}.{codec}")
    if target.exists():
        return target
    print(f"bench: compressing {plain} by {codec} …", file=sys.stderr, flush=True)
    part = target.with_name(target.name + ".part")
    writers: dict[str, Callable[[], Any]] = {
        "gzip": partial(gzip.GzipFile, part, "wb", 6),
        "zstd": partial(zstd.ZstdFile, part, "wb", level=3),
        "lz4": partial(lz4.frame.LZ4FrameFile, part, "wb"),
        "bzip2": partial(bz2.BZ2File, part, "wb"),
        "xz": partial(lzma.LZMAFile, part, "wb"),
    }
    with plain.open("rb") as source, writers[codec]() as sink:
        shutil.copyfileobj(source, sink, 1 << 22)
    part.replace(target)
    return target
