"""Kernel for arcs that change while rows are in memory (Chandramouli et al., 2010, §4.4).

    entries of a partition    x ── y ── z ── …         an arc is added or removed for the times [since, until)
                                   │    │
                                   └────┴── their nodes are computed again from the nodes of the entry before

The nodes of an entry follow from the nodes of the entry before it and from its row. So from `since` on they are
computed again, entry by entry. At or after `until`, the first entry with the same nodes as before ends the search. The
difference of the two lists of an entry is the change of its results.
"""

from __future__ import annotations

from capture.native import kernel
from highlevel.patterns.kernels.expressions import Machine
from highlevel.patterns.kernels.layout import (
    AFTER,
    BEFORE,
    CURSOR,
    HAS_ROW,
    IS_CHANGED,
    LAST,
    NO_ROOM,
    PARTITION_WORDS,
    PHASE,
    READY,
    RENEW,
    TIME,
    Automata,
    Store,
    entry_at,
)
from highlevel.patterns.kernels.lists import renew_entry
from highlevel.speculation.lifetimes.kernels.records import NONE
from lowlevel.punctuation import END


@kernel("i64(Automata, Machine, Store, i64, i64, i64, i64)")
def renew_entries(automata: Automata, machine: Machine, store: Store, begin, end, since, until):  # type: ignore[no-untyped-def]
    """Compute the nodes of the partitions `[begin, end)` again, for the entries with a row from `since` on.

    The arcs have changed for times in `[since, until)`. Return the next partition: less than `end` if there is no room
    for nodes or results.
    """
    state, entries = store.state, store.entries
    for partition in range(begin, end):
        if state[PHASE] == READY:
            state[CURSOR], state[IS_CHANGED], state[PHASE] = NONE, 0, RENEW
            entry = store.partitions[partition * PARTITION_WORDS + LAST]
            while entry != NONE and entries[entry_at(automata, entry) + TIME] >= since:
                at = entry_at(automata, entry)
                if entries[at + HAS_ROW] == 0:
                    break
                state[CURSOR], entry = entry, entries[at + BEFORE]
        while state[CURSOR] != NONE:
            entry = state[CURSOR]
            at = entry_at(automata, entry)
            if entries[at + TIME] >= until and state[IS_CHANGED] == 0:
                break
            is_changed = renew_entry(automata, store, machine, entry, END, partition)
            if is_changed == NO_ROOM:
                return partition
            state[IS_CHANGED], state[CURSOR] = is_changed, entries[at + AFTER]
        state[PHASE] = READY
    return end
