"""Kernels for MATCH_RECOGNIZE: of the runs from a row, the preferred one, and no two matches that overlap (SKIP).

    row ──► runs that end with it, by start and preference ──► candidates, one per start ──► matches

Rows arrive in the order of time, so a partition has one entry: that of its last row. A run that becomes final is the
candidate of its start, and replaces an earlier candidate of it. The runs after it in the order of preference are
removed; those before it may still become the candidate. So the candidate is the match of its start as soon as no run
from this start, or from an earlier one, is left. A match removes the runs and candidates that SKIP leaves out.

Two runs from one start with equal state and equal compared fields have the same future, so only the preferred one is
kept. Without fields in DEFINE there are at most as many runs per start as the pattern has states.
"""

from __future__ import annotations

from capture.native import helper, kernel
from highlevel.patterns.entry_kernels import (
    CANDIDATES,
    LAST,
    LIST_COUNT,
    LIST_HEAD,
    MATCHES,
    NEXT_NODE,
    NO_ROOM,
    NODE_COUNT,
    NODE_RECORDS,
    NODE_WORDS,
    NODES,
    PARTITION_WORDS,
    PHASE,
    READY,
    RESULT_COUNT,
    RUN_STOP,
    START,
    START_TIE,
    STATE,
    TIE,
    TIME,
    Automata,
    Rows,
    Store,
    add_entry,
    begin_list,
    begin_run,
    entry_at,
    extend,
    free_list,
    node_at,
    remove_entry,
    write_result,
)
from highlevel.patterns.expression_kernels import NULL, Machine
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE, free_record, take_record
from lowlevel.punctuation import END

MATCH_END, MATCH_END_TIE = RUN_STOP, STATE
"""Words of a candidate: time and tie of its last row. They replace words of the node that it no longer needs."""

NEXT_ROW, PAST_LAST_ROW, TO_FIELD = range(3)
"""Where matching continues after a match: the row after its first, the row after its last, or the row of a field.

If there is no such row, or it is the first row of the match, matching continues at the row after the first.
"""

SELECT = 5
"""The phase in which the matches after a row are written. The others are those of `entry_kernels`."""


