"""Tables that are flushed step by step. Input: packets `(ts, key)`; output: entries `(pane, key, packets)`."""

from __future__ import annotations

from random import Random

import numpy as np

from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.entries import CHUNK_ROWS, ENTRIES_OFFSET
from lowlevel.table.flush_kernels import EMPTY, find_homes
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.flushing_table import FlushingTable

Packet = tuple[int, int]
Left = tuple[int, int, int]

PANE = 10

TIMES = np.zeros(1 << 12, np.int64)
"""The ts of a batch: always at one address, where a kernel's plain twin finds them."""


def table_of(flushing: Flushing, slots: int, capacity: int, probes: int | None = None) -> FlushingTable:
    return FlushingTable(1, [SubAggregate("packets", Kind.COUNT)], slots, capacity, flushing, probes)


def add(table: FlushingTable, packets: list[Packet], limit: int = INT_MAX) -> list[Left]:
    """Add one batch to a table and return the entries that left it, in order."""
    assert not table.evictions_due
    table.words[0, : len(packets)] = [key for _, key in packets]
    times = TIMES[: len(packets)]
    times[:] = [ts for ts, _ in packets]
    table.update(times, None, PANE, 0, limit)
    return taken(table)


def taken(table: FlushingTable) -> list[Left]:
    return [(pane, key, count) for pane, key, count in table.take_evicted().tolist()]


def residents(table: FlushingTable) -> list[Left]:
    return [(pane, key, count) for pane, key, count in table.slots.tolist() if pane != EMPTY]


def home(key: int, slots: int) -> int:
    """The slot a packet looks at first."""
    table = FlushingTable(1, [], slots, 1, Flushing(Policy.PACED), 1)
    chunk, words, zero = np.zeros(3 * CHUNK_ROWS, np.int64), np.array([key], np.int64), np.zeros(1, np.int64)
    memory = table.record._replace(slots=words, chunk=chunk)
    rows = table.rows(zero, None, PANE, 0)._replace(words=words, key_offsets=zero, times=zero)
    with np.errstate(over="ignore"):
        find_homes(memory, rows, 0, 1)
    return int(chunk[ENTRIES_OFFSET])


def disordered(random: Random, packets: int, groups: int, disorder: int) -> list[Packet]:
    """Packets about one unit apart, each up to `disorder` late; in a third of all streams there is a lull."""
    lull = random.choice([0, 0, 4 * PANE, 10**9])
    times = [place * 3 // 2 + lull * (place > packets // 2) for place in range(packets)]
    arrivals = sorted(times, key=lambda ts: ts + random.uniform(0, disorder))
    return [(ts, random.randrange(groups)) for ts in arrivals]


def promises(packets: list[Packet]) -> list[int]:
    """The low watermark after each packet: the smallest ts of those that follow, INT_MAX after the last."""
    lows = [INT_MAX]
    for ts, _ in reversed(packets[1:]):
        lows.append(min(lows[-1], ts))
    return lows[::-1]
