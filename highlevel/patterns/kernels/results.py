"""Helpers of kernels that write results: the final nodes of a list, and the difference of two lists."""

from __future__ import annotations

from capture.native import helper
from highlevel.patterns.kernels.layout import (
    NEXT_NODE,
    NODE_WORDS,
    PARTITION,
    RESULT_COUNT,
    RESULT_END,
    RESULT_START,
    RESULT_WORDS,
    RUN_END,
    RUN_START,
    START,
    STATE,
    WEIGHT,
    Automata,
    Store,
    node_at,
)
from highlevel.patterns.kernels.nodes import have_equal_registers
from highlevel.speculation.lifetimes.kernels.records import NONE


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

    Nodes after the first `count` must not be final. Runs whose rows have ended have no result.
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
