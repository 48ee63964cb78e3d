"""Kernels over partial matches: rows and retractions in any order (Chandramouli et al., 2010, §4 and §5).

    partition ──► entry ⇄ entry ⇄ entry ⇄ entry     one entry for each row, in the order of time
                    │       │       │       │
                    c ──────┼───────┼─► b ──► a     the runs that end with the row: start, state, register

A **node** is a run. The list of an entry contains the runs that end with its row. Two invariants hold between two
calls:

* Content: consider a range of neighbouring rows. For each state and register that a run over these rows can reach,
  there is one node in the list of the last row. A list may also contain runs whose rows have ended (RUN_END).
* Ordering: the nodes of a list descend by start, so nodes with equal start are neighbours.

A row is **ignored** by a run if only arcs apply that lead from its state to this state and change no field: ignorable
arcs (§5.3 and Appendix D of the paper). The run is the same after the row. So the list of the row ends with the same
nodes as the list before, from the first start on after which all runs ignore the row: the lists share these nodes
(REFERENCES). A row that begins no run and that all runs ignore has the list of the row before, without any copy. The
paper stores a run once, as an anchor, and the interval of its ignored rows in an interval tree. Here a list is the
answer to the query of that tree, so no tree is necessary. Final runs are never shared: each row is another result.

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

from typing import NamedTuple

from capture.native import Floats, Integer, Integers, helper, kernel, outlined
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
from highlevel.patterns.compilation import ALWAYS, BITS, FIRST_ARC, KEY_WORD, LAST_ARC, PART_WORDS
from highlevel.patterns.expression_kernels import NULL, Machine, are_equal_floats, run
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS, LIVE_RECORDS, NONE, free_record, take_record
from lowlevel.punctuation import END

(
    TIME, SEQUENCE, LIFETIME_END, ROW, BEFORE, AFTER, NODES, NODE_COUNT, LIST_STATES, LIST_END, HAS_ROW, FREED_START,
    ENTRY_WORDS,
) = range(13)  # fmt: skip
"""Words of an entry.

TIME, SEQUENCE, LIFETIME_END, ROW: the time of its row, its sequence number, the end of its lifetime, and the number of
its values. BEFORE, AFTER: the entries before and after it. NODES: its first node. NODE_COUNT, LIST_STATES, LIST_END:
the number of nodes, a bit for each of their states (LAST_BIT for later states, or for unknown ones), and the largest
RUN_END; or more. HAS_ROW: whether the row can still be read. Without it no run has the row. FREED_START: the smallest
start of the nodes that `gap_kernels` has removed from the list, or END. The words of the row follow.
"""

NO_NUMBER = END
"""Sequence number of a row without a number: no run continues with it or after it."""

START, START_SEQUENCE, RUN_END, STATE, REFERENCES, NEXT_NODE, NODE_WORDS = range(7)
"""Words of a node: the first row of the run, the smallest end of its rows, the state, the next node of the list.

REFERENCES: the number of entries and nodes whose NODES or NEXT_NODE is this node. The fields of the register follow.
"""

FIRST, LAST, CANDIDATES, MATCHES, PARTITION_WORDS = range(5)
"""Words of a partition: its first and its last entry, its first candidate, and the number of its last match.

The last two are for `match_kernels` only.
"""

ENTRIES, NODE_RECORDS = 0, LIST_WORDS
(
    RESULT_COUNT, LIST_HEAD, LIST_TAIL, LIST_COUNT, KEPT, KEPT_COUNT, KEPT_STATES, KEPT_END,
    PHASE, ENTRY, CURSOR, IS_CHANGED, SINCE, MISSING, CREATED, PROPAGATED, REMOVED, DROPPED, STATE_WORDS,
) = range(2 * LIST_WORDS, 2 * LIST_WORDS + 19)  # fmt: skip
"""Words of the state.

