"""Kernel for the rows that an accepted run consists of, found by following its derivations backwards.

    rows of a request   x ──── y ──── z        the nodes of all runs that start at `start`, computed again
    forwards            a ───► b ───► c ───► …
    backwards           a ◄─── b ◄─── c        marked: a derivation of the result leads through the node

A run may have several derivations, because equal nodes are one. So a row belongs to a result if an arc consumes it in
at least one derivation. It is written with the state after it, unless the arc leaves the run as it is. The first and
the last row of a run are always written. Silent arcs consume no row: marks only pass over them. A run that ends with a
deadline has the rows until its last arc with a row.
"""

from __future__ import annotations

from capture.native import Integers, helper, kernel, outlined
from highlevel.patterns.arc_places import ARC_WORDS, TARGET
from highlevel.patterns.kernels.arrivals import (
    add_entry,
)
from highlevel.patterns.kernels.deadlines import (
    deadline_of,
    is_written,
)
from highlevel.patterns.kernels.expressions import (
    NULL,
    Machine,
)
from highlevel.patterns.kernels.extensions import (
    apply_arc,
    are_neighbours,
    close_group,
    make_first_node,
)
from highlevel.patterns.kernels.ignored_rows import (
    is_ignorable,
)
from highlevel.patterns.kernels.layout import (
    BEFORE,
    ENTRIES,
    FIRST,
    LAST,
    LIST_COUNT,
    LIST_HEAD,
    NEXT_NODE,
    NO_ROOM,
    NODE_COUNT,
    NODE_RECORDS,
    NODE_WORDS,
    NODES,
    RESULT_COUNT,
    RUN_END,
    START,
    START_SEQUENCE,
    STATE,
    TIME,
    Automata,
    Rows,
    Store,
    entry_at,
    node_at,
)
from highlevel.patterns.kernels.lists import (
    make_list,
)
from highlevel.patterns.kernels.nodes import (
    append_node,
    begin_list,
    free_list,
    have_equal_registers,
)
from highlevel.patterns.kernels.results import (
    is_result,
    write_result,
)
from highlevel.speculation.lifetimes.kernels.records import (
    FREE_RECORD,
    LIVE_RECORDS,
    NONE,
    USED_RECORDS,
    free_record,
)

FIRST_ROW, END_ROW, STARTS_AT, ENDS_AT, BY_DEADLINE, REQUEST_WORDS = range(6)
"""Words of a request: its rows `[FIRST_ROW, END_ROW)`, the time of the first row of the runs, the time of their last
row or their deadline, and whether it is a deadline."""

RESULT, ROW, STATE_AFTER, PLACE_WORDS = range(4)
"""Words of a place: the number of the result, the row, and the state after it."""

COUNT, STAMP, IS_FULL, PROGRESS_WORDS = range(4)
"""Words of the progress: the number of places, the last stamp, and whether there was no room for a place."""


@outlined
def leads_to_mark(automata: Automata, store: Store, machine: Machine, marks, arc, node, entry):  # type: ignore[no-untyped-def]
    """Return 1 if an arc leads from a node to a marked node of an entry, 0 if not, or NO_ROOM."""
    added = apply_arc(automata, store, machine, arc, node, entry, NONE)
    if added == NO_ROOM:
        return NO_ROOM
    if added == NONE:
        return 0
    nodes, of_added, found = store.nodes, node_at(automata, added), 0
    other = store.entries[entry_at(automata, entry) + NODES]
    while other != NONE and found == 0:
        at = node_at(automata, other)
        if (
            marks[other]
            and nodes[at + START] == nodes[of_added + START]
            and nodes[at + START_SEQUENCE] == nodes[of_added + START_SEQUENCE]
            and nodes[at + STATE] == nodes[of_added + STATE]
            and have_equal_registers(automata, store, other, added)
        ):
            found = 1
        other = nodes[at + NEXT_NODE]
    free_record(nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, added)
    return found


@outlined
def mark_silent_sources(automata: Automata, store: Store, machine: Machine, marks, entry):  # type: ignore[no-untyped-def]
    """Mark the nodes of an entry from which silent arcs lead to a marked node. Return 0 without room."""
    is_changed = True
    while is_changed:
        is_changed = False
        node = store.entries[entry_at(automata, entry) + NODES]
        while node != NONE:
            state = store.nodes[node_at(automata, node) + STATE]
            first, last = automata.first_silent[state], automata.first_silent[state + 1]
            for arc in range(first, last if marks[node] == 0 else first):
                found = leads_to_mark(automata, store, machine, marks, arc, node, entry)
                if found == NO_ROOM:
                    return 0
                if found:
                    marks[node], is_changed = 1, True
            node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return 1


