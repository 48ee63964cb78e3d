"""Write the packets of a profile as a classic pcap file, in chunks."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capture.generate.attacks import overwrite_with_attack
from capture.generate.background import Background
from capture.generate.conversations import Frame
from capture.generate.packets import RECORD_HEADER, Encoder, Traffic
from capture.generate.pcap_file import TICK_NS, complete_file, file_header, write_all
from capture.generate.profile import TIME_LIMIT, Profile
from capture.generate.scripts import require_scapy
from capture.generate.staged_attacks import staged_frames
from capture.generate.times import add_disorder, slot_times
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

CHUNK_PACKETS = 1 << 15
CHUNK_BYTES = 1 << 24
"""Maximum packets and bytes of a chunk."""
DRAWS_PER_PACKET = 6
"""Number of 64-bit random draws per packet."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Contents of a generated file. Times are in ns as in the file, `wire_bytes` and `file_size` in bytes.

    `first_ts`, `last_ts`: times of the first and last packet in the file. `min_ts`, `max_ts`: smallest and largest
    time, which differ from `first_ts` and `last_ts` if there is disorder. `groups`: number of distinct address pairs
    of the background traffic. `attack_packets`, `conversation_packets`: packets of attacks and conversations.
    """

    packets: int
    wire_bytes: int
    first_ts: int
    last_ts: int
    min_ts: int
    max_ts: int
    groups: int
    attack_packets: int
    conversation_packets: int
    file_size: int


def generate(
    profile: Profile, path: str | Path, progress: Callable[[int, int], None] | None = None, chunk: int | None = None
) -> Summary:
    """Write the capture that `profile` describes to `path`. An existing file is replaced only after all packets.

    `progress` is called after each chunk with the number of packets written and the total, both without conversations
    and staged attacks.
    `chunk`: number of packets made at once (default: 2**15, fewer if a chunk could exceed 16 MiB). The file does not
    depend on it. Raises `ValueError` if `path` is not a regular file, `OSError` if it cannot be written.
    """
    path = Path(path)
    if chunk is None:
        longest = max(1600, *(high for _, high, _ in profile.sizes))
        chunk = max(1, min(CHUNK_PACKETS, CHUNK_BYTES // (RECORD_HEADER + min(profile.snap_length, longest))))
    if chunk < 1:
        raise ValueError(f"chunk: got {chunk} packets, expected at least 1")
    link = _PacketStream(profile)
    order = "<" if profile.byte_order == "little" else ">"
    encoder = Encoder(profile.link_type, order, TICK_NS[profile.precision], profile.snap_length)
    insertions = _InsertedRecords(profile, order)
    wire_bytes, background, times = 0, 0, _TimeStatistics()
    # A thread writes a chunk while the next chunk is made. Both take about the same time.
    with complete_file(path) as file, ThreadPoolExecutor(1) as writer:
        header = file_header(profile.precision, order, profile.snap_length, profile.link_type)
        pending = writer.submit(write_all, file, header)
        for slots, traffic in link.chunks(chunk):
            records, starts, chunk_bytes = encoder.encode(traffic)
            merged = insertions.merge(slots, _Records(traffic.ts, records, chunk_bytes), starts)
            pending.result()
            pending = writer.submit(write_all, file, merged.data.data)
            wire_bytes += merged.wire_bytes
            background += len(traffic.ts)
            times.add(merged.ts)
            if progress is not None:
                progress(background, profile.total)
        pending.result()
        remaining = insertions.remaining()
        write_all(file, remaining.data.data)
        if len(remaining.ts):
            times.add(remaining.ts)
        file_size = file.tell()
    return Summary(
        times.packets,
        wire_bytes + remaining.wire_bytes,
        times.first_ts,
        times.last_ts,
        times.min_ts,
        times.max_ts,
        link.background.groups.seen_count,
        link.attack_packets + insertions.attack_packets,
        insertions.packets - insertions.attack_packets,
        file_size,
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """Consecutive records of a file: their times in ns, their bytes, and the sum of their wire lengths."""

    ts: NDArray[np.int64]
    data: NDArray[np.uint8]
    wire_bytes: int


class _InsertedRecords:
    """The records of a profile's staged attacks and conversations, in the order of time."""

    def __init__(self, profile: Profile, order: str) -> None:
        staged = [
            staged_frames(attack, number, profile.seed, profile.link_type, order)
            for number, attack in enumerate(profile.attacks)
            if attack.is_staged
        ]
        self.packets = 0
        self.attack_packets = sum(map(len, staged))
        self._order = order
        self._tick = TICK_NS[profile.precision]
        self._snap_length = profile.snap_length
        self._origin = profile.start + profile.clock_offset
        conversations: Iterator[Frame] = iter(())
        if profile.conversations:
            require_scapy("traffic of application protocols and tunnels")
            from capture.generate.protocols import frames  # imports scapy

            conversations = frames(profile.conversations, profile.pieces, profile.seed, profile.link_type, self._origin)
        self._frames = heapq.merge(*staged, conversations, key=lambda frame: frame[0])
        self._next = next(self._frames, None)

    def merge(self, slots: NDArray[np.int64], chunk: _Records, starts: NDArray[np.int64]) -> _Records:
        """Return a chunk of other packets with the inserted packets up to the time of its last packet.

        `slots`: times of the chunk's packets before disorder, from the start of the capture. `starts`: offsets of their
        records.
        """
        due_packets = self._take_until(int(slots[-1]))
        if not due_packets:
            return chunk
        positions = np.searchsorted(slots, np.array([time for time, _, _ in due_packets]), side="right")
        parts, copied_bytes = [], 0
        for position, (_, _, record) in zip(positions.tolist(), due_packets, strict=True):
            start = int(starts[position]) if position < len(starts) else len(chunk.data)
            parts += [chunk.data[copied_bytes:start], record]
            copied_bytes = start
        ts = np.insert(chunk.ts, positions, [self._ts(time) for time, _, _ in due_packets])
        data = np.concatenate([*parts, chunk.data[copied_bytes:]])
        return _Records(ts, data, chunk.wire_bytes + sum(length for _, length, _ in due_packets))

    def remaining(self) -> _Records:
        """Return the inserted packets after the last other packet."""
        due = self._take_until(TIME_LIMIT)
        data = np.concatenate([np.empty(0, np.uint8), *(record for _, _, record in due)])
        ts = np.array([self._ts(time) for time, _, _ in due], np.int64)
        return _Records(ts, data, sum(length for _, length, _ in due))

    def _ts(self, time: int) -> int:
        """Return the timestamp in the file of a time from the start of the capture."""
        return self._origin + time - time % self._tick

    def _take_until(self, last: int) -> list[tuple[int, int, NDArray[np.uint8]]]:
        """Return the next packets up to time `last`: times from the start of the capture, wire lengths, and records."""
        due = []
        while self._next is not None and self._next[0] <= last:
            time, frame = self._next
            seconds, ns = divmod(self._ts(time), SECOND)
            captured = frame[: self._snap_length]
            header = struct.pack(f"{self._order}IIII", seconds, ns // self._tick, len(captured), len(frame))
            due.append((time, len(frame), np.frombuffer(header + captured, np.uint8)))
            self._next = next(self._frames, None)
            self.packets += 1
        return due


class _TimeStatistics:
    """Number of the added timestamps, and the first, last, smallest and largest timestamp."""

    def __init__(self) -> None:
        self.packets = self.first_ts = self.last_ts = self.min_ts = self.max_ts = 0

    def add(self, ts: NDArray[np.int64]) -> None:
        min_ts, max_ts = int(ts.min()), int(ts.max())
        if not self.packets:
            self.first_ts, self.min_ts, self.max_ts = int(ts[0]), min_ts, max_ts
        self.last_ts = int(ts[-1])
        self.min_ts, self.max_ts = min(self.min_ts, min_ts), max(self.max_ts, max_ts)
        self.packets += len(ts)


class _PacketStream:
    """The packets of a profile, in file order.

    Each random stream yields exactly one 64-bit draw per packet, so the packets do not depend on the size of chunks.
    """

    def __init__(self, profile: Profile) -> None:
        self.background = Background(profile)
        self.attack_packets = 0
        self._profile = profile
        self._streams = [np.random.PCG64(seed) for seed in np.random.SeedSequence(profile.seed).spawn(DRAWS_PER_PACKET)]

    def chunks(self, size: int) -> Iterator[tuple[NDArray[np.int64], Traffic]]:
        """Yield the times before disorder and the packets of chunks. A chunk has up to `size` packets of one piece.

        The times before disorder are in ns from the start of the capture.
        """
        profile = self._profile
        for piece in profile.pieces:
            for first in range(piece.first, piece.last, size):
                count = min(size, piece.last - first)
                draws = np.stack([stream.random_raw(count) for stream in self._streams])
                slots = slot_times(piece, first, draws[0])
                times = add_disorder(
                    slots, piece, profile.disorder, profile.disorder_span, TICK_NS[profile.precision], draws[0]
                )
                ts = times + (profile.start + profile.clock_offset)
                yield slots, self._traffic(ts, draws[1:], piece.rates)

    def _traffic(self, ts: NDArray[np.int64], draws: NDArray[np.uint64], rates: tuple[float, ...]) -> Traffic:
        """Return the columns of packets at `ts`: background and attacks, in proportion to their rates."""
        if not any(rates[1:]):
            return self.background.traffic(ts, draws[:4], None)
        uniform = (draws[4] >> np.uint64(11)) * 2.0**-53
        shares = np.cumsum(rates) / sum(rates)
        source = np.searchsorted(shares, uniform, side="right").clip(max=len(rates) - 1)
        traffic = self.background.traffic(ts, draws[:4], source == 0)
        for source_index, attack in enumerate(self._profile.floods, start=1):
            rows = np.flatnonzero(source == source_index)
            overwrite_with_attack(traffic, attack, rows, traffic.noise)
            self.attack_packets += len(rows)
        return traffic
