"""The fixed-size table next to the packets (Gigascope's LFTA; Li 2008, §8.2).

A slot is a row of int64 words: `pane, key words…, sub-aggregates…`; an empty slot has pane EMPTY. A packet looks at
up to PROBES neighbouring slots: it updates the entry with its pane and key, else fills an empty slot, else **evicts**
the entry in its home slot, which leaves as a partial. No memory is ever allocated for a packet. The same group may
leave several times; partials merge (`lowlevel.subaggregates`), so results do not depend on the table's size, on
evictions or on the order of packets. Only traffic between the levels does.

The table is larger than the processor's own caches, so packets are taken AHEAD at a time: the memory of all their slots
is asked for, then their entries are found, then each sub-aggregate is brought up to date in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from capture.native import helper, kernel, pointer
from capture.prefetch import prefetch
from lowlevel.expressions import Type
from lowlevel.subaggregates import INT_MAX, INT_MIN, Kind, SubAggregate

EMPTY = INT_MIN
"""The pane of a slot that holds nothing."""

CACHE_LINE = 64
"""Bytes."""

PROBES = 4
"""Slots a packet may look at before it evicts: with entries of 32 bytes they are two cache lines."""

AHEAD = 64
"""Packets whose slots are asked for together; their cache lines fit into any cache."""

COUNT, SUM, MIN, MAX, SUM_FLOAT, MIN_FLOAT, MAX_FLOAT = range(7)

OPCODES: dict[tuple[Kind, Type], int] = {
    (Kind.COUNT, Type.INT): SUM,  # over the 0/1 column that says where the argument is present
    (Kind.SUM, Type.INT): SUM,
    (Kind.MIN, Type.INT): MIN,
    (Kind.MAX, Type.INT): MAX,
    (Kind.SUM, Type.FLOAT): SUM_FLOAT,
    (Kind.MIN, Type.FLOAT): MIN_FLOAT,
    (Kind.MAX, Type.FLOAT): MAX_FLOAT,
}
"""How a slot's word takes in an argument; `count(*)` alone takes none and is COUNT."""

IDENTITIES: dict[int, int | float] = {
    SUM: 0,
    MIN: INT_MAX,
    MAX: INT_MIN,
    SUM_FLOAT: 0.0,
    MIN_FLOAT: float("inf"),
    MAX_FLOAT: float("-inf"),
}
"""What an absent (NULL) argument is replaced by: the value that changes nothing."""


def start(kind: int) -> int:
    """Return the word, as an integer, of a sub-aggregate that has taken in nothing."""
    identity = IDENTITIES.get(kind, 0)
    return int(np.array(identity, np.float64).view(np.int64)) if isinstance(identity, float) else identity


def opcode(sub: SubAggregate) -> int:
    """Return how the kernel updates this sub-aggregate."""
    return COUNT if sub.argument is None else OPCODES[sub.kind, sub.type]


@helper
def find_homes(  # type: ignore[no-untyped-def]
    slots, slot_count, width, key_words, words, capacity, times, chosen, choose, begin, end, pane_length, origin, homes
):  # fmt: skip
    """Write (row, pane, home slot) of each chosen row in `[begin, end)` to `homes` and ask for its slot's memory."""
    mask = np.uint64(slot_count - 1)
    pane = np.int64(0)
    pane_start = np.int64(0)
    pane_end = np.int64(0)  # an empty interval: the first packet finds its pane by division
    found = 0
    for row in range(begin, end):
        if choose and not chosen[row]:
            continue
        time = times[row]
        if time < pane_start or time >= pane_end:
            pane = (time - origin) // pane_length
            pane_start = origin + pane * pane_length
            pane_end = pane_start + pane_length
        mixed = np.uint64(pane) * np.uint64(0x9E3779B97F4A7C15)
        for word in range(key_words):
            mixed = (mixed ^ np.uint64(words[word * capacity + row])) * np.uint64(0xFF51AFD7ED558CCD)
            mixed ^= mixed >> np.uint64(32)
        slot = np.int64(mixed & mask)
        prefetch(slots, slot * width)
        if width * 8 > CACHE_LINE // 2:  # smaller entries never straddle two lines
            prefetch(slots, slot * width + width - 1)
        homes[3 * found] = row
        homes[3 * found + 1] = pane
        homes[3 * found + 2] = slot
        found += 1
    return found


