"""Kernels over partial matches: rows and retractions in any order (Chandramouli et al., 2010, §4 and §5).

    partition ──► entry ⇄ entry ⇄ entry        one entry for each row, in the order of time
                    │       │       │
                  nodes   nodes   nodes        the runs that end with the row: start, state, register

A **node** is a run. It is in the list of the run's last row. Three invariants hold between two calls:

* Content: consider a range of neighbouring rows. For each state and register that a run over these rows can reach,
  there is one node.
* Ordering: the nodes of a list ascend by start, so nodes with equal start are neighbours.
* Completeness: if there is a node for a range of rows, there is also a node for each shorter range with the same start.

When a row at time t arrives, all runs that span t without this row are wrong: the nodes with a start before t, in
entries after t. They are removed. They are at the head of their lists, and because of Completeness the search ends at
the first entry without such a node. Then the nodes of the entry before t are extended with the row. The new nodes are
extended with the rows after it, until no new nodes result. A retraction removes the runs over its row in the same way,
and then extends the nodes of the entry before it.

Rows with equal times are in the order of their sequence numbers. If rows are numbered, a run continues only with the
next number: a row that is missing ends no run, and its arrival withdraws no result. If there is no room for an entry,
a node or a result, a kernel stops before the step that needs the room. It continues with this step when it is called
again.
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Floats, Integer, Integers, helper, kernel, outlined
from highlevel.patterns.compilation import (
    ALWAYS,
    ARC_WORDS,
    BEGIN,
    BITS,
    CONDITION,
    END_TIME,
    FENCE,
    FENCE_END,
    TARGET,
    TRANSFER,
    TRANSFER_END,
)
from highlevel.patterns.expression_kernels import Machine, are_equal_floats, run
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS, LIVE_RECORDS, NONE, free_record, take_record
from lowlevel.punctuation import END

TIME, SEQUENCE, LIFETIME_END, ROW, BEFORE, AFTER, NODES, NODE_COUNT, HAS_ROW, ENTRY_WORDS = range(10)
"""Words of an entry.

TIME, SEQUENCE, LIFETIME_END, ROW: the time of its row, its sequence number, the end of its lifetime, and the number of
its values. BEFORE, AFTER: the entries before and after it. NODES, NODE_COUNT: its first node, and the number of nodes.
HAS_ROW: whether the row can still be read. The words of the row follow.
"""

NO_NUMBER = END
"""Sequence number of a row without a number: no run continues with it or after it."""

START, START_SEQUENCE, RUN_END, STATE, NEXT_NODE, NODE_WORDS = range(6)
"""Words of a node: the first row of the run, the smallest end of its rows, the state, the next node of the list.

The fields of the register follow.
"""

FIRST, LAST, CANDIDATES, MATCHES, PARTITION_WORDS = range(5)
"""Words of a partition: its first and its last entry, its first candidate, and the number of its last match.

The last two are for `match_kernels` only.
"""

ENTRIES, NODE_RECORDS = 0, LIST_WORDS
(
    RESULT_COUNT, LIST_HEAD, LIST_TAIL, LIST_COUNT, PHASE, ENTRY, CURSOR, CURSOR_COUNT,
    MISSING, CREATED, PROPAGATED, REMOVED, DROPPED, STATE_WORDS,
) = range(2 * LIST_WORDS, 2 * LIST_WORDS + 14)  # fmt: skip
"""Words of the state.