@helper
def write_place(store: Store, places, progress, seen, room, row, state):  # type: ignore[no-untyped-def]
    """Write a row of the last result with the state after it, once for each state. Return 0 without room."""
    if seen[state] == progress[STAMP]:
        return 1
    if progress[COUNT] == room:
        progress[IS_FULL] = 1
        return 0
    seen[state] = progress[STAMP]
    at = progress[COUNT] * PLACE_WORDS
    places[at + RESULT] = store.state[RESULT_COUNT] - 1
    places[at + ROW] = row
    places[at + STATE_AFTER] = state
    progress[COUNT] += 1
    return 1


@outlined
def mark_sources(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, marks, places, progress, seen, room, node, entry, row, is_end,
):  # fmt: skip
    """Mark the nodes of the list `node` from which the row of an entry leads to a marked node. Return 0 without room.

    `is_end`: the row is the first or the last one of the run, so it is also written if the run ignores it.
    """
    nodes, time = store.nodes, store.entries[entry_at(automata, entry) + TIME]
    while node != NONE:
        at = node_at(automata, node)
        state = nodes[at + STATE]
        first, last = automata.first_arcs[state], automata.end_arcs[state]
        for arc in range(first, last if nodes[at + RUN_END] > time else first):
            found = leads_to_mark(automata, store, machine, marks, arc, node, entry)
            if found == NO_ROOM:
                return 0
            if found == 0:
                continue
            marks[node] = 1
            if is_end or is_ignorable(automata, arc, state) == 0:
                target = automata.arcs[arc * ARC_WORDS + TARGET]
                if write_place(store, places, progress, seen, room, row, target) == 0:
                    return 0
        node = nodes[at + NEXT_NODE]
    return 1


@outlined
def trace_back(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, marks, places, progress, seen, room, entry, row, start,
    is_deadline,
):  # fmt: skip
    """Write the rows of the last result, whose nodes in the list of an entry are marked. Return 0 without room.

    `row`: the number of the row of the entry.
    """
    entries, is_last = store.entries, is_deadline == 0
    while entry != NONE:
        progress[STAMP] += 1
        at = entry_at(automata, entry)
        if mark_silent_sources(automata, store, machine, marks, entry) == 0:
            return 0
        if entries[at + TIME] == start:
            node = make_first_node(automata, store, entry)
            if node == NO_ROOM:
                return 0
            marks[node] = 0
            begin_list(store)
            append_node(automata, store, node)
            if close_group(automata, store, machine, node, entry) == 0:
                return 0
            begun = store.state[LIST_HEAD]
            if mark_sources(
                automata, store, machine, marks, places, progress, seen, room, begun, entry, row, True
            ) == 0:  # fmt: skip
                return 0
            while begun != NONE:  # their records may be used for other nodes
                marks[begun] = 0
                begun = store.nodes[node_at(automata, begun) + NEXT_NODE]
            free_list(automata, store, store.state[LIST_HEAD])
        before = entries[at + BEFORE]
        if before != NONE and are_neighbours(automata, store, before, entry):
            node = entries[entry_at(automata, before) + NODES]
            if mark_sources(
                automata, store, machine, marks, places, progress, seen, room, node, entry, row, is_last
            ) == 0:  # fmt: skip
                return 0
        entry, row, is_last = before, row - 1, False
    return 1


@helper
def clear_marks(store: Store, marks):  # type: ignore[no-untyped-def]
    """Remove all marks."""
    for node in range(store.state[NODE_RECORDS + USED_RECORDS] + 1):
        marks[node] = 0


@outlined
def trace_results_of_row(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, marks, places, progress, seen, room, request, entry, row, start,
):  # fmt: skip
    """Write the results of the row of an entry, and their rows. Return 0 without room."""
    at, nodes = entry_at(automata, entry), store.nodes
    time, head = store.entries[at + TIME], store.entries[at + NODES]
    node = head
    while node != NONE:
        of_node = node_at(automata, node)
        is_final = automata.is_final[nodes[of_node + STATE]]
        if is_final and nodes[of_node + RUN_END] > time and is_result(automata, store, node, head):
            if store.state[RESULT_COUNT] == store.result_room:
                return 0
            write_result(automata, store, node, request, 1, time, nodes[of_node + RUN_END])
            clear_marks(store, marks)
            other = node
            while other != NONE:
                of_other = node_at(automata, other)
                if (
                    automata.is_final[nodes[of_other + STATE]]
                    and nodes[of_other + RUN_END] == nodes[of_node + RUN_END]
                    and have_equal_registers(automata, store, node, other)
                ):
                    marks[other] = 1
                other = nodes[of_other + NEXT_NODE]
            if trace_back(
                automata, store, machine, marks, places, progress, seen, room, entry, row, start, 0
            ) == 0:  # fmt: skip
                return 0
        node = nodes[of_node + NEXT_NODE]
    return 1