Before them: the lists of entries and nodes. RESULT_COUNT: the number of results. LIST_*: the list of nodes that is
being made. KEPT*: the nodes that it shares with the list before; their number, states and largest end as for an entry.
PHASE, ENTRY, CURSOR, IS_CHANGED, SINCE: where an interrupted row continues; IS_CHANGED is 1 if the list before the
cursor has changed, for runs that start until SINCE. The rest are counters: MISSING, retractions without a row; CREATED,
nodes made with a new row; PROPAGATED, nodes made with later rows; REMOVED, removed nodes; DROPPED, entries that the
watermark has removed.
"""

READY, REMOVE, EXTEND, RENEW = range(4)
"""Phases of a row, and of a change of arcs (`arc_kernels`)."""

(
    PARTITION, WEIGHT, RESULT_START, RESULT_END, RUN_START, RESULT_FIRST, RESULT_LAST, RESULT_WORDS,
) = range(8)  # fmt: skip
"""Words of a result: the partition, +1 or -1, the lifetime, and the time of the first row; and two words for
`match_kernels` only: the sequence numbers of the first and last row. The register follows.
"""

ADDED, RETRACTED = 1, -1

LAST_BIT = 62
"""The bit of LIST_STATES for the state with this number and for all later ones."""

NO_ROOM = -2


class Automata(NamedTuple):
    """An automaton for kernels (`highlevel.patterns.compilation`).

    `initial` and `float_initial` are the register before the first row. `fields`, `float_fields`, `row_words` and
    `float_row_words` are numbers of words. Runs are equal if the first `compared` and `float_compared` fields are. With
    `is_preferred` the runs of one start are in the order of preference, and a final run removes those after it. With
    `is_numbered` a run continues only with a row whose sequence number is one more. `can_ignore`: for each state,
    whether runs may ignore a row; `is_ignoring`: whether they may in any state.
    """

    arcs: Integers
    first_arcs: Integers
    end_arcs: Integers
    parts: Integers
    first_parts: Integers
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
    can_ignore: Integers
    is_ignoring: Integer


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
    """Free the nodes of a list that no other list shares. Return the number of freed nodes."""
    count = 0
    while head != NONE:
        at = node_at(automata, head)
        store.nodes[at + REFERENCES] -= 1
        if store.nodes[at + REFERENCES]:
            break
        following = store.nodes[at + NEXT_NODE]
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
    store.nodes[node_at(automata, node) + REFERENCES] = 1
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


@helper
def fits_row(automata: Automata, store: Store, arc, entry):  # type: ignore[no-untyped-def]
    """Return whether the lifetime of an arc contains the row of an entry, and its condition over the row is true."""
    at, time = arc * ARC_WORDS, store.entries[entry_at(automata, entry) + TIME]
    if time < automata.arcs[at + BEGIN] or time >= automata.arcs[at + END_TIME]:
        return 0
    return is_true(automata, store, entry, automata.arcs[at + CONDITION])


@helper
def applies(automata: Automata, store: Store, machine: Machine, arc, node, entry):  # type: ignore[no-untyped-def]
    """Return whether an arc applies to a node and the row of an entry."""
    at, arcs = arc * ARC_WORDS, automata.arcs
    if fits_row(automata, store, arc, entry) == 0:
        return 0
    if arcs[at + FENCE] == arcs[at + FENCE_END]:
        return 1
    run(
        machine, arcs[at + FENCE], arcs[at + FENCE_END], store.nodes, node_at(automata, node) + NODE_WORDS,
        store.float_nodes, node * automata.float_fields, store.entries, entry_at(automata, entry) + ENTRY_WORDS,
        store.float_rows, entry * automata.float_row_words, 0, 0,
    )  # fmt: skip
    return 1 if machine.stack[0] == 1 else 0


@outlined
def apply_arc(automata: Automata, store: Store, machine: Machine, arc, node, entry, first):  # type: ignore[no-untyped-def]
    """Apply an arc to a node and the row of an entry. Return the new node, NONE without one, or NO_ROOM.

    There is none if the arc does not apply, or if an equal node is in the list from `first` on.
    """
    if applies(automata, store, machine, arc, node, entry) == 0:
        return NONE
    at, row = arc * ARC_WORDS, entry_at(automata, entry)
    entries, nodes, arcs = store.entries, store.nodes, automata.arcs
    words, of_node = row + ENTRY_WORDS, node_at(automata, node)
    field, float_field = of_node + NODE_WORDS, node * automata.float_fields
    float_word = entry * automata.float_row_words
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


@helper
def add_extension(automata: Automata, store: Store, machine: Machine, arc, node, entry, first):  # type: ignore[no-untyped-def]
    """Apply an arc as `apply_arc`, and append the new node to the list."""
    added = apply_arc(automata, store, machine, arc, node, entry, first)
    if added != NONE and added != NO_ROOM:
        append_node(automata, store, added)
    return added


@helper
def find_key(automata: Automata, part, key):  # type: ignore[no-untyped-def]
    """Return the first arc of a part whose key is not smaller."""
    low, high = automata.parts[part * PART_WORDS + FIRST_ARC], automata.parts[part * PART_WORDS + LAST_ARC]
    while low < high:
        middle = (low + high) // 2
        if automata.arcs[middle * ARC_WORDS + KEY] < key:
            low = middle + 1
        else:
            high = middle
    return low


@outlined
def extend_by_keys(automata: Automata, store: Store, machine: Machine, node, entry, first):  # type: ignore[no-untyped-def]
    """Append the extensions of a node by arcs with a key. Return the first node of its start, NONE, or NO_ROOM."""
    state, row = store.nodes[node_at(automata, node) + STATE], entry_at(automata, entry) + ENTRY_WORDS
    for part in range(automata.first_parts[state], automata.first_parts[state + 1]):
        key = store.entries[row + automata.parts[part * PART_WORDS + KEY_WORD]]
        arc, last = find_key(automata, part, key), automata.parts[part * PART_WORDS + LAST_ARC]
        while key != NULL and arc < last and automata.arcs[arc * ARC_WORDS + KEY] == key:
            added = add_extension(automata, store, machine, arc, node, entry, first)
            if added == NO_ROOM:
                return NO_ROOM
            if first == NONE:
                first = added
            arc += 1
    return first


@outlined
def close_group(automata: Automata, store: Store, machine: Machine, first, entry):  # type: ignore[no-untyped-def]
    """Follow silent arcs from the nodes of one start, which begin at `first` in the list. Return 0 without room."""
    node = first
    while node != NONE:
        of_node = store.nodes[node_at(automata, node) + STATE]
        for arc in range(automata.first_silent[of_node], automata.first_silent[of_node + 1]):
            if add_extension(automata, store, machine, arc, node, entry, first) == NO_ROOM:
                return 0
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return 1


@outlined
def extend(automata: Automata, store: Store, machine: Machine, node, count, entry):  # type: ignore[no-untyped-def]
    """Append the extensions of at most `count` nodes with the row of an entry to the list. Return 0 without room."""
    nodes, time = store.nodes, store.entries[entry_at(automata, entry) + TIME]
    first, start, start_sequence, is_cut = NONE, 0, 0, False
    while count > 0 and node != NONE:
        at, count = node_at(automata, node), count - 1
        if first != NONE and (nodes[at + START] != start or nodes[at + START_SEQUENCE] != start_sequence):
            if close_group(automata, store, machine, first, entry) == 0:
                return 0
            first, is_cut = NONE, False
        if nodes[at + RUN_END] > time and not is_cut:
            start, start_sequence = nodes[at + START], nodes[at + START_SEQUENCE]
            of_node = nodes[at + STATE]
            for arc in range(automata.first_arcs[of_node], automata.end_arcs[of_node]):
                added = add_extension(automata, store, machine, arc, node, entry, first)
                if added == NO_ROOM:
                    return 0
                if added != NONE:
                    if first == NONE:
                        first = added
                    state = nodes[node_at(automata, added) + STATE]
                    if automata.is_preferred and automata.is_final[state] == ALWAYS:
                        is_cut = True
                        break
            if automata.first_parts[of_node] < automata.first_parts[of_node + 1]:
                first = extend_by_keys(automata, store, machine, node, entry, first)
                if first == NO_ROOM:
                    return 0
        node = nodes[at + NEXT_NODE]
    if first != NONE:
        return close_group(automata, store, machine, first, entry)
    return 1


@helper
def make_first_node(automata: Automata, store: Store, entry):  # type: ignore[no-untyped-def]
    """Return the node of a run before the row of an entry, which begins the run; or NO_ROOM."""
    nodes, row = store.nodes, entry_at(automata, entry)
    node = take_node(automata, store)
    if node == NO_ROOM:
        return NO_ROOM
    at = node_at(automata, node)
    nodes[at + START] = store.entries[row + TIME]
    nodes[at + START_SEQUENCE] = store.entries[row + SEQUENCE]
    nodes[at + RUN_END] = store.entries[row + LIFETIME_END]
    nodes[at + STATE] = 0
    for field in range(automata.fields):
        nodes[at + NODE_WORDS + field] = automata.initial[field]
    for field in range(automata.float_fields):
        store.float_nodes[node * automata.float_fields + field] = automata.float_initial[field]
    return node


@helper
def begin_run(automata: Automata, store: Store, machine: Machine, entry):  # type: ignore[no-untyped-def]
    """Append the runs that begin with the row of an entry to the list. Return 0 without room."""
    state = store.state
    head, tail, count = state[LIST_HEAD], state[LIST_TAIL], state[LIST_COUNT]
    node = make_first_node(automata, store, entry)
    if node == NO_ROOM:
        return 0
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
    for part in range(automata.first_parts[state], automata.first_parts[state + 1]):
        key = store.entries[row + automata.parts[part * PART_WORDS + KEY_WORD]]
        arc, last = find_key(automata, part, key), automata.parts[part * PART_WORDS + LAST_ARC]
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


@outlined
def make_list(automata: Automata, store: Store, machine: Machine, entry, since):  # type: ignore[no-untyped-def]
    """Make the list of an entry from the list before it, of the runs that start until `since`. KEPT belongs to it.

    Return 0 without room.
    """
    state, entries, row = store.state, store.entries, entry_at(automata, entry)
    begin_list(store)
    state[KEPT], state[KEPT_COUNT], state[KEPT_STATES], state[KEPT_END] = NONE, 0, 0, entries[row + TIME]
    time, before = entries[row + TIME], entries[row + BEFORE]
    if entries[row + HAS_ROW] == 0:
        return 1
    if time <= since and begin_run(automata, store, machine, entry) == 0:
        return 0
    if before == NONE or are_neighbours(automata, store, before, entry) == 0:
        return 1
    other = entry_at(automata, before)
    node, count = entries[other + NODES], entries[other + NODE_COUNT]
    while node != NONE and store.nodes[node_at(automata, node) + START] > since:
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
        count -= 1
    if automata.is_ignoring:
        states, stop = entries[other + LIST_STATES], entries[other + LIST_END]
        if stop <= time:
            return 1
        if node == entries[other + NODES] and all_ignore(automata, store, machine, states, stop, entry):
            state[KEPT], state[KEPT_COUNT], state[KEPT_STATES], state[KEPT_END] = node, count, states, stop
            return 1
        count = keep_nodes(automata, store, machine, node, entry)
    return extend(automata, store, machine, node, count, entry)


@helper
def link_kept(automata: Automata, store: Store):  # type: ignore[no-untyped-def]
    """Append the shared nodes to the list that was made."""
    state, kept = store.state, store.state[KEPT]
    if kept == NONE:
        return
    store.nodes[node_at(automata, kept) + REFERENCES] += 1
    if state[LIST_TAIL] == NONE:
        state[LIST_HEAD] = kept
    else:
        store.nodes[node_at(automata, state[LIST_TAIL]) + NEXT_NODE] = kept


@helper
def describe_list(automata: Automata, store: Store, entry, count):  # type: ignore[no-untyped-def]
    """Set NODE_COUNT, LIST_STATES and LIST_END of an entry; `count` nodes were made, and the others are shared."""
    state, nodes, at = store.state, store.nodes, entry_at(automata, entry)
    store.entries[at + NODE_COUNT] = count + state[KEPT_COUNT]
    states, stop = 1 << LAST_BIT, END
    if automata.is_ignoring:
        states, stop, node = state[KEPT_STATES], state[KEPT_END], state[LIST_HEAD]
        for _ in range(count):
            of_node = node_at(automata, node)
            states |= 1 << min(nodes[of_node + STATE], LAST_BIT)
            stop = max(stop, nodes[of_node + RUN_END])
            node = nodes[of_node + NEXT_NODE]
    store.entries[at + LIST_STATES], store.entries[at + LIST_END] = states, stop


@helper
def most_nodes(automata: Automata, store: Store, entry):  # type: ignore[no-untyped-def]
    """Return a bound of the number of nodes in the list of an entry, for which there is room among the results."""
    return min(store.entries[entry_at(automata, entry) + NODE_COUNT], store.state[NODE_RECORDS + LIVE_RECORDS])


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


@helper
def write_results(automata: Automata, store: Store, head, count, other, partition, weight, time):  # type: ignore[no-untyped-def]
    """Write the results of the first `count` nodes of a list that the list `other` does not have, earlier starts first.

    `count` is at least the number of nodes, or the others are not final. Runs whose rows have ended have no result.
    """
    first, node = store.state[RESULT_COUNT], head
    while node != NONE and count > 0:
        has_result = run_stop(automata, store, node) > time and is_result(automata, store, node, head)
        if has_result and has_equal_result(automata, store, node, other) == 0:
            write_result(automata, store, node, partition, weight, time, run_stop(automata, store, node))
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
        count -= 1
    reverse(store.results, RESULT_WORDS + automata.fields, first, store.state[RESULT_COUNT])
    reverse(store.float_results, automata.float_fields, first, store.state[RESULT_COUNT])


@helper
def reverse(words, width, begin, end):  # type: ignore[no-untyped-def]
    """Reverse the order of the records `[begin, end)` of `width` words."""
    end -= 1
    while begin < end:
        for word in range(width):
            one, other = begin * width + word, end * width + word
            words[one], words[other] = words[other], words[one]
        begin += 1
        end -= 1


@helper
def are_equal_lists(automata: Automata, store: Store, one, other, time):  # type: ignore[no-untyped-def]
    """Return whether two lists of one row have equal runs in the same order, apart from runs whose rows have ended."""
    nodes = store.nodes
    while one != other:
        while one != NONE and nodes[node_at(automata, one) + RUN_END] <= time:
            one = nodes[node_at(automata, one) + NEXT_NODE]
        while other != NONE and nodes[node_at(automata, other) + RUN_END] <= time:
            other = nodes[node_at(automata, other) + NEXT_NODE]
        if one == NONE or other == NONE:
            return 1 if one == other else 0
        left, right = node_at(automata, one), node_at(automata, other)
        for word in (START, START_SEQUENCE, RUN_END, STATE):
            if nodes[left + word] != nodes[right + word]:
                return 0
        if have_equal_registers(automata, store, one, other) == 0:
            return 0
        one, other = nodes[left + NEXT_NODE], nodes[right + NEXT_NODE]
    return 1


@outlined
def renew_entry(automata: Automata, store: Store, machine: Machine, entry, since, partition):  # type: ignore[no-untyped-def]
    """Make the list of an entry again, for the runs that start until `since`, and write the changes of results.

    Runs that start at one time stay together, because runs of different rows can have equal results. Return whether the
    list has changed, or NO_ROOM.
    """
    state, nodes, at = store.state, store.nodes, entry_at(automata, entry)
    last, old, count = NONE, store.entries[at + NODES], 0
    while old != NONE and nodes[node_at(automata, old) + START] > since:
        if nodes[node_at(automata, old) + REFERENCES] > 1:  # nodes of other lists stay as they are
            last, old, count, since = NONE, store.entries[at + NODES], 0, END
            break
        last, old, count = old, nodes[node_at(automata, old) + NEXT_NODE], count + 1
    has_room = make_list(automata, store, machine, entry, since)
    most = most_nodes(automata, store, entry) + state[LIST_COUNT]
    if has_room == 0 or state[RESULT_COUNT] + most > store.result_room:
        free_list(automata, store, state[LIST_HEAD])
        return NO_ROOM
    link_kept(automata, store)
    new, of_row = state[LIST_HEAD], store.entries[at + TIME]
    if are_equal_lists(automata, store, old, new, of_row):
        free_list(automata, store, new)
        return 0
    write_results(automata, store, old, store.entries[at + NODE_COUNT], new, partition, -1, of_row)
    write_results(automata, store, new, state[LIST_COUNT], old, partition, 1, of_row)
    states, stop = store.entries[at + LIST_STATES], store.entries[at + LIST_END]
    describe_list(automata, store, entry, state[LIST_COUNT])
    if last == NONE:
        store.entries[at + NODES] = new
    else:
        nodes[node_at(automata, last) + NEXT_NODE] = new
        store.entries[at + NODE_COUNT] += count
        store.entries[at + LIST_STATES] |= states
        store.entries[at + LIST_END] = max(store.entries[at + LIST_END], stop)
    state[PROPAGATED] += state[LIST_COUNT]
    state[REMOVED] += free_list(automata, store, old)
    return 1


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
