"""The number of slots that a table searches for an entry: time per packet, and number of early partials in one pane.

The kernel searches this number of slots, beginning with the home slot. One slot is the direct-mapped table, two slots
are the deployed Gigascope, five are its successors. The alternative is a bucket of eight slots, searched by tags.
Groups have Zipf frequencies, as in the other benches. With more groups than slots, entries must be evicted early.
"""

from __future__ import annotations

import numpy as np

from bench.figure import figure
from bench.one_core import on_one_core
from bench.report import Report
from bench.setting import Setting
from bench.undisturbed import time_step
from lowlevel.subaggregates import Kind, SubAggregate
from lowlevel.table.bucket_table import TaggedTable
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import FlushingTable
from lowlevel.table.table import Table

MILLION = 1_000_000
SLOTS = 1 << 17
CHUNK = 1 << 14
TAGS = 0
"""The value, in place of a number of slots, for a bucket that is searched by tags."""

SLOT_COUNTS = (1, 2, 4, 5, TAGS)
LOADS = (0.25, 0.5, 1.0, 2.0)
"""Numbers of groups per slot."""


def table_of(probes: int) -> Table:
    """Make a table of two counters by one key word. There is one pane, so the flush policy has no effect."""
    subs = [SubAggregate("packets", Kind.COUNT), SubAggregate("rows", Kind.COUNT)]
    if probes == TAGS:
        return TaggedTable(1, subs, SLOTS, CHUNK)
    return FlushingTable(1, subs, SLOTS, CHUNK, Flushing(Policy.IOP_SLOW), probes)


def measure_probes(probes: int, load: float, packets: int) -> tuple[float, float]:
    """Return the nanoseconds and the early partials per packet."""
    random = np.random.default_rng(1)
    groups = int(SLOTS * load)
    weights = 1.0 / np.arange(1, groups + 1)
    names = random.integers(1 << 62, size=groups)
    keys = names[np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(packets))]
    table = table_of(probes)
    times = np.zeros(CHUNK, np.int64)
    seconds = 0.0
    for first in range(0, packets - CHUNK + 1, CHUNK):
        table.words[0, :CHUNK] = keys[first : first + CHUNK]
        seconds += time_step(lambda: table.update(times, None, 1, 0)).processor
        if table.evictions_due:
            table.take_evicted()
    rows = packets // CHUNK * CHUNK
    return seconds / rows * 1e9, table.tally.evicted / rows


def measure(packets: int, runs: int) -> dict[tuple[int, float], tuple[str, float]]:
    """Measure every number of slots at every load, in turns."""
    found: dict[tuple[int, float], list[tuple[float, float]]] = {}
    for probes in SLOT_COUNTS:
        measure_probes(probes, LOADS[0], CHUNK)  # kernels are compiled
    for _ in range(runs):
        for load in LOADS:
            for probes in SLOT_COUNTS:
                found.setdefault((probes, load), []).append(measure_probes(probes, load, packets))
    return {key: (str(figure(time for time, _ in several)), several[0][1]) for key, several in found.items()}


def run(setting: Setting) -> Report:
    """Compare the numbers of slots, and tags."""
    found = on_one_core(measure, setting.packets(2 * MILLION), setting.runs(3))
    report = Report("probes")
    report.table(
        f"{SLOTS:,} slots: ns for a packet, and early partials for 100 packets, by groups for each slot",
        ("slots looked at", *(f"{load:g}" for load in LOADS)),
        [
            (
                "8, by tags (default)" if probes == TAGS else str(probes),
                *(f"{found[probes, load][0]}, {found[probes, load][1]:.1%}" for load in LOADS),
            )
            for probes in SLOT_COUNTS
        ],
    )
    early = found[TAGS, 1.0][1] / found[1, 1.0][1]
    report.add_criterion("early partials at one group per slot, default / direct-mapped", early, "<= 0.5")
    return report