@helper
def free_node(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Free a node."""
    free_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, node)


@helper
def copy_node(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Return a copy of a node. There is room for it."""
    width = NODE_WORDS + automata.fields
    copy = take_record(store.nodes, store.state, NODE_RECORDS, width, NEXT_NODE)
    for word in range(width):
        store.nodes[copy * width + word] = store.nodes[node * width + word]
    for field in range(automata.float_fields):
        value = store.float_nodes[node * automata.float_fields + field]
        store.float_nodes[copy * automata.float_fields + field] = value
    return copy


@helper
def add_candidates(automata: Automata, store: Store, partition, entry):  # type: ignore[no-untyped-def]
    """Make the final runs of an entry the candidates of their starts. There is room for their copies."""
    nodes, row = store.nodes, entry_at(automata, entry)
    of_partition = partition * PARTITION_WORDS + CANDIDATES
    before, candidate = NONE, store.partitions[of_partition]
    node = store.entries[row + NODES]
    while node != NONE:
        at = node_at(automata, node)
        if automata.is_final[nodes[at + STATE]]:
            start = nodes[at + START_TIE]
            while candidate != NONE and nodes[node_at(automata, candidate) + START_TIE] < start:
                before, candidate = candidate, nodes[node_at(automata, candidate) + NEXT_NODE]
            if candidate != NONE and nodes[node_at(automata, candidate) + START_TIE] == start:
                following = nodes[node_at(automata, candidate) + NEXT_NODE]
                free_node(automata, store, candidate)
                candidate = following
            added = copy_node(automata, store, node)
            to = node_at(automata, added)
            nodes[to + MATCH_END] = store.entries[row + TIME]
            nodes[to + MATCH_END_TIE] = store.entries[row + TIE]
            nodes[to + NEXT_NODE] = candidate
            if before == NONE:
                store.partitions[of_partition] = added
            else:
                nodes[node_at(automata, before) + NEXT_NODE] = added
            before = added
        node = nodes[at + NEXT_NODE]


@helper
def drop_ended(automata: Automata, store: Store, entry):  # type: ignore[no-untyped-def]
    """Free the runs of an entry in states without arcs: no row extends them."""
    nodes, row = store.nodes, entry_at(automata, entry)
    before, node = NONE, store.entries[row + NODES]
    while node != NONE:
        at = node_at(automata, node)
        following, state = nodes[at + NEXT_NODE], nodes[at + STATE]
        if automata.first_arcs[state] < automata.first_arcs[state + 1]:
            before = node
        else:
            if before == NONE:
                store.entries[row + NODES] = following
            else:
                nodes[node_at(automata, before) + NEXT_NODE] = following
            free_node(automata, store, node)
        node = following


@helper
def drop_starts(automata: Automata, store: Store, node, until):  # type: ignore[no-untyped-def]
    """Free the nodes of a list that start before the tie `until`. Return the first of the others."""
    while node != NONE and store.nodes[node_at(automata, node) + START_TIE] < until:
        following = store.nodes[node_at(automata, node) + NEXT_NODE]
        free_node(automata, store, node)
        node = following
    return node


@helper
def select_matches(automata: Automata, store: Store, partition, skip, skip_field):  # type: ignore[no-untyped-def]
    """Write the candidates that are matches. Return 0 without room for a match."""
    nodes, entries = store.nodes, store.entries
    of_partition = partition * PARTITION_WORDS
    while store.partitions[of_partition + CANDIDATES] != NONE:
        candidate = store.partitions[of_partition + CANDIDATES]
        at = node_at(automata, candidate)
        start = nodes[at + START_TIE]
        entry = store.partitions[of_partition + LAST]
        if entry != NONE:
            first = entries[entry_at(automata, entry) + NODES]
            if first != NONE and nodes[node_at(automata, first) + START_TIE] <= start:
                return 1
        if store.state[RESULT_COUNT] == store.result_room:
            return 0
        number = store.partitions[of_partition + MATCHES]
        store.partitions[of_partition + MATCHES] = 1 if number == NONE else number + 1
        number = store.partitions[of_partition + MATCHES]
        write_result(automata, store, candidate, partition, number, nodes[at + START], nodes[at + MATCH_END])
        until = start + 1
        if skip == PAST_LAST_ROW:
            until = nodes[at + MATCH_END_TIE] + 1
        elif skip == TO_FIELD:
            target = nodes[at + NODE_WORDS + skip_field]
            if target != NULL and target > start:
                until = target
        store.partitions[of_partition + CANDIDATES] = drop_starts(automata, store, candidate, until)
        if entry != NONE:
            row = entry_at(automata, entry)
            entries[row + NODES] = drop_starts(automata, store, entries[row + NODES], until)
    return 1


@helper
def remove_empty_entry(automata: Automata, store: Store, partition):  # type: ignore[no-untyped-def]
    """Remove the entry of a partition if it has no runs."""
    entry = store.partitions[partition * PARTITION_WORDS + LAST]
    if entry != NONE and store.entries[entry_at(automata, entry) + NODES] == NONE:
        remove_entry(automata, store, entry, partition)


@helper
def count_list(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Return the number of nodes of a list."""
    count = 0
    while node != NONE:
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
        count += 1
    return count


@kernel("i64(Automata, Machine, Store, Rows, i64, i64, i64, i64)")
def match_rows(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, rows: Rows, begin, end, skip, skip_field
):  # fmt: skip
    """Match the rows `[begin, end)`, which ascend in time and tie.

    Return the row reached, fewer than `end` if there is no room.
    """
    state, entries = store.state, store.entries
    for index in range(begin, end):
        partition = rows.partition[index]
        if state[PHASE] == READY:
            before = store.partitions[partition * PARTITION_WORDS + LAST]
            entry = add_entry(automata, store, rows, index)
            if entry == NO_ROOM:
                return index
            begin_list(store)
            has_room = 1
            if before != NONE:
                first = entries[entry_at(automata, before) + NODES]
                has_room = extend(automata, store, machine, first, count_list(automata, store, first), entry)
            if has_room:
                has_room = begin_run(automata, store, machine, entry)
            if has_room == 0 or state[NODE_RECORDS + LIVE_RECORDS] + state[LIST_COUNT] > store.node_room:
                free_list(automata, store, state[LIST_HEAD])
                remove_entry(automata, store, entry, partition)
                return index
            at = entry_at(automata, entry)
            entries[at + NODES] = state[LIST_HEAD]
            entries[at + NODE_COUNT] = state[LIST_COUNT]
            add_candidates(automata, store, partition, entry)
            drop_ended(automata, store, entry)
            if before != NONE:
                remove_entry(automata, store, before, partition)
        if select_matches(automata, store, partition, skip, skip_field) == 0:
            state[PHASE] = SELECT
            return index
        state[PHASE] = READY
        remove_empty_entry(automata, store, partition)
    return end


@kernel("i64(Automata, Store, i64, i64, i64, i64, i64)")
def end_runs(automata: Automata, store: Store, begin, end, watermark, skip, skip_field):  # type: ignore[no-untyped-def]
    """End the runs of the partitions `[begin, end)` that no row from the watermark on extends, and write the matches.

    Return the partition reached, fewer than `end` if there is no room for results.
    """
    entries, nodes = store.entries, store.nodes
    for partition in range(begin, end):
        entry = store.partitions[partition * PARTITION_WORDS + LAST]
        if entry != NONE:
            row = entry_at(automata, entry)
            before, node = NONE, entries[row + NODES]
            while node != NONE:
                at = node_at(automata, node)
                following = nodes[at + NEXT_NODE]
                if nodes[at + RUN_STOP] <= watermark:
                    if before == NONE:
                        entries[row + NODES] = following
                    else:
                        nodes[node_at(automata, before) + NEXT_NODE] = following
                    free_node(automata, store, node)
                else:
                    before = node
                node = following
        if select_matches(automata, store, partition, skip, skip_field) == 0:
            return partition
        remove_empty_entry(automata, store, partition)
    return end


@kernel("i64(Automata, Store, i64)")
def earliest_candidate(automata: Automata, store: Store, partitions):  # type: ignore[no-untyped-def]
    """Return the time of the earliest last row of a candidate, or END."""
    earliest = END
    for partition in range(partitions):
        node = store.partitions[partition * PARTITION_WORDS + CANDIDATES]
        while node != NONE:
            at = node_at(automata, node)
            earliest = min(earliest, store.nodes[at + MATCH_END])
            node = store.nodes[at + NEXT_NODE]
    return earliest
