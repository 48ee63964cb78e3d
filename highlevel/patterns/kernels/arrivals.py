"""Kernel over rows and retractions in any order (Chandramouli et al., 2010, §4 and §5).

The list of an entry follows from that of the entry before it and from its row. When a row arrives late or is retracted,
the lists after it are made again, for the runs that start until its time. The first entry whose list stays equal
ends this work, unless such runs were removed from its list before (FREED_START). The difference of the two lists of an
entry is the change of its results. A late row that all runs ignore and that begins no run changes no list.

Rows with equal times are in the order of their sequence numbers. If rows are numbered, a run continues only with the
next number: a row that is missing ends no run, and its arrival withdraws no result. If there is no room for an entry,
a node or a result, a kernel stops before the step that needs the room. It continues with this step when it is called
again.
"""

from __future__ import annotations

from capture.native import helper, kernel
from highlevel.patterns.kernels.expressions import Machine
from highlevel.patterns.kernels.layout import (
    ADDED,
    AFTER,
    BEFORE,
    CREATED,
    CURSOR,
    ENTRIES,
    ENTRY,
    ENTRY_WORDS,
    EXTEND,
    FIRST,
    FREED_START,
    HAS_ROW,
    IS_CHANGED,
    LAST,
    LIFETIME_END,
    LIST_COUNT,
    LIST_END,
    LIST_HEAD,
    LIST_STATES,
    MISSING,
    NO_ROOM,
    NODE_COUNT,
    NODES,
    PARTITION_WORDS,
    PHASE,
    READY,
    REMOVE,
    REMOVED,
    RENEW,
    RESULT_COUNT,
    ROW,
    SEQUENCE,
    SINCE,
    TIME,
    Automata,
    Rows,
    Store,
    entry_at,
)
from highlevel.patterns.kernels.lists import describe_list, link_kept, make_list, most_nodes, renew_entry
from highlevel.patterns.kernels.nodes import free_list
from highlevel.patterns.kernels.results import write_results
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE, free_record, take_record
from lowlevel.punctuation import END


@helper
def add_entry(automata: Automata, store: Store, rows: Rows, index):  # type: ignore[no-untyped-def]
    """Add an entry for a row, in the order of time. Return the entry, or NO_ROOM."""
    state, entries = store.state, store.entries
    width = ENTRY_WORDS + automata.row_words
    if state[ENTRIES + LIVE_RECORDS] >= store.entry_room:
        return NO_ROOM
    entry = take_record(entries, state, ENTRIES, width, AFTER)
    at, partition = entry * width, rows.partition[index] * PARTITION_WORDS
    time, sequence = rows.time[index], rows.sequence[index]
    before, after = store.partitions[partition + LAST], NONE
    while before != NONE:
        other = before * width
        if entries[other + TIME] < time or (entries[other + TIME] == time and entries[other + SEQUENCE] <= sequence):
            break
        before, after = entries[other + BEFORE], before
    entries[at + TIME] = time
    entries[at + SEQUENCE] = sequence
    entries[at + LIFETIME_END] = rows.stop[index]
    entries[at + ROW] = rows.row[index]
    entries[at + BEFORE] = before
    entries[at + AFTER] = after
    entries[at + NODES] = NONE
    entries[at + NODE_COUNT] = 0
    entries[at + LIST_STATES] = 0
    entries[at + LIST_END] = time
    entries[at + HAS_ROW] = 1
    entries[at + FREED_START] = END
    for word in range(automata.row_words):
        entries[at + ENTRY_WORDS + word] = rows.words[index * automata.row_words + word]
    for word in range(automata.float_row_words):
        value = rows.float_words[index * automata.float_row_words + word]
        store.float_rows[entry * automata.float_row_words + word] = value
    if before == NONE:
        store.partitions[partition + FIRST] = entry
    else:
        entries[before * width + AFTER] = entry
    if after == NONE:
        store.partitions[partition + LAST] = entry
    else:
        entries[after * width + BEFORE] = entry
    return entry


