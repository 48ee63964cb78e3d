"""Helpers of kernels that extend runs with a row: by arcs, arcs with a key, and silent arcs.

For each state and register that the runs of one start can reach with a row, there is one node.
"""

from __future__ import annotations

from capture.native import helper, outlined
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
from highlevel.patterns.compiled_automaton import (
    ALWAYS,
    CONDITIONS_PER_WORD,
    END_ARC,
    FIRST_ARC,
    KEY_GROUP_WORDS,
    KEY_WORD,
    NO_INDEX,
)
from highlevel.patterns.kernels.expressions import NULL, Machine, run
from highlevel.patterns.kernels.layout import (
    ENTRY_WORDS,
    LIFETIME_END,
    LIST_COUNT,
    LIST_HEAD,
    LIST_TAIL,
    NEXT_NODE,
    NO_NUMBER,
    NO_ROOM,
    NODE_RECORDS,
    NODE_WORDS,
    RUN_END,
    SEQUENCE,
    START,
    START_SEQUENCE,
    STATE,
    TIME,
    Automata,
    Store,
    entry_at,
    node_at,
)
from highlevel.patterns.kernels.nodes import append_node, begin_list, free_list, have_equal_registers, take_node
from highlevel.speculation.lifetimes.kernels.records import NONE, free_record


@helper
def is_true(automata: Automata, store: Store, entry, condition):  # type: ignore[no-untyped-def]
    """Return whether a condition is true for the row of an entry, or is NO_INDEX."""
    if condition == NO_INDEX:
        return 1
    word = store.entries[entry_at(automata, entry) + ENTRY_WORDS + condition // CONDITIONS_PER_WORD]
    return (word >> (condition % CONDITIONS_PER_WORD)) & 1


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
def find_key(automata: Automata, key_group, key):  # type: ignore[no-untyped-def]
    """Return the first arc of a key group whose key is not smaller."""
    at = key_group * KEY_GROUP_WORDS
    low, high = automata.key_groups[at + FIRST_ARC], automata.key_groups[at + END_ARC]
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
    for key_group in range(automata.first_key_groups[state], automata.first_key_groups[state + 1]):
        key = store.entries[row + automata.key_groups[key_group * KEY_GROUP_WORDS + KEY_WORD]]
        arc, last = find_key(automata, key_group, key), automata.key_groups[key_group * KEY_GROUP_WORDS + END_ARC]
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
            if automata.first_key_groups[of_node] < automata.first_key_groups[of_node + 1]:
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
