"""Kernel for arcs that change while rows are in memory (Chandramouli et al., 2010, §4.4).

    entries of a partition    x ── y ── z ── …         an arc is added or removed for the times [since, until)
                                   │    │
                                   └────┴── their nodes are computed again from the nodes of the entry before

The nodes of an entry follow from the nodes of the entry before it and from its row. So from `since` on they are
computed again, entry by entry. At or after `until`, the first entry with the same nodes as before ends the search. The
difference of the two lists of an entry is the change of its results.
"""

from __future__ import annotations

from capture.native import helper, kernel
from highlevel.patterns.entry_kernels import (
    AFTER,
    BEFORE,
    CURSOR,
    CURSOR_COUNT,
    HAS_ROW,
    LAST,
    LIST_COUNT,
    LIST_HEAD,
    NEXT_NODE,
    NODE_COUNT,
    NODES,
    PARTITION_WORDS,
    PHASE,
    READY,
    RENEW,
    RESULT_COUNT,
    RUN_END,
    START,
    START_SEQUENCE,
    STATE,
    TIME,
    Automata,
    Store,
    are_neighbours,
    begin_list,
    begin_run,
    entry_at,
    extend,
    free_list,
    has_equal_result,
    have_equal_registers,
    is_result,
    node_at,
    run_stop,
    write_result,
)
from highlevel.patterns.expression_kernels import Machine
from highlevel.speculation.lifetimes.kernels.records import NONE


@helper
def are_equal_lists(automata: Automata, store: Store, one, other):  # type: ignore[no-untyped-def]
    """Return whether two lists have equal nodes in the same order."""
    nodes = store.nodes
    while one != NONE and other != NONE:
        left, right = node_at(automata, one), node_at(automata, other)
        for word in (START, START_SEQUENCE, RUN_END, STATE):
            if nodes[left + word] != nodes[right + word]:
                return 0
        if have_equal_registers(automata, store, one, other) == 0:
            return 0
        one, other = nodes[left + NEXT_NODE], nodes[right + NEXT_NODE]
    return 1 if one == NONE and other == NONE else 0


@helper
def write_difference(automata: Automata, store: Store, head, other, partition, weight, time):  # type: ignore[no-untyped-def]
    """Write the results of a list that the list `other` does not have."""
    node = head
    while node != NONE:
        if is_result(automata, store, node, head) and has_equal_result(automata, store, node, other) == 0:
            write_result(automata, store, node, partition, weight, time, run_stop(automata, store, node))
        node = store.nodes[node_at(automata, node) + NEXT_NODE]


@kernel("i64(Automata, Machine, Store, i64, i64, i64, i64)")
def renew_entries(automata: Automata, machine: Machine, store: Store, begin, end, since, until):  # type: ignore[no-untyped-def]
    """Compute the nodes of the partitions `[begin, end)` again, for the entries with a row from `since` on.

    The arcs have changed for times in `[since, until)`. Return the partition reached, fewer than `end` if there is no
    room for nodes or results.
    """
    state, entries = store.state, store.entries
    for partition in range(begin, end):
        if state[PHASE] == READY:
            state[CURSOR], state[CURSOR_COUNT], state[PHASE] = NONE, 0, RENEW
            entry = store.partitions[partition * PARTITION_WORDS + LAST]
            while entry != NONE and entries[entry_at(automata, entry) + TIME] >= since:
                at = entry_at(automata, entry)
                if entries[at + HAS_ROW] == 0:
                    break
                state[CURSOR], entry = entry, entries[at + BEFORE]
        # CURSOR_COUNT is 1 if the nodes of the entry before the cursor have changed.
        while state[CURSOR] != NONE:
            entry = state[CURSOR]
            at = entry_at(automata, entry)
            if entries[at + TIME] >= until and state[CURSOR_COUNT] == 0:
                break
            before, old, has_room = entries[at + BEFORE], entries[at + NODES], 1
            begin_list(store)
            if before != NONE and are_neighbours(automata, store, before, entry):
                other = entry_at(automata, before)
                has_room = extend(automata, store, machine, entries[other + NODES], entries[other + NODE_COUNT], entry)
            if has_room:
                has_room = begin_run(automata, store, machine, entry)
            new = state[LIST_HEAD]
            if has_room == 0 or state[RESULT_COUNT] + entries[at + NODE_COUNT] + state[LIST_COUNT] > store.result_room:
                free_list(automata, store, new)
                return partition
            if are_equal_lists(automata, store, old, new):
                free_list(automata, store, new)
                state[CURSOR_COUNT] = 0
            else:
                write_difference(automata, store, old, new, partition, -1, entries[at + TIME])
                write_difference(automata, store, new, old, partition, 1, entries[at + TIME])
                free_list(automata, store, old)
                entries[at + NODES], entries[at + NODE_COUNT] = new, state[LIST_COUNT]
                state[CURSOR_COUNT] = 1
            state[CURSOR] = entries[at + AFTER]
        state[PHASE] = READY
    return end
