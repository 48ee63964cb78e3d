"""A link at a steady mean rate: `python -m bench.link_feeder FIFO NUMBER RATE SECONDS`.

Write a pcap of synthetic packets into a named pipe, in real time. In each period of 30 seconds the link is silent for
3 seconds and has 2.5 times its rate for 2 seconds. Links with different numbers do this at different times. Packets
of link N arrive N * SKEW seconds after their time. Addresses are Zipf distributed.

At the end it prints its report as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

NANOSECOND_PCAP = np.array([0xA1B23C4D, 2 | 4 << 16, 0, 0, 65_535, 1], "<u4").tobytes()
"""Header of a pcap file with times in ns: version 2.4, snap length, Ethernet."""

FRAME_BYTES = 60
RECORD = np.dtype([("seconds", "<u4"), ("fraction", "<u4"), ("length", "<u4", 2), ("frame", "u1", FRAME_BYTES)])

TICK = 20_000_000
"""Time between two writes, ns."""

SECOND = 1_000_000_000
WINDOW = 10 * SECOND
SKEW = 0.1
GROUPS = 20_000
PERIOD = 30
"""Seconds of the pattern of silence and bursts."""


@dataclass(frozen=True)
class FeedReport:
    """The number of packets, and the longest delay of a write in seconds.

    `first_writes`: for each 10 seconds that contain packets, (their begin, wall time of the first write), ns.
    """

    packets: int
    longest_delay: float
    first_writes: tuple[tuple[int, int], ...]


def make_records(count: int, seed: int) -> np.ndarray:
    """Return records of UDP packets over IPv4, without times."""
    random = np.random.default_rng(seed)
    records = np.zeros(count, RECORD)
    records["length"] = FRAME_BYTES
    frames = records["frame"]
    frames[:, 12:14] = 8, 0
    frames[:, 14:24] = 0x45, 0, 0, FRAME_BYTES - 14, 0, 0, 0, 0, 64, 17
    ranks = np.minimum(random.zipf(1.2, count), GROUPS) - 1
    pairs = (ranks.astype(np.uint64) * 2_654_435_761 % (1 << 32)).astype(">u4").view(np.uint8).reshape(-1, 4)
    frames[:, 26:30], frames[:, 30:34] = pairs, pairs[:, ::-1]
    frames[:, 26], frames[:, 30] = 10, 198
    frames[:, 36:38] = random.choice([[0, 53], [1, 187], [0, 80], [31, 144]], count)
    frames[:, 39] = FRAME_BYTES - 34
    return records


def rate_factor(second: int, number: int) -> float:
    """Return the rate of a link in a second, as a multiple of its mean rate.

    >>> sum(rate_factor(second, 1) for second in range(PERIOD)) / PERIOD
    1.0
    """
    phase = (second + 10 * number) % PERIOD
    return 0.0 if phase < 3 else 2.5 if phase in (15, 16) else 1.0


def feed(fifo: Path, number: int, rate: int, seconds: int) -> FeedReport:
    """Write the packets of a link."""
    records = make_records(round(rate * 2.5 * TICK / SECOND) + 1, number)
    packets = 0
    first_writes: dict[int, int] = {}
    longest_delay = 0
    with fifo.open("wb", buffering=0) as pipe:
        pipe.write(NANOSECOND_PCAP)
        begin = time.time_ns()
        for tick in range(seconds * SECOND // TICK):
            start = begin + tick * TICK
            count = round(rate * rate_factor(tick * TICK // SECOND, number) * TICK / SECOND)
            wait = start + TICK + round(number * SKEW * SECOND) - time.time_ns()
            if wait > 0:
                time.sleep(wait / SECOND)
            longest_delay = max(longest_delay, -wait)
            if not count:
                continue
            times = start + np.arange(count) * TICK // count
            chunk = records[:count]
            chunk["seconds"], chunk["fraction"] = times // SECOND, times % SECOND
            content = memoryview(chunk.tobytes())
            now = time.time_ns()
            while content:
                content = content[pipe.write(content) :]
            packets += count
            window = int(times[-1]) // WINDOW * WINDOW
            first_writes.setdefault(window, now)
    return FeedReport(packets, longest_delay / SECOND, tuple(first_writes.items()))


def main() -> None:
    """Feed the link of the command line, and print the report."""
    fifo, *numbers = sys.argv[1:]
    print(json.dumps(asdict(feed(Path(fifo), *map(int, numbers)))))


if __name__ == "__main__":
    main()