@helper
def take_in(  # type: ignore[no-untyped-def]
    slots, slots_float, first, ops, op_count, args, args_float, capacity, homes, begin, end
):  # fmt: skip
    """Update the entries at `homes[3 * number + 2]`, for numbers in `[begin, end)`, with the arguments of their rows.

    An entry's sub-aggregates stand from its word `first` on.
    """
    for op in range(op_count):
        kind = ops[op]
        base = op * capacity
        if kind == COUNT:
            for number in range(begin, end):
                slots[homes[3 * number + 2] + first + op] += 1
        elif kind == SUM:
            for number in range(begin, end):
                slots[homes[3 * number + 2] + first + op] += args[base + homes[3 * number]]
        elif kind == MIN:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots[at] = min(slots[at], args[base + homes[3 * number]])
        elif kind == MAX:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots[at] = max(slots[at], args[base + homes[3 * number]])
        elif kind == SUM_FLOAT:
            for number in range(begin, end):
                slots_float[homes[3 * number + 2] + first + op] += args_float[base + homes[3 * number]]
        elif kind == MIN_FLOAT:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots_float[at] = min(slots_float[at], args_float[base + homes[3 * number]])
        else:
            for number in range(begin, end):
                at = homes[3 * number + 2] + first + op
                slots_float[at] = max(slots_float[at], args_float[base + homes[3 * number]])


@kernel(
    "i64(i64*, f64*, i64, i64, i64, i64*, i64*, i64, i64*, i64, i64*, f64*, i64*, u8*, i64, i64, i64, i64, i64, i64*, "
    "i64*, i64)"
)
def update_table(  # type: ignore[no-untyped-def]
    slots, slots_float, slot_count, width, key_words, ops, starts, op_count, words, capacity, args, args_float, times,
    chosen, choose, rows, pane_length, origin, probes, homes, out, out_rows,
):  # fmt: skip
    """Add packets to the table; return how many rows `out` holds then.

    `slots` is slot_count (a power of two) x width. `words` is key_words x capacity, `args` op_count x capacity,
    `times` capacity ts in ns. Where `choose`, only packets with `chosen` = 1 count. Evicted entries are appended to
    `out`, which has room for out_rows + rows. `starts` are the words of a new entry before its first packet. `homes`
    has room for 3 x AHEAD. The `_float` pointers are the same memory seen as float64.
    """
    for begin in range(0, rows, AHEAD):
        end = min(rows, begin + AHEAD)
        found = find_homes(
            slots, slot_count, width, key_words, words, capacity, times, chosen, choose, begin, end, pane_length,
            origin, homes,
        )  # fmt: skip
        taken = 0  # packets whose arguments are in their entries
        for number in range(found):
            row = homes[3 * number]
            pane = homes[3 * number + 1]
            slot = homes[3 * number + 2]
            at = slot * width
            state = 0  # 0 evict, 1 found, 2 empty
            for _ in range(probes):
                at = slot * width
                resident = slots[at]
                if resident == EMPTY:
                    state = 2
                    break
                if resident == pane:
                    same = True
                    for word in range(key_words):
                        if slots[at + 1 + word] != words[word * capacity + row]:
                            same = False
                            break
                    if same:
                        state = 1
                        break
                slot = (slot + 1) & (slot_count - 1)
            if state != 1:
                if state == 0:
                    at = homes[3 * number + 2] * width
                    take_in(
                        slots, slots_float, 1 + key_words, ops, op_count, args, args_float, capacity, homes, taken,
                        number,
                    )  # fmt: skip
                    taken = number
                    for word in range(width):
                        out[out_rows * width + word] = slots[at + word]
                    out_rows += 1
                slots[at] = pane
                for word in range(key_words):
                    slots[at + 1 + word] = words[word * capacity + row]
                for op in range(op_count):
                    slots[at + 1 + key_words + op] = starts[op]
            homes[3 * number + 2] = at
        take_in(
            slots, slots_float, 1 + key_words, ops, op_count, args, args_float, capacity, homes, taken, found
        )  # fmt: skip
    return out_rows


