"""Helpers of kernels over nodes: a node is a run, and a list of nodes contains the runs that end with a row.

Lists may share their last nodes. So each node counts the entries and nodes that lead to it (REFERENCES).
"""

from __future__ import annotations

from capture.native import helper
from highlevel.patterns.kernels.expressions import are_equal_floats
from highlevel.patterns.kernels.layout import (
    LIST_COUNT,
    LIST_HEAD,
    LIST_TAIL,
    NEXT_NODE,
    NO_ROOM,
    NODE_RECORDS,
    NODE_WORDS,
    REFERENCES,
    RUN_END,
    START,
    START_SEQUENCE,
    STATE,
    Automata,
    Store,
    node_at,
)
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE, free_record, take_record


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
    """Return whether the decisive fields of two nodes are equal."""
    left, right = node_at(automata, one) + NODE_WORDS, node_at(automata, other) + NODE_WORDS
    for field in range(automata.decisive_fields):
        if store.nodes[left + field] != store.nodes[right + field]:
            return 0
    left, right = one * automata.float_fields, other * automata.float_fields
    for field in range(automata.decisive_float_fields):
        if not are_equal_floats(store.float_nodes[left + field], store.float_nodes[right + field]):
            return 0
    return 1


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
