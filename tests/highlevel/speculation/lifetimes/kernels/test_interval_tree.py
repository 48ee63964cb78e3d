"""The rows of a key by their lifetimes, compared with a list of rows, and the steps of a search.

Starts have few different high bits, equal values and both signs. The kernels run as plain Python, with numpy's bound
checks. The tests detect rows that a removed node hides, latest ends that are too early, and a search that reads all
rows of a key or of a start.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from highlevel.speculation.lifetimes import equi_join
from highlevel.speculation.lifetimes.equi_join import JoinChanges, LifetimeJoin, Side, join_changes, remove_ended_rows
from highlevel.speculation.lifetimes.kernels.endpoints import INSERT, RETRACTION
from highlevel.speculation.lifetimes.kernels.interval_tree import shorten_row
from highlevel.speculation.lifetimes.kernels.records import LIVE_RECORDS, NONE
from highlevel.speculation.lifetimes.model import VE, VS
from lowlevel.punctuation import BEGINNING, END
from tests.conftest import Rounds
from tests.references.lifetimes import C, I, to_batch

SCHEMA = to_batch([]).schema
ROOM = 900

Row = tuple[int, int, int, int]
"""Start, end, number of the values and number of the key."""


class Rows:
    """A side of a join with room for rows of three keys, and the list of its rows."""

    def __init__(self) -> None:
        self.side = Side(SCHEMA, ["x"])
        self.side.reserve(ROOM, 3)
        self.known: list[Row] = []

    def overlapping(self, first: int, stop: int, key: int, room: int) -> Counter:
        """Return the rows that a change finds, in turns of `room` pairs."""
        join = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
        searching = Side(SCHEMA, ["x"])
        searching.reserve(1, 3)
        changes = JoinChanges(*(np.array([each], np.int64) for each in (INSERT, first, stop, 0, 0, key)))
        pairs = join._allocate_pairs(room)
        found: Counter = Counter()
        begin = 0
        while begin < 1:
            pairs.state[equi_join.COUNT] = 0
            begin = join_changes.function(searching.store(), self.side.store(), changes, begin, 1, END, pairs)
            for pair in pairs.words.reshape(-1, equi_join.PAIR_WORDS)[: pairs.state[equi_join.COUNT]]:
                found[pair[equi_join.PAIR_START], pair[equi_join.PAIR_END], pair[equi_join.OTHER]] += 1
        return found

    def expected(self, first: int, stop: int, key: int) -> Counter:
        return Counter(
            (max(first, start), min(stop, end), row)
            for start, end, row, of_key in self.known
            if of_key == key and start < stop and end > first
        )

    def change(self, kind: int, start: int, stop: int, new_stop: int, row: int, key: int) -> None:
        """Insert or shorten a row."""
        nothing = Side(SCHEMA, ["x"])
        nothing.reserve(1, 3)
        changes = JoinChanges(*(np.array([each], np.int64) for each in (kind, start, stop, new_stop, row, key)))
        pairs = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])._allocate_pairs(0)
        join_changes.function(self.side.store(), nothing.store(), changes, 0, 1, BEGINNING, pairs)
        if kind == INSERT:
            self.known.append((start, stop, row, key))
            return
        self.known.remove((start, stop, row, key))
        if new_stop > start:
            self.known.append((start, new_stop, row, key))


def drawn_start(random: Random) -> int:
    """Small times, also negative ones, times that share their high bits, and the smallest and largest ones."""
    base = random.choice([0, 0, 1_700_000_000 * 10**9, -50, -(2**62), 2**62])
    return base + random.choice([random.randrange(8), random.randrange(100) * 10**9, random.randrange(40)])


def test_searches_find_the_rows_of_a_list_while_rows_are_stored_shortened_and_forgotten(rounds: Rounds) -> None:
    for seed in rounds(25):
        random = Random(f"interval tree {seed}")
        rows = Rows()
        for number in range(random.choice([30, 120])):
            start = drawn_start(random)
            stop = random.choice([start + random.choice([1, 3, 20, 5 * 10**9]), END])
            rows.change(INSERT, start, stop, 0, number, random.choice([0, 0, 0, 1, 2]))
            if random.random() < 0.3:
                begin, end, row, key = random.choice(rows.known)
                rows.change(RETRACTION, begin, end, random.choice([begin, (begin + end) // 2]), row, key)
            if random.random() < 0.05:
                until = drawn_start(random)
                rows.known = [each for each in rows.known if each[1] > until]
                assert remove_ended_rows.function(rows.side.store(), until) == len(rows.known)
            if random.random() < 0.3:
                first, key = drawn_start(random) - random.randrange(5), random.randrange(3)
                stop = first + random.choice([1, 9, 10**10, 2**61])
                found = rows.overlapping(first, stop, key, random.choice([1, 7, 500]))
                assert found == rows.expected(first, stop, key), (seed, number)
        assert remove_ended_rows.function(rows.side.store(), END) == 0
        assert max(rows.side.lists.max(), rows.side.roots.max()) == NONE


class CountedRows(np.ndarray):
    """Words of rows that count how many words were read."""

    reads = 0

    def __getitem__(self, index: object) -> object:
        CountedRows.reads += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("starts", [lambda n: n, lambda n: 1_700_000_000 * 10**9 + n * 10**7, lambda n: n // 50 * 50])
def test_the_steps_of_a_search_do_not_grow_with_the_rows_of_a_key(starts: Callable[[int], int]) -> None:
    reads = {}
    for count in (100, 400):
        rows = Rows()
        for number in range(count):
            rows.change(INSERT, starts(number), starts(number) + 1, 0, number, 0)
        store = rows.side.store()
        assert store.state[LIVE_RECORDS] == count
        rows.overlapping(starts(0), starts(0) + 1, 0, 500)
        assert store.lists[0] == NONE
        counted = store._replace(rows=store.rows.view(CountedRows), nodes=store.nodes.view(CountedRows))
        nothing = Side(SCHEMA, ["x"])
        nothing.reserve(1, 3)
        join = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
        CountedRows.reads = 0
        for time in (starts(0) - 5, starts(count) + 500):
            changes = JoinChanges(*(np.array([each], np.int64) for each in (INSERT, time, time + 2, 0, 0, 0)))
            join_changes.function(nothing.store(), counted, changes, 0, 1, END, join._allocate_pairs(0))
        reads[count] = CountedRows.reads
    assert reads[400] <= reads[100] + 100, reads


@pytest.mark.parametrize("order", ["rising", "falling", "random", "equal"])
def test_the_steps_of_a_change_do_not_grow_with_the_rows_of_equal_starts(order: str) -> None:
    reads: dict[str, dict[int, int]] = {"insert": {}, "search": {}, "shorten": {}}
    for count in (200, 800):
        rows = Rows()
        lengths = {"falling": range(count, 0, -1), "equal": [9] * count}.get(order, range(1, count + 1))
        if order == "random":
            lengths = Random("equal starts").sample(lengths, count)
        for number, length in enumerate([*lengths, 10**6]):
            rows.change(INSERT, 0, length, 0, number, 0)
        counted = rows.side.store()
        counted = counted._replace(rows=counted.rows.view(CountedRows), nodes=counted.nodes.view(CountedRows))
        join = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
        # A search moves the list into the tree. The second one finds the row that has not ended.
        for step in ("insert", "search"):
            CountedRows.reads = 0
            probe = JoinChanges(*(np.array([each], np.int64) for each in (INSERT, 1000, 1002, 0, 0, 0)))
            pairs = join._allocate_pairs(500)
            nothing = Side(SCHEMA, ["x"])
            nothing.reserve(1, 3)
            join_changes.function(nothing.store(), counted, probe, 0, 1, END, pairs)
            assert pairs.state[equi_join.COUNT] == 1
            reads[step][count] = CountedRows.reads
        assert counted.lists[0] == NONE
        CountedRows.reads = 0
        assert shorten_row(counted, 0, 10**6, 10**5, count, 0, BEGINNING) == 1
        reads["shorten"][count] = CountedRows.reads
    assert reads["insert"][800] <= 7 * reads["insert"][200], reads
    assert reads["search"][800] <= reads["search"][200] + 100, reads
    assert reads["shorten"][800] <= reads["shorten"][200] + 100, reads


def test_rows_of_a_hot_key_survive_a_restart() -> None:
    join = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
    join.process(0, to_batch([I(time * 3, time * 3 + 2, 7) for time in range(300)]))
    again = LifetimeJoin(SCHEMA, SCHEMA, [("x", "x")])
    again.restore(join.snapshot())
    probe = to_batch([I(time * 3 + 1, time * 3 + 3, 7) for time in range(0, 300, 7)] + [C(5)])
    assert again.stored == join.stored == 300
    pairs = [each.process(1, probe).select([VS, VE]).to_pylist() for each in (join, again)]
    assert sorted(map(str, pairs[0])) == sorted(map(str, pairs[1]))
    assert len(pairs[0]) == 43