Before them: the lists of entries and nodes. RESULT_COUNT: the number of results. LIST_*: the list of nodes that is
being made. PHASE, ENTRY, CURSOR, CURSOR_COUNT: where an interrupted row continues. The rest are counters: MISSING,
retractions without a row; CREATED, nodes made with a new row; PROPAGATED, nodes made with later rows; REMOVED, removed
nodes; DROPPED, entries that the watermark has removed.
"""

READY, INVALIDATE, REMOVE, EXTEND, PROPAGATE, RENEW = range(6)
"""Phases of a row, and of a change of arcs (`arc_kernels`)."""

(
    PARTITION, WEIGHT, RESULT_START, RESULT_END, RUN_START, RESULT_FIRST, RESULT_LAST, RESULT_WORDS,
) = range(8)  # fmt: skip
"""Words of a result: the partition, +1 or -1, the lifetime, and the time of the first row; and two words for
`match_kernels` only: the sequence numbers of the first and last row. The register follows.
"""

ADDED, RETRACTED = 1, -1

NO_ROOM = -2


class Automata(NamedTuple):
    """An automaton for kernels (`highlevel.patterns.compilation`).

    `initial` and `float_initial` are the register before the first row. `fields`, `float_fields`, `row_words` and
    `float_row_words` are numbers of words. Runs are equal if the first `compared` and `float_compared` fields are. With
    `is_preferred` the runs of one start are in the order of preference, and a final run removes those after it. With
    `is_numbered` a run continues only with a row whose sequence number is one more.
    """

    arcs: Integers
    first_arcs: Integers
    first_silent: Integers
    is_final: Integers
    initial: Integers
    float_initial: Floats
    fields: Integer
    float_fields: Integer
    row_words: Integer
    float_row_words: Integer
    compared: Integer
    float_compared: Integer
    is_preferred: Integer
    is_numbered: Integer
    empty_condition: Integer


class Store(NamedTuple):
    """The memory of partial matches, with numbers of records for which there is room."""

    entries: Integers
    float_rows: Floats
    nodes: Integers
    float_nodes: Floats
    partitions: Integers
    results: Integers
    float_results: Floats
    state: Integers
    entry_room: Integer
    node_room: Integer
    result_room: Integer


class Rows(NamedTuple):
    """Rows in the order of arrival.

    `kind`: ADDED or RETRACTED. `time`, `stop`: the lifetime. `row`: the number of its values.
    """

    kind: Integers
    partition: Integers
    time: Integers
    stop: Integers
    sequence: Integers
    row: Integers
    words: Integers
    float_words: Floats


@helper
def entry_at(automata: Automata, entry):  # type: ignore[no-untyped-def]
    """Return the first word of an entry."""
    return entry * (ENTRY_WORDS + automata.row_words)


@helper
def node_at(automata: Automata, node):  # type: ignore[no-untyped-def]
    """Return the first word of a node."""
    return node * (NODE_WORDS + automata.fields)


@helper
def begin_list(store: Store):  # type: ignore[no-untyped-def]
    """Begin an empty list of nodes."""
    store.state[LIST_HEAD] = NONE
    store.state[LIST_TAIL] = NONE
    store.state[LIST_COUNT] = 0


@helper
def free_list(automata: Automata, store: Store, head):  # type: ignore[no-untyped-def]
    """Free a list of nodes. Return the number of freed nodes."""
    count = 0
    while head != NONE:
        following = store.nodes[node_at(automata, head) + NEXT_NODE]
        free_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, head)
        head = following
        count += 1
    return count


@helper
def take_node(automata: Automata, store: Store):  # type: ignore[no-untyped-def]
    """Return a new node, or NO_ROOM."""
    if store.state[NODE_RECORDS + LIVE_RECORDS] >= store.node_room:
        return NO_ROOM
    return take_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE)


@helper
def append_node(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Append a node to the list that is being made."""
    state = store.state
    store.nodes[node_at(automata, node) + NEXT_NODE] = NONE
    if state[LIST_TAIL] == NONE:
        state[LIST_HEAD] = node
    else:
        store.nodes[node_at(automata, state[LIST_TAIL]) + NEXT_NODE] = node
    state[LIST_TAIL] = node
    state[LIST_COUNT] += 1


@helper
def have_equal_registers(automata: Automata, store: Store, one, other):  # type: ignore[no-untyped-def]
    """Return whether the compared fields of two nodes are equal."""
    left, right = node_at(automata, one) + NODE_WORDS, node_at(automata, other) + NODE_WORDS
    for field in range(automata.compared):
        if store.nodes[left + field] != store.nodes[right + field]:
            return 0
    left, right = one * automata.float_fields, other * automata.float_fields
    for field in range(automata.float_compared):
        if not are_equal_floats(store.float_nodes[left + field], store.float_nodes[right + field]):
            return 0
    return 1


