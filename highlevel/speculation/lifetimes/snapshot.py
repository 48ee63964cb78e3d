"""SnapshotOperator: aggregates over the rows that are true at each instant (Goldstein and Hong, §3).

The result has a row for each snapshot of a group: the time between two neighbouring starts or ends of its lifetimes.
There is no row for an instant at which no row of the group is true.

    variant    publishes                                                    on rows in order
    PERFECT    a snapshot when its end is known                             no corrections
    ORDERED    also the newest snapshot, without end      one correction for each snapshot
    EARLIEST   all snapshots of the rows so far, also in the future   two for each snapshot that a row overlaps

With `exact`, the snapshots before and after the start of a row are joined again after a full retraction of the row.
Then the canonical history is exactly the history of the definition. For this, CTIs wait while a full retraction is
still possible. Without `exact` the snapshots remain divided. At every instant they have the same values, and CTIs do
not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from highlevel.groups.keys import Keys
from highlevel.speculation.lifetimes.aggregates import Aggregate, Layout
from highlevel.speculation.lifetimes.kernels.endpoints import (
    CTI,
    GROUP,
    KIND,
    NEW_STOP,
    OUT_WORDS,
    START,
    STOP,
    Output,
    process_changes,
    publish_ends,
)
from highlevel.speculation.lifetimes.kernels.entries import (
    CURSOR,
    EARLIEST,
    ENTRY_LIST,
    ENTRY_WORDS,
    GROUP_WORDS,
    HEAD,
    HEAP,
    ITEM_LIST,
    ITEM_WORDS,
    ORDERED,
    OUT_CTI,
    PERFECT,
    STATE,
    ChangeRows,
    SnapshotMemory,
)
from highlevel.speculation.lifetimes.kernels.multiset import (
    LEFT,
    MAX_PATH_NODES,
    NODE_LIST,
    NODE_WORDS,
    TREE_STATE,
    Trees,
)
from highlevel.speculation.lifetimes.kernels.records import FREE_RECORD, LIVE_RECORDS, NONE, USED_RECORDS
from highlevel.speculation.lifetimes.model import (
    LifetimeError,
    Words,
    change_schema,
    concat,
    make_changes,
    payload_schema,
    times_of,
)
from lowlevel.punctuation import BEGINNING

INITIAL_CAPACITY = 4_096
"""Initial capacity of the output, in changes."""

ENTRIES_TABLE, ITEMS_TABLE, NODES_TABLE, GROUPS_TABLE, HEADERS_TABLE, STATE_TABLE, KEYS_TABLE = (
    *("entries", "items", "nodes", "groups", "headers", "state", "keys"),
)
"""Tables of a snapshot: the memory of the kernels, and the groups."""


class Variant(IntEnum):
    """The variants: when a snapshot is published."""

    PERFECT = PERFECT
    ORDERED = ORDERED
    EARLIEST = EARLIEST


class SnapshotOperator:
    """Aggregates by groups. Receives and returns valid changes. Not thread safe."""

    def __init__(
        self,
        schema: pa.Schema,
        aggregates: Sequence[Aggregate],
        group_by: Sequence[str] = (),
        variant: Variant = Variant.PERFECT,
        *,
        exact: bool = True,
        without_full_retractions: bool = False,
    ) -> None:
        """Aggregate changes of the schema `schema`.

        Raises LifetimeError for unknown columns or wrong types of columns.

        `without_full_retractions`: the input has no full retractions, so CTIs need not wait for them.
        """
        payload = payload_schema(schema)
        for name in group_by:
            if name not in payload.names:
                raise LifetimeError(f"got the column {name!r} to group by, expected one of {', '.join(payload.names)}")
        self._layout = Layout(aggregates, payload)
        self._group_by = list(group_by)
        self._payload = pa.schema([*(payload.field(name) for name in group_by), *self._layout.fields])
        self.schema = change_schema(self._payload)
        self._keys = Keys([payload.field(name).type for name in group_by])
        layout = self._layout
        self._set_widths()
        self._state = np.zeros(STATE, np.int64)
        self._state[[ENTRY_LIST + FREE_RECORD, ITEM_LIST + FREE_RECORD]] = NONE
        self._state[OUT_CTI] = BEGINNING
        self._tree_state = np.zeros(TREE_STATE, np.int64)
        self._tree_state[NODE_LIST + FREE_RECORD] = NONE
        self._entries: Words = np.empty((0, self._entry_words), np.int64)
        self._items: Words = np.empty((0, self._item_words), np.int64)
        self._nodes: Words = np.empty((0, NODE_WORDS), np.int64)
        self._groups: Words = np.empty((0, GROUP_WORDS), np.int64)
        self._headers: Words = np.empty((0, max(1, layout.keys)), np.int64)
        self._path = np.empty(MAX_PATH_NODES, np.int64)
        self._output_words: Words = np.empty((INITIAL_CAPACITY, OUT_WORDS + layout.words + layout.width), np.int64)
        self._fixed = (int(variant), int(exact), int(without_full_retractions))

    def _set_widths(self) -> None:
        layout = self._layout
        self._words = layout.words
        self._entry_words = ENTRY_WORDS + layout.words + layout.width
        self._item_words = ITEM_WORDS + layout.words + layout.keys

    @property
    def entries(self) -> int:
        """Number of published endpoints that can still change."""
        return int(self._state[ENTRY_LIST + LIVE_RECORDS])

    @property
    def bytes(self) -> int:
        """Bytes of endpoints, values and groups."""
        arrays = (self._entries, self._items, self._nodes, self._groups, self._headers, self._output_words)
        return self._keys.bytes + sum(array.nbytes for array in arrays)

    def process(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Process changes in the order of arrival. Return the changes of the result."""
        rows = changes.num_rows
        kind, start, stop, new_stop = times_of(changes)
        ids = np.zeros(rows, np.int64)
        count = 1
        if self._group_by:
            self._remove_empty_groups()
            is_row = kind != CTI
            columns = [pc.filter(changes.column(name), array_of(is_row)) for name in self._group_by]
            ids[is_row] = self._keys.find_or_insert(columns, int(is_row.sum()))
            count = self._keys.count
        added, ordered, nulls = self._layout.words_of(changes)
        if self._layout.words > self._words:
            self._add_words()
        self._reserve(rows, count)
        read = ChangeRows(kind, start, stop, new_stop, ids, added, ordered, nulls)
        parts: list[pa.RecordBatch] = []
        done, out_count = 0, np.zeros(1, np.int64)
        while True:
            out = Output(self._output_words.reshape(-1), len(self._output_words), out_count)
            before = done
            done = process_changes(self._memory(), self._trees(), read, done, rows, count, out)
            if done < 0:
                raise LifetimeError(
                    f"got the change {changes.slice(-1 - done, 1).to_pylist()[0]}, expected a time after the last CTI, "
                    "and a retraction of a row that is true"
                )
            if done == before and out_count[0] == 0 and done < rows:
                self._output_words = np.empty((2 * len(self._output_words), self._output_words.shape[1]), np.int64)
                continue
            parts.append(self._result(self._output_words[: out_count[0]]))
            out_count[0] = 0
            if done == rows:
                return concat(parts, self.schema)

    def publish_ends(self, time: int) -> pa.RecordBatch:
        """Return the changes of the snapshots that end at or before `time` (ns).

        Later changes may correct these snapshots.
        """
        groups = self._keys.count if self._group_by else 1
        self._reserve(0, groups)
        parts: list[pa.RecordBatch] = []
        group, out_count = 0, np.zeros(1, np.int64)
        while group < groups:
            out = Output(self._output_words.reshape(-1), len(self._output_words), out_count)
            reached = publish_ends(self._memory(), self._trees(), group, groups, time, out)
            if reached == group and out_count[0] == 0:
                self._output_words = np.empty((2 * len(self._output_words), self._output_words.shape[1]), np.int64)
            parts.append(self._result(self._output_words[: out_count[0]]))
            group, out_count[0] = reached, 0
        return concat(parts, self.schema)

    def _result(self, out: Words) -> pa.RecordBatch:
        """Return written changes as a batch."""
        layout = self._layout
        kind = out[:, KIND]
        is_cti = kind == CTI
        ids = np.where(is_cti, 0, out[:, GROUP])
        source, columns = layout.finish(out[:, OUT_WORDS:], is_cti)
        keys: list[pa.Array] = []
        if self._group_by:
            nulls = pa.array(ids[source], mask=is_cti[source])
            keys = [pc.take(column, nulls) for column in self._keys.columns()]
        payload = pa.RecordBatch.from_arrays([*keys, *columns], schema=self._payload)
        return make_changes(kind[source], out[source, START], out[source, STOP], out[source, NEW_STOP], payload)

    def _add_words(self) -> None:
        """Add words with the value 0 to all entries and items, after the existing words."""
        added, before = self._layout.words - self._words, self._words
        self._set_widths()
        self._entries = _with_columns(self._entries, ENTRY_WORDS + before, added)
        self._items = _with_columns(self._items, ITEM_WORDS + before, added)
        self._output_words = np.empty((len(self._output_words), self._output_words.shape[1] + added), np.int64)

    def _reserve(self, rows: int, count: int) -> None:
        """Allocate memory for the changes of a batch."""
        layout, state = self._layout, self._state
        room = len(self._groups)
        if count > room:
            self._groups = _grown(self._groups, count)
            self._groups[room:, HEAD] = NONE
            self._groups[room:, [CURSOR, HEAP]] = NONE
            self._headers = _grown(self._headers, count)
            self._headers[room:] = NONE
        items = int(state[ITEM_LIST + LIVE_RECORDS]) + 3 * rows
        self._items = _grown(self._items, items)
        self._entries = _grown(self._entries, int(state[ENTRY_LIST + LIVE_RECORDS]) + items + 2 * rows + count)
        if layout.keys:
            self._nodes = _grown(
                self._nodes, int(self._tree_state[NODE_LIST + LIVE_RECORDS]) + (items + count) * layout.keys
            )

    def _remove_empty_groups(self) -> None:
        """Remove the keys of groups without rows, if most groups have no rows."""
        known = self._keys.count
        if known < INITIAL_CAPACITY:
            return
        present = np.flatnonzero(self._groups[:known, HEAD] != NONE)
        if 2 * len(present) > known:
            return
        absent = np.flatnonzero(self._groups[:known, HEAD] == NONE)
        headers = self._headers[absent].reshape(-1)
        for header in headers[headers != NONE].tolist() if self._layout.keys else ():
            self._nodes[header, LEFT] = self._tree_state[NODE_LIST + FREE_RECORD]
            self._tree_state[NODE_LIST + FREE_RECORD] = header
            self._tree_state[NODE_LIST + LIVE_RECORDS] -= 1
        self._keys = self._keys.copy_of(present)
        self._groups, self._headers = self._groups[present].copy(), self._headers[present].copy()

    def snapshot(self) -> dict[str, pa.Table]:
        """Return the state: the memory of the kernels, the groups, and the numbered values."""
        used = (
            (ENTRIES_TABLE, self._entries[: self._state[ENTRY_LIST + USED_RECORDS]]),
            (ITEMS_TABLE, self._items[: self._state[ITEM_LIST + USED_RECORDS]]),
            (NODES_TABLE, self._nodes[: self._tree_state[NODE_LIST + USED_RECORDS]]),
            (GROUPS_TABLE, self._groups),
            (HEADERS_TABLE, self._headers),
            (STATE_TABLE, np.append(self._state, self._tree_state)),
        )
        tables = {name: pa.table({"words": array_of(np.ascontiguousarray(words).reshape(-1))}) for name, words in used}
        keys = self._keys.columns() if self._group_by else []
        tables[KEYS_TABLE] = pa.table(keys, names=self._group_by)
        return tables | self._layout.snapshot()

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the state of a snapshot."""

        def words_of(name: str, width: int) -> Words:
            return tables[name]["words"].to_numpy().reshape(-1, width).copy()

        self._layout.restore(tables)
        if self._layout.words > self._words:
            self._add_words()
        self._entries = words_of(ENTRIES_TABLE, self._entry_words)
        self._items = words_of(ITEMS_TABLE, self._item_words)
        self._nodes = words_of(NODES_TABLE, NODE_WORDS)
        self._groups = words_of(GROUPS_TABLE, GROUP_WORDS)
        self._headers = words_of(HEADERS_TABLE, self._headers.shape[1])
        state = words_of(STATE_TABLE, STATE + TREE_STATE)[0]
        self._state, self._tree_state = state[:STATE].copy(), state[STATE:].copy()
        for batch in tables[KEYS_TABLE].to_batches() if self._group_by else ():
            self._keys.find_or_insert(batch.columns, batch.num_rows)

    def _memory(self) -> SnapshotMemory:
        layout = self._layout
        variant, exact, whole = self._fixed
        fixed = (variant, exact, whole, layout.words, layout.keys, len(layout.functions), layout.width)
        results = (layout.functions, layout.key_indexes, layout.parameters, layout.first_words)
        memory = (self._entries, self._items, self._groups, self._headers)
        return SnapshotMemory._make((*fixed, *results, *(array.reshape(-1) for array in memory), self._state))

    def _trees(self) -> Trees:
        return Trees(self._nodes.reshape(-1), self._path, self._tree_state)


def _with_columns(array: Words, position: int, added: int) -> Words:
    """Return an array with `added` columns of zeros before the column `position`."""
    return np.ascontiguousarray(np.insert(array, [position] * added, 0, axis=1))


def _grown(array: Words, rows: int) -> Words:
    """Return an array with the same content and a capacity of at least `rows` rows."""
    if rows <= len(array):
        return array
    grown = np.empty((max(rows, len(array) * 3 // 2), array.shape[1]), np.int64)
    grown[: len(array)] = array
    return grown
