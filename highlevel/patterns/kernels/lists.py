"""Helpers of kernels that make the list of an entry, from the list of the entry before it and from its row.

Two invariants hold between two calls of a kernel:

* Content: consider a range of neighbouring rows. For each state and register that a run over these rows can reach,
  there is one node in the list of the last row. A list may also contain runs whose rows have ended (RUN_END).
* Ordering: the nodes of a list descend by start, so nodes with equal start are neighbours.
"""

from __future__ import annotations

from capture.native import helper, outlined
from highlevel.patterns.kernels.expressions import Machine
from highlevel.patterns.kernels.extensions import are_neighbours, begin_run, extend
from highlevel.patterns.kernels.ignored_rows import all_ignore, keep_nodes
from highlevel.patterns.kernels.layout import (
    BEFORE,
    HAS_ROW,
    KEPT,
    KEPT_COUNT,
    KEPT_END,
    KEPT_STATES,
    LAST_BIT,
    LIST_COUNT,
    LIST_END,
    LIST_HEAD,
    LIST_STATES,
    LIST_TAIL,
    NEXT_NODE,
    NO_ROOM,
    NODE_COUNT,
    NODE_RECORDS,
    NODES,
    PROPAGATED,
    REFERENCES,
    REMOVED,
    RESULT_COUNT,
    RUN_END,
    START,
    STATE,
    TIME,
    Automata,
    Store,
    entry_at,
    node_at,
)
from highlevel.patterns.kernels.nodes import are_equal_lists, begin_list, free_list
from highlevel.patterns.kernels.results import write_results
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE
from lowlevel.punctuation import END


@outlined
def make_list(automata: Automata, store: Store, machine: Machine, entry, since):  # type: ignore[no-untyped-def]
    """Make the list of an entry from the list before it and its row, only for runs that start until `since`.

    The nodes from KEPT on also belong to the list: `link_kept` appends them. Return 0 without room.
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
    """Return an upper bound of the number of nodes in the list of an entry. So many results need room."""
    return min(store.entries[entry_at(automata, entry) + NODE_COUNT], store.state[NODE_RECORDS + LIVE_RECORDS])


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
