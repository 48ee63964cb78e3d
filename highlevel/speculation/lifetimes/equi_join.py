"""LifetimeJoin: pairs of rows with equal keys, which are true while both rows are true (Goldstein et al., CEDR, §3.4).

Each side stores its rows by key, by start and end (`kernels.interval_tree`). A change of one side is compared
with the stored rows of the other side whose lifetimes overlap. So the cost of a change does not depend on the other
rows of a key. An insert gives a pair for each row that overlaps, and a retraction shortens the pairs of its row. A pair
whose second row begins after the new end is retracted completely. Lifetimes are half-open: if one row ends when the
other begins, there is no pair.

A row is stored until the CTI of the other side reaches the end of the row, because until then a later row of that side
can overlap it. The CTI of the pairs is the smaller CTI of the sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.native import Integer, Integers, kernel
from highlevel.groups.keys import Keys
from highlevel.speculation.lifetimes.kernels.endpoints import CTI, INSERT
from highlevel.speculation.lifetimes.kernels.interval_tree import (
    HIGH,
    KEY,
    LATEST,
    LINK,
    LIST_ROWS,
    LOW,
    NODE_WORDS,
    PATH_WORDS,
    ROW,
    ROW_WORDS,
    VE,
    VS,
    Store,
    high_start,
    key_in_tree,
    move_list_to_tree,
    remove_ended,
    shorten_row,
    store_row,
)
from highlevel.speculation.lifetimes.kernels.records import FREE_RECORD, LIST_WORDS, LIVE_RECORDS, NONE, USED_RECORDS
from highlevel.speculation.lifetimes.model import (
    LifetimeError,
    Words,
    change_schema,
    concat,
    make_changes,
    payload_schema,
    storable,
    times_of,
)
from lowlevel.punctuation import BEGINNING, END

CHANGE, OTHER, PAIR_START, PAIR_END, PAIR_NEW_END, PAIR_WORDS = range(6)
"""Words of a pair: its change, the stored row of the other side, and its times."""

COUNT, NODE, DEPTH, NEXT_ROW, SUBTREES = range(5)
"""Words of the state of the pairs: their number, and the point at which the search of an interrupted change continues:
the node (or NONE) and its depth, the next row with the lifetime of the node, and the number of subtrees that follow.
"""

LISTED = -2
"""In place of a node: the search is in the list of the key."""

STACK_WORDS = 2 * PATH_WORDS
"""The words of a stack: a subtree and its depth for each step of a path."""

MIN_CAPACITY = 4_096

SIDES, CTIS = ("left", "right"), "ctis"
"""Tables of a snapshot: the stored rows of each side, and the CTIs of the sides and of the pairs."""


class JoinChanges(NamedTuple):
    """Changes of one side, for kernels. `row` is the number of the values, `key` the number of the key."""

    kind: Integers
    start: Integers
    stop: Integers
    new_stop: Integers
    row: Integers
    key: Integers


class Pairs(NamedTuple):
    """The output of the kernel: at most `room` pairs.

    A change is interrupted if there is no room. Then `state` and `stack` contain the point at which its search
    continues.
    """

    words: Integers
    room: Integer
    state: Integers
    stack: Integers


@kernel("i64(Store, Store, JoinChanges, i64, i64, i64, Pairs)")
def join_changes(own: Store, other: Store, changes: JoinChanges, begin, end, other_cti, pairs: Pairs):  # type: ignore[no-untyped-def]
    """Join the changes `[begin, end)` of a side with the stored rows of the other side, and store their rows.

    `other_cti` is the CTI of the other side. CTIs among the changes are skipped. Return the number of the next change:
    `end`, or less if there is no room for more pairs. The store needs room for one row per change.
    """
    rows, nodes, stack, count = other.rows, other.nodes, pairs.stack, pairs.state[COUNT]
    for change in range(begin, end):
        kind = changes.kind[change]
        if kind == CTI:
            continue
        start, stop, new_stop = changes.start[change], changes.stop[change], changes.new_stop[change]
        key = changes.key[change]
        # A retraction changes the pairs with rows that end after the new end.
        first = start if kind == INSERT else max(start, new_stop)
        is_long = False
        node, at, depth, subtrees, listed = LISTED, other.lists[key], -1, 0, 0
        if pairs.state[NODE] != NONE:
            node, depth, at = pairs.state[NODE], pairs.state[DEPTH], pairs.state[NEXT_ROW]
            subtrees, pairs.state[NODE] = pairs.state[SUBTREES], NONE
        while node != NONE:
            while at != NONE:
                to = at * ROW_WORDS
                if rows[to + VE] > first and rows[to + VS] < stop:
                    if count == pairs.room:
                        pairs.state[COUNT], pairs.state[SUBTREES] = count, subtrees
                        pairs.state[NODE], pairs.state[DEPTH], pairs.state[NEXT_ROW] = node, depth, at
                        return change
                    pair, pair_start = count * PAIR_WORDS, max(start, rows[to + VS])
                    pairs.words[pair + CHANGE] = change
                    pairs.words[pair + OTHER] = rows[to + ROW]
                    pairs.words[pair + PAIR_START] = pair_start
                    pairs.words[pair + PAIR_END] = min(stop, rows[to + VE])
                    pairs.words[pair + PAIR_NEW_END] = max(new_stop, pair_start)
                    count += 1
                listed += 1
                at = rows[to + LINK]
            if node == LISTED:
                low, high, least_high = other.roots[key], NONE, 0
                is_long = listed > LIST_ROWS
            else:
                low, high = nodes[node * NODE_WORDS + LOW], nodes[node * NODE_WORDS + HIGH]
                least_high = high_start(rows[node * ROW_WORDS + VS], depth)
            node = NONE
            if high != NONE and nodes[high * NODE_WORDS + LATEST] > first and least_high < stop:
                node = high
            if low != NONE and nodes[low * NODE_WORDS + LATEST] > first:
                if node != NONE:
                    stack[2 * subtrees], stack[2 * subtrees + 1] = node, depth + 1
                    subtrees += 1
                node = low
            depth += 1
            if node == NONE and subtrees:
                subtrees -= 1
                node, depth = stack[2 * subtrees], stack[2 * subtrees + 1]
            at = node
            if node != NONE and (rows[node * ROW_WORDS + VE] <= first or rows[node * ROW_WORDS + VS] >= stop):
                at = NONE
        if is_long:
            move_list_to_tree(other, key)
        if kind == INSERT:
            if stop > other_cti:
                store_row(own, start, stop, changes.row[change], key)
        else:
            shorten_row(own, start, stop, new_stop, changes.row[change], key, other_cti)
    pairs.state[COUNT] = count
    return end


@kernel("i64(Store, i64)")
def remove_ended_rows(store: Store, until):  # type: ignore[no-untyped-def]
    """Remove the rows that end at or before `until`. Return the number of stored rows."""
    rows, state = store.rows, store.state
    for row in range(state[USED_RECORDS]):
        base = row * ROW_WORDS
        if rows[base + KEY] != NONE and rows[base + VE] <= until:
            remove_ended(store, row, until)
    return state[LIVE_RECORDS]


class Side:
    """The stored rows of a side, with the numbers of their values."""

    def __init__(self, schema: pa.Schema, key_columns: Sequence[str]) -> None:
        self.payload = payload_schema(schema)
        self.key_columns = list(key_columns)
        self.values = Keys([storable(field) for field in self.payload])
        self.rows: Words = np.empty((0, ROW_WORDS), np.int64)
        self.nodes: Words = np.empty((0, NODE_WORDS), np.int64)
        self.lists, self.roots = np.empty(0, np.int64), np.empty(0, np.int64)
        self.path: Words = np.empty(PATH_WORDS, np.int64)
        self.state = np.zeros(LIST_WORDS, np.int64)
        self.state[FREE_RECORD] = NONE
        self.cti = BEGINNING
        self.removed_until = BEGINNING
        """The CTI below which rows have been removed."""

    def store(self) -> Store:
        """Return the memory for kernels."""
        return Store(self.rows.reshape(-1), self.nodes.reshape(-1), self.lists, self.roots, self.state, self.path)

    def numbers(self, changes: pa.RecordBatch, is_row: np.ndarray) -> Words:
        """Return the numbers of the values of changes; 0 for CTIs."""
        numbers = np.zeros(len(is_row), np.int64)
        kinds = self.values.kinds
        columns = [
            pc.filter(changes.column(field.name), array_of(is_row)).cast(kind)
            for field, kind in zip(self.payload, kinds, strict=True)
        ]
        numbers[is_row] = self.values.find_or_insert(columns, int(is_row.sum()))
        return numbers

    def columns(self, numbers: Words) -> list[pa.Array]:
        """Return the columns of rows with these numbers."""
        return [
            column.cast(field.type) for column, field in zip(self.values.columns(numbers), self.payload, strict=True)
        ]

    def reserve(self, changes: int, keys: int) -> None:
        """Allocate memory for `changes` more rows and for `keys` keys."""
        needed = max(int(self.state[USED_RECORDS]), int(self.state[LIVE_RECORDS]) + changes)
        if needed > len(self.rows):
            room = max(MIN_CAPACITY, needed, 2 * len(self.rows))
            rows, nodes = (np.empty((room, width), np.int64) for width in (ROW_WORDS, NODE_WORDS))
            rows[: len(self.rows)], nodes[: len(self.rows)] = self.rows, self.nodes
            self.rows, self.nodes = rows, nodes
        if keys > len(self.lists):
            self.keep_keys(np.arange(len(self.lists)), 2 * keys)

    def keep_keys(self, kept: np.ndarray, capacity: int) -> None:
        """Renumber the keys `kept` from 0 on, remove the other keys, and allocate memory for `capacity` keys."""
        lists, roots = (np.full(max(MIN_CAPACITY, capacity), NONE, np.int64) for _ in range(2))
        lists[: len(kept)], roots[: len(kept)] = self.lists[kept], self.roots[kept]
        self.lists, self.roots = lists, roots

    @property
    def bytes(self) -> int:
        """Bytes of the rows and their values."""
        return self.values.bytes + int(self.rows.nbytes + self.nodes.nbytes + self.lists.nbytes + self.roots.nbytes)


class LifetimeJoin:
    """Joins the changes of two sides. The input and the output are valid changes. Not thread safe."""

    def __init__(self, left_schema: pa.Schema, right_schema: pa.Schema, on: Sequence[tuple[str, str]]) -> None:
        """Join rows with equal values in pairs of columns. Rows with NULL in one of these columns have no pairs.

        The columns of a pair are the columns of the left row, and then those of the right row that are not compared.
        Raises LifetimeError for unknown columns, and for equal names.
        """
        if not on:
            raise LifetimeError("got no columns to join on, expected at least one pair of columns with equal values")
        self._sides = (Side(left_schema, [one for one, _ in on]), Side(right_schema, [other for _, other in on]))
        for side in self._sides:
            for name in side.key_columns:
                if name not in side.payload.names:
                    raise LifetimeError(f"got the column {name!r}, expected one of {', '.join(side.payload.names)}")
        one, other = self._sides
        types = [(one.payload.field(a).type, other.payload.field(b).type) for a, b in on]
        for (a, b), (left_type, right_type) in zip(on, types, strict=True):
            if left_type != right_type:
                raise LifetimeError(f"got {a} of type {left_type} and {b} of type {right_type}, expected equal types")
        self._right_fields = [field for field in other.payload if field.name not in other.key_columns]
        equal = set(one.payload.names) & {field.name for field in self._right_fields}
        if equal:
            raise LifetimeError(f"got the column {min(equal)!r} on both sides, expected other names (select)")
        self._payload = pa.schema([*one.payload, *self._right_fields])
        self.schema = change_schema(self._payload)
        self._keys = Keys([storable(one.payload.field(a)) for a, _ in on])
        self._out: Words = np.empty((MIN_CAPACITY, PAIR_WORDS), np.int64)
        self._cti = BEGINNING

    @property
    def stored(self) -> int:
        """Number of stored rows."""
        return sum(int(side.state[LIVE_RECORDS]) for side in self._sides)

    @property
    def bytes(self) -> int:
        """Bytes of both sides."""
        return self._keys.bytes + int(self._out.nbytes) + sum(side.bytes for side in self._sides)

    def process(self, port: int, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Process changes of the left side (port 0) or the right side (port 1). Return the changes of pairs."""
        kind, start, _, _ = times_of(changes)
        own, other = self._sides[port], self._sides[1 - port]
        joined = self._kernel_changes(own, changes)
        parts = []
        begin = 0
        for end in [*np.flatnonzero(kind == CTI).tolist(), len(kind)]:
            parts += self._join_range(port, joined, begin, end)
            if end < len(kind):
                own.cti = max(own.cti, int(start[end]))
                parts += self._advance()
            begin = end + 1
        self._remove_ended(other, own.cti)
        return concat(parts, self.schema)

    def _kernel_changes(self, own: Side, changes: pa.RecordBatch) -> JoinChanges:
        """Return changes of a side for kernels, and allocate memory for them. A row with NULL in its key is skipped."""
        kind, start, stop, new_stop = times_of(changes)
        has_key = kind != CTI
        for name in own.key_columns:
            has_key &= changes.column(name).is_valid().to_numpy(zero_copy_only=False)
        key = np.zeros(len(kind), np.int64)
        columns = [
            pc.filter(changes.column(name), array_of(has_key)).cast(type_)
            for name, type_ in zip(own.key_columns, self._keys.kinds, strict=True)
        ]
        key[has_key] = self._keys.find_or_insert(columns, int(has_key.sum()))
        row = own.numbers(changes, has_key)
        for side in self._sides:
            side.reserve(len(kind), self._keys.count)
        return JoinChanges(np.where(has_key, kind, CTI), start, stop, new_stop, row, key)

    def _join_range(self, port: int, changes: JoinChanges, begin: int, end: int) -> list[pa.RecordBatch]:
        own, other = self._sides[port], self._sides[1 - port]
        parts = []
        out = self._allocate_pairs(len(self._out))
        while begin < end:
            begin = join_changes(own.store(), other.store(), changes, begin, end, other.cti, out)
            pairs = self._out[: out.state[COUNT]]
            of = pairs[:, CHANGE]
            numbers = (changes.row[of], pairs[:, OTHER])
            left, right = numbers if port == 0 else numbers[::-1]
            right_columns = self._sides[1].columns(right)
            names = self._sides[1].payload.names
            columns = [
                *self._sides[0].columns(left),
                *(right_columns[names.index(field.name)] for field in self._right_fields),
            ]
            payload = pa.RecordBatch.from_arrays(columns, schema=self._payload)
            times = (pairs[:, PAIR_START].copy(), pairs[:, PAIR_END].copy(), pairs[:, PAIR_NEW_END].copy())
            parts.append(make_changes(changes.kind[of], *times, payload))
            out.state[COUNT] = 0
            if begin < end and len(self._out) < 16 * MIN_CAPACITY:
                self._out = np.empty((2 * len(self._out), PAIR_WORDS), np.int64)
                out = out._replace(words=self._out.reshape(-1), room=len(self._out))
        return parts

    def _allocate_pairs(self, capacity: int) -> Pairs:
        state, stack = np.array([0, NONE, 0, NONE, 0], np.int64), np.empty(STACK_WORDS, np.int64)
        return Pairs(self._out.reshape(-1), capacity, state, stack)

    def _advance(self) -> list[pa.RecordBatch]:
        cti = min(side.cti for side in self._sides)
        if cti <= self._cti:
            return []
        self._cti = cti
        nothing = np.zeros(1, np.int64)
        rows = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in self._payload], schema=self._payload)
        return [make_changes(nothing + CTI, nothing + cti, nothing, nothing, rows)]

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the stored rows of each side as inserts, and the CTIs."""
        tables = {name: self._stored_rows(side) for name, side in zip(SIDES, self._sides, strict=True)}
        ctis = [*(side.cti for side in self._sides), self._cti]
        return {**tables, CTIS: pa.table({CTIS: pa.array(ctis, pa.int64())})}

    def _stored_rows(self, side: Side) -> pa.Table:
        rows = side.rows[: side.state[USED_RECORDS]]
        rows = rows[rows[:, KEY] != NONE]
        nothing = np.zeros(len(rows), np.int64)
        payload = pa.RecordBatch.from_arrays(side.columns(rows[:, ROW]), schema=side.payload)
        times = (rows[:, VS].copy(), rows[:, VE].copy(), nothing)
        return pa.Table.from_batches([make_changes(nothing + INSERT, *times, payload)])

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot, before the first change."""
        for name, side in zip(SIDES, self._sides, strict=True):
            for batch in tables[name].to_batches():
                changes = self._kernel_changes(side, batch)
                # The other side is hidden, so no pair is returned a second time.
                hidden = Side(side.payload, side.key_columns)
                hidden.reserve(0, self._keys.count)
                join_changes(
                    side.store(), hidden.store(), changes, 0, batch.num_rows, BEGINNING, self._allocate_pairs(0)
                )
        one, other = self._sides
        one.cti, other.cti, self._cti = tables[CTIS][CTIS].to_pylist()

    def _remove_ended(self, side: Side, until: int) -> None:
        """Remove the rows of a side that end by `until`, the CTI of the other side, if they may be most of its rows."""
        grown = (
            side.state[LIVE_RECORDS] >= len(side.rows) // 2
            or side.values.count > 2 * side.state[LIVE_RECORDS] + MIN_CAPACITY
        )
        if until == side.removed_until or not (grown or until == END):
            return
        side.removed_until = until
        remove_ended_rows(side.store(), until)
        if side.values.count > 2 * side.state[LIVE_RECORDS] + MIN_CAPACITY:
            self._renumber_values(side)
        if self._keys.count > 2 * self.stored + MIN_CAPACITY:
            self._renumber_keys()

    def _renumber_values(self, side: Side) -> None:
        """Remove the values of rows that are not stored."""
        rows = side.rows[: side.state[USED_RECORDS]]
        present = rows[:, KEY] != NONE
        kept, numbers = np.unique(rows[present, ROW], return_inverse=True)
        side.values = side.values.copy_of(kept)
        rows[present, ROW] = numbers

    def _renumber_keys(self) -> None:
        """Remove the keys without stored rows."""
        stored = [side.rows[: side.state[USED_RECORDS]] for side in self._sides]
        words = np.concatenate([rows[:, KEY] for rows in stored])
        words = words[words != NONE]
        kept = np.unique(np.where(words < 0, key_in_tree(words), words))
        self._keys = self._keys.copy_of(kept)
        for side, rows in zip(self._sides, stored, strict=True):
            listed, in_tree = rows[:, KEY] >= 0, rows[:, KEY] < NONE
            rows[listed, KEY] = np.searchsorted(kept, rows[listed, KEY])
            rows[in_tree, KEY] = key_in_tree(np.searchsorted(kept, key_in_tree(rows[in_tree, KEY])))
            side.keep_keys(kept, len(kept))