@helper
def is_true(automata: Automata, store: Store, entry, condition):  # type: ignore[no-untyped-def]
    """Return whether a condition is true for the row of an entry, or is NONE."""
    if condition == NONE:
        return 1
    word = store.entries[entry_at(automata, entry) + ENTRY_WORDS + condition // BITS]
    return (word >> (condition % BITS)) & 1


@outlined
def apply_arc(automata: Automata, store: Store, machine: Machine, arc, node, entry, first):  # type: ignore[no-untyped-def]
    """Apply an arc to a node and the row of an entry. Return the new node, NONE without one, or NO_ROOM.

    There is none if the arc does not apply, or if an equal node is in the list from `first` on.
    """
    at, row = arc * ARC_WORDS, entry_at(automata, entry)
    entries, nodes, arcs = store.entries, store.nodes, automata.arcs
    time = entries[row + TIME]
    if time < arcs[at + BEGIN] or time >= arcs[at + END_TIME]:
        return NONE
    words = row + ENTRY_WORDS
    if is_true(automata, store, entry, arcs[at + CONDITION]) == 0:
        return NONE
    of_node = node_at(automata, node)
    field, float_field = of_node + NODE_WORDS, node * automata.float_fields
    float_word = entry * automata.float_row_words
    if arcs[at + FENCE] < arcs[at + FENCE_END]:
        run(
            machine, arcs[at + FENCE], arcs[at + FENCE_END], nodes, field, store.float_nodes, float_field,
            entries, words, store.float_rows, float_word, 0, 0,
        )  # fmt: skip
        if machine.stack[0] != 1:
            return NONE
    added = take_node(automata, store)
    if added == NO_ROOM:
        return NO_ROOM
    to = node_at(automata, added)
    nodes[to + START] = nodes[of_node + START]
    nodes[to + START_SEQUENCE] = nodes[of_node + START_SEQUENCE]
    nodes[to + RUN_END] = min(nodes[of_node + RUN_END], entries[row + LIFETIME_END])
    nodes[to + STATE] = arcs[at + TARGET]
    for index in range(automata.fields):
        nodes[to + NODE_WORDS + index] = nodes[field + index]
    for index in range(automata.float_fields):
        store.float_nodes[added * automata.float_fields + index] = store.float_nodes[float_field + index]
    if arcs[at + TRANSFER] < arcs[at + TRANSFER_END]:
        run(
            machine, arcs[at + TRANSFER], arcs[at + TRANSFER_END], nodes, field, store.float_nodes, float_field,
            entries, words, store.float_rows, float_word, to + NODE_WORDS, added * automata.float_fields,
        )  # fmt: skip
    while first != NONE:
        other = node_at(automata, first)
        if nodes[other + STATE] == nodes[to + STATE] and have_equal_registers(automata, store, first, added):
            free_record(nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, added)
            return NONE
        first = nodes[other + NEXT_NODE]
    return added


@outlined
def close_group(automata: Automata, store: Store, machine: Machine, first, entry):  # type: ignore[no-untyped-def]
    """Follow silent arcs from the nodes of one start, which begin at `first` in the list. Return 0 without room."""
    node = first
    while node != NONE:
        of_node = store.nodes[node_at(automata, node) + STATE]
        for arc in range(automata.first_silent[of_node], automata.first_silent[of_node + 1]):
            added = apply_arc(automata, store, machine, arc, node, entry, first)
            if added == NO_ROOM:
                return 0
            if added != NONE:
                append_node(automata, store, added)
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return 1


@outlined
def extend(automata: Automata, store: Store, machine: Machine, node, count, entry):  # type: ignore[no-untyped-def]
    """Append the extensions of `count` nodes with the row of an entry to the list. Return 0 without room."""
    nodes, time = store.nodes, store.entries[entry_at(automata, entry) + TIME]
    first, start, start_sequence, is_cut = NONE, 0, 0, False
    for _ in range(count):
        at = node_at(automata, node)
        if first != NONE and (nodes[at + START] != start or nodes[at + START_SEQUENCE] != start_sequence):
            if close_group(automata, store, machine, first, entry) == 0:
                return 0
            first, is_cut = NONE, False
        if nodes[at + RUN_END] > time and not is_cut:
            start, start_sequence = nodes[at + START], nodes[at + START_SEQUENCE]
            of_node = nodes[at + STATE]
            for arc in range(automata.first_arcs[of_node], automata.first_arcs[of_node + 1]):
                added = apply_arc(automata, store, machine, arc, node, entry, first)
                if added == NO_ROOM:
                    return 0
                if added != NONE:
                    append_node(automata, store, added)
                    if first == NONE:
                        first = added
                    state = nodes[node_at(automata, added) + STATE]
                    if automata.is_preferred and automata.is_final[state] == ALWAYS:
                        is_cut = True
                        break
        node = nodes[at + NEXT_NODE]
    if first != NONE:
        return close_group(automata, store, machine, first, entry)
    return 1


@helper
def begin_run(automata: Automata, store: Store, machine: Machine, entry):  # type: ignore[no-untyped-def]
    """Append the runs that begin with the row of an entry to the list. Return 0 without room."""
    state, nodes, row = store.state, store.nodes, entry_at(automata, entry)
    head, tail, count = state[LIST_HEAD], state[LIST_TAIL], state[LIST_COUNT]
    node = take_node(automata, store)
    if node == NO_ROOM:
        return 0
    at = node_at(automata, node)
    nodes[at + START] = store.entries[row + TIME]
    nodes[at + START_SEQUENCE] = store.entries[row + SEQUENCE]
    nodes[at + RUN_END] = store.entries[row + LIFETIME_END]
    nodes[at + STATE] = 0
    for field in range(automata.fields):
        nodes[at + NODE_WORDS + field] = automata.initial[field]
    for field in range(automata.float_fields):
        store.float_nodes[node * automata.float_fields + field] = automata.float_initial[field]
    begin_list(store)
    append_node(automata, store, node)
    has_room = close_group(automata, store, machine, node, entry)
    begun, begun_count = state[LIST_HEAD], state[LIST_COUNT]
    state[LIST_HEAD], state[LIST_TAIL], state[LIST_COUNT] = head, tail, count
    if has_room:
        has_room = extend(automata, store, machine, begun, begun_count, entry)
    free_list(automata, store, begun)
    return has_room


@helper
def run_stop(automata: Automata, store: Store, node):  # type: ignore[no-untyped-def]
    """Return the smallest end of the rows of a run."""
    return store.nodes[node_at(automata, node) + RUN_END]


@helper
def is_result(automata: Automata, store: Store, node, head):  # type: ignore[no-untyped-def]
    """Return whether a node is the first final node with its result in the list `head`."""
    at = node_at(automata, node)
    if automata.is_final[store.nodes[at + STATE]] == 0:
        return 0
    while head != node:
        other = node_at(automata, head)
        if (
            automata.is_final[store.nodes[other + STATE]]
            and store.nodes[other + START] == store.nodes[at + START]
            and store.nodes[other + RUN_END] == store.nodes[at + RUN_END]
            and have_equal_registers(automata, store, node, head)
        ):
            return 0
        head = store.nodes[other + NEXT_NODE]
    return 1


@helper
def has_equal_result(automata: Automata, store: Store, node, other):  # type: ignore[no-untyped-def]
    """Return whether a final node of the list `other` has the same result as the final node `node`."""
    start, stop = store.nodes[node_at(automata, node) + START], store.nodes[node_at(automata, node) + RUN_END]
    while other != NONE:
        at = node_at(automata, other)
        if (
            automata.is_final[store.nodes[at + STATE]]
            and store.nodes[at + START] == start
            and store.nodes[at + RUN_END] == stop
            and have_equal_registers(automata, store, node, other)
        ):
            return 1
        other = store.nodes[at + NEXT_NODE]
    return 0


@helper
def write_result(automata: Automata, store: Store, node, partition, weight, start, stop):  # type: ignore[no-untyped-def]
    """Write a result with the register of a node."""
    number = store.state[RESULT_COUNT]
    store.state[RESULT_COUNT] += 1
    to, at = number * (RESULT_WORDS + automata.fields), node_at(automata, node)
    results = store.results
    results[to + PARTITION] = partition
    results[to + WEIGHT] = weight
    results[to + RESULT_START] = start
    results[to + RESULT_END] = stop
    results[to + RUN_START] = store.nodes[at + START]
    for field in range(automata.fields):
        results[to + RESULT_WORDS + field] = store.nodes[at + NODE_WORDS + field]
    for field in range(automata.float_fields):
        value = store.float_nodes[node * automata.float_fields + field]
        store.float_results[number * automata.float_fields + field] = value


@outlined
def attach_list(automata: Automata, store: Store, entry, partition):  # type: ignore[no-untyped-def]
    """Insert the list that was made at the head of the nodes of an entry, and write its results.

    Return 0 without room.
    """
    state, entries, at = store.state, store.entries, entry_at(automata, entry)
    if state[LIST_COUNT] == 0:
        return 1
    if state[RESULT_COUNT] + state[LIST_COUNT] > store.result_room:
        return 0
    head, others = state[LIST_HEAD], entries[at + NODES]
    node = head
    while node != NONE:
        if is_result(automata, store, node, head) and has_equal_result(automata, store, node, others) == 0:
            write_result(automata, store, node, partition, 1, entries[at + TIME], run_stop(automata, store, node))
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    store.nodes[node_at(automata, state[LIST_TAIL]) + NEXT_NODE] = others
    entries[at + NODES] = head
    entries[at + NODE_COUNT] += state[LIST_COUNT]
    return 1


@helper
def invalidate(automata: Automata, store: Store, entry, time, sequence, partition):  # type: ignore[no-untyped-def]
    """Remove the nodes of an entry that start at or before a row, and retract their results.

    Return the number of removed nodes.
    """
    at, removed = entry_at(automata, entry), 0
    while store.entries[at + NODES] != NONE:
        node = store.entries[at + NODES]
        of_node = node_at(automata, node)
        start = store.nodes[of_node + START]
        if start > time or (start == time and store.nodes[of_node + START_SEQUENCE] > sequence):
            break
        following = store.nodes[of_node + NEXT_NODE]
        is_final = automata.is_final[store.nodes[of_node + STATE]]
        if is_final and has_equal_result(automata, store, node, following) == 0:
            stop = run_stop(automata, store, node)
            write_result(automata, store, node, partition, -1, store.entries[at + TIME], stop)
        store.entries[at + NODES] = following
        store.entries[at + NODE_COUNT] -= 1
        free_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, node)
        removed += 1
    store.state[REMOVED] += removed
    return removed


