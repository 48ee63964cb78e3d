"""Kernel that removes the entries and nodes that rows at or after the watermark do not need.

    entries of a partition      x ───── y ───── z ──│── u ─────      │ the watermark
                                        removed   cover              only a row from the watermark on can arrive

The last entry below the watermark is the **cover** of its partition: the next row may extend its nodes. The words of
its row are not needed, and the entries before it are removed.

A node of the cover is removed if its lifetime has ended, or if nothing can continue its run: no arc of a row leaves its
state from the watermark on, and no deadline is later. Its results are final, because the row of the cover cannot be
withdrawn. If the arcs may change, only final nodes are removed for this reason: a later arc may lead another run to a
final state.

Without nodes the cover is removed too, unless some were freed: a row after it withdraws the results of their runs.
"""

from __future__ import annotations

from capture.native import Integers, helper, kernel
from highlevel.patterns.arc_places import ARC_WORDS, BEGIN, END_TIME
from highlevel.patterns.compiled_automaton import ALWAYS, END_ARC, FIRST_ARC, KEY_GROUP_WORDS
from highlevel.patterns.kernels.arrivals import remove_entry
from highlevel.patterns.kernels.deadlines import deadline_of
from highlevel.patterns.kernels.expressions import NULL, Machine
from highlevel.patterns.kernels.layout import (
    AFTER,
    DROPPED,
    ENTRY_WORDS,
    FIRST,
    FREED_START,
    HAS_ROW,
    NEXT_NODE,
    NODE_COUNT,
    NODES,
    PARTITION_WORDS,
    REFERENCES,
    RUN_END,
    STATE,
    TIME,
    Automata,
    Store,
    node_at,
)
from highlevel.patterns.kernels.nodes import free_list
from highlevel.speculation.lifetimes.kernels.records import NONE
from lowlevel.punctuation import END


@helper
def has_arc(automata: Automata, first, end, watermark):  # type: ignore[no-untyped-def]
    """Return whether one of the arcs `[first, end)` may apply to a row from the watermark on."""
    for arc in range(first, end):
        at = arc * ARC_WORDS
        if automata.arcs[at + END_TIME] > max(automata.arcs[at + BEGIN], watermark):
            return 1
    return 0


@helper
def may_continue(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, first_deadlines, node, watermark
):
    """Return whether a row from the watermark on, or a later deadline, may continue the run of a node."""
    state = store.nodes[node_at(automata, node) + STATE]
    if has_arc(automata, automata.first_arcs[state], automata.end_arcs[state], watermark):
        return 1
    for key_group in range(automata.first_key_groups[state], automata.first_key_groups[state + 1]):
        at = key_group * KEY_GROUP_WORDS
        if has_arc(automata, automata.key_groups[at + FIRST_ARC], automata.key_groups[at + END_ARC], watermark):
            return 1
    for arc in range(first_deadlines[state], first_deadlines[state + 1]):
        deadline = deadline_of(automata, store, machine, arc, node)
        if deadline != NULL and deadline > watermark:
            return 1
    return 0


@helper
def remove_node(automata: Automata, store: Store, entry_at, before, node):  # type: ignore[no-untyped-def]
    """Remove a node from the list of an entry. `before`: the node before it, or NONE."""
    entries, nodes, at = store.entries, store.nodes, node_at(automata, node)
    following = nodes[at + NEXT_NODE]
    if before == NONE:
        entries[entry_at + NODES] = following
    else:
        nodes[node_at(automata, before) + NEXT_NODE] = following
    entries[entry_at + NODE_COUNT] -= 1
    if nodes[at + REFERENCES] > 1 and following != NONE:
        nodes[node_at(automata, following) + REFERENCES] += 1
    if nodes[at + REFERENCES] == 1:
        nodes[at + NEXT_NODE] = NONE
    free_list(automata, store, node)


@kernel("i64(Automata, Machine, Store, i64*, i64, i64, i64)")
def forget_entries(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, first_deadlines: Integers, partitions, watermark, arcs_change
):
    """Remove the entries and nodes that rows at or after the watermark do not need.

    `arcs_change`: whether the arcs may change later. Return the number of partitions with entries.
    """
    entries, nodes, width, used = store.entries, store.nodes, ENTRY_WORDS + automata.row_words, 0
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
                    following = nodes[of_node + NEXT_NODE]
                    is_needed = nodes[of_node + RUN_END] > watermark
                    if is_needed and (arcs_change == 0 or automata.is_final[nodes[of_node + STATE]] == ALWAYS):
                        is_needed = may_continue(automata, store, machine, first_deadlines, node, watermark) != 0
                    if is_needed:
                        before = node
                    else:
                        remove_node(automata, store, at, before, node)
                    node = following
            has_freed = after != NONE and entries[at + FREED_START] != END
            if is_cover == 0 or (entries[at + NODES] == NONE and has_freed == 0):
                remove_entry(automata, store, entry, partition)
                store.state[DROPPED] += 1
            if is_cover:
                break
            entry = after
        if store.partitions[partition * PARTITION_WORDS + FIRST] != NONE:
            used += 1
    return used
