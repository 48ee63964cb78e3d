"""Sorted multisets of words, for kernels.

The kernels add, remove and count values, and return the k-th or the first k values.

Many multisets share one memory. A multiset is a treap: a binary search tree over the values that is also a heap over
random priorities. So its mean depth is logarithmic for any order of insertion. A node contains a value, the number of
its copies, and the size of its subtree. Each multiset has a header, which is a node without a value. The right child of
the header is the root, its COUNT is the number of distinct values, and its SIZE the number of values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.native import Integers, helper, outlined
from highlevel.speculation.lifetimes.kernels.records import LIST_WORDS, NONE, free_record, take_record

KEY, COUNT, SIZE, PRIORITY, LEFT, RIGHT, NODE_WORDS = range(7)
"""Words of a node. LEFT of a free node links to the next free node."""

NODE_LIST = 0
"""The word of the state at which the list of nodes begins (`records`)."""

SEED, TREE_STATE = LIST_WORDS, LIST_WORDS + 1
"""A further word of the state: the state of the random numbers."""

MAX_PATH_NODES = 512
"""Maximum number of nodes on a path. For a billion values, a path is longer with a probability below 1e-50."""


class Trees(NamedTuple):
    """Multisets, for kernels. `nodes`: NODE_WORDS words per node. `path`: MAX_PATH_NODES words of scratch space."""

    nodes: Integers
    path: Integers
    state: Integers


@helper
def make_node(trees: Trees, key, count):  # type: ignore[no-untyped-def]
    """Return a new node without children."""
    nodes, state = trees.nodes, trees.state
    node = take_record(nodes, state, NODE_LIST, NODE_WORDS, LEFT)
    base = node * NODE_WORDS
    mixed = np.uint64(state[SEED]) + np.uint64(0x9E3779B97F4A7C15)
    state[SEED] = np.int64(mixed)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    nodes[base + KEY] = key
    nodes[base + COUNT] = count
    nodes[base + SIZE] = count
    nodes[base + PRIORITY] = np.int64(mixed >> np.uint64(1))
    nodes[base + LEFT] = NONE
    nodes[base + RIGHT] = NONE
    return node


@helper
def free_node(trees: Trees, node):  # type: ignore[no-untyped-def]
    """Put a node into the free list."""
    free_record(trees.nodes, trees.state, NODE_LIST, NODE_WORDS, LEFT, node)


@helper
def resize(nodes, node):  # type: ignore[no-untyped-def]
    """Compute the size of a node from the sizes of its children."""
    base = node * NODE_WORDS
    size = nodes[base + COUNT]
    for side in range(LEFT, RIGHT + 1):
        if nodes[base + side] != NONE:
            size += nodes[nodes[base + side] * NODE_WORDS + SIZE]
    nodes[base + SIZE] = size


@helper
def resize_path(trees: Trees, depth):  # type: ignore[no-untyped-def]
    """Compute the sizes of the first `depth` nodes of `path`, the deepest first."""
    while depth:
        depth -= 1
        resize(trees.nodes, trees.path[depth])


@helper
def child_side(nodes, node, key):  # type: ignore[no-untyped-def]
    """Return LEFT or RIGHT: the word of a node that links to the subtree with `key`."""
    return node * NODE_WORDS + (RIGHT if key > nodes[node * NODE_WORDS + KEY] else LEFT)


@helper
def find_key(nodes, header, key):  # type: ignore[no-untyped-def]
    """Return the node of `key`, or NONE."""
    node = nodes[header * NODE_WORDS + RIGHT]
    while node != NONE and nodes[node * NODE_WORDS + KEY] != key:
        node = nodes[child_side(nodes, node, key)]
    return node


@helper
def add_to_sizes(nodes, header, node, key, change):  # type: ignore[no-untyped-def]
    """Add `change` to the count of `node` (the node of `key`), and to the sizes on the path to `node`."""
    at = nodes[header * NODE_WORDS + RIGHT]
    while at != node:
        nodes[at * NODE_WORDS + SIZE] += change
        at = nodes[child_side(nodes, at, key)]
    nodes[node * NODE_WORDS + SIZE] += change
    nodes[node * NODE_WORDS + COUNT] += change
    nodes[header * NODE_WORDS + SIZE] += change


@outlined
def add_key(trees: Trees, header, key):  # type: ignore[no-untyped-def]
    """Add a value to the multiset of `header`."""
    nodes, path = trees.nodes, trees.path
    node = find_key(nodes, header, key)
    if node != NONE:
        add_to_sizes(nodes, header, node, key, 1)
        return
    nodes[header * NODE_WORDS + SIZE] += 1
    nodes[header * NODE_WORDS + COUNT] += 1
    added = make_node(trees, key, 1)
    priority = nodes[added * NODE_WORDS + PRIORITY]
    link = header * NODE_WORDS + RIGHT
    at = nodes[link]
    while at != NONE and nodes[at * NODE_WORDS + PRIORITY] >= priority:
        nodes[at * NODE_WORDS + SIZE] += 1
        link = child_side(nodes, at, key)
        at = nodes[link]
    nodes[link] = added
    lesser, greater = added * NODE_WORDS + LEFT, added * NODE_WORDS + RIGHT
    depth = 0
    while at != NONE:  # divide the subtree into the values below `key` and the values above it
        path[depth] = at
        depth += 1
        if nodes[at * NODE_WORDS + KEY] < key:
            nodes[lesser] = at
            lesser = at * NODE_WORDS + RIGHT
            at = nodes[lesser]
        else:
            nodes[greater] = at
            greater = at * NODE_WORDS + LEFT
            at = nodes[greater]
    nodes[lesser] = NONE
    nodes[greater] = NONE
    resize_path(trees, depth)
    resize(nodes, added)


@outlined
def remove_key(trees: Trees, header, key):  # type: ignore[no-untyped-def]
    """Remove one copy of a value. Return 0 if the multiset does not contain it, otherwise 1."""
    nodes, path = trees.nodes, trees.path
    node = find_key(nodes, header, key)
    if node == NONE:
        return 0
    add_to_sizes(nodes, header, node, key, -1)
    if nodes[node * NODE_WORDS + COUNT]:
        return 1
    nodes[header * NODE_WORDS + COUNT] -= 1
    link = header * NODE_WORDS + RIGHT
    while nodes[link] != node:
        link = child_side(nodes, nodes[link], key)
    left, right = nodes[node * NODE_WORDS + LEFT], nodes[node * NODE_WORDS + RIGHT]
    depth = 0
    while left != NONE and right != NONE:
        if nodes[left * NODE_WORDS + PRIORITY] > nodes[right * NODE_WORDS + PRIORITY]:
            nodes[link] = left
            path[depth] = left
            link = left * NODE_WORDS + RIGHT
            left = nodes[link]
        else:
            nodes[link] = right
            path[depth] = right
            link = right * NODE_WORDS + LEFT
            right = nodes[link]
        depth += 1
    nodes[link] = right if left == NONE else left
    resize_path(trees, depth)
    free_node(trees, node)
    return 1


@outlined
def value_at(nodes, header, position):  # type: ignore[no-untyped-def]
    """Return the value at a position among the sorted values, counted from 0. The position must exist."""
    node = nodes[header * NODE_WORDS + RIGHT]
    while True:
        base = node * NODE_WORDS
        left = nodes[base + LEFT]
        lesser = 0 if left == NONE else nodes[left * NODE_WORDS + SIZE]
        if position < lesser:
            node = left
        elif position < lesser + nodes[base + COUNT]:
            return nodes[base + KEY]
        else:
            position -= lesser + nodes[base + COUNT]
            node = nodes[base + RIGHT]


@outlined
def copy_first(trees: Trees, header, limit, nearer, to, place):  # type: ignore[no-untyped-def]
    """Copy at most `limit` values to the words `to` from `place` on.

    If `nearer` is LEFT, the smallest values are first. If `nearer` is RIGHT, the greatest values are first. Fill the
    remaining words up to `limit` with 0.
    """
    nodes, path = trees.nodes, trees.path
    farther = LEFT + RIGHT - nearer
    node = nodes[header * NODE_WORDS + RIGHT]
    depth = copied = 0
    while copied < limit and (node != NONE or depth):
        while node != NONE:
            path[depth] = node
            depth += 1
            node = nodes[node * NODE_WORDS + nearer]
        depth -= 1
        base = path[depth] * NODE_WORDS
        for _ in range(min(nodes[base + COUNT], limit - copied)):
            to[place + copied] = nodes[base + KEY]
            copied += 1
        node = nodes[base + farther]
    for word in range(copied, limit):
        to[place + word] = 0
