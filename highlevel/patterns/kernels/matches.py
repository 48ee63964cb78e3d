"""Kernels for MATCH_RECOGNIZE: the match of each start is its preferred run. SKIP decides where the next one may begin.

    row ──► runs that end with it, by start and preference ──► candidates, one per start ──► matches

Rows arrive in the order of time, so a partition has one entry: that of its last row. A run that becomes final becomes
the candidate of its start, and replaces the previous candidate. Runs with lower preference are removed. Runs with
higher preference continue, and may become the candidate later. So the candidate becomes the match when there are no
more runs from this start or an earlier one. A match removes the runs and candidates that SKIP excludes. If the start
state of the automaton is final, the first candidate of each start is an empty match, without rows.

Two runs from one start with equal state and equal decisive fields have the same future, so only the preferred one is
kept. Without fields in DEFINE there are at most as many runs per start as the pattern has states.
"""

from __future__ import annotations

from capture.native import helper, kernel
from highlevel.patterns.compiled_automaton import ALWAYS, AT_END
from highlevel.patterns.kernels.arrivals import add_entry, remove_entry
from highlevel.patterns.kernels.expressions import NULL, Machine
from highlevel.patterns.kernels.extensions import apply_arc, begin_run, extend, is_true
from highlevel.patterns.kernels.layout import (
    CANDIDATES,
    ENTRIES,
    ENTRY_WORDS,
    LAST,
    LIFETIME_END,
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
    RESULT_FIRST,
    RESULT_LAST,
    RESULT_WORDS,
    RUN_END,
    SEQUENCE,
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
from highlevel.patterns.kernels.nodes import append_node, begin_list, free_list
from highlevel.patterns.kernels.results import write_result
from highlevel.speculation.lifetimes.kernels.records import (
    FREE_RECORD,
    LIVE_RECORDS,
    NONE,
    USED_RECORDS,
    free_record,
    take_record,
)
from lowlevel.punctuation import END

MATCH_END, MATCH_END_SEQUENCE = RUN_END, STATE
"""Words of a candidate: time and sequence number of its last row. They are stored in words of its node that are not
needed any more.

An empty match has the time of its start, and a smaller sequence number than its start.
"""

NEXT_ROW, PAST_LAST_ROW, TO_FIELD = range(3)
"""Where matching continues after a match: the row after its first, the row after its last, or the row of a field.

If there is no such row, or it is the first row of the match, matching continues at the row after the first.
"""

SELECT = 5
"""The phase in which the matches after a row are written. The others are those of `layout`."""


@helper
def free_node(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Free a node."""
    free_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, node)


@helper
def take_first_node(automata: Automata, store: Store):  # type: ignore[no-untyped-def]
    """Return a node with the register before the first row. There must be room for it."""
    node = take_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE)
    for field in range(automata.fields):
        store.nodes[node_at(automata, node) + NODE_WORDS + field] = automata.initial[field]
    for field in range(automata.float_fields):
        store.float_nodes[node * automata.float_fields + field] = automata.float_initial[field]
    return node


@helper
def copy_node(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Return a copy of a node. There must be room for it."""
    width = NODE_WORDS + automata.fields
    copy = take_record(store.nodes, store.state, NODE_RECORDS, width, NEXT_NODE)
    for word in range(width):
        store.nodes[copy * width + word] = store.nodes[node * width + word]
    for field in range(automata.float_fields):
        value = store.float_nodes[node * automata.float_fields + field]
        store.float_nodes[copy * automata.float_fields + field] = value
    return copy


@helper
def add_candidates(automata: Automata, store: Store, partition, entry, finality):  # type: ignore[no-untyped-def]
    """Make the first run of each start that is final the candidate of this start. There must be room for the copies.

    `finality`: a value of `Automata.is_final`.
    """
    nodes, row, added_start = store.nodes, entry_at(automata, entry), -1
    of_partition = partition * PARTITION_WORDS + CANDIDATES
    before, candidate = NONE, store.partitions[of_partition]
    node = store.entries[row + NODES]
    while node != NONE:
        at = node_at(automata, node)
        start = nodes[at + START_SEQUENCE]
        if automata.is_final[nodes[at + STATE]] == finality and start != added_start:
            added_start = start
            while candidate != NONE and nodes[node_at(automata, candidate) + START_SEQUENCE] < start:
                before, candidate = candidate, nodes[node_at(automata, candidate) + NEXT_NODE]
            if candidate != NONE and nodes[node_at(automata, candidate) + START_SEQUENCE] == start:
                following = nodes[node_at(automata, candidate) + NEXT_NODE]
                free_node(automata, store, candidate)
                candidate = following
            added = copy_node(automata, store, node)
            to = node_at(automata, added)
            nodes[to + MATCH_END] = store.entries[row + TIME]
            nodes[to + MATCH_END_SEQUENCE] = store.entries[row + SEQUENCE]
            nodes[to + NEXT_NODE] = candidate
            if before == NONE:
                store.partitions[of_partition] = added
            else:
                nodes[node_at(automata, before) + NEXT_NODE] = added
            before = added
        node = nodes[at + NEXT_NODE]


@helper
def add_empty_candidate(automata: Automata, store: Store, partition, entry):  # type: ignore[no-untyped-def]
    """Make an empty match the candidate of the start at an entry, if the start has no candidate.

    There must be room for it.
    """
    nodes, row = store.nodes, entry_at(automata, entry)
    of_partition = partition * PARTITION_WORDS + CANDIDATES
    before, candidate = NONE, store.partitions[of_partition]
    while candidate != NONE:
        before, candidate = candidate, nodes[node_at(automata, candidate) + NEXT_NODE]
    if before != NONE and nodes[node_at(automata, before) + START_SEQUENCE] == store.entries[row + SEQUENCE]:
        return
    added = take_first_node(automata, store)
    at = node_at(automata, added)
    nodes[at + START] = store.entries[row + TIME]
    nodes[at + START_SEQUENCE] = store.entries[row + SEQUENCE]
    nodes[at + MATCH_END] = store.entries[row + TIME]
    nodes[at + MATCH_END_SEQUENCE] = store.entries[row + SEQUENCE] - 1
    nodes[at + NEXT_NODE] = NONE
    if before == NONE:
        store.partitions[of_partition] = added
    else:
        nodes[node_at(automata, before) + NEXT_NODE] = added


@helper
def drop_ended(automata: Automata, store: Store, entry):  # type: ignore[no-untyped-def]
    """Free the runs of an entry that cannot become longer or final: their states have no arcs."""
    nodes, row = store.nodes, entry_at(automata, entry)
    before, node = NONE, store.entries[row + NODES]
    while node != NONE:
        at = node_at(automata, node)
        following, state = nodes[at + NEXT_NODE], nodes[at + STATE]
        if automata.first_arcs[state] < automata.end_arcs[state] or automata.is_final[state] == AT_END:
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
    """Free the nodes of a list that start before the sequence number `until`. Return the first node that is left."""
    while node != NONE and store.nodes[node_at(automata, node) + START_SEQUENCE] < until:
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
        start = nodes[at + START_SEQUENCE]
        entry = store.partitions[of_partition + LAST]
        if entry != NONE:
            first = entries[entry_at(automata, entry) + NODES]
            if first != NONE and nodes[node_at(automata, first) + START_SEQUENCE] <= start:
                return 1
        if store.state[RESULT_COUNT] == store.result_room:
            return 0
        number = store.partitions[of_partition + MATCHES]
        store.partitions[of_partition + MATCHES] = 1 if number == NONE else number + 1
        number = store.partitions[of_partition + MATCHES]
        to = store.state[RESULT_COUNT] * (RESULT_WORDS + automata.fields)
        write_result(automata, store, candidate, partition, number, nodes[at + START], nodes[at + MATCH_END])
        store.results[to + RESULT_FIRST] = start
        store.results[to + RESULT_LAST] = nodes[at + MATCH_END_SEQUENCE]
        until = start + 1
        if skip == PAST_LAST_ROW:
            until = max(until, nodes[at + MATCH_END_SEQUENCE] + 1)
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
    """Match the rows `[begin, end)`, which ascend in time and sequence number.

    Return the index of the next row: less than `end` if there is no room.
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
            if has_room == 0 or state[NODE_RECORDS + LIVE_RECORDS] + state[LIST_COUNT] >= store.node_room:
                free_list(automata, store, state[LIST_HEAD])
                remove_entry(automata, store, entry, partition)
                return index
            at = entry_at(automata, entry)
            entries[at + NODES] = state[LIST_HEAD]
            entries[at + NODE_COUNT] = state[LIST_COUNT]
            add_candidates(automata, store, partition, entry, ALWAYS)
            if automata.is_final[0] == ALWAYS and is_true(automata, store, entry, automata.empty_condition):
                add_empty_candidate(automata, store, partition, entry)
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
    """End the runs of `[begin, end)` that rows at or after the watermark cannot extend, and write the matches.

    `begin`, `end`: partitions. At the end of the input, runs that are final AT_END become candidates. Return the next
    partition: less than `end` if there is no room.
    """
    entries, nodes = store.entries, store.nodes
    for partition in range(begin, end):
        entry = store.partitions[partition * PARTITION_WORDS + LAST]
        if entry != NONE:
            row = entry_at(automata, entry)
            if watermark == END:
                count = count_list(automata, store, entries[row + NODES])
                if store.state[NODE_RECORDS + LIVE_RECORDS] + count > store.node_room:
                    return partition
                add_candidates(automata, store, partition, entry, AT_END)
            before, node = NONE, entries[row + NODES]
            while node != NONE:
                at = node_at(automata, node)
                following = nodes[at + NEXT_NODE]
                may_end = watermark == END or automata.is_final[nodes[at + STATE]] != AT_END
                if nodes[at + RUN_END] <= watermark and may_end:
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


@kernel("i64(Automata, Store, i64, i64*)")
def first_starts(automata: Automata, store: Store, partitions, sequence_numbers):  # type: ignore[no-untyped-def]
    """Write the sequence number of each partition's earliest first row of a run or candidate, or END.

    Return the time of the earliest of these rows, or END.
    """
    earliest = END
    for partition in range(partitions):
        sequence_numbers[partition] = END
        first = store.partitions[partition * PARTITION_WORDS + CANDIDATES]
        entry = store.partitions[partition * PARTITION_WORDS + LAST]
        for node in (first, NONE if entry == NONE else store.entries[entry_at(automata, entry) + NODES]):
            if node != NONE:
                at = node_at(automata, node)
                sequence_numbers[partition] = min(sequence_numbers[partition], store.nodes[at + START_SEQUENCE])
                earliest = min(earliest, store.nodes[at + START])
    return earliest


@kernel("i64(Automata, Store, i64)")
def earliest_candidate(automata: Automata, store: Store, partitions):  # type: ignore[no-untyped-def]
    """Return the time of the earliest last row of a candidate, or of a run that is final AT_END; or END."""
    earliest = END
    for partition in range(partitions):
        entry = store.partitions[partition * PARTITION_WORDS + LAST]
        node = NONE if entry == NONE else store.entries[entry_at(automata, entry) + NODES]
        while node != NONE:
            if automata.is_final[store.nodes[node_at(automata, node) + STATE]] == AT_END:
                earliest = min(earliest, store.entries[entry_at(automata, entry) + TIME])
            node = store.nodes[node_at(automata, node) + NEXT_NODE]
        node = store.partitions[partition * PARTITION_WORDS + CANDIDATES]
        while node != NONE:
            at = node_at(automata, node)
            earliest = min(earliest, store.nodes[at + MATCH_END])
            node = store.nodes[at + NEXT_NODE]
    return earliest


@kernel("i64(Automata, Machine, Store, Rows, i64*, i64*, i64, i64, i64*, i64*, f64*)")
def trace_matches(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, rows: Rows, bounds, finalities, begin, end, states, fields,
    float_fields,
):  # fmt: skip
    """Write the state and the register after each row of the matches `[begin, end)`.

    The rows of a match are `[bounds[2 * match], bounds[2 * match + 1])`. Its run ends in a state that is final ALWAYS,
    or by `finalities[match]`. The run of a match is computed again: all runs are extended from the first row, as in
    `match_rows`. The word START_SEQUENCE of each node contains the node from which it was extended. `store`
    has no other contents.

    Return the index of the next match: less than `end` if there is no room.
    """
    state, nodes, entries = store.state, store.nodes, store.entries
    for match in range(begin, end):
        for records in (ENTRIES, NODE_RECORDS):
            state[records + FREE_RECORD] = NONE
            state[records + USED_RECORDS] = 0
            state[records + LIVE_RECORDS] = 0
        node = take_first_node(automata, store)
        nodes[node_at(automata, node) + STATE] = 0
        nodes[node_at(automata, node) + RUN_END] = END
        nodes[node_at(automata, node) + NEXT_NODE] = NONE
        for index in range(bounds[2 * match], bounds[2 * match + 1]):
            entries[TIME] = rows.time[index]
            entries[LIFETIME_END] = rows.stop[index]
            for word in range(automata.row_words):
                entries[ENTRY_WORDS + word] = rows.words[index * automata.row_words + word]
            for word in range(automata.float_row_words):
                store.float_rows[word] = rows.float_words[index * automata.float_row_words + word]
            begin_list(store)
            is_cut = False
            while node != NONE and not is_cut:
                of_node = nodes[node_at(automata, node) + STATE]
                for arc in range(automata.first_arcs[of_node], automata.end_arcs[of_node]):
                    added = apply_arc(automata, store, machine, arc, node, 0, state[LIST_HEAD])
                    if added == NO_ROOM:
                        return match
                    if added != NONE:
                        append_node(automata, store, added)
                        nodes[node_at(automata, added) + START_SEQUENCE] = node
                        if automata.is_final[nodes[node_at(automata, added) + STATE]] == ALWAYS:
                            is_cut = True
                            break
                node = nodes[node_at(automata, node) + NEXT_NODE]
            node = state[LIST_HEAD]
        while node != NONE:
            finality = automata.is_final[nodes[node_at(automata, node) + STATE]]
            if finality == ALWAYS or (finality == AT_END and finality == finalities[match]):
                break
            node = nodes[node_at(automata, node) + NEXT_NODE]
        for index in range(bounds[2 * match + 1] - 1, bounds[2 * match] - 1, -1):
            at = node_at(automata, node)
            states[index] = nodes[at + STATE]
            for word in range(automata.fields):
                fields[index * automata.fields + word] = nodes[at + NODE_WORDS + word]
            for word in range(automata.float_fields):
                value = store.float_nodes[node * automata.float_fields + word]
                float_fields[index * automata.float_fields + word] = value
            node = nodes[at + START_SEQUENCE]
    return end
