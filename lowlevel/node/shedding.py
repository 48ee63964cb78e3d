"""Load shedding: the blocks that an overloaded node skips, and the correction of counts and sums.

The spool fills if its reader is too slow or has stopped. The ring of an interface fills if packets arrive faster than
the node processes them. Memory is fixed, and waiting would lose packets without a count. So the node processes one
block of records out of 2**k, and counts each row 2**k times. The spool and the ring each require a k; the larger k is
used.

    free bytes of the spool    more than 1/8    to 1/16    to 1/32    …    to 1/8192 or less    none
    k                                      0          1          2                        10    no block is processed

So the fuller a spool is, the slower it fills. The k of a spool rises at once. It falls only if a spool with 1/8 more
used bytes would also require the smaller k. The tables are flushed when k changes, so that each partial has one
sampling rate.

A hash selects one block out of each group of 2**k blocks, so that periodic traffic is sampled at different phases. The
node reads only the record headers of skipped blocks, and counts their records by cause.

Counts and sums of partials (the partial aggregates of a group and a pane) are multiplied by 2**k, as estimates for all
packets. Other sub-aggregates, and windows of a number of rows, use the processed packets without a correction. The
metadata of partials contain the factor (SAMPLING_FACTOR_KEY).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import pyarrow as pa

from capture import arrow_compute as pc
from capture.lazy_dataclasses import dataclass
from capture.units import SECOND
from lowlevel.plan import LowLevelPlan
from lowlevel.subaggregates import MERGE

# How a ring changes k:
#
#     used share of the ring's bytes                             change of k
#     mean of 200 ms above 1/2, and not falling                  +1
#     up to 1/8 for `patience`                                   -1
#     otherwise                                                  none
#
# A ring buffers bursts, so bursts of up to 100 ms do not change k. A falling mean does not change k either, even if the
# ring is emptied slowly.
#
# If k is large enough, the ring is empty. Only a trial shows whether a smaller k is also large enough. So `patience` is
# 1 s at first. If k must rise within 64 s after it fell, `patience` doubles, up to 64 s. Under a constant overload the
# sampling rate then changes about twice a minute.


MAX_K = 10
"""Maximum of k: at least one block out of 1024 is processed."""

HIGH_SHARE, LOW_SHARE = 1 / 2, 1 / 8
"""k may rise if the mean of the ring's used share is above HIGH_SHARE, and fall if the share stays below LOW_SHARE."""

MEAN_TIME = SECOND // 5
"""Minimum time over which the mean is computed, ns."""

MIN_PATIENCE, MAX_PATIENCE = SECOND, 64 * SECOND
"""Limits of `patience`, ns."""


class RingPressure:
    """Computation of the k that a ring requires, from the used share of its bytes. No clock, no I/O.

    `patience`: time in ns that the ring must be nearly empty before k falls.
    """

    def __init__(self) -> None:
        """Start with k = 0, for an empty ring."""
        self.k = 0
        self.patience = MIN_PATIENCE
        self._last_fall: int | None = None  # time of the last fall of k, None if k has risen since
        self._last_call: int | None = None  # time of the last call; None starts a new mean
        self._calm_start = self._mean_start = 0
        self._share_integral = 0.0  # integral of the share since `_mean_start`, ns
        self._previous_mean = 0.0  # the previous mean if it was above HIGH_SHARE, else 0

    def update(self, share: float, now: int) -> int:
        """Record the used `share` of the ring from the last call until `now` (ns); return the new k."""
        if self._last_call is None or now < self._last_call:
            self._last_call = self._calm_start = self._mean_start = now
            self._share_integral = 0.0
            return self.k
        self._share_integral += share * (now - self._last_call)
        self._last_call = now
        if share > LOW_SHARE:
            self._calm_start = now
        if self.k and now - self._calm_start >= self.patience:
            self.k -= 1
            self._last_fall, self._last_call = now, None
        elif (duration := now - self._mean_start) >= MEAN_TIME:
            self._end_mean(self._share_integral / duration, now)
        return self.k

    def restart_mean(self) -> None:
        """Ignore the time until the next `update`, because the spool is full and all blocks are skipped.

        The next `update` starts a new mean and a new calm period.
        """
        self._last_call = None

    def _end_mean(self, mean: float, now: int) -> None:
        """Increase k if the mean requires it, and start the next mean."""
        is_rising = HIGH_SHARE < mean >= self._previous_mean
        self._previous_mean = mean if mean > HIGH_SHARE else 0.0
        self._mean_start, self._share_integral = now, 0.0
        if is_rising and self.k < MAX_K:
            if self._last_fall is not None:
                self.patience = (
                    min(2 * self.patience, MAX_PATIENCE) if now - self._last_fall <= MAX_PATIENCE else MIN_PATIENCE
                )
            # The tables are flushed now. The new mean does not include the time of this flush.
            self.k, self._last_fall, self._last_call = self.k + 1, None, None


