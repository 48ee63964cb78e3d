"""RunMemory: the arrays of entries, nodes, partitions and results, which grow as kernels need them, and snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.lazy_dataclasses import dataclass
from highlevel.patterns.automaton import PatternError
from highlevel.patterns.compiled_automaton import Floats, Words
from highlevel.patterns.kernels import layout
from highlevel.patterns.kernels.layout import (
    ENTRIES,
    ENTRY_WORDS,
    NODE_RECORDS,
    NODE_WORDS,
    PARTITION_WORDS,
    RESULT_COUNT,
    RESULT_WORDS,
    STATE_WORDS,
    Automata,
    Store,
)
from highlevel.speculation.lifetimes.kernels.records import (
    FREE_RECORD,
    LIVE_RECORDS,
    NONE,
    USED_RECORDS,
    mark_free_records,
)

MIN_ROOM = 4_096
"""Smallest number of records for which there is memory."""

MAX_NODES = 2**25
"""Maximum number of runs in memory. More runs are an error: if runs were dropped, users would not notice that matches
are missing."""


@dataclass(frozen=True)
class Results:
    """Results of runs. `words`: RESULT_WORDS and the integer fields of the register; `floats`: the other fields."""

    words: Words
    floats: Floats


class RunMemory:
    """The memory of partial matches. Not thread safe."""

    def __init__(self, automata: Automata) -> None:
        """Begin without entries and nodes, with the words of an automaton."""
        self.entries: Words = np.zeros((MIN_ROOM, ENTRY_WORDS + automata.row_words), np.int64)
        self.float_rows: Floats = np.zeros((MIN_ROOM, automata.float_row_words), np.float64)
        self.nodes: Words = np.zeros((MIN_ROOM, NODE_WORDS + automata.fields), np.int64)
        self.float_nodes: Floats = np.zeros((MIN_ROOM, automata.float_fields), np.float64)
        self.partitions: Words = np.full((MIN_ROOM, PARTITION_WORDS), NONE, np.int64)
        self.results: Words = np.zeros((MIN_ROOM, RESULT_WORDS + automata.fields), np.int64)
        self.float_results: Floats = np.zeros((MIN_ROOM, automata.float_fields), np.float64)
        self.state: Words = np.zeros(STATE_WORDS, np.int64)
        for records in (ENTRIES, NODE_RECORDS):
            self.state[records + FREE_RECORD] = NONE

    @property
    def entry_count(self) -> int:
        """Number of rows with partial matches in memory."""
        return int(self.state[ENTRIES + LIVE_RECORDS])

    @property
    def node_count(self) -> int:
        """Number of runs in memory."""
        return int(self.state[NODE_RECORDS + LIVE_RECORDS])

    @property
    def bytes(self) -> int:
        """Memory of rows and runs."""
        arrays = (self.entries, self.float_rows, self.nodes, self.float_nodes, self.partitions)
        return sum(array.nbytes for array in arrays)

    def make_partitions(self, count: int) -> None:
        """Make room for partitions with numbers below `count`."""
        if count > len(self.partitions):
            self.partitions = longer(self.partitions, 2 * count, NONE)

    def store(self) -> Store:
        """Return the arrays for kernels."""
        return Store(
            self.entries.reshape(-1),
            _flat(self.float_rows),
            self.nodes.reshape(-1),
            _flat(self.float_nodes),
            self.partitions.reshape(-1),
            self.results.reshape(-1),
            _flat(self.float_results),
            self.state,
            len(self.entries),
            len(self.nodes),
            len(self.results),
        )

    def take_results(self) -> Results:
        """Return the results that kernels have written, and forget them."""
        count = int(self.state[RESULT_COUNT])
        self.state[RESULT_COUNT] = 0
        return Results(self.results[:count].copy(), self.float_results[:count].copy())

    def grow(self) -> None:
        """Make room for entries or nodes. The room for results is that for nodes, so it is sufficient for each list."""
        if self.entry_count == len(self.entries):
            self.entries = longer(self.entries, 2 * len(self.entries), 0)
            self.float_rows = longer(self.float_rows, len(self.entries), 0)
            return
        if 2 * len(self.nodes) > MAX_NODES:
            raise PatternError(
                f"got more than {MAX_NODES} partial matches, expected fewer: a shorter window (WITHIN), narrower "
                "conditions, or more partitions"
            )
        self.nodes = longer(self.nodes, 2 * len(self.nodes), 0)
        self.float_nodes = longer(self.float_nodes, len(self.nodes), 0)
        self.results = np.zeros((len(self.nodes), self.results.shape[1]), np.int64)
        self.float_results = np.zeros((len(self.nodes), self.float_results.shape[1]), np.float64)

    def compact_if_sparse(self) -> None:
        """Release the memory of freed records if they are many."""
        for records in (ENTRIES, NODE_RECORDS):
            if self.state[records + USED_RECORDS] > 2 * self.state[records + LIVE_RECORDS] + MIN_ROOM:
                self._compact()
                return

    def _compact(self) -> None:
        """Move the records in use to the beginning of shorter arrays.

        This must not happen while a row is interrupted for lack of room.

        The cost is that of the records that were freed since the last call, and of those in use.
        """
        entries = self._records_in_use(self.entries, ENTRIES, layout.AFTER)
        nodes = self._records_in_use(self.nodes, NODE_RECORDS, layout.NEXT_NODE)
        new_entries = self._new_numbers(entries, ENTRIES)
        new_nodes = self._new_numbers(nodes, NODE_RECORDS)
        entry_room, node_room = (max(MIN_ROOM, 2 * len(kept)) for kept in (entries, nodes))
        self.entries = longer(self.entries[entries], entry_room, 0)
        self.float_rows = longer(self.float_rows[entries], entry_room, 0)
        self.nodes = longer(self.nodes[nodes], node_room, 0)
        self.float_nodes = longer(self.float_nodes[nodes], node_room, 0)
        self.results = np.zeros((node_room, self.results.shape[1]), np.int64)
        self.float_results = np.zeros((node_room, self.float_results.shape[1]), np.float64)
        stored_entries, stored_nodes = self.entries[: len(entries)], self.nodes[: len(nodes)]
        for links, numbers in (
            (stored_entries[:, layout.BEFORE], new_entries),
            (stored_entries[:, layout.AFTER], new_entries),
            (stored_entries[:, layout.NODES], new_nodes),
            (stored_nodes[:, layout.NEXT_NODE], new_nodes),
            (self.partitions[:, layout.FIRST], new_entries),
            (self.partitions[:, layout.LAST], new_entries),
            (self.partitions[:, layout.CANDIDATES], new_nodes),
        ):
            links[:] = numbers[links]
        for records, kept in ((ENTRIES, entries), (NODE_RECORDS, nodes)):
            self.state[records + FREE_RECORD] = NONE
            self.state[records + USED_RECORDS] = len(kept)

    def _records_in_use(self, memory: Words, records: int, link: int) -> Words:
        is_free = np.zeros(int(self.state[records + USED_RECORDS]) + 1, np.int64)
        first, width = int(self.state[records + FREE_RECORD]), memory.shape[1]
        mark_free_records(memory.reshape(-1), first, width, link, is_free)
        return np.flatnonzero(is_free[:-1] == 0)

    def _new_numbers(self, kept: Words, records: int) -> Words:
        """Return the new number of each record; the last one is that of NONE."""
        numbers = np.full(int(self.state[records + USED_RECORDS]) + 1, NONE)
        numbers[kept] = np.arange(len(kept))
        return numbers

    def snapshot(self, partitions: int) -> dict[str, pa.Table]:
        """Return the words of all records in use, a table for each kind of records."""
        if any(self.state[records + FREE_RECORD] != NONE for records in (ENTRIES, NODE_RECORDS)):
            self._compact()
        tables = {}
        for name, rows in self._used(partitions).items():
            array = getattr(self, name)
            columns = [np.ascontiguousarray(array[:rows, word]) for word in range(array.shape[1])]
            table = pa.table({"record": np.arange(rows), **{str(word): each for word, each in enumerate(columns)}})
            tables[name] = table
        return tables | {"state": pa.table({"words": self.state})}

    def restore(self, tables: dict[str, pa.Table]) -> None:
        """Load the words of a snapshot. Words of rows that it does not have are 0."""
        self.state[:] = tables["state"]["words"].to_numpy()
        for name in self._used(0):
            table, array = tables[name], getattr(self, name)
            fill = NONE if name == "partitions" else 0
            array = longer(array, max(len(array), 2 * table.num_rows), fill)
            for word in range(table.num_columns - 1):
                array[: table.num_rows, word] = table[str(word)].to_numpy()
            setattr(self, name, array)
        rooms = max(len(self.nodes), len(self.float_nodes))
        self.nodes, self.float_nodes = longer(self.nodes, rooms, 0), longer(self.float_nodes, rooms, 0)
        self.results = np.zeros((rooms, self.results.shape[1]), np.int64)
        self.float_results = np.zeros((rooms, self.float_results.shape[1]), np.float64)

    def _used(self, partitions: int) -> dict[str, int]:
        """Return the names of the arrays, and how many of their records are used."""
        entries, nodes = int(self.state[ENTRIES + USED_RECORDS]), int(self.state[NODE_RECORDS + USED_RECORDS])
        return {
            "entries": entries,
            "float_rows": entries,
            "nodes": nodes,
            "float_nodes": nodes,
            "partitions": min(partitions, len(self.partitions)),
        }

    def renumber(self, kept: Words) -> None:
        """Give the partitions `kept` the numbers 0, 1, 2, …; the others have no entries."""
        partitions = self.partitions[kept]
        self.partitions = longer(partitions, max(MIN_ROOM, 2 * len(kept)), NONE)

    def forget_partitions(self, partitions: Words) -> None:
        """Forget the runs of partitions. Their memory is not released: for an instance that is used once."""
        self.partitions[partitions[partitions < len(self.partitions)]] = NONE

    def used_partitions(self, partitions: int) -> Words:
        """Return the partitions with entries or candidates."""
        words = self.partitions[:partitions]
        return np.flatnonzero((words[:, layout.FIRST] != NONE) | (words[:, layout.CANDIDATES] != NONE))

    def stored_rows(self) -> Words:
        """Return the numbers of the values of all rows in memory, as an array that can be written to."""
        used = self.entries[: self.state[ENTRIES + USED_RECORDS]]
        return used[:, layout.ROW]


def chain(records: Words, record: int, link: int) -> Iterator[int]:
    """Yield `record`, and the records that follow it in its list. `link`: the word with the next record."""
    while record != NONE:
        yield record
        record = int(records[record, link])


def longer(array: npt.NDArray[Any], rows: int, fill: int) -> npt.NDArray[Any]:
    """Return a copy with more rows, which are filled with `fill`."""
    # The system provides zeros, so rows that are never used cost no memory.
    shape = rows, array.shape[1]
    copy = np.full(shape, fill, array.dtype) if fill else np.zeros(shape, array.dtype)
    copy[: len(array)] = array
    return copy


def _flat(array: Floats) -> Floats:
    """Return the words of an array, which has an address also without words."""
    return array.reshape(-1) if array.size else np.zeros(1)
