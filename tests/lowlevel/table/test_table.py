"""The fixed-size table: groups in few slots, against a dictionary.

* Random packets over tables of 4 to 64 slots detect an entry that is lost, doubled or mixed up when it is evicted. They
  detect a sub-aggregate that starts with another group's value, or leaves before its waiting packets are added.
* The kernels as plain Python, with numpy's bound checks, catch a write behind a slot or behind the eviction buffer.
"""

from collections import Counter, defaultdict
from random import Random

import numpy as np
import pytest

import lowlevel.table.bucket_table
from capture.column_matrix import CACHE_LINE
from lowlevel.expressions.tree import Column
from lowlevel.expressions.types import Type
from lowlevel.subaggregates import INT_MAX, Kind, SubAggregate
from lowlevel.table.bucket_table import TaggedTable, flush_table, update_table
from lowlevel.table.entries import BUCKET, CHUNK_ROWS
from lowlevel.table.table import entry_width
from tests.harness.plain_kernels import plain

INT, FLOAT = Column("n", Type.INT), Column("f", Type.FLOAT)
SUBS = [
    SubAggregate("packets", Kind.COUNT),
    *(SubAggregate(kind, kind, INT) for kind in (Kind.SUM, Kind.MIN, Kind.MAX)),
    *(SubAggregate(f"{kind}_float", kind, FLOAT) for kind in (Kind.SUM, Kind.MIN, Kind.MAX)),
]
CAPACITY = 2 * CHUNK_ROWS + 16
"""Packets of a batch: more than are looked ahead for at once, and not a multiple of them."""


def fill(table: TaggedTable, random: Random, rows: int, groups: int) -> list[tuple[int, tuple[int, ...], int, float]]:
    """Put random packets into the table's input buffers; return them as (ts, key words, integer, float)."""
    packets = []
    for row in range(rows):
        words = tuple(random.choice([0, -1, 1 << 62, random.randrange(groups)]) for _ in range(table.key_words))
        number, real = random.randrange(-50, 50), random.randrange(-80, 80) / 4
        table.words[: table.key_words, row] = words
        table.args[1:4, row] = number
        table.args.view(np.float64)[4:7, row] = real
        packets.append((random.randrange(-40, 40), words, number, real))
    return packets


def merge(found: dict, table: TaggedTable, entries: np.ndarray) -> None:
    keys = 1 + table.key_words
    for entry, reals in zip(entries.tolist(), np.ascontiguousarray(entries).view(np.float64).tolist(), strict=True):
        found[tuple(entry[:keys])].append((entry[keys : keys + 4], reals[keys + 4 :]))


def flushed_of(table: TaggedTable, before: int) -> np.ndarray:
    """Return the entries of one flush as a copy, because a piece is valid only until the next one."""
    return np.concatenate([np.empty((0, table.width), np.int64), *(some.copy() for some in table.flush(before))])


def merged(parts: list) -> tuple:
    counts, sums, least, most = zip(*(whole for whole, _ in parts), strict=True)
    reals = list(zip(*(real for _, real in parts), strict=True))
    return sum(counts), sum(sums), min(least), max(most), sum(reals[0]), min(reals[1]), max(reals[2])