@helper
def find_entry(automata: Automata, store: Store, rows: Rows, index):  # type: ignore[no-untyped-def]
    """Return the last entry with the time, the lifetime and the values of a row, or NONE."""
    entry = store.partitions[rows.partition[index] * PARTITION_WORDS + LAST]
    while entry != NONE:
        at = entry_at(automata, entry)
        if store.entries[at + TIME] < rows.time[index]:
            return NONE
        is_equal = store.entries[at + LIFETIME_END] == rows.stop[index] and store.entries[at + ROW] == rows.row[index]
        if store.entries[at + TIME] == rows.time[index] and is_equal and store.entries[at + HAS_ROW]:
            return entry
        entry = store.entries[at + BEFORE]
    return NONE


@helper
def remove_entry(automata: Automata, store: Store, entry, partition):  # type: ignore[no-untyped-def]
    """Remove an entry with its nodes. Return the number of removed nodes."""
    entries, width = store.entries, ENTRY_WORDS + automata.row_words
    at, of_partition = entry * width, partition * PARTITION_WORDS
    before, after = entries[at + BEFORE], entries[at + AFTER]
    if before == NONE:
        store.partitions[of_partition + FIRST] = after
    else:
        entries[before * width + AFTER] = after
    if after == NONE:
        store.partitions[of_partition + LAST] = before
    else:
        entries[after * width + BEFORE] = before
    count = free_list(automata, store, entries[at + NODES])
    free_record(entries, store.state, ENTRIES, width, AFTER, entry)
    return count


@kernel("i64(Automata, Machine, Store, Rows, i64, i64)")
def apply_rows(automata: Automata, machine: Machine, store: Store, rows: Rows, begin, end):  # type: ignore[no-untyped-def]
    """Add and retract the rows `[begin, end)`.

    Return the index of the next row: less than `end` if there is no room.
    """
    state, entries = store.state, store.entries
    for index in range(begin, end):
        partition, phase = rows.partition[index], state[PHASE]
        is_added = rows.kind[index] == ADDED
        if phase == READY:
            entry = add_entry(automata, store, rows, index) if is_added else find_entry(automata, store, rows, index)
            if entry == NO_ROOM:
                return index
            if entry == NONE:
                state[MISSING] += 1
                continue
            state[ENTRY], phase = entry, EXTEND if is_added else REMOVE
            state[SINCE] = entries[entry_at(automata, entry) + TIME]
        entry = state[ENTRY]
        at = entry_at(automata, entry)
        if phase == EXTEND:
            has_room = make_list(automata, store, machine, entry, END)
            if has_room == 0 or state[RESULT_COUNT] + state[LIST_COUNT] > store.result_room:
                free_list(automata, store, state[LIST_HEAD])
                state[PHASE] = EXTEND
                return index
            write_results(automata, store, state[LIST_HEAD], state[LIST_COUNT], NONE, partition, 1, entries[at + TIME])
            link_kept(automata, store)
            entries[at + NODES] = state[LIST_HEAD]
            describe_list(automata, store, entry, state[LIST_COUNT])
            state[CREATED] += state[LIST_COUNT]
        if phase == REMOVE and state[RESULT_COUNT] + most_nodes(automata, store, entry) > store.result_room:
            state[PHASE] = REMOVE
            return index
        if phase != RENEW:
            before = entries[at + BEFORE]
            other = NONE if before == NONE else entries[entry_at(automata, before) + NODES]
            state[CURSOR] = entries[at + AFTER]
            state[IS_CHANGED] = 1 if automata.is_numbered or entries[at + NODES] != other else 0
            if before != NONE and entries[entry_at(automata, before) + FREED_START] != END:
                state[IS_CHANGED] = 1
        if phase == REMOVE:
            count = entries[at + NODE_COUNT]
            write_results(automata, store, entries[at + NODES], count, NONE, partition, -1, entries[at + TIME])
            state[REMOVED] += remove_entry(automata, store, entry, partition)
        while state[CURSOR] != NONE and state[IS_CHANGED]:
            following = state[CURSOR]
            is_changed = renew_entry(automata, store, machine, following, state[SINCE], partition)
            if is_changed == NO_ROOM:
                state[PHASE] = RENEW
                return index
            has_freed = entries[entry_at(automata, following) + FREED_START] <= state[SINCE]
            state[IS_CHANGED] = 1 if is_changed or has_freed else 0
            state[CURSOR] = entries[entry_at(automata, following) + AFTER]
        state[PHASE] = READY
    return end
