"""A table whose old entries are flushed gradually, between packets and at watermarks (`lowlevel.table.flushing`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from capture.native import pointer
from lowlevel.subaggregates import INT_MAX, INT_MIN, SubAggregate
from lowlevel.table.bucket_flush_kernel import update_tagged_flushing
from lowlevel.table.bucket_table import TaggedTable
from lowlevel.table.entries import BUCKET
from lowlevel.table.flush_kernels import (
    BURST,
    COLLISIONS,
    CURRENT,
    DIRECT,
    EMPTY,
    EVICTED,
    FLUSHED,
    FORCED,
    IOP_SLOW,
    IOP_TWO_SLOT,
    LAZY,
    OLD,
    PACED,
    RESIDENT,
    SLOW,
    STATE_WORDS,
    SWEPT,
    FlushState,
    advance_table,
    update_flushing,
)
from lowlevel.table.flushing import Flushing, Policy
from lowlevel.table.table import Table, Tally

POLICY_CODES = {
    Policy.IOP_SLOW: IOP_SLOW,
    Policy.IOP_TWO_SLOT: IOP_TWO_SLOT,
    Policy.LAZY: LAZY,
    Policy.SLOW: SLOW,
    Policy.PACED: PACED,
}
"""Codes of the policies in kernels. AT_ONCE has no code, because it uses `TaggedTable`."""

IOP_PROBES = {Policy.IOP_SLOW: 1, Policy.IOP_TWO_SLOT: 2}
"""Number of slots that a packet tests, for the ordered policies."""

SWEEP_WATERMARKS = 64
"""Number of watermarks without packets in which PACED's hand visits all slots."""


class FlushingTable(Table):
    """A table with gradual flushes. `take_evicted` returns evicted and flushed entries in order. Not thread safe."""

    def __init__(
        self,
        key_words: int,
        subaggregates: Sequence[SubAggregate],
        slots: int,
        capacity: int,
        flushing: Flushing,
        probes: int | None = None,
    ) -> None:
        """Make a table of `slots` slots (a power of two) for batches of up to `capacity` packets.

        `probes`: number of slots that a packet tests one by one. By default, ordered policies test IOP_PROBES slots,
        and the other policies compare the tags of a bucket. Raises ValueError for AT_ONCE.
        """
        if flushing.policy not in POLICY_CODES:
            raise ValueError(
                f"got {flushing.policy}, expected any of {', '.join(POLICY_CODES)}: it does not flush gradually"
            )
        self.probes = probes or IOP_PROBES.get(flushing.policy, BUCKET)
        self.uses_tags = probes is None and flushing.policy not in IOP_PROBES
        super().__init__(key_words, subaggregates, slots, capacity, self.probes, slots + capacity)
        self.slots[:] = EMPTY
        self.flushing = flushing
        self.policy_code = POLICY_CODES[flushing.policy]
        self.max_panes = flushing.disorder + 1
        self.pane_counts = np.zeros(1 << (self.max_panes - 1).bit_length(), np.int64)
        self.pane_mask = len(self.pane_counts) - 1
        self.state = np.zeros(STATE_WORDS, np.int64)
        self.state[CURRENT] = EMPTY
        self.flushes = FlushState(
            policy=self.policy_code,
            every=flushing.every,
            pane_counts=pointer(self.pane_counts, "i64"),
            max_panes=self.max_panes,
            pane_mask=self.pane_mask,
            state=pointer(self.state, "i64"),
        )

    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
        limit: int = INT_MAX,
    ) -> None:
        """Add packets. Packets of panes above `limit` open no pane. Call `evictions_due` before."""
        records = self.record, self.rows(times, chosen, pane, origin), self.flushes
        if self.uses_tags:
            self.evicted_rows = update_tagged_flushing.at(*records, limit, self.evicted_rows)
        else:
            self.evicted_rows = update_flushing.at(*records, self.probes, limit, self.evicted_rows)

    def advance(self, pane: int, end_pane: int = INT_MIN) -> None:
        """Open `pane` without a packet, unless a later pane is open.

        Flushes entries beyond the bound and entries of panes below `end_pane`. With PACED, the hand also moves. Call
        `evictions_due` before.
        """
        visits = max(1, len(self.slots) // SWEEP_WATERMARKS) if self.policy_code == PACED else 0
        self.evicted_rows = advance_table.at(self.record, self.flushes, pane, end_pane, visits, self.evicted_rows)

    def flush(self, end_pane: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield one array: the evicted entries, then all entries of panes below `end_pane`."""
        self.advance(INT_MIN, end_pane)
        yield self.take_evicted()

    @property
    def residents(self) -> npt.NDArray[np.int64]:
        """Return a copy of the entries in the table."""
        return self.slots[self.slots[:, 0] != EMPTY]

    @property
    def smallest_pane(self) -> int:
        """The smallest pane of an entry in the table; INT_MAX if the table is empty."""
        current = int(self.state[CURRENT])
        panes = range(current - self.max_panes + 1, current + 1)
        return next((pane for pane in panes if self.pane_counts[pane & self.pane_mask]), INT_MAX)

    @property
    def tally(self) -> Tally:
        """Return the counters."""
        word = self.state.tolist()
        return Tally(
            collisions=word[COLLISIONS],
            evicted=word[EVICTED],
            flushed=word[FLUSHED],
            swept=word[SWEPT],
            forced=word[FORCED],
            direct=word[DIRECT],
            burst=word[BURST],
            resident=word[RESIDENT],
            panes=int(np.count_nonzero(self.pane_counts)),
        )

    @property
    def old_entries(self) -> int:
        """Number of entries of panes before the current pane."""
        return int(self.state[OLD])


def make_table(
    key_words: int, subaggregates: Sequence[SubAggregate], slots: int, capacity: int, flushing: Flushing
) -> TaggedTable | FlushingTable:
    """Return an empty table for a flush policy."""
    if flushing.policy is Policy.AT_ONCE:
        return TaggedTable(key_words, subaggregates, slots, capacity)
    return FlushingTable(key_words, subaggregates, slots, capacity, flushing)