@helper
def are_neighbours(automata: Automata, store: Store, entry, following):  # type: ignore[no-untyped-def]
    """Return whether a run over the row of an entry can continue with the row of the next entry."""
    if automata.is_numbered == 0:
        return 1
    entries = store.entries
    number, next_number = (
        entries[entry_at(automata, entry) + SEQUENCE],
        entries[entry_at(automata, following) + SEQUENCE],
    )
    return 1 if number != NO_NUMBER and next_number != NO_NUMBER and next_number == number + 1 else 0


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
    entries[at + HAS_ROW] = 1
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
    """Remove an entry with its nodes."""
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
    free_list(automata, store, entries[at + NODES])
    free_record(entries, store.state, ENTRIES, width, AFTER, entry)


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
            if is_added:
                entry = add_entry(automata, store, rows, index)
                if entry == NO_ROOM:
                    return index
                state[CURSOR] = entries[entry_at(automata, entry) + AFTER]
            else:
                entry = find_entry(automata, store, rows, index)
                if entry == NONE:
                    state[MISSING] += 1
                    continue
                state[CURSOR] = entry
            state[ENTRY], phase = entry, INVALIDATE
        entry = state[ENTRY]
        at = entry_at(automata, entry)
        if phase == INVALIDATE:
            while state[CURSOR] != NONE:
                other = entry_at(automata, state[CURSOR])
                if state[RESULT_COUNT] + entries[other + NODE_COUNT] > store.result_room:
                    state[PHASE] = INVALIDATE
                    return index
                if (
                    invalidate(automata, store, state[CURSOR], entries[at + TIME], entries[at + SEQUENCE], partition)
                    == 0
                ):
                    break
                state[CURSOR] = entries[other + AFTER]
            phase = EXTEND if is_added else REMOVE
        if phase == REMOVE:
            before = entries[at + BEFORE]
            remove_entry(automata, store, entry, partition)
            state[CURSOR] = before
            state[CURSOR_COUNT] = 0 if before == NONE else entries[entry_at(automata, before) + NODE_COUNT]
            phase = PROPAGATE
        if phase == EXTEND:
            begin_list(store)
            before, has_room = entries[at + BEFORE], 1
            if before != NONE and are_neighbours(automata, store, before, entry):
                other = entry_at(automata, before)
                has_room = extend(automata, store, machine, entries[other + NODES], entries[other + NODE_COUNT], entry)
            if has_room:
                has_room = begin_run(automata, store, machine, entry)
            if has_room == 0 or attach_list(automata, store, entry, partition) == 0:
                free_list(automata, store, state[LIST_HEAD])
                state[PHASE] = EXTEND
                return index
            state[CREATED] += state[LIST_COUNT]
            state[CURSOR], state[CURSOR_COUNT], phase = entry, state[LIST_COUNT], PROPAGATE
        while state[CURSOR_COUNT] > 0:
            other = entry_at(automata, state[CURSOR])
            following = entries[other + AFTER]
            if following == NONE or are_neighbours(automata, store, state[CURSOR], following) == 0:
                break
            begin_list(store)
            has_room = extend(automata, store, machine, entries[other + NODES], state[CURSOR_COUNT], following)
            if has_room == 0 or attach_list(automata, store, following, partition) == 0:
                free_list(automata, store, state[LIST_HEAD])
                state[PHASE] = PROPAGATE
                return index
            state[PROPAGATED] += state[LIST_COUNT]
            state[CURSOR], state[CURSOR_COUNT] = following, state[LIST_COUNT]
        state[PHASE] = READY
    return end


