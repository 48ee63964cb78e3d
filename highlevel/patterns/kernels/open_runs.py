"""Kernel for open runs: those that a later row or a deadline may complete.

    newest row of a partition ──► its runs ──► state: no chance │ a later row │ the deadline of the run only

An open run ends with the newest row of its partition, and its lifetime has not ended.
"""

from __future__ import annotations

from capture.native import Integers, kernel
from highlevel.patterns.kernels.deadlines import deadline_of
from highlevel.patterns.kernels.expressions import NULL, Machine
from highlevel.patterns.kernels.layout import (
    LAST,
    NEXT_NODE,
    NODES,
    PARTITION_WORDS,
    RUN_END,
    START,
    STATE,
    TIME,
    Automata,
    Store,
    entry_at,
    node_at,
)
from highlevel.speculation.lifetimes.kernels.records import NONE

NO_CHANCE, BY_ROW, BY_DEADLINE = range(3)
"""How a run in a state may still become a result. NO_CHANCE: it cannot. BY_ROW: a later row can complete it,
and perhaps its deadline too. BY_DEADLINE: no row can complete it, but its deadline can.
"""


@kernel("i64(Automata, Store, i64*, i64*, i64*, i64, i64, i64)")
def find_open_runs(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, chances: Integers, earliest: Integers, places: Integers, partitions, newest, room,
):  # fmt: skip
    """Return the number of open runs of the partitions `[0, partitions)`, and of those with the chance BY_DEADLINE.

    `chances`: a value for each state. `newest`: the time of the newest row, or the watermark if it is later. Write the
    partition, entry and node of the first `room` runs to `places`. Set `earliest[0]` to the earliest first row, if it
    is earlier.
    """
    entries, nodes, count = store.entries, store.nodes, 0
    for partition in range(partitions):
        entry = store.partitions[partition * PARTITION_WORDS + LAST]
        node = NONE if entry == NONE else entries[entry_at(automata, entry) + NODES]
        while node != NONE:
            of_node = node_at(automata, node)
            chance = chances[nodes[of_node + STATE]]
            if chance == BY_DEADLINE or (chance == BY_ROW and nodes[of_node + RUN_END] > newest):
                if count < room:
                    places[3 * count], places[3 * count + 1], places[3 * count + 2] = partition, entry, node
                count += 1
                earliest[0] = min(earliest[0], nodes[of_node + START])
            node = nodes[of_node + NEXT_NODE]
    return count


@kernel("i64(Automata, Machine, Store, i64*, i64*, i64*, i64, i64)")
def check_deadlines(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, first_deadlines: Integers, places: Integers, is_open: Integers,
    count, watermark,
):  # fmt: skip
    """Set `is_open` for the runs of `places` whose deadline has not passed. Return their number."""
    found = 0
    for place in range(count):
        entry, node = places[3 * place + 1], places[3 * place + 2]
        of_node, low = node_at(automata, node), max(store.entries[entry_at(automata, entry) + TIME], watermark)
        state, stop = store.nodes[of_node + STATE], store.nodes[of_node + RUN_END]
        for arc in range(first_deadlines[state], first_deadlines[state + 1]):
            deadline = deadline_of(automata, store, machine, arc, node)
            if deadline != NULL and deadline > low and deadline < stop:
                is_open[place] = 1
                found += 1
    return found
