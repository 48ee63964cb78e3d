"""The rows of a key by their lifetimes, for kernels: a list of the newest rows, and a tree of the other rows.

    list ─► row ─► row        at most LIST_ROWS rows after a search, so most keys have no tree
    root                      any row of the key
    ├─ LOW   …                the rows whose start has the bit 0 at this depth, counted from the highest bit
    ├─ HIGH  …                the rows whose start has the bit 1
    └─ LINK ─► row ─► row     rows with the same start and end

The tree is a digital search tree with the latest ends. The bits of a row are the 64 bits of its start, and then the 64
bits of its end. A node of depth d has the same d highest bits as all rows below it. So the depth is at most 128,
without rotations, and any leaf may take the place of a removed node above it. All rows below LOW begin before the rows
below HIGH, or begin at the same time and end earlier. Each node stores the latest end of its subtree (LATEST). So a
search for the rows that overlap `[first, stop)` skips a subtree whose rows all end at or before `first`, or begin at
`stop` or later. Each other subtree contains a row that overlaps, except the subtrees on the path to `stop`. The cost is
at most 128 steps for each row found, and does not depend on the other rows, even if they have equal starts. A
retraction also reads the rows of its key with the same start and end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Integers, helper, outlined
from highlevel.speculation.lifetimes.kernels.records import NONE, free_record, take_record

VS, VE, ROW, KEY, LINK, ROW_WORDS = range(6)
"""Words of a stored row: its lifetime, the number of its values, the number of its key, and the next row of the list,
or the next row with the same lifetime. KEY of a free row is NONE; KEY of a row in the tree is `key_in_tree`.
"""

LOW, HIGH, LATEST, NODE_WORDS = range(4)
"""Words of a row in the tree: the subtrees, and the latest end of the subtree. Only the first row of a lifetime has
these words.
"""

LIST_ROWS = 16
"""Number of rows that a search may read in a list. If there are more, the search moves all rows of the list into the
tree."""

BITS = 64
"""Bits of a time."""

PATH_WORDS = 2 * BITS + 1
"""Words of the path from the root to a node."""

LOWEST = np.iinfo(np.int64).min


class Store(NamedTuple):
    """The rows of a side, for kernels: their words, their words in the tree, and the list and root of each key.

    `state` is the list of records (`records`), and `path` is memory for a path: `PATH_WORDS` words.
    """

    rows: Integers
    nodes: Integers
    lists: Integers
    roots: Integers
    state: Integers
    path: Integers


@helper
def child_word(start, stop, depth):  # type: ignore[no-untyped-def]
    """Return LOW or HIGH: the subtree of a node of this depth that contains a lifetime. Negative times are low."""
    time, bit = (start, depth) if depth < BITS else (stop, depth - BITS)
    return LOW + (((time ^ LOWEST) >> (BITS - 1 - bit)) & 1)


@helper
def high_start(start, depth):  # type: ignore[no-untyped-def]
    """Return the smallest start that the subtree HIGH of a node can contain. `start` is the start of the node."""
    if depth >= BITS:
        return start
    shift = BITS - 1 - depth
    return ((((start ^ LOWEST) >> shift) | 1) << shift) ^ LOWEST


@helper
def key_in_tree(key):  # type: ignore[no-untyped-def]
    """Convert the number of a key to the word KEY of a row in the tree, or the word to the number."""
    return -2 - key


@helper
def store_row(store: Store, start, stop, row, key):  # type: ignore[no-untyped-def]
    """Store a row. The store must have room."""
    rows = store.rows
    added = take_record(rows, store.state, 0, ROW_WORDS, LINK)
    base = added * ROW_WORDS
    rows[base + VS] = start
    rows[base + VE] = stop
    rows[base + ROW] = row
    rows[base + KEY] = key
    rows[base + LINK] = store.lists[key]
    store.lists[key] = added


@outlined
def move_list_to_tree(store: Store, key):  # type: ignore[no-untyped-def]
    """Move all rows of the list into the tree."""
    added = store.lists[key]
    while added != NONE:
        following = store.rows[added * ROW_WORDS + LINK]
        insert_row(store, key, added)
        added = following
    store.lists[key] = NONE
    return 0


@helper
def insert_row(store: Store, key, added):  # type: ignore[no-untyped-def]
    """Insert a row into the tree."""
    rows, nodes, base = store.rows, store.nodes, added * ROW_WORDS
    start, stop = rows[base + VS], rows[base + VE]
    rows[base + KEY] = key_in_tree(key)
    rows[base + LINK] = NONE
    nodes[added * NODE_WORDS + LATEST] = stop
    nodes[added * NODE_WORDS + LOW] = nodes[added * NODE_WORDS + HIGH] = NONE
    at, depth = store.roots[key], 0
    if at == NONE:
        store.roots[key] = added
    while at != NONE:
        node, word = at * ROW_WORDS, at * NODE_WORDS
        nodes[word + LATEST] = max(nodes[word + LATEST], stop)
        if rows[node + VS] == start and rows[node + VE] == stop:
            rows[base + LINK] = rows[node + LINK]
            rows[node + LINK] = added
            return
        word += child_word(start, stop, depth)
        at = nodes[word]
        if at == NONE:
            nodes[word] = added
        depth += 1


@helper
def find_lifetime(store: Store, start, stop, key):  # type: ignore[no-untyped-def]
    """Write the path to the first row of a lifetime.

    Return the depth of this row, or NONE if no row of the tree has the lifetime.
    """
    rows, at, depth = store.rows, store.roots[key], 0
    while at != NONE:
        store.path[depth] = at
        if rows[at * ROW_WORDS + VS] == start and rows[at * ROW_WORDS + VE] == stop:
            return depth
        at = store.nodes[at * NODE_WORDS + child_word(start, stop, depth)]
        depth += 1
    return NONE


@helper
def replace_child(store: Store, key, depth, child):  # type: ignore[no-untyped-def]
    """Replace the node at a depth of the path by `child`, also in the path. NONE removes the node."""
    if depth == 0:
        store.roots[key] = child
    else:
        parent = store.path[depth - 1] * NODE_WORDS
        store.nodes[parent + (LOW if store.nodes[parent + LOW] == store.path[depth] else HIGH)] = child
    store.path[depth] = child


@helper
def update_latest(store: Store, depth):  # type: ignore[no-untyped-def]
    """Compute the latest ends of the subtrees of the path again, from a depth to the root."""
    nodes = store.nodes
    while depth >= 0:
        base = store.path[depth] * NODE_WORDS
        latest = store.rows[store.path[depth] * ROW_WORDS + VE]
        for word in (LOW, HIGH):
            if nodes[base + word] != NONE:
                latest = max(latest, nodes[nodes[base + word] * NODE_WORDS + LATEST])
        nodes[base + LATEST] = latest
        depth -= 1


@helper
def remove_node(store: Store, key, depth):  # type: ignore[no-untyped-def]
    """Remove the node at a depth of the path. It is replaced by a leaf below it."""
    nodes, node, leaf, leaf_depth = store.nodes, store.path[depth], store.path[depth], depth
    while nodes[leaf * NODE_WORDS + LOW] != NONE or nodes[leaf * NODE_WORDS + HIGH] != NONE:
        low = nodes[leaf * NODE_WORDS + LOW]
        leaf = low if low != NONE else nodes[leaf * NODE_WORDS + HIGH]
        leaf_depth += 1
        store.path[leaf_depth] = leaf
    replace_child(store, key, leaf_depth, NONE)
    if leaf != node:
        for word in (LOW, HIGH):
            nodes[leaf * NODE_WORDS + word] = nodes[node * NODE_WORDS + word]
        replace_child(store, key, depth, leaf)
    update_latest(store, leaf_depth - 1)


@helper
def release_row(store: Store, at):  # type: ignore[no-untyped-def]
    """Free the record of a removed row."""
    store.rows[at * ROW_WORDS + KEY] = NONE
    free_record(store.rows, store.state, 0, ROW_WORDS, LINK, at)


@helper
def remove_listed(store: Store, key, before, at):  # type: ignore[no-untyped-def]
    """Remove the row `at` from the list of a key. `before`: the row before it, or NONE."""
    following = store.rows[at * ROW_WORDS + LINK]
    if before == NONE:
        store.lists[key] = following
    else:
        store.rows[before * ROW_WORDS + LINK] = following
    release_row(store, at)


@helper
def remove_row(store: Store, key, depth, before, at):  # type: ignore[no-untyped-def]
    """Remove the row `at` from the rows with the lifetime at a depth of the path.

    `before` is the row before it, or NONE. Another row may move to the record of the removed row.
    """
    rows = store.rows
    following = rows[at * ROW_WORDS + LINK]
    removed = at
    if before != NONE:
        rows[before * ROW_WORDS + LINK] = following
    elif following == NONE:
        remove_node(store, key, depth)
    else:
        # The first row has the subtrees, so it gets the values of the second row.
        rows[at * ROW_WORDS + ROW] = rows[following * ROW_WORDS + ROW]
        rows[at * ROW_WORDS + LINK] = rows[following * ROW_WORDS + LINK]
        removed = following
    release_row(store, removed)


@outlined
def shorten_row(store: Store, start, stop, new_stop, row, key, other_cti):  # type: ignore[no-untyped-def]
    """Shorten a stored row, or remove it if `new_stop` is at most its start or `other_cti`.

    Return 0 if it is not stored.
    """
    rows, steps = store.rows, 0
    before, at = NONE, store.lists[key]
    while at != NONE and steps <= LIST_ROWS:
        steps += 1
        base = at * ROW_WORDS
        if rows[base + ROW] == row and rows[base + VS] == start and rows[base + VE] == stop:
            if new_stop > start and new_stop > other_cti:
                rows[base + VE] = new_stop
            else:
                remove_listed(store, key, before, at)
            return 1
        before, at = at, rows[base + LINK]
    if steps > LIST_ROWS:
        move_list_to_tree(store, key)
    depth = find_lifetime(store, start, stop, key)
    before, at = NONE, NONE if depth == NONE else store.path[depth]
    while at != NONE:
        if rows[at * ROW_WORDS + ROW] == row:
            remove_row(store, key, depth, before, at)
            if new_stop > start and new_stop > other_cti:
                store_row(store, start, new_stop, row, key)
            return 1
        before, at = at, rows[at * ROW_WORDS + LINK]
    return 0


@outlined
def remove_ended(store: Store, row, until):  # type: ignore[no-untyped-def]
    """Remove a row that has ended, the rows of its list that end by `until`, and the rows with its lifetime."""
    rows, key = store.rows, store.rows[row * ROW_WORDS + KEY]
    if key >= 0:
        before, at = NONE, store.lists[key]
        while at != NONE:
            following = rows[at * ROW_WORDS + LINK]
            if rows[at * ROW_WORDS + VE] <= until:
                remove_listed(store, key, before, at)
            else:
                before = at
            at = following
        return 0
    key, base = key_in_tree(key), row * ROW_WORDS
    depth = find_lifetime(store, rows[base + VS], rows[base + VE], key)
    at = rows[store.path[depth] * ROW_WORDS + LINK]
    while at != NONE:
        following = rows[at * ROW_WORDS + LINK]
        release_row(store, at)
        at = following
    first = store.path[depth]
    remove_node(store, key, depth)
    release_row(store, first)
    return 0
