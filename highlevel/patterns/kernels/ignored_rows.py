"""Helpers of kernels that find the runs which ignore a row (Chandramouli et al., 2010, §5.3 and Appendix D).

A row is **ignored** by a run if only arcs apply that lead from its state to this state and change no field: ignorable
arcs. The run is the same after the row. Lists are ordered by start. If all runs of the list before ignore the row, from
some start on, the list of the row ends with the same nodes: the lists share these nodes (REFERENCES). A row that begins
no run and that all runs ignore has the list of the row before, without any copy. The paper stores a run once, as an
anchor, and the interval of its ignored rows in an interval tree. Here a list is the answer to the query of that tree,
so no tree is necessary. Final runs are never shared: each row is another result.
"""

from __future__ import annotations

from capture.native import Integers, helper, kernel, outlined
from highlevel.patterns.arc_places import (
    ARC_WORDS,
    BEGIN,
    CONDITION,
    END_TIME,
    FENCE,
    FENCE_END,
    KEY,
    TARGET,
    TRANSFER,
    TRANSFER_END,
)
from highlevel.patterns.compiled_automaton import CONDITIONS_PER_WORD, END_ARC, KEY_GROUP_WORDS, KEY_WORD, NO_INDEX
from highlevel.patterns.kernels.expressions import NULL, Machine
from highlevel.patterns.kernels.extensions import applies, find_key, fits_row
from highlevel.patterns.kernels.layout import (
    ENTRY_WORDS,
    KEPT,
    KEPT_COUNT,
    KEPT_END,
    KEPT_STATES,
    LAST_BIT,
    LIFETIME_END,
    NEXT_NODE,
    RUN_END,
    START,
    START_SEQUENCE,
    STATE,
    TIME,
    Automata,
    Rows,
    Store,
    entry_at,
    node_at,
)
from highlevel.speculation.lifetimes.kernels.records import NONE

NO_ROLE, BEGINS, CONTINUES = range(3)
"""Roles of states: no row continues a run in the state; a run begins in it; a row may continue a run in it."""


@helper
def is_ignorable(automata: Automata, arc, state):  # type: ignore[no-untyped-def]
    """Return whether an arc of a state leaves a run as it is."""
    at, arcs = arc * ARC_WORDS, automata.arcs
    return arcs[at + TARGET] == state and arcs[at + TRANSFER] == arcs[at + TRANSFER_END]


@outlined
def leaves_by_key(automata: Automata, store: Store, machine: Machine, state, node, entry):  # type: ignore[no-untyped-def]
    """Return whether an arc with a key, which is not ignorable, applies to a node and the row of an entry.

    If `node` is NONE: whether such an arc may apply to a node in this state, because the row fits.
    """
    row = entry_at(automata, entry) + ENTRY_WORDS
    for key_group in range(automata.first_key_groups[state], automata.first_key_groups[state + 1]):
        key = store.entries[row + automata.key_groups[key_group * KEY_GROUP_WORDS + KEY_WORD]]
        arc, last = find_key(automata, key_group, key), automata.key_groups[key_group * KEY_GROUP_WORDS + END_ARC]
        while key != NULL and arc < last and automata.arcs[arc * ARC_WORDS + KEY] == key:
            if is_ignorable(automata, arc, state) == 0:
                if node == NONE:
                    if fits_row(automata, store, arc, entry):
                        return 1
                elif applies(automata, store, machine, arc, node, entry):
                    return 1
            arc += 1
    return 0


@outlined
def ignores(automata: Automata, store: Store, machine: Machine, node, entry):  # type: ignore[no-untyped-def]
    """Return whether a run ignores the row of an entry. A run whose rows have ended ignores each row."""
    at, row = node_at(automata, node), entry_at(automata, entry)
    state, stop = store.nodes[at + STATE], store.nodes[at + RUN_END]
    if stop <= store.entries[row + TIME]:
        return 1
    if automata.can_ignore[state] == 0 or store.entries[row + LIFETIME_END] < stop:
        return 0
    first, last, is_kept = automata.first_arcs[state], automata.end_arcs[state], 0
    for arc in range(first, last):
        if is_ignorable(automata, arc, state) and applies(automata, store, machine, arc, node, entry):
            is_kept = 1
            break
    if is_kept:
        for arc in range(first, last):
            if not is_ignorable(automata, arc, state) and applies(automata, store, machine, arc, node, entry):
                return 0
        if leaves_by_key(automata, store, machine, state, node, entry):
            return 0
    return is_kept


