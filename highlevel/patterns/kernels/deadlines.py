"""Kernel for deadlines: results at a time without a row, when the watermark has passed it (Appendix E of the paper).

    rows of a partition      x             y          d: the deadline of a run that ends with x
                        ─────┼──────d──────┼─────►    it applies if x < d <= y, and no row below d can arrive

A row at the time of the deadline comes after it. The deadline is within the lifetime of the run. As soon as the
watermark has passed d, all rows before d are known, so the result is final when it is written.
"""

from __future__ import annotations

from capture.native import Integers, helper, kernel
from highlevel.patterns.arc_places import ARC_WORDS, FENCE, FENCE_END
from highlevel.patterns.kernels.expressions import NULL, Machine, are_equal_floats, run
from highlevel.patterns.kernels.layout import (
    AFTER,
    FIRST,
    NEXT_NODE,
    NODE_RECORDS,
    NODE_WORDS,
    NODES,
    PARTITION_WORDS,
    RESULT_COUNT,
    RESULT_END,
    RESULT_START,
    RESULT_WORDS,
    RUN_END,
    RUN_START,
    STATE,
    TIME,
    Automata,
    Store,
    entry_at,
    node_at,
)
from highlevel.patterns.kernels.results import write_result
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE


@helper
def is_written(automata: Automata, store: Store, first):  # type: ignore[no-untyped-def]
    """Return whether the last result is equal to one of the results from `first` on."""
    width, results = RESULT_WORDS + automata.fields, store.results
    last = store.state[RESULT_COUNT] - 1
    for result in range(first, last):
        is_equal = True
        for word in (RESULT_START, RESULT_END, RUN_START):
            is_equal = is_equal and results[result * width + word] == results[last * width + word]
        for word in range(RESULT_WORDS, width):
            is_equal = is_equal and results[result * width + word] == results[last * width + word]
        for field in range(automata.float_fields):
            one = store.float_results[result * automata.float_fields + field]
            other = store.float_results[last * automata.float_fields + field]
            is_equal = is_equal and are_equal_floats(one, other)
        if is_equal:
            return 1
    return 0


@helper
def deadline_of(automata: Automata, store: Store, machine: Machine, arc, node):  # type: ignore[no-untyped-def]
    """Return the deadline of a run by an arc, or NULL."""
    at = arc * ARC_WORDS
    run(
        machine, automata.arcs[at + FENCE], automata.arcs[at + FENCE_END], store.nodes,
        node_at(automata, node) + NODE_WORDS, store.float_nodes, node * automata.float_fields, store.entries, 0,
        store.float_rows, 0, 0, 0,
    )  # fmt: skip
    return machine.stack[0]


@kernel("i64(Automata, Machine, Store, i64*, i64*, i64, i64, i64, i64)")
def pass_deadlines(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, first_deadlines: Integers, outside: Integers, begin, end, low,
    high,
):  # fmt: skip
    """Write a result for each run of the partitions `[begin, end)` whose deadline is in `(low, high]`.

    Return the next partition: less than `end` if there is no room for results. Add to `outside[0]` the number of
    runs that have ended in `(low, high]` without a next row, and whose deadline is not before their end.
    """
    entries, nodes, state = store.entries, store.nodes, store.state
    for partition in range(begin, end):
        # A node has one result at most. There is room for one of each node if there is no result yet.
        if state[RESULT_COUNT] and state[RESULT_COUNT] + state[NODE_RECORDS + LIVE_RECORDS] > store.result_room:
            return partition
        entry = store.partitions[partition * PARTITION_WORDS + FIRST]
        while entry != NONE and entries[entry_at(automata, entry) + TIME] < high:
            at = entry_at(automata, entry)
            time, following, node = entries[at + TIME], entries[at + AFTER], entries[at + NODES]
            while following != NONE and entries[entry_at(automata, following) + NODES] == node:  # all runs ignore it
                following = entries[entry_at(automata, following) + AFTER]
            limit = high if following == NONE else min(high, entries[entry_at(automata, following) + TIME])
            of_entry = state[RESULT_COUNT]
            while node != NONE and limit > low:
                of_node = node_at(automata, node)
                of_state = nodes[of_node + STATE]
                for arc in range(first_deadlines[of_state], first_deadlines[of_state + 1]):
                    deadline = deadline_of(automata, store, machine, arc, node)
                    run_end = nodes[of_node + RUN_END]
                    if deadline != NULL and deadline >= run_end and max(low, time) < run_end <= limit:
                        outside[0] += 1
                    is_due = deadline != NULL and deadline > time and deadline > low and deadline <= limit
                    if is_due and deadline < run_end:
                        write_result(automata, store, node, partition, 1, deadline, run_end)
                        if is_written(automata, store, of_entry):
                            state[RESULT_COUNT] -= 1
                node = nodes[of_node + NEXT_NODE]
            entry = following
    return end