@helper
def has_deadline(automata: Automata, store: Store, machine: Machine, first_deadlines, node, time):  # type: ignore[no-untyped-def]
    """Return whether a run ends at a time by an arc with a deadline."""
    at = node_at(automata, node)
    state = store.nodes[at + STATE]
    for arc in range(first_deadlines[state], first_deadlines[state + 1]):
        deadline = deadline_of(automata, store, machine, arc, node)
        if deadline != NULL and deadline == time and time < store.nodes[at + RUN_END]:
            return 1
    return 0


@outlined
def trace_results_of_deadline(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, first_deadlines, marks, places, progress, seen, room, request,
    entry, row, start, time,
):  # fmt: skip
    """Write the results of a deadline after the row of an entry, and their rows. Return 0 without room."""
    nodes, of_entry = store.nodes, store.state[RESULT_COUNT]
    node = store.entries[entry_at(automata, entry) + NODES]
    while node != NONE:
        of_node = node_at(automata, node)
        if has_deadline(automata, store, machine, first_deadlines, node, time):
            if store.state[RESULT_COUNT] == store.result_room:
                return 0
            write_result(automata, store, node, request, 1, time, nodes[of_node + RUN_END])
            if is_written(automata, store, of_entry):
                store.state[RESULT_COUNT] -= 1
            else:
                clear_marks(store, marks)
                other = node
                while other != NONE:
                    if (
                        nodes[node_at(automata, other) + RUN_END] == nodes[of_node + RUN_END]
                        and have_equal_registers(automata, store, node, other)
                        and has_deadline(automata, store, machine, first_deadlines, other, time)
                    ):
                        marks[other] = 1
                    other = nodes[node_at(automata, other) + NEXT_NODE]
                if trace_back(
                    automata, store, machine, marks, places, progress, seen, room, entry, row, start, 1
                ) == 0:  # fmt: skip
                    return 0
        node = nodes[of_node + NEXT_NODE]
    return 1


@helper
def read_rows(automata: Automata, store: Store, machine: Machine, rows: Rows, begin, end, start):  # type: ignore[no-untyped-def]
    """Make the entries of the rows `[begin, end)`, with the nodes of runs that start at `start`. Return 0 without room.

    The entry of the first row is 0, and so on.
    """
    state, entries = store.state, store.entries
    for records in (ENTRIES, NODE_RECORDS):
        state[records + FREE_RECORD] = NONE
        state[records + USED_RECORDS] = 0
        state[records + LIVE_RECORDS] = 0
    store.partitions[FIRST] = NONE
    store.partitions[LAST] = NONE
    for index in range(begin, end):
        entry = add_entry(automata, store, rows, index)
        if entry == NO_ROOM or make_list(automata, store, machine, entry, start) == 0:
            return 0
        at = entry_at(automata, entry)
        entries[at + NODES], entries[at + NODE_COUNT] = state[LIST_HEAD], state[LIST_COUNT]
    return 1


@kernel("i64(Automata, Machine, Store, Rows, i64*, i64*, i64, i64, i64*, i64*, i64*, i64*, i64)")
def trace_runs(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, rows: Rows, first_deadlines: Integers, requests: Integers,
    begin, end, marks: Integers, seen: Integers, progress: Integers, places: Integers, room,
):  # fmt: skip
    """Write the results of the requests `[begin, end)`, and the rows of each.

    A request has all results with its times, and PARTITION of a result is the number of its request. All rows are in
    partition 0, and ascend in time and sequence number within a request. `store` has no other contents, and shares no
    nodes. `marks` has a word for each node for which there is room, and one more. `seen` has a word for each state;
    both are 0. `places` has room for `room` places.

    Return the index of the next request: less than `end` if there is no room for nodes, results or places.
    """
    state = store.state
    for request in range(begin, end):
        at = request * REQUEST_WORDS
        results, count = state[RESULT_COUNT], progress[COUNT]
        first, last, start, time = (
            requests[at + FIRST_ROW], requests[at + END_ROW], requests[at + STARTS_AT], requests[at + ENDS_AT]
        )  # fmt: skip
        has_room = read_rows(automata, store, machine, rows, first, last, start)
        if has_room and requests[at + BY_DEADLINE]:
            entry = last - first - 1
            has_room = trace_results_of_deadline(
                automata, store, machine, first_deadlines, marks, places, progress, seen, room, request, entry,
                last - 1, start, time,
            )  # fmt: skip
        elif has_room:
            row = last - 1
            while row >= first and rows.time[row] == time and has_room:
                has_room = trace_results_of_row(
                    automata, store, machine, marks, places, progress, seen, room, request, row - first, row, start
                )
                row -= 1
        if has_room == 0:
            state[RESULT_COUNT], progress[COUNT] = results, count
            return request
    return end
