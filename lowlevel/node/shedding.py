"""What a node does not look at when it cannot leave what would come of it: the rule, and the correction.

A spool that nobody reads fills up, and so does the ring of a wire that brings more than the node can reduce. The node
then neither waits, which would lose packets unseen, nor grows: it reduces one block of records out of 2**k, and what it
reduces stands for 2**k times as much. k is the larger of what spool and ring ask for (`lowlevel.node.shedding`).

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

from capture.units import SECOND
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import Kind

# How a ring that fills raises the sampling rate, and how the rate falls again: the rule, step by step.
#
#     share of the ring's bytes that wait                        k
#     over 200 ms more than 1/2 in the mean, and not falling     1 more, whenever that is so
#     neither                                                    stays
#     up to 1/8 for as long as `patience`                        1 less, whenever that is so
#
# A ring is there for bursts: what it takes in and gives back within 100 ms is none of this rule's business. Nor is one
# that is being emptied, however slowly: its mean is below that of the 200 ms before.
#
# A node that k relieves has an empty ring, and would be overloaded again with less: how much comes can be seen in no
# other way than by trying. So patience is 1 s at first, and doubles, up to 64 s, whenever k must rise again within 64 s
# of having fallen. Under a steady overload the rate then changes about twice in a minute.


STEEPEST = 10
"""The largest k."""

HIGH, LOW = 1 / 2, 1 / 8
"""Shares of a ring: the mean above which k rises, and the share up to which it falls."""

WINDOW = SECOND // 5
"""Nanoseconds that a mean is of, at least."""

SHORTEST, LONGEST = SECOND, 64 * SECOND
"""Nanoseconds of patience."""


class RingPressure:
    """Follows one ring, whose occupancy it is told with the time; no clock and no I/O of its own.

    `k` is what the ring asks for, `patience` (ns) how long it must have been nearly empty for less.
    """

    def __init__(self) -> None:
        """Begin with an empty ring."""
        self.k = 0
        self.patience = SHORTEST
        self._fell: int | None = None  # when k last fell, unless it has risen since
        self._seen: int | None = None  # the last look; None begins anew
        self._calm_since = self._window_since = 0
        self._filled = 0.0  # the window's ns, times the share
        self._before = 0.0  # mean of the window before, where it was above HIGH

    def follow(self, share: float, now: int) -> int:
        """Follow a ring of which a `share` of the bytes waited since the last call, until `now` (ns); return k."""
        if self._seen is None or now < self._seen:
            self._seen = self._calm_since = self._window_since = now
            self._filled = 0.0
            return self.k
        self._filled += share * (now - self._seen)
        self._seen = now
        if share > LOW:
            self._calm_since = now
        if self.k and now - self._calm_since >= self.patience:
            self.k -= 1
            self._fell, self._seen = now, None
        elif (lasted := now - self._window_since) >= WINDOW:
            self._end_window(self._filled / lasted, now)
        return self.k

    def pass_over(self) -> None:
        """Take it that nothing is known of the time since the last call: blocks were refused, whatever the ring held.

        What `follow` is told next begins anew. Neither a mean nor a calm reaches over such a time.
        """
        self._seen = None

    def _end_window(self, mean: float, now: int) -> None:
        rising = HIGH < mean >= self._before
        self._before = mean if mean > HIGH else 0.0
        self._window_since, self._filled = now, 0.0
        if rising and self.k < STEEPEST:
            if self._fell is not None:
                self.patience = min(2 * self.patience, LONGEST) if now - self._fell <= LONGEST else SHORTEST
            # The tables are emptied now: that is not time in which the new rate has failed.
            self.k, self._fell, self._seen = self.k + 1, None, None


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