@helper
def all_ignore(automata: Automata, store: Store, machine: Machine, states, stop, entry):  # type: ignore[no-untyped-def]
    """Return 1 if all runs in some states, whose rows end until `stop`, ignore the row of an entry.

    0 if some may not ignore it. `states` has a bit for each state. No register is read, so the cost does not depend on
    the number of runs.
    """
    if states >> LAST_BIT or store.entries[entry_at(automata, entry) + LIFETIME_END] < stop:
        return 0
    state = 0
    while states:
        if states & 1:
            is_kept = 0
            for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                if fits_row(automata, store, arc, entry):
                    if not is_ignorable(automata, arc, state):
                        return 0
                    if automata.arcs[arc * ARC_WORDS + FENCE] == automata.arcs[arc * ARC_WORDS + FENCE_END]:
                        is_kept = 1
            if is_kept == 0 or automata.can_ignore[state] == 0:
                return 0
            if leaves_by_key(automata, store, machine, state, NONE, entry):
                return 0
        states >>= 1
        state += 1
    return 1


@outlined
def keep_nodes(automata: Automata, store: Store, machine: Machine, node, entry):  # type: ignore[no-untyped-def]
    """Set KEPT to the nodes of the list `node` from which on all runs ignore the row of an entry.

    Return the number of nodes before them. Nodes of one start are not separated.
    """
    state, nodes, time = store.state, store.nodes, store.entries[entry_at(automata, entry) + TIME]
    start, start_sequence, count = 0, 0, 0
    state[KEPT] = NONE
    while node != NONE:
        at = node_at(automata, node)
        is_first = count == 0 or nodes[at + START] != start or nodes[at + START_SEQUENCE] != start_sequence
        start, start_sequence = nodes[at + START], nodes[at + START_SEQUENCE]
        if ignores(automata, store, machine, node, entry) == 0:
            state[KEPT] = NONE
        elif is_first and state[KEPT] == NONE:
            state[KEPT], state[KEPT_COUNT] = node, count
            state[KEPT_STATES], state[KEPT_END] = 0, time
        if state[KEPT] != NONE and nodes[at + RUN_END] > time:
            state[KEPT_STATES] |= 1 << min(nodes[at + STATE], LAST_BIT)
            state[KEPT_END] = max(state[KEPT_END], nodes[at + RUN_END])
        node = nodes[at + NEXT_NODE]
        count += 1
    if state[KEPT] == NONE:
        state[KEPT_COUNT] = 0
        return count
    before = state[KEPT_COUNT]
    state[KEPT_COUNT] = count - before
    if state[KEPT_STATES] == 0:  # the rows of all these runs have ended
        state[KEPT], state[KEPT_COUNT] = NONE, 0
    return before


@helper
def fits(automata: Automata, rows: Rows, arc, row):  # type: ignore[no-untyped-def]
    """Return whether the lifetime of an arc contains a row, and its condition over the row is true."""
    at = arc * ARC_WORDS
    if rows.time[row] < automata.arcs[at + BEGIN] or rows.time[row] >= automata.arcs[at + END_TIME]:
        return 0
    condition = automata.arcs[at + CONDITION]
    if condition == NO_INDEX:
        return 1
    word = rows.words[row * automata.row_words + condition // CONDITIONS_PER_WORD]
    return (word >> (condition % CONDITIONS_PER_WORD)) & 1


@helper
def is_ignored_by_all(automata: Automata, rows: Rows, roles: Integers, states, row):  # type: ignore[no-untyped-def]
    """Return 1 if a row begins no run, and each run ignores it, whatever its state and register are."""
    for state in range(states):
        is_kept = roles[state] != CONTINUES
        for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
            if roles[state] != NO_ROLE and fits(automata, rows, arc, row):
                if roles[state] == BEGINS or is_ignorable(automata, arc, state) == 0:
                    return 0
                if automata.arcs[arc * ARC_WORDS + FENCE] == automata.arcs[arc * ARC_WORDS + FENCE_END]:
                    is_kept = True
        if not is_kept:
            return 0
    return 1


@kernel("i64(Automata, Rows, i64*, i64*, i64, i64, i64*)")
def mark_ignored_rows(  # type: ignore[no-untyped-def]
    automata: Automata, rows: Rows, partitions: Integers, roles: Integers, states, count, is_ignored: Integers
):
    """Write 1 to `is_ignored` for each of `count` rows that no run needs. Return their number.

    A run over the other rows has the same nodes. `partitions`: the partition of each row; rows are ordered by it, and
    then by time. `roles`: the role of each state; runs may ignore rows in all states with the role CONTINUES. No arc
    has a key, and rows are not numbered.
    """
    longest, marked_count = 0, 0
    for row in range(count):
        if row == 0 or partitions[row] != partitions[row - 1]:
            longest = rows.stop[row]
        # A row whose lifetime ends before that of a run would shorten it.
        if rows.stop[row] >= longest and is_ignored_by_all(automata, rows, roles, states, row):
            is_ignored[row] = 1
            marked_count += 1
        longest = max(longest, rows.stop[row])
    return marked_count
