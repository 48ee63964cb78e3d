"""Writes a profile's packets as a classic pcap file, a chunk at a time."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capture.generate.attacks import overlay
from capture.generate.background import Background
from capture.generate.packets import RECORD_HEADER, Encoder, Traffic
from capture.generate.profile import Profile
from capture.generate.times import disordered, slot_times

MAGIC = {"us": 0xA1B2C3D4, "ns": 0xA1B23C4D}
TICK = {"us": 1000, "ns": 1}
CHUNK_PACKETS = 1 << 15
CHUNK_BYTES = 1 << 24
DRAWS = 6


@dataclass(frozen=True, slots=True)
class Summary:
    """What a generated file holds. Times in ns as the file says them; `wire_bytes` and `file_size` in bytes.

    `first` and `last` are the times of the first and last packet in the file, `low` and `high` the least and greatest
    of all: they differ where there is disorder. `groups` counts the distinct address pairs of the background traffic,
    `attack_packets` those of the attacks.
    """

    packets: int
    wire_bytes: int
    first: int
    last: int
    low: int
    high: int
    groups: int
    attack_packets: int
    file_size: int


def generate(
    profile: Profile, path: str | Path, progress: Callable[[int, int], None] | None = None, chunk: int | None = None
) -> Summary:
    """Write the capture that `profile` describes to `path`, replacing a file of that name only when all is written.

    `progress` is called after each chunk with the packets written so far and those there will be. `chunk` is the
    packets made at once (default: 2**15, fewer when a chunk could exceed 16 MiB); the file does not depend on it.
    Raises `ValueError` when `path` is something other than a file, `OSError` when it cannot be written.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(
            f"{path}: is not a regular file, expected the name of a capture to write: it would be replaced"
        )
    if chunk is None:
        longest = max(1600, *(high for _, high, _ in profile.sizes))
        chunk = max(1, min(CHUNK_PACKETS, CHUNK_BYTES // (RECORD_HEADER + min(profile.snap_length, longest))))
    if chunk < 1:
        raise ValueError(f"chunk: got {chunk} packets, expected at least 1")
    link = _Link(profile)
    order = "<" if profile.byte_order == "little" else ">"
    encoder = Encoder(profile.link_type, order, TICK[profile.precision], profile.snap_length)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    wire_bytes, times = 0, _Times()
    try:
        # One write runs beside the making of the next chunk: about half of the time goes into each.
        with partial.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as writer:
            pending = writer.submit(_write_all, file, _file_header(profile, order))
            for traffic in link.chunks(chunk):
                records, chunk_bytes = encoder.encode(traffic)
                pending.result()
                pending = writer.submit(_write_all, file, records.data)
                wire_bytes += chunk_bytes
                times.add(traffic.ts)
                if progress is not None:
                    progress(times.packets, profile.total)
            pending.result()
            file_size = file.tell()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # only there when the writing was interrupted
    return Summary(
        times.packets,
        wire_bytes,
        times.first,
        times.last,
        times.low,
        times.high,
        link.background.groups.seen,
        link.attack_packets,
        file_size,
    )


def _file_header(profile: Profile, order: str) -> memoryview:
    """Return the 24 bytes that open a classic pcap file."""
    magic, snap_length = MAGIC[profile.precision], profile.snap_length
    return memoryview(struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, snap_length, profile.link_type))


def _write_all(file: FileIO, data: memoryview) -> None:
    """Write all of `data`: an unbuffered file may take a part of it."""
    while data:
        data = data[file.write(data) :]


class _Times:
    """First, last, least and greatest timestamp of what was added."""

    def __init__(self) -> None:
        self.packets = self.first = self.last = self.low = self.high = 0

    def add(self, ts: NDArray[np.int64]) -> None:
        low, high = int(ts.min()), int(ts.max())
        if not self.packets:
            self.first, self.low, self.high = int(ts[0]), low, high
        self.last = int(ts[-1])
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.packets += len(ts)


class _Link:
    """The packets of a profile, in the order of the file.

    Each of the random streams gives every packet exactly one 64-bit draw, so the packets do not depend on how they
    are cut into chunks.
    """

    def __init__(self, profile: Profile) -> None:
        self.background = Background(profile)
        self.attack_packets = 0
        self._profile = profile
        self._streams = [np.random.PCG64(seed) for seed in np.random.SeedSequence(profile.seed).spawn(DRAWS)]

    def chunks(self, size: int) -> Iterator[Traffic]:
        """Yield all packets, at most `size` at a time and never of two pieces."""
        profile = self._profile
        for piece in profile.pieces:
            for first in range(piece.first, piece.last, size):
                count = min(size, piece.last - first)
                draws = np.stack([stream.random_raw(count) for stream in self._streams])
                times = slot_times(piece, first, draws[0])
                times = disordered(
                    times, piece, profile.disorder, profile.disorder_span, TICK[profile.precision], draws[0]
                )
                yield self._traffic(times + (profile.start + profile.clock_offset), draws[1:], piece.rates)

    def _traffic(self, ts: NDArray[np.int64], draws: NDArray[np.uint64], rates: tuple[float, ...]) -> Traffic:
        """Return the columns of packets at `ts`: background, and attacks in proportion to their rates."""
        if not any(rates[1:]):
            return self.background.traffic(ts, draws[:4], None)
        chance = (draws[4] >> np.uint64(11)) * 2.0**-53
        shares = np.cumsum(rates) / sum(rates)
        source = np.searchsorted(shares, chance, side="right").clip(max=len(rates) - 1)
        traffic = self.background.traffic(ts, draws[:4], source == 0)
        for number, attack in enumerate(self._profile.attacks, start=1):
            rows = np.flatnonzero(source == number)
            overlay(traffic, attack, rows, traffic.noise)
            self.attack_packets += len(rows)
        return traffic