@pytest.mark.parametrize("slots", [8, 16, 64])
@pytest.mark.parametrize("key_words", [0, 1, 3])
def test_partials_of_any_table_merge_to_the_groups_of_a_dictionary(slots: int, key_words: int) -> None:
    random = Random(slots * 10 + key_words)
    table = TaggedTable(key_words, SUBS, slots, CAPACITY)
    memory = table.bytes
    found: dict = defaultdict(list)
    twin: dict = defaultdict(list)
    for _ in range(200):
        if table.evictions_due:
            merge(found, table, table.take_evicted())
        packets = fill(table, random, random.randrange(CAPACITY + 1), 3)
        chosen = np.array([random.random() < 0.7 for _ in packets], np.uint8) if random.random() < 0.5 else None
        table.update(np.array([ts for ts, *_ in packets], np.int64), chosen, 7, -3)
        for place, (ts, words, number, real) in enumerate(packets):
            if chosen is None or chosen[place]:
                twin[((ts + 3) // 7, *words)].append((number, real))
        if random.random() < 0.1:
            before = random.randrange(-6, 7)
            merge(found, table, table.take_evicted())
            flushed = flushed_of(table, before)
            assert (flushed[:, 0] < before).all()
            merge(found, table, flushed)
            assert table.oldest_pane == table.residents[:, 0].min(initial=INT_MAX) >= before
    merge(found, table, table.take_evicted())
    merge(found, table, flushed_of(table, INT_MAX))
    assert len(table.residents) == 0
    assert table.oldest_pane == INT_MAX
    assert table.bytes == memory
    expected = {}
    for key, values in twin.items():
        numbers, reals = zip(*values, strict=True)
        expected[key] = (len(values), sum(numbers), min(numbers), max(numbers), sum(reals), min(reals), max(reals))
    assert {key: merged(parts) for key, parts in found.items()} == expected


@pytest.mark.parametrize("growth", [2, 4, 32])
@pytest.mark.parametrize("key_words", [0, 1, 3])
def test_a_larger_table_has_the_entries_and_counters_of_the_one_that_it_replaces(growth: int, key_words: int) -> None:
    seed = growth * 10 + key_words
    random = Random(seed)
    table = TaggedTable(key_words, SUBS, 16, CAPACITY)
    packets = fill(table, random, CAPACITY, 3)
    times = np.array([ts for ts, *_ in packets], np.int64)
    table.update(times, None, 7, -3)
    table.take_evicted()
    larger = TaggedTable(key_words, SUBS, 16 * growth, CAPACITY)
    larger.replace(table)
    assert sorted(larger.residents.tolist()) == sorted(table.residents.tolist()), seed
    assert larger.tally == table.tally, seed
    for column, source in ((larger.words, table.words), (larger.args, table.args)):
        column[:] = source
    entries = {tuple(entry[: 1 + key_words]) for entry in table.residents.tolist()}
    keys = [((ts + 3) // 7, *words) for ts, words, *_ in packets]
    known = np.array([key in entries for key in keys], np.uint8)
    larger.update(times, known, 7, -3)
    assert {tuple(entry[: 1 + key_words]) for entry in larger.residents.tolist()} == entries, "no group has two entries"
    assert len(larger.residents) == larger.entry_count == len(entries), seed


def test_an_entry_that_is_a_word_short_of_a_cache_line_has_one_of_its_own() -> None:
    assert [entry_width(key_words, SUBS[:4]) for key_words in range(5)] == [5, 6, 8, 8, 9]
    table = TaggedTable(2, SUBS[:4], 8, CAPACITY)
    assert table.slots.__array_interface__["data"][0] % CACHE_LINE == 0
    assert table.slots.strides[0] == CACHE_LINE
    twin: dict[tuple[int, int], list[int]] = {}
    for row, (key, number) in enumerate([((1, 2), 5), ((2, 1), 7), ((1, 2), -3), ((-1, 0), 0), ((2, 1), 9)]):
        table.words[:2, row] = key
        table.args[1:4, row] = number
        twin.setdefault(key, []).append(number)
    table.update(np.full(5, 20), None, 10, 0)
    groups = {(entry[1], entry[2]): entry[3:7] for entry in flushed_of(table, 3).tolist()}
    assert groups == {key: [len(all_), sum(all_), min(all_), max(all_)] for key, all_ in twin.items()}


def test_a_table_with_room_for_every_group_evicts_none() -> None:
    random = Random(1)
    table = TaggedTable(1, SUBS[:1], 64, CAPACITY)
    for _ in range(50):
        for row in range(CAPACITY):
            table.words[0, row] = random.randrange(4)
        table.update(np.zeros(CAPACITY, np.int64), None, 10, 0)
    assert table.evicted_rows == 0
    assert Counter({int(key): int(count) for _, key, count in flushed_of(table, 1)}).total() == 50 * CAPACITY


def test_every_packet_may_evict_and_the_buffer_holds_until_it_is_taken() -> None:
    table = TaggedTable(1, SUBS[:1], BUCKET, CAPACITY)
    taken = 0
    group = 0
    for _ in range(40):
        if table.evictions_due:
            taken += len(table.take_evicted())
        for row in range(CAPACITY):
            group += 1
            table.words[0, row] = group
        table.update(np.zeros(CAPACITY, np.int64), None, 10, 0)
        assert table.evicted_rows <= len(table.evicted)
    assert taken + len(table.take_evicted()) + len(flushed_of(table, 1)) == group


@pytest.mark.parametrize("slots", [0, 1, 2, 4, 5, 12, 100, -8])
def test_a_table_that_is_no_power_of_two_is_refused(slots: int) -> None:
    with pytest.raises(ValueError, match=f"a table needs a power of two of at least 8 slots, got {slots}"):
        TaggedTable(1, SUBS, slots, CAPACITY)


def test_the_kernels_as_plain_python_stay_inside_their_arrays_and_agree_with_their_machine_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(4)
    fast, slow = TaggedTable(2, SUBS, 8, CAPACITY), TaggedTable(2, SUBS, 8, CAPACITY)
    memory = [array for array in vars(slow).values() if isinstance(array, np.ndarray)]
    for _ in range(20):
        for table in (fast, slow):
            if table.evictions_due:
                table.take_evicted()
        packets = fill(fast, random, CAPACITY, 3)
        slow.words[:], slow.args[:] = fast.words, fast.args
        times = np.array([ts for ts, *_ in packets], np.int64)
        chosen = np.array([random.random() < 0.8 for _ in packets], np.uint8)
        before = random.randrange(-6, 3)
        fast.update(times, chosen, 7, -3)
        flushed = flushed_of(fast, before)
        with monkeypatch.context() as patch:
            patch.setattr(lowlevel.table.bucket_table, "update_table", plain(update_table, *memory, times, chosen))
            patch.setattr(lowlevel.table.bucket_table, "flush_table", plain(flush_table, *memory))
            slow.update(times, chosen, 7, -3)
            assert np.array_equal(flushed_of(slow, before), flushed)
        assert np.array_equal(fast.residents, slow.residents)
        assert np.array_equal(fast.tags, slow.tags)
        assert np.array_equal(fast.evicted[: fast.evicted_rows], slow.evicted[: slow.evicted_rows])
        assert fast.oldest_pane == slow.oldest_pane


def test_a_table_counts_what_left_and_what_is_in_it() -> None:
    table = TaggedTable(1, SUBS[:1], BUCKET, CAPACITY)
    for row in range(11):
        table.words[0, row] = row
    table.update(np.array([0, 0, 0, 0, 0, 0, 0, 10, 10, 20, 20], np.int64), None, 10, 0)
    tally = table.tally
    assert (tally.evicted, tally.resident, tally.partials) == (3, 8, 3)
    assert tally.collisions >= tally.evicted
    assert tally.panes == len(set(table.residents[:, 0].tolist()))
    table.take_evicted()
    flushed_of(table, INT_MAX)
    tally = table.tally
    assert (tally.evicted, tally.flushed, tally.burst, tally.resident, tally.panes) == (3, 8, 8, 0, 0)
