"""Kernel that removes runs and rows that no later row needs (Chandramouli et al., 2010, Appendix F, corrected).

    entries of a partition      x ───────── y ───────── z ─────────         a gap follows each entry
    a later row                      ▲                                      it may arrive in the gaps of its arcs

Every arc has a watermark: no later row that satisfies its fence is earlier. If only some links can satisfy the fence,
this is the watermark of these links, which may be much later than that of all links.

A node of the entry x in the state q is needed if a later row in the gap after x can extend it so that a final state
follows. This is a search over pairs of a state and a gap: the first step is an arc that a later row may use in the gap
after x. Each further step is an arc of another later row in the same gap, a silent arc, or an arc of the next row in
memory, which leads to the next gap. Conditions over the register are assumed to be true, so the search finds too many
steps rather than too few. A row in memory is needed if such a search uses it. (The path punctuation, as the paper
prints it, removes nodes that are needed.)

The pairs from which a final state can be reached are found from the last gap to the first, those that a later row can
reach from the first to the last. States are bits of a word.

Nodes that are not needed are removed. FREED_START of their entry keeps the smallest of their starts, because a later
row must remove the runs that pass over its place from all lists after it, even if the lists of the entries between stay
equal. If no later list has a run that began until the time of the entry, there is no such run, and FREED_START is
reset. Final nodes stay, because their results may be withdrawn, and nodes with a deadline. If runs may ignore rows,
lists share their nodes, which need little memory, and all nodes stay.

No run of a later row continues with a row that is not needed. If no other run does either, HAS_ROW is reset. Of three
such neighbours the middle one is removed: the other two separate the later rows before, between and after them. It
stays if later rows before and after it may be in one run that ends in a final state, because then it must separate
them.

Rows must not be withdrawn, the arcs must not change, and no arc has a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capture.native import Integer, Integers, helper, kernel
from highlevel.patterns.arc_places import ARC_WORDS, BEGIN, END_TIME, TARGET
from highlevel.patterns.automaton import Arc, Automaton, reachable
from highlevel.patterns.compiled_automaton import Words
from highlevel.patterns.kernels.arrivals import remove_entry
from highlevel.patterns.kernels.extensions import fits_row
from highlevel.patterns.kernels.layout import (
    AFTER,
    BEFORE,
    FIRST,
    FREED_START,
    HAS_ROW,
    LAST,
    LAST_BIT,
    LIST_STATES,
    NEXT_NODE,
    NODE_COUNT,
    NODE_RECORDS,
    NODE_WORDS,
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
from highlevel.speculation.lifetimes.kernels.records import NONE, free_record
from lowlevel.punctuation import BEGINNING, END

MOST_STATES = 62
"""Largest number of states: each is a bit of a word."""


class States(NamedTuple):
    """The number of states of an automaton, and sets of states as bits.

    `begun`: the states of a run before its first row. `kept`: those of nodes that stay. `every`: all states.
    """

    number: Integer
    begun: Integer
    kept: Integer
    every: Integer


def states_of(automaton: Automaton, names: Sequence[str]) -> States:
    """Return the states of an automaton for kernels. `names`: the states in the order of their numbers."""
    silent: dict[str, set[str]] = {}
    for arc in automaton.arcs:
        if arc.is_silent:
            silent.setdefault(arc.source, set()).add(arc.target)
    begun = reachable(silent, automaton.start)
    kept = {*automaton.finals, *(arc.source for arc in automaton.arcs if arc.deadline is not None)}
    begun_bits, kept_bits = (sum(1 << names.index(name) for name in members) for members in (begun, kept))
    return States(len(names), begun_bits, kept_bits, (1 << len(names)) - 1)


def order_of_arcs(arcs: Sequence[Arc], names: Sequence[str]) -> Words:
    """Return the index of each compiled arc among the arcs of an automaton. Without arcs, an index of -1.

    Arcs with a row are first, then silent arcs, then deadlines; each kind is ordered by the states. So no arc may have
    a key. `names`: the states in the order of their numbers.
    """
    order = sorted(
        range(len(arcs)),
        key=lambda index: (
            2 if arcs[index].deadline is not None else int(arcs[index].is_silent),
            names.index(arcs[index].source),
        ),
    )
    return np.array(order or [-1], np.int64)


@helper
def earliest_use(automata: Automata, watermarks, arc, left, right):  # type: ignore[no-untyped-def]
    """Return the earliest time at which a later row between two times can use an arc, or END."""
    at = arc * ARC_WORDS
    time = max(left, watermarks[arc], automata.arcs[at + BEGIN])
    return time if time <= right and time < automata.arcs[at + END_TIME] else END


@helper
def preceding_states(automata: Automata, store: Store, states: States, entry, targets):  # type: ignore[no-untyped-def]
    """Return the states from which the row of an entry leads to one of the states `targets`."""
    found = 0
    if store.entries[entry_at(automata, entry) + HAS_ROW]:
        for state in range(states.number):
            for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                if (targets >> automata.arcs[arc * ARC_WORDS + TARGET]) & 1 and fits_row(automata, store, arc, entry):
                    found |= 1 << state
                    break
    return found


@helper
def following_states(automata: Automata, store: Store, states: States, entry, sources):  # type: ignore[no-untyped-def]
    """Return the states to which the row of an entry leads from the states `sources`."""
    found = 0
    for state in range(states.number):
        if (sources >> state) & 1:
            for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                if fits_row(automata, store, arc, entry):
                    found |= 1 << automata.arcs[arc * ARC_WORDS + TARGET]
    return found


@helper
def with_sources(automata: Automata, states: States, watermarks, targets, left, right):  # type: ignore[no-untyped-def]
    """Add the states from which later rows of a gap, and silent arcs, lead to `targets`."""
    known = 0
    while known != targets:
        known = targets
        for state in range(states.number):
            for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                is_target = (targets >> automata.arcs[arc * ARC_WORDS + TARGET]) & 1
                if is_target and earliest_use(automata, watermarks, arc, left, right) != END:
                    targets |= 1 << state
            for arc in range(automata.first_silent[state], automata.first_silent[state + 1]):
                if (targets >> automata.arcs[arc * ARC_WORDS + TARGET]) & 1:
                    targets |= 1 << state
    return targets


@helper
def with_targets(automata: Automata, states: States, watermarks, reached, sources, left, right):  # type: ignore[no-untyped-def]
    """Add the states to which later rows of a gap lead from `reached` or `sources`, and silent arcs from `reached`."""
    known = -1
    while known != reached:
        known = reached
        for state in range(states.number):
            if ((reached | sources) >> state) & 1:
                for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                    if earliest_use(automata, watermarks, arc, left, right) != END:
                        reached |= 1 << automata.arcs[arc * ARC_WORDS + TARGET]
            if (reached >> state) & 1:
                for arc in range(automata.first_silent[state], automata.first_silent[state + 1]):
                    reached |= 1 << automata.arcs[arc * ARC_WORDS + TARGET]
    return reached


@helper
def may_join(automata: Automata, states: States, watermarks, left, right):  # type: ignore[no-untyped-def]
    """Return whether a run of two or more later rows in a gap, and no others, may end in a final state."""
    one = with_targets(automata, states, watermarks, 0, states.begun, left, right)
    return 1 if with_targets(automata, states, watermarks, 0, one, left, right) & states.kept else 0


@helper
def find_uses(automata: Automata, states: States, watermarks, targets, left, right, uses):  # type: ignore[no-untyped-def]
    """Set `uses`: for each state the earliest time between two times of a later row that leads to `targets`, or END."""
    for state in range(states.number):
        uses[state] = END
        for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
            if (targets >> automata.arcs[arc * ARC_WORDS + TARGET]) & 1:
                uses[state] = min(uses[state], earliest_use(automata, watermarks, arc, left, right))


@helper
def free_nodes(automata: Automata, store: Store, states: States, uses, entry):  # type: ignore[no-untyped-def]
    """Free the nodes of an entry that are not needed (`find_uses`)."""
    nodes, entries, at = store.nodes, store.entries, entry_at(automata, entry)
    before, node = NONE, entries[at + NODES]
    while node != NONE:
        of_node = node_at(automata, node)
        following, state = nodes[of_node + NEXT_NODE], nodes[of_node + STATE]
        if (states.kept >> state) & 1 or uses[state] < nodes[of_node + RUN_END]:
            before = node
        else:
            entries[at + FREED_START] = min(entries[at + FREED_START], nodes[of_node + START])
            entries[at + NODE_COUNT] -= 1
            if before == NONE:
                entries[at + NODES] = following
            else:
                nodes[node_at(automata, before) + NEXT_NODE] = following
            free_record(nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, node)
        node = following


@helper
def earliest_start(automata: Automata, store: Store, entry):  # type: ignore[no-untyped-def]
    """Return the earliest first row of the runs in the list of an entry, or END. If lists share nodes, any time."""
    node, earliest = store.entries[entry_at(automata, entry) + NODES], END
    if automata.is_ignoring:
        return BEGINNING
    while node != NONE:
        earliest = store.nodes[node_at(automata, node) + START]  # a list descends by start
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return earliest


@helper
def states_of_list(automata: Automata, store: Store, states: States, entry):  # type: ignore[no-untyped-def]
    """Return the states of the runs in the list of an entry, or more."""
    at, found = entry_at(automata, entry), 0
    node = store.entries[at + NODES]
    if automata.is_ignoring and node != NONE:
        listed = store.entries[at + LIST_STATES]
        return states.every if (listed >> LAST_BIT) & 1 else listed  # not known, as after a restart
    while node != NONE:
        found |= 1 << store.nodes[node_at(automata, node) + STATE]
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return found


@kernel("i64(Automata, Store, States, i64*, i64*, i64*, i64)")
def remove_unneeded(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, states: States, watermarks: Integers, gaps: Integers, uses: Integers, partitions
):  # fmt: skip
    """Remove the nodes and entries of the partitions `[0, partitions)` that no later row needs.

    Return the number of partitions with entries. `watermarks`: those of the arcs. `gaps` has a word for each entry of
    the largest partition, and `uses` one for each state; both are overwritten.
    """
    entries, used = store.entries, 0
    for partition in range(partitions):
        entry, count = store.partitions[partition * PARTITION_WORDS + FIRST], 0
        while entry != NONE:
            entry = entries[entry_at(automata, entry) + AFTER]
            count += 1
        if count == 0:
            continue
        used += 1
        # gaps[index]: the states in the gap after an entry from which a final state can be reached.
        # earliest: the earliest first row of the runs that end with later entries.
        entry, following, earliest = store.partitions[partition * PARTITION_WORDS + LAST], NONE, END
        for index in range(count - 1, -1, -1):
            at, targets, right = entry_at(automata, entry), states.kept, END
            if following != NONE:
                right = entries[entry_at(automata, following) + TIME]
                targets |= preceding_states(automata, store, states, following, gaps[index + 1])
            gaps[index] = with_sources(automata, states, watermarks, targets, entries[at + TIME], right)
            if automata.is_ignoring == 0:
                find_uses(automata, states, watermarks, gaps[index], entries[at + TIME], right, uses)
                free_nodes(automata, store, states, uses, entry)
            if earliest > entries[at + TIME]:
                entries[at + FREED_START] = END
            earliest = min(earliest, earliest_start(automata, store, entry))
            entry, following = entries[at + BEFORE], entry
        # reached: the states that runs with a later row can have before the next row.
        entry, unneeded = following, 0
        right = entries[entry_at(automata, entry) + TIME]
        reached = with_targets(automata, states, watermarks, 0, states.begun, BEGINNING, right)
        for index in range(count):
            at, before = entry_at(automata, entry), entries[entry_at(automata, entry) + BEFORE]
            left, following = entries[at + TIME], entries[at + AFTER]
            right = END if following == NONE else entries[entry_at(automata, following) + TIME]
            remaining = states_of_list(automata, store, states, entry)
            has_runs = entries[at + NODES] != NONE or entries[at + FREED_START] != END
            if preceding_states(automata, store, states, entry, gaps[index]) & reached:
                reached = following_states(automata, store, states, entry, reached) & gaps[index]
                unneeded = 0
            else:
                reached = 0
                unneeded = 0 if has_runs else unneeded + 1
            if unneeded:
                entries[at + HAS_ROW] = 0
            if unneeded > 2:
                first = entries[entry_at(automata, before) + BEFORE]
                start = entries[entry_at(automata, first) + TIME]
                if may_join(automata, states, watermarks, start, left) == 0:
                    remove_entry(automata, store, before, partition)
            sources = remaining | states.begun
            reached = with_targets(automata, states, watermarks, reached, sources, left, right)
            entry = following
    return used
