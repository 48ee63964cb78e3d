"""A SYN flood: ten million sources with one packet each, and a thousand permanent sources, in a table of 64 K slots.

The table has no room for them, so nearly every packet evicts an entry. There are three criteria: memory does not grow,
no chunk of packets waits for a flush, and the sum of the partials is the number of packets. The time of a chunk is the
smaller CPU time of two runs, because the table does the same work in both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import make_table

MILLION = 1_000_000
SOURCES = 10 * MILLION
PERMANENT = 1000
SHARE = 10
"""One of this number of packets is from a permanent source."""

SLOTS = 1 << 16
CHUNK = 1024
WINDOWS = 10
POLICIES = (Policy.AT_ONCE, Policy.LAZY, Policy.PACED)


@dataclass(frozen=True)
class Flood:
    """Measurements of one policy: ns per packet, longest chunk in µs, most entries, partials per packet.

    Two of them must be 0: groups with wrong counts, and MB of memory growth.
    """

    packet: float
    longest: float
    burst: int
    partials: float
    wrong: int
    grown: float


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


def flood(policy: Policy, sources: int, runs: int) -> Flood:
    """Process packets of `sources` sources with a table, `runs` times."""
    random = np.random.default_rng(1)
    packets = sources // CHUNK * CHUNK
    keys = np.arange(PERMANENT, PERMANENT + packets)
    keys[::SHARE] = random.integers(PERMANENT, size=len(keys[::SHARE]))
    times = np.arange(packets) * WINDOWS * 1000 // packets
    expected = np.bincount(keys, minlength=packets + PERMANENT)
    found = np.zeros_like(expected)
    counts = np.empty((runs, packets // CHUNK))
    grown = wrong = 0
    for number in range(runs):
        table = make_table(1, [SubAggregate("packets", Kind.COUNT)], SLOTS, CHUNK, Flushing(policy))
        found[:] = 0
        before_all = partials = 0
        for position in range(packets // CHUNK):
            first = position * CHUNK
            instants = times[first : first + CHUNK]
            table.words[0, :CHUNK] = keys[first : first + CHUNK]
            begin = time.thread_time_ns()
            table.update(instants, None, 1000, 0, INT_MAX)
            entries = table.take_evicted()
            if policy is Policy.AT_ONCE and instants[-1] // 1000 > times[max(0, first - 1)] // 1000:
                flushed = table.flush(int(instants[-1]) // 1000)
                entries = np.concatenate([entries.copy(), *(some.copy() for some in flushed)])
            counts[number, position] = time.thread_time_ns() - begin
            np.add.at(found, entries[:, 1], entries[:, 2])
            partials += len(entries)
            if position == packets // CHUNK // WINDOWS:
                before_all = resident()
        grown = max(grown, resident() - before_all)
        last = np.concatenate([some.copy() for some in table.flush(INT_MAX)])
        np.add.at(found, last[:, 1], last[:, 2])
        wrong += int(np.count_nonzero(found != expected))
        burst = table.tally.burst
    least = counts.min(axis=0)
    return Flood(
        float(least.sum()) / packets,
        float(least.max()) / 1000,
        burst,
        (partials + len(last)) / packets,
        wrong,
        grown / MILLION,
    )


def run(setting: Setting) -> Report:
    """Flood a table under each policy."""
    sources = 200_000 if setting.quick else SOURCES
    found = {policy: on_one_core(flood, policy, sources, setting.runs(2)) for policy in POLICIES}
    report = Report("flood")
    report.table(
        f"{sources:,} sources with one packet, {PERMANENT:,} permanent sources, {SLOTS:,} slots, {WINDOWS} windows",
        ("policy", "ns/packet", f"longest {CHUNK:,} packets, µs", "most at once", "partials/packet", "memory grew, MB"),
        [
            (
                policy,
                f"{each.packet:.0f}",
                f"{each.longest:.0f}",
                f"{each.burst:,}",
                f"{each.partials:.2f}",
                f"{each.grown:.1f}",
            )
            for policy, each in found.items()
        ],
    )
    report.notes.append("most at once: maximum entries that were evicted for 64 packets, or for one watermark")
    paced = found[Policy.PACED]
    report.add_criterion("groups counted wrongly", sum(each.wrong for each in found.values()), "<= 0")
    report.add_criterion("memory grown after the first window, MB", max(each.grown for each in found.values()), "<= 8")
    mean = paced.packet * CHUNK / 1000
    report.add_criterion(
        "1024 packets, paced, the longest / the mean", paced.longest / mean, "<= 12", not setting.quick
    )
    report.add_information("longest 1024 packets, paced, µs", f"{paced.longest:.0f}")
    report.add_criterion("most entries at once, paced", paced.burst, "<= 128", judged=not setting.quick)
    return report
