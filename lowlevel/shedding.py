"""What a node does not look at when it cannot leave what would come of it: the rule, and the correction.

A spool that nobody reads fills up, and so does the ring of a wire that brings more than the node can reduce. The node
then neither waits, which would lose packets unseen, nor grows: it reduces one block of records out of 2**k, and what it
reduces stands for 2**k times as much. k is the larger of what spool and ring ask for (`lowlevel.ring_pressure`).

    bytes left in the spool    more than 1/8    to 1/16    to 1/32    …    to 1/8192 or less    none
    k                                      0          1          2                        10    no block at all

So a spool that is filled at a steady rate takes the longer the fuller it is, until somebody reads it. Its k rises at
once, and falls when there is an eighth more room than its step needs, one step or several; the tables are emptied
whenever k changes, so that no partial is of two rates. Of each run of 2**k blocks one is reduced, which one is a hash
of the run's number: a traffic that repeats itself is not met at the same place again and again. Of blocks that are shed
only the records' headers are walked over; nothing is decoded. Each is counted with its records, by cause.

Counts and sums of partials that leave are multiplied by 2**k: they estimate what all packets would have given. Least
and greatest, first and last values and bits are those of the packets looked at, and so are the rows of a window that is
of a number of rows. The factor stands in the metadata of the partials (SAMPLED).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lowlevel.plan import LowLevelPlan
from lowlevel.ring_pressure import STEEPEST
from lowlevel.subaggregates import Kind

SAMPLED = b"wiretide.sampled"
"""Metadata of partials: one row in so many was looked at, as a decimal number; left out where all were."""

FIRST = 8
"""Sampling begins when less than one in so many of the bytes is left."""

FULL, SPOOL_FILLING, RING_FILLING = "spool_full", "spool_filling", "ring_filling"
"""Causes for which a record is shed: no room at all, or sampling, for the one that asks for the larger k."""


def steps(used: int, bound: int) -> int:
    """Return the k for a spool of `used` out of `bound` bytes.

    >>> [steps(used, 1024) for used in (0, 895, 896, 897, 960, 961, 1023, 1024)]
    [0, 0, 0, 1, 1, 2, 7, 10]
    """
    left = max(0, bound - used)
    k = 0
    while k < STEEPEST and left * FIRST << k < bound:
        k += 1
    return k


@dataclass
class Shedding:
    """Says which blocks of one link are reduced. No clock, no I/O; `shed` are the records that were not, by cause.

    `spool_k` and `ring_k` are what the room in the spool and the ring ask for.
    """

    spool_k: int = 0
    ring_k: int = 0
    shed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((FULL, SPOOL_FILLING, RING_FILLING), 0))
    _blocks: int = 0

    @property
    def k(self) -> int:
        """What is in force."""
        return max(self.spool_k, self.ring_k)

    @property
    def factor(self) -> int:
        """What a row that is looked at stands for."""
        return 1 << self.k

    def next_spool_k(self, used: int, bound: int) -> int:
        """Return the k that the room in the spool asks for; the tables are to be emptied before `k` changes."""
        wanted = steps(used, bound)
        return wanted if wanted > self.spool_k else min(self.spool_k, steps(used + used // 8, bound))

    def takes(self, records: int) -> bool:
        """Whether the next block, of so many records, is reduced; counted where it is not."""
        run, place = divmod(self._blocks, self.factor)
        self._blocks += 1
        taken = place == _mixed(run) & (self.factor - 1)
        if not taken:
            self.shed[RING_FILLING if self.ring_k > self.spool_k else SPOOL_FILLING] += records
        return taken

    def refuse(self, records: int) -> None:
        """Count a block that is not reduced because there is no room at all."""
        self.shed[FULL] += records


def _mixed(number: int) -> int:
    """Hash a number (the finalizer of MurmurHash3)."""
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        number = (number ^ number >> shift) * factor & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 33


def standing_for(batch: pa.RecordBatch, plan: LowLevelPlan, factor: int) -> pa.RecordBatch:
    """Return partials of rows each of which stands for `factor`: counts and sums multiplied, the factor noted."""
    if factor == 1:
        return batch
    columns = batch.columns
    for place, sub in enumerate(plan.subaggregates, len(columns) - len(plan.subaggregates)):
        if sub.kind in (Kind.COUNT, Kind.SUM):
            columns[place] = pc.multiply(columns[place], pa.scalar(factor, columns[place].type))
    noted: Mapping[bytes, bytes] = (batch.schema.metadata or {}) | {SAMPLED: b"%d" % factor}
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.with_metadata(noted))
