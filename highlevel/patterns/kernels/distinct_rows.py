"""Kernel for the rows of any of several accepted runs: each row once, however many runs contain it.

    rows of a partition   x ──── y ──── z ──── …
    runs that start at x  a ───► b ───► c ───► …    nodes and edges as in `derivations`
    all their results     a ◄─── b ◄─── c           each node is marked once, and its edges are followed once

A start costs its nodes and edges, however many results end in them. A request costs nothing if all rows in its range of
times are listed, because its results can only consist of these rows. So a scan in which each row begins a run costs the
rows of the first run.
"""

from __future__ import annotations

from capture.native import Floats, Integers, helper, kernel, outlined
from highlevel.patterns.kernels.derivations import (
    BY_DEADLINE,
    CHANGES,
    EDGE_WORDS,
    EFFECT,
    END_ROW,
    ENDS_AT,
    FIRST_ROW,
    FULL,
    IGNORES,
    NEXT_EDGE,
    NODES_FULL,
    REQUEST_WORDS,
    SILENT,
    SOURCE,
    STAMP,
    STARTS_AT,
    Trace,
    ends_at,
    read_rows,
)
from highlevel.patterns.kernels.expressions import Machine, are_equal_floats
from highlevel.patterns.kernels.layout import (
    NEXT_NODE,
    NODE_WORDS,
    NODES,
    RUN_END,
    Automata,
    Rows,
    Store,
    entry_at,
    node_at,
)
from highlevel.speculation.lifetimes.kernels.records import NONE


@helper
def first_unlisted(next_rows: Integers, row):  # type: ignore[no-untyped-def]
    """Return the first row that is not listed, from `row` on.

    Words of `next_rows` that it reads become those of later rows, so that the next call needs fewer steps.
    """
    while next_rows[row] != row:
        next_rows[row] = next_rows[next_rows[row]]
        row = next_rows[row]
    return row


@helper
def is_selected(automata: Automata, store: Store, node, results: Integers, floats: Floats, begin, end):  # type: ignore[no-untyped-def]
    """Return whether one of the results `[begin, end)` has the end of the lifetime and the register of a node."""
    at, width = node_at(automata, node), 1 + automata.fields
    for result in range(begin, end):
        is_equal = results[result * width] == store.nodes[at + RUN_END]
        for field in range(automata.fields):
            is_equal = is_equal and results[result * width + 1 + field] == store.nodes[at + NODE_WORDS + field]
        for field in range(automata.float_fields):
            one = floats[result * automata.float_fields + field]
            other = store.float_nodes[node * automata.float_fields + field]
            is_equal = is_equal and are_equal_floats(one, other)
        if is_equal:
            return 1
    return 0


@outlined
def list_derivations(trace: Trace, next_rows: Integers, node, row, is_last):  # type: ignore[no-untyped-def]
    """List the rows of all derivations of a node after a row, except those of marked nodes before it.

    `is_last`: the row is the last one of the run, so it is listed also if the run ignores it.
    """
    edges, marks, links, mark = trace.edges, trace.marks, trace.links, trace.progress[STAMP]
    marks[node], links[node] = mark, NONE
    marked = node
    while marked != NONE:
        before = NONE
        while marked != NONE:
            node, marked = marked, links[marked]
            edge = trace.first_edges[node]
            while edge != NONE:
                at = edge * EDGE_WORDS
                source, effect = edges[at + SOURCE], edges[at + EFFECT]
                if (effect == CHANGES or (effect == IGNORES and is_last)) and next_rows[row] == row:
                    next_rows[row] = row + 1
                if source != NONE and marks[source] != mark:
                    marks[source] = mark
                    if effect == SILENT:
                        links[source], marked = marked, source
                    else:
                        links[source], before = before, source
                edge = edges[at + NEXT_EDGE]
        row, marked, is_last = row - 1, before, False


@kernel("i64(Automata, Machine, Store, Rows, i64*, i64*, i64*, i64*, f64*, i64, i64, i64, Trace, i64*)")
def list_rows(  # type: ignore[no-untyped-def]
    automata: Automata, machine: Machine, store: Store, rows: Rows, first_deadlines: Integers, requests: Integers,
    first_results: Integers, results: Integers, floats: Floats, selects_all, begin, end, trace: Trace,
    next_rows: Integers,
):  # fmt: skip
    """List the rows of the requests `[begin, end)`: rows that a derivation of a selected result contains.

    Arguments with the names of those of `derivations.trace_runs` are the same. Requests ascend by FIRST_ROW, STARTS_AT
    and END_ROW, and either all or none are by deadline. The selected results of a request are
    `[first_results[request], first_results[request + 1])`; with `selects_all` all its results. `results` has the end of
    the lifetime and the integer fields of each, `floats` the other fields.

    `next_rows` has a word for each row, and one more: its own number if the row is not listed, otherwise that of a
    later row; all rows between the two are listed.

    Return the index of the next request: less than `end` if there is no room for nodes or edges. The next call needs
    longer copies of this memory.
    """
    trace.progress[FULL] = NODES_FULL
    for request in range(begin, end):
        at = request * REQUEST_WORDS
        first, stop, time, by_deadline = (
            requests[at + FIRST_ROW], requests[at + END_ROW], requests[at + ENDS_AT], requests[at + BY_DEADLINE],
        )  # fmt: skip
        if first_unlisted(next_rows, first) >= stop:
            continue
        if read_rows(automata, store, machine, rows, trace, first, stop, requests[at + STARTS_AT]) == 0:
            return request
        # Rows ascend, so a node that is marked before its turn was the last one of a run with the same row.
        row = stop - 1
        while by_deadline == 0 and row > first and rows.time[row - 1] == time:
            row -= 1
        while row < stop:
            node = store.entries[entry_at(automata, row - first) + NODES]
            while node != NONE:
                begin_results, end_results = first_results[request], first_results[request + 1]
                if (
                    trace.marks[node] != trace.progress[STAMP]
                    and ends_at(automata, store, machine, first_deadlines, node, time, by_deadline)
                    and (selects_all or is_selected(automata, store, node, results, floats, begin_results, end_results))
                ):
                    list_derivations(trace, next_rows, node, row, by_deadline == 0)
                node = store.nodes[node_at(automata, node) + NEXT_NODE]
            row += 1
    return end