@kernel("i64(Automata, Store, i64, i64)")
def forget_entries(automata: Automata, store: Store, partitions, watermark):  # type: ignore[no-untyped-def]
    """Remove the entries and nodes that rows at or after the watermark do not need.

    Return the number of partitions with entries.

    The last entry below the watermark is kept, because the next row may extend its nodes. The words of its row are not
    needed, and nodes whose lifetime has ended are removed. The entries before it are removed.
    """
    entries, width, used = store.entries, ENTRY_WORDS + automata.row_words, 0
    for partition in range(partitions):
        entry = store.partitions[partition * PARTITION_WORDS + FIRST]
        while entry != NONE and entries[entry * width + TIME] < watermark:
            at = entry * width
            after = entries[at + AFTER]
            is_cover = after == NONE or entries[after * width + TIME] >= watermark
            if is_cover:
                entries[at + HAS_ROW] = 0
                before, node = NONE, entries[at + NODES]
                while node != NONE:
                    of_node = node_at(automata, node)
                    following = store.nodes[of_node + NEXT_NODE]
                    if store.nodes[of_node + RUN_END] <= watermark:
                        if before == NONE:
                            entries[at + NODES] = following
                        else:
                            store.nodes[node_at(automata, before) + NEXT_NODE] = following
                        entries[at + NODE_COUNT] -= 1
                        free_record(
                            store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, node
                        )
                    else:
                        before = node
                    node = following
            if is_cover == 0 or entries[at + NODES] == NONE:
                remove_entry(automata, store, entry, partition)
                store.state[DROPPED] += 1
            if is_cover:
                break
            entry = after
        if store.partitions[partition * PARTITION_WORDS + FIRST] != NONE:
            used += 1
    return used
