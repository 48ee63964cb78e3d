"""Load shedding: the blocks that a node skips when it is overloaded, and the correction of counts and sums.

A spool without an active reader fills up, and so does the ring of an interface with more packets than the node can
process. Waiting would lose packets uncounted, and memory is fixed. So the node processes one block of records out of
2**k, and each of its rows counts 2**k times. Spool and ring both require a k, and the larger one is used.

    free bytes of the spool    more than 1/8    to 1/16    to 1/32    …    to 1/8192 or less    none
    k                                      0          1          2                        10    no block is processed

So the fuller a spool is, the slower it fills. Its k rises at once. It falls, by one step or several, when there is 1/8
more room than the step needs. The tables are flushed whenever k changes, so that each partial has one sampling rate.
Blocks are processed in groups of 2**k, one block per group. A hash of the group's index selects the block. So periodic
traffic is not always sampled at the same phase. The node reads only the record headers of skipped blocks, and counts
their records by cause.

Counts and sums of partials are multiplied by 2**k, as estimates for all packets. Other sub-aggregates, and windows of
a number of rows, use the processed packets without a correction. The metadata of the partials contain the factor
(SAMPLED).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from capture.units import SECOND
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import Kind

# How a ring changes k:
#
#     share of the ring's bytes that wait to be read             change of k
#     mean of 200 ms above 1/2, and not falling                  +1
#     up to 1/8 for `patience`                                   -1
#     otherwise                                                  none
#
# A ring buffers bursts, so bursts of up to 100 ms do not change k. A falling mean does not change k either, however
# slowly the ring is emptied.
#
# The ring is empty if k is sufficient. Only a trial shows whether a smaller k is also sufficient. So patience is 1 s at
# first, and doubles, up to 64 s, if k must rise within 64 s after a fall. Under a constant overload the rate then
# changes about twice a minute.


STEEPEST = 10
"""The largest k."""

HIGH, LOW = 1 / 2, 1 / 8
"""Shares of a ring's bytes: k may rise if their mean is above HIGH, and may fall while the share is at most LOW."""

WINDOW = SECOND // 5
"""Shortest time of a mean, ns."""

SHORTEST, LONGEST = SECOND, 64 * SECOND
"""Limits of `patience`, ns."""


class RingPressure:
    """The k that one ring requires, from its occupancy at given times. No clock, no I/O.

    `patience`: time in ns that the ring must be nearly empty before k falls.
    """

    def __init__(self) -> None:
        """Begin with an empty ring."""
        self.k = 0
        self.patience = SHORTEST
        self._last_fall: int | None = None  # time of the last fall of k, None if k has risen since
        self._last_call: int | None = None  # time of the last call; None starts a new mean
        self._calm_since = self._window_since = 0
        self._share_integral = 0.0  # integral of the share over the window, ns
        self._previous_mean = 0.0  # mean of the window before if above HIGH, else 0

    def follow(self, share: float, now: int) -> int:
        """Record the `share` of the ring's bytes that waited from the last call to `now` (ns); return k."""
        if self._last_call is None or now < self._last_call:
            self._last_call = self._calm_since = self._window_since = now
            self._share_integral = 0.0
            return self.k
        self._share_integral += share * (now - self._last_call)
        self._last_call = now
        if share > LOW:
            self._calm_since = now
        if self.k and now - self._calm_since >= self.patience:
            self.k -= 1
            self._last_fall, self._last_call = now, None
        elif (duration := now - self._window_since) >= WINDOW:
            self._end_window(self._share_integral / duration, now)
        return self.k

    def pass_over(self) -> None:
        """Discard the time since the last call, in which all blocks were skipped because the spool was full.

        The next call of `follow` starts a new mean and a new calm period.
        """
        self._last_call = None

    def _end_window(self, mean: float, now: int) -> None:
        rising = HIGH < mean >= self._previous_mean
        self._previous_mean = mean if mean > HIGH else 0.0
        self._window_since, self._share_integral = now, 0.0
        if rising and self.k < STEEPEST:
            if self._last_fall is not None:
                self.patience = min(2 * self.patience, LONGEST) if now - self._last_fall <= LONGEST else SHORTEST
            # The tables are flushed now. The new mean does not include the time of this flush.
            self.k, self._last_fall, self._last_call = self.k + 1, None, None


SAMPLED = b"wiretide.sampled"
"""Metadata of partials: the sampling factor as a decimal number; missing if all rows were processed."""

FIRST = 8
"""Sampling begins when less than 1/FIRST of the bytes is free."""

FULL, SPOOL_FILLING, RING_FILLING = "spool_full", "spool_filling", "ring_filling"
"""Causes of shedding: no room at all, or sampling that the spool or the ring requires."""


def steps(used: int, bound: int) -> int:
    """Return the k for a spool that uses `used` of `bound` bytes.

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
    """Selects the blocks of one link that are processed. No clock, no I/O.

    `shed`: number of skipped records by cause. `spool_k`, `ring_k`: the k that spool and ring require.
    """

    spool_k: int = 0
    ring_k: int = 0
    shed: dict[str, int] = field(default_factory=lambda: dict.fromkeys((FULL, SPOOL_FILLING, RING_FILLING), 0))
    _blocks: int = 0

    @property
    def k(self) -> int:
        """The k that is used."""
        return max(self.spool_k, self.ring_k)

    @property
    def factor(self) -> int:
        """The sampling factor: the number of rows that a processed row represents."""
        return 1 << self.k

    def next_spool_k(self, used: int, bound: int) -> int:
        """Return the k that the spool requires. The caller must flush the tables before it changes `k`."""
        wanted = steps(used, bound)
        return wanted if wanted > self.spool_k else min(self.spool_k, steps(used + used // 8, bound))

    def takes(self, records: int) -> bool:
        """Return whether the next block is processed; count its `records` if not."""
        group, index = divmod(self._blocks, self.factor)
        self._blocks += 1
        processed = index == _hash(group) & (self.factor - 1)
        if not processed:
            self.shed[RING_FILLING if self.ring_k > self.spool_k else SPOOL_FILLING] += records
        return processed

    def refuse(self, records: int) -> None:
        """Count a block that is skipped because there is no room at all."""
        self.shed[FULL] += records


def _hash(number: int) -> int:
    """Hash a number (the finalizer of MurmurHash3)."""
    for shift, multiplier in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        number = (number ^ number >> shift) * multiplier & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 33


def standing_for(batch: pa.RecordBatch, plan: LowLevelPlan, factor: int) -> pa.RecordBatch:
    """Return sampled partials: counts and sums multiplied by `factor`, and the factor in the metadata."""
    if factor == 1:
        return batch
    columns = batch.columns
    for index, sub in enumerate(plan.subaggregates, len(columns) - len(plan.subaggregates)):
        if sub.kind in (Kind.COUNT, Kind.SUM):
            columns[index] = pc.multiply(columns[index], pa.scalar(factor, columns[index].type))
    metadata: Mapping[bytes, bytes] = (batch.schema.metadata or {}) | {SAMPLED: b"%d" % factor}
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.with_metadata(metadata))
