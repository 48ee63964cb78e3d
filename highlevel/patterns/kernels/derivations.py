"""Kernel for the rows that an accepted run consists of, found by following its derivations backwards.

    rows of a request   x ──── y ──── z        the nodes of all runs that start at `start`, computed again
    forwards            a ───► b ───► c ───► …    an edge for each arc that leads from one node to another
    backwards           a ◄─── b ◄─── c           the edges to marked nodes: those of a derivation of the result

A run may have several derivations, because equal nodes are one. So a row belongs to a result if an arc consumes it in
at least one derivation. It is written with the state after it, unless the arc leaves the run as it is. The first and
the last row of a run are always written. Silent arcs consume no row: marks only pass over them. A run that ends with a
deadline has the rows until its last arc with a row.

The nodes and edges of a start are computed once for all requests that follow with this start. A result costs its marked
nodes and their edges.
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Integer, Integers, helper, kernel, outlined
from highlevel.patterns.kernels.arrivals import add_entry
from highlevel.patterns.kernels.deadlines import deadline_of
from highlevel.patterns.kernels.expressions import NULL, Machine
from highlevel.patterns.kernels.extensions import apply_arc, are_neighbours, close_group, make_first_node
from highlevel.patterns.kernels.ignored_rows import is_ignorable
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
    START_SEQUENCE,
    STATE,
    TIME,
    Automata,
    Rows,
    Store,
    entry_at,
    node_at,
)
from highlevel.patterns.kernels.lists import make_list
from highlevel.patterns.kernels.nodes import append_node, begin_list, free_list, have_equal_registers
from highlevel.patterns.kernels.results import write_result
from highlevel.speculation.lifetimes.kernels.records import FREE_RECORD, LIVE_RECORDS, NONE, USED_RECORDS, free_record

FIRST_ROW, END_ROW, STARTS_AT, ENDS_AT, BY_DEADLINE, REQUEST_WORDS = range(6)
"""Words of a request: its rows `[FIRST_ROW, END_ROW)`, the time of the first row of the runs, the time of their last
row or their deadline, and whether it is a deadline."""

RESULT, ROW, STATE_AFTER, PLACE_WORDS = range(4)
"""Words of a place: the number of the result, the row, and the state after it."""

SOURCE, EFFECT, NEXT_EDGE, EDGE_WORDS = range(4)
"""Words of an edge: the node that it leaves (NONE: the run begins), its effect, and the next edge to the same node."""

CHANGES, IGNORES, SILENT = range(3)
"""Effects of edges: the row changes the run, it leaves the run as it is, and there is no row."""

PLACE_COUNT, EDGE_COUNT, STAMP, FULL, READ_FROM, READ_START, READ_END, IS_WITHIN, AT_ROW, AT_NODE, PROGRESS_WORDS = (
    range(11)
)
"""Words of the progress: the numbers of places and edges, the last stamp, what has no room (NODES_FULL, …), the rows
`[READ_FROM, READ_END)` that were read for the start READ_START (READ_FROM is NONE: none), whether some results of the
next request were written, and then the row and the node of the next result."""

NODES_FULL, EDGES_FULL, PLACES_FULL = range(3)
"""Values of FULL."""


class Trace(NamedTuple):
    """Memory for the edges and the places.

    `first_edges`, `marks`, `links`: a word for each node for which there is room, and one more. `seen`: a word for each
    state. `marks`, `seen`: the stamp of the last use.
    """

    edges: Integers
    first_edges: Integers
    marks: Integers
    links: Integers
    seen: Integers
    progress: Integers
    places: Integers
    edge_room: Integer
    place_room: Integer


@helper
def find_equal_node(automata: Automata, store: Store, node, added):  # type: ignore[no-untyped-def]
    """Return the node of the list `node` with the start, state and register of the node `added`, or NONE."""
    nodes, of_added = store.nodes, node_at(automata, added)
    while node != NONE:
        at = node_at(automata, node)
        if (
            nodes[at + STATE] == nodes[of_added + STATE]
            and nodes[at + START_SEQUENCE] == nodes[of_added + START_SEQUENCE]
            and have_equal_registers(automata, store, node, added)
        ):
            break
        node = nodes[at + NEXT_NODE]
    return node


@outlined
def add_edge(automata: Automata, store: Store, machine: Machine, trace: Trace, arc, node, source, effect, entry):  # type: ignore[no-untyped-def]
    """Add the edge of an arc from a node to a node of an entry, if the arc applies. Return 0 without room.

    `source`: the node, or NONE if the run begins.
    """
    added = apply_arc(automata, store, machine, arc, node, entry, NONE)
    if added == NO_ROOM:
        return 0
    if added == NONE:
        return 1
    target = find_equal_node(automata, store, store.entries[entry_at(automata, entry) + NODES], added)
    free_record(store.nodes, store.state, NODE_RECORDS, NODE_WORDS + automata.fields, NEXT_NODE, added)
    if target == NONE:
        return 1
    progress = trace.progress
    if progress[EDGE_COUNT] == trace.edge_room:
        progress[FULL] = EDGES_FULL
        return 0
    at = progress[EDGE_COUNT] * EDGE_WORDS
    trace.edges[at + SOURCE] = source
    trace.edges[at + EFFECT] = effect
    trace.edges[at + NEXT_EDGE] = trace.first_edges[target]
    trace.first_edges[target] = progress[EDGE_COUNT]
    progress[EDGE_COUNT] += 1
    return 1


@outlined
def add_row_edges(automata: Automata, store: Store, machine: Machine, trace: Trace, node, entry, is_first):  # type: ignore[no-untyped-def]
    """Add the edges of the row of an entry from the nodes of the list `node`. Return 0 without room.

    `is_first`: the row is the first one of the runs.
    """
    nodes, row = store.nodes, entry_at(automata, entry)
    time = store.entries[row + TIME]
    while node != NONE:
        at = node_at(automata, node)
        if nodes[at + RUN_END] > time:
            state, source = nodes[at + STATE], NONE if is_first else node
            for arc in range(automata.first_arcs[state], automata.end_arcs[state]):
                effect = IGNORES if is_ignorable(automata, arc, state) and not is_first else CHANGES
                if add_edge(automata, store, machine, trace, arc, node, source, effect, entry) == 0:
                    return 0
        node = nodes[at + NEXT_NODE]
    return 1


@outlined
def add_edges(automata: Automata, store: Store, machine: Machine, trace: Trace, entry, start):  # type: ignore[no-untyped-def]
    """Add the edges to the nodes of an entry. Return 0 without room."""
    entries, at = store.entries, entry_at(automata, entry)
    node = entries[at + NODES]
    while node != NONE:
        trace.first_edges[node] = NONE
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    if entries[at + TIME] == start:
        node = make_first_node(automata, store, entry)
        if node == NO_ROOM:
            return 0
        begin_list(store)
        append_node(automata, store, node)
        if close_group(automata, store, machine, node, entry) == 0:
            return 0
        begun = store.state[LIST_HEAD]
        if add_row_edges(automata, store, machine, trace, begun, entry, True) == 0:
            return 0
        free_list(automata, store, begun)
    before = entries[at + BEFORE]
    if before != NONE and are_neighbours(automata, store, before, entry):
        node = entries[entry_at(automata, before) + NODES]
        if add_row_edges(automata, store, machine, trace, node, entry, False) == 0:
            return 0
    node = entries[at + NODES]
    while node != NONE:
        state = store.nodes[node_at(automata, node) + STATE]
        for arc in range(automata.first_silent[state], automata.first_silent[state + 1]):
            if add_edge(automata, store, machine, trace, arc, node, node, SILENT, entry) == 0:
                return 0
        node = store.nodes[node_at(automata, node) + NEXT_NODE]
    return 1


@helper
def read_rows(automata: Automata, store: Store, machine: Machine, rows: Rows, trace: Trace, begin, end, start):  # type: ignore[no-untyped-def]
    """Make the entries of the rows `[begin, end)`, with the nodes and edges of runs that start at `start`.

    The entry of the first row is 0, and so on. Entries that exist are used again; otherwise there is a new stamp, so no
    node is marked. Return 0 without room: then no entry can be used.
    """
    state, entries, progress = store.state, store.entries, trace.progress
    if progress[READ_FROM] != begin or progress[READ_START] != start or progress[READ_END] > end:
        for records in (ENTRIES, NODE_RECORDS):
            state[records + FREE_RECORD] = NONE
            state[records + USED_RECORDS] = 0
            state[records + LIVE_RECORDS] = 0
        store.partitions[FIRST] = NONE
        store.partitions[LAST] = NONE
        progress[EDGE_COUNT] = 0
        progress[STAMP] += 1
        progress[READ_END] = begin
    progress[READ_FROM] = NONE
    for index in range(progress[READ_END], end):
        entry = add_entry(automata, store, rows, index)
        if entry == NO_ROOM or make_list(automata, store, machine, entry, start) == 0:
            return 0
        at = entry_at(automata, entry)
        entries[at + NODES], entries[at + NODE_COUNT] = state[LIST_HEAD], state[LIST_COUNT]
        if add_edges(automata, store, machine, trace, entry, start) == 0:
            return 0
    progress[READ_FROM], progress[READ_START], progress[READ_END] = begin, start, end
    return 1


@helper
def write_place(store: Store, trace: Trace, row, state):  # type: ignore[no-untyped-def]
    """Write a row of the last result with the state after it, once for each state. Return 0 without room."""
    progress = trace.progress
    if trace.seen[state] == progress[STAMP]:
        return 1
    if progress[PLACE_COUNT] == trace.place_room:
        progress[FULL] = PLACES_FULL
        return 0
    trace.seen[state] = progress[STAMP]
    at = progress[PLACE_COUNT] * PLACE_WORDS
    trace.places[at + RESULT] = store.state[RESULT_COUNT] - 1
    trace.places[at + ROW] = row
    trace.places[at + STATE_AFTER] = state
    progress[PLACE_COUNT] += 1
    return 1


@outlined
def trace_back(automata: Automata, store: Store, trace: Trace, marked, row, is_last):  # type: ignore[no-untyped-def]
    """Write the rows of the last result. Return 0 without room.

    `marked`: the first of its nodes after a row, which `links` joins; the last stamp marks them. `is_last`: the row is
    the last one of the run, so it is also written if the run ignores it.
    """
    progress, edges, marks, links = trace.progress, trace.edges, trace.marks, trace.links
    mark = progress[STAMP]
    while marked != NONE:
        progress[STAMP] += 1
        before = NONE
        while marked != NONE:
            node, marked = marked, links[marked]
            state, edge = store.nodes[node_at(automata, node) + STATE], trace.first_edges[node]
            while edge != NONE:
                at = edge * EDGE_WORDS
                source, effect = edges[at + SOURCE], edges[at + EFFECT]
                is_written = effect == CHANGES or (effect == IGNORES and is_last)
                if is_written and write_place(store, trace, row, state) == 0:
                    return 0
                if source != NONE and marks[source] != mark:
                    marks[source] = mark
                    if effect == SILENT:
                        links[source], marked = marked, source
                    else:
                        links[source], before = before, source
                edge = edges[at + NEXT_EDGE]
        row, marked, is_last = row - 1, before, False
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


@helper
def ends_at(automata: Automata, store: Store, machine: Machine, first_deadlines, node, time, by_deadline):  # type: ignore[no-untyped-def]
    """Return whether a run ends at a time: by a deadline, or in a final state."""
    if by_deadline:
        return has_deadline(automata, store, machine, first_deadlines, node, time)
    at = node_at(automata, node)
    return 1 if automata.is_final[store.nodes[at + STATE]] and store.nodes[at + RUN_END] > time else 0


@outlined
def mark_result(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, trace: Trace, first_deadlines, node, head, time, by_deadline,
):  # fmt: skip
    """Mark and join the nodes of the list `head` with the result of `node`. Return the first one.

    Return NONE if a node before `node` has this result, or the run does not end at the time.
    """
    nodes, progress, of_node = store.nodes, trace.progress, node_at(automata, node)
    if ends_at(automata, store, machine, first_deadlines, node, time, by_deadline) == 0:
        return NONE
    progress[STAMP] += 1
    marked, is_before = NONE, True
    while head != NONE:
        if head == node:
            is_before = False
        at = node_at(automata, head)
        if (
            nodes[at + RUN_END] == nodes[of_node + RUN_END]
            and have_equal_registers(automata, store, node, head)
            and ends_at(automata, store, machine, first_deadlines, head, time, by_deadline)
        ):
            if is_before:
                return NONE
            trace.marks[head] = progress[STAMP]
            trace.links[head], marked = marked, head
        head = nodes[at + NEXT_NODE]
    return marked


@outlined
def trace_results(  # type: ignore[no-untyped-def]
    automata: Automata, store: Store, machine: Machine, trace: Trace, rows: Rows, first_deadlines, requests, request,
):  # fmt: skip
    """Write the results of a request, and their rows. Return 0 without room: then AT_ROW and AT_NODE are set."""
    state, progress, at = store.state, trace.progress, request * REQUEST_WORDS
    first, time, by_deadline = requests[at + FIRST_ROW], requests[at + ENDS_AT], requests[at + BY_DEADLINE]
    row, is_within = requests[at + END_ROW] - 1, progress[IS_WITHIN]
    if is_within:
        row = progress[AT_ROW]
    progress[IS_WITHIN] = 0
    while row >= first and (by_deadline or rows.time[row] == time):
        head = store.entries[entry_at(automata, row - first) + NODES]
        node = progress[AT_NODE] if is_within else head
        is_within = 0
        while node != NONE:
            marked = mark_result(
                automata, store, machine, trace, first_deadlines, node, head, time, by_deadline
            )  # fmt: skip
            if marked != NONE:
                results, count, has_room = state[RESULT_COUNT], progress[PLACE_COUNT], 0
                if results < store.result_room:
                    run_end = store.nodes[node_at(automata, node) + RUN_END]
                    write_result(automata, store, node, request, 1, time, run_end)
                    has_room = trace_back(automata, store, trace, marked, row, by_deadline == 0)
                if has_room == 0:
                    state[RESULT_COUNT], progress[PLACE_COUNT] = results, count
                    progress[IS_WITHIN], progress[AT_ROW], progress[AT_NODE] = 1, row, node
                    return 0
            node = store.nodes[node_at(automata, node) + NEXT_NODE]
        if by_deadline:
            break
        row -= 1
    return 1


@kernel("i64(Automata, Machine, Store, Rows, i64*, i64*, i64, i64, Trace)")
def trace_runs(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, rows: Rows, first_deadlines: Integers, requests: Integers,
    begin, end, trace: Trace,
):  # fmt: skip
    """Write the results of the requests `[begin, end)`, and the rows of each.

    A request has all results with its times, and PARTITION of a result is the number of its request. All rows are in
    partition 0, and ascend in time and sequence number within a request. Requests with equal rows and starts ascend in
    END_ROW. `store` has no other contents, and shares no nodes. No arc has a key.

    Return the index of the next request: less than `end` if there is no room for nodes, edges, results or places. The
    next call continues with the next result. It needs the same memory, or longer copies.
    """
    trace.progress[FULL] = NODES_FULL
    for request in range(begin, end):
        at = request * REQUEST_WORDS
        has_room = read_rows(
            automata, store, machine, rows, trace, requests[at + FIRST_ROW], requests[at + END_ROW],
            requests[at + STARTS_AT],
        )  # fmt: skip
        if has_room == 0 or trace_results(
            automata, store, machine, trace, rows, first_deadlines, requests, request
        ) == 0:  # fmt: skip
            return request
    return end