SAMPLING_FACTOR_KEY = b"wiretide.sampled"
"""Key in the metadata of partials. The value is the sampling factor in decimal. Missing if all rows were processed."""

FREE_DIVISOR = 8
"""Sampling begins when less than 1/FREE_DIVISOR of the spool's bytes is free."""

SPOOL_FULL, SPOOL_FILLING, RING_FILLING = "spool_full", "spool_filling", "ring_filling"
"""Causes of shedding: a full spool, or sampling that the spool or the ring requires."""


def compute_k(used_bytes: int, max_bytes: int) -> int:
    """Return the k for a spool that uses `used_bytes` of `max_bytes` bytes.

    >>> [compute_k(used, 1024) for used in (0, 895, 896, 897, 960, 961, 1023, 1024)]
    [0, 0, 0, 1, 1, 2, 7, 10]
    """
    free_bytes = max(0, max_bytes - used_bytes)
    k = 0
    while k < MAX_K and free_bytes * FREE_DIVISOR << k < max_bytes:
        k += 1
    return k


@dataclass
class Shedding:
    """Selection of the blocks of one link that are processed, and counters of skipped records. No clock, no I/O.

    * `spool_k`, `ring_k`: the k that spool and ring require.
    * `skipped_records`: number of skipped records by cause.
    """

    spool_k: int = 0
    ring_k: int = 0
    skipped_records: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((SPOOL_FULL, SPOOL_FILLING, RING_FILLING), 0)
    )
    _block_count: int = 0

    @property
    def k(self) -> int:
        """The larger of `spool_k` and `ring_k`. One block out of 2**k is processed."""
        return max(self.spool_k, self.ring_k)

    @property
    def factor(self) -> int:
        """The sampling factor: the number of rows that a processed row represents."""
        return 1 << self.k

    def next_spool_k(self, used_bytes: int, max_bytes: int) -> int:
        """Return the k that the spool requires. The caller must flush the tables before it changes `k`."""
        required = compute_k(used_bytes, max_bytes)
        return (
            required
            if required > self.spool_k
            else min(self.spool_k, compute_k(used_bytes + used_bytes // 8, max_bytes))
        )

    def select_block(self, record_count: int) -> bool:
        """Return whether the next block is processed. Otherwise its `record_count` are counted as skipped."""
        group, index = divmod(self._block_count, self.factor)
        self._block_count += 1
        is_selected = index == _hash(group) & (self.factor - 1)
        if not is_selected:
            self.skipped_records[RING_FILLING if self.ring_k > self.spool_k else SPOOL_FILLING] += record_count
        return is_selected

    def count_skipped(self, record_count: int) -> None:
        """Count the records of a block that is skipped because the spool is full."""
        self.skipped_records[SPOOL_FULL] += record_count


def _hash(number: int) -> int:
    """Hash a number (the finalizer of MurmurHash3)."""
    for shift, multiplier in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53)):
        number = (number ^ number >> shift) * multiplier & 0xFFFFFFFFFFFFFFFF
    return number ^ number >> 33


def scale_partials(batch: pa.RecordBatch, plan: LowLevelPlan, factor: int) -> pa.RecordBatch:
    """Return partials with counts and sums multiplied by `factor`, and with the factor in the metadata."""
    if factor == 1:
        return batch
    columns = batch.columns
    for index, sub in enumerate(plan.subaggregates, len(columns) - len(plan.subaggregates)):
        if MERGE[sub.kind] == "sum":
            columns[index] = pc.multiply(columns[index], pa.scalar(factor, columns[index].type))
    metadata: Mapping[bytes, bytes] = (batch.schema.metadata or {}) | {SAMPLING_FACTOR_KEY: b"%d" % factor}
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema.with_metadata(metadata))