@kernel("i64(i64*, i64, i64, i64, i64*, i64*)")
def flush_table(slots, slot_count, width, before, out, oldest):  # type: ignore[no-untyped-def]
    """Move every entry whose pane is below `before` to `out` (room for slot_count rows); return how many.

    `oldest` (1) becomes the smallest pane that stays, or INT_MAX where none does.
    """
    rows = 0
    smallest = np.int64(INT_MAX)
    for slot in range(slot_count):
        at = slot * width
        pane = slots[at]
        if pane == EMPTY:
            continue
        if pane >= before:
            smallest = min(smallest, pane)
            continue
        for word in range(width):
            out[rows * width + word] = slots[at + word]
        slots[at] = EMPTY
        rows += 1
    oldest[0] = smallest
    return rows


def aligned(rows: int, columns: int) -> npt.NDArray[np.int64]:
    """Make an uninitialised matrix that begins at a cache line, so that entries of 32 bytes never straddle two."""
    words = np.empty(rows * columns + CACHE_LINE // 8, np.int64)
    skipped = -words.__array_interface__["data"][0] % CACHE_LINE // 8
    return words[skipped : skipped + rows * columns].reshape(rows, columns)


class Table:
    """One table: fixed slots, an eviction buffer, no clock and no I/O. Not thread safe.

    Memory is `slots * width * 8` bytes, twice (the second half takes what a flush moves out), plus the eviction buffer.
    """

    def __init__(self, key_words: int, subaggregates: Sequence[SubAggregate], slots: int, capacity: int) -> None:
        """Make a table of `slots` (a power of two) for batches of up to `capacity` packets."""
        if slots < PROBES or slots & (slots - 1):
            raise ValueError(f"a table needs a power of two of at least {PROBES} slots, got {slots}")
        self.key_words = key_words
        self.width = 1 + key_words + len(subaggregates)
        self.ops = np.array([opcode(sub) for sub in subaggregates], np.int64)
        self.starts = np.array([start(kind) for kind in self.ops.tolist()], np.int64)
        self.capacity = capacity
        self.slots = aligned(slots, self.width)
        self.slots[:] = EMPTY
        self.moved = np.empty((slots, self.width), np.int64)
        self.evicted = np.empty((4 * capacity, self.width), np.int64)
        self.evicted_rows = 0
        self.oldest = np.array([INT_MAX], np.int64)
        self.words = np.zeros((max(1, key_words), capacity), np.int64)
        self.args = np.zeros((max(1, len(subaggregates)), capacity), np.int64)
        self._everyone = np.ones(1, np.uint8)
        self._homes = np.empty(3 * AHEAD, np.int64)
        # Addresses are taken once: asking numpy for them at every call costs as much as hundreds of packets.
        self._slots = pointer(self.slots, "i64")
        self._ops = pointer(self.ops, "i64")
        self._starts = pointer(self.starts, "i64")
        self._words = pointer(self.words, "i64")
        self._args = pointer(self.args, "i64")
        self._evicted = pointer(self.evicted, "i64")

    @property
    def bytes(self) -> int:
        """Memory of the table and its buffers."""
        return sum(each.nbytes for each in (self.slots, self.moved, self.evicted, self.words, self.args))

    def update(
        self,
        times: npt.NDArray[np.int64],
        chosen: npt.NDArray[np.uint8] | None,
        pane: int,
        origin: int,
    ) -> None:
        """Add the packets whose key words and arguments stand in `words` and `args`. `evictions_due` first."""
        self.evicted_rows = update_table(
            self._slots, self._slots, len(self.slots), self.width, self.key_words, self._ops, self._starts,
            len(self.ops), self._words, self.capacity, self._args, self._args, times,
            self._everyone if chosen is None else chosen, chosen is not None,
            len(times), pane, origin, PROBES, self._homes, self._evicted, self.evicted_rows,
        )  # fmt: skip

    @property
    def evictions_due(self) -> bool:
        """Whether the eviction buffer must be taken before the next full batch."""
        return self.evicted_rows + self.capacity > len(self.evicted)

    def take_evicted(self) -> npt.NDArray[np.int64]:
        """Hand out the evicted entries, rows of the table's words; valid until the next update."""
        rows, self.evicted_rows = self.evicted_rows, 0
        return self.evicted[:rows]

    def flush(self, before: int) -> npt.NDArray[np.int64]:
        """Hand out every entry of a pane below `before`; valid until the next flush."""
        rows = flush_table(
            self.slots.reshape(-1), len(self.slots), self.width, before, self.moved.reshape(-1), self.oldest
        )
        return self.moved[:rows]
