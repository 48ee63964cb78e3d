"""Filter joins (`seen_within`): the keys of earlier rows and the time of each, in fixed memory.

`seen_within` is true for a row at time t if an earlier row with the same key has a time of at least t - duration. The
result is exact as long as no key is evicted. If more than WAYS keys have one bucket, the oldest is evicted.

`alive` counts evicted keys that are at most `duration` older than the newest row. Later rows may look them up. Then
`seen_within` is false instead of true; it is never true instead of false. `over` counts the other evicted keys, which
only late rows can look up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from capture.column_matrix import LINE_WORDS
from capture.metrics import Samples
from capture.native import helper, kernel
from capture.prefetch import prefetch
from lowlevel.expressions.columns import AddressVector, AnyVector, Columns, Mask, Vector
from lowlevel.expressions.evaluate import evaluate
from lowlevel.expressions.predicate import Condition
from lowlevel.expressions.tree import Binary, Expression, SeenWithin, parts_of
from lowlevel.expressions.types import Op, Type
from lowlevel.metrics import FILTER_JOIN_BYTES, FILTER_JOIN_EVICTIONS, FILTER_JOIN_KEYS
from lowlevel.plan import LowLevelPlan
from lowlevel.rows.readers import Rows
from lowlevel.subaggregates import INT_MIN

# Memory consists of buckets of WAYS entries. An entry is the newest time of a key, and the words of the key. The hash
# of a key selects its bucket. Entries of a bucket are filled in order and never cleared, so a search ends at the first
# empty entry.


WAYS = 8
"""Entries of a bucket."""

AHEAD = 32
"""Number of rows whose buckets are prefetched together: two buckets per row."""

EMPTY = INT_MIN
"""The time of an empty entry."""

NEWEST, HELD, ALIVE, OVER = range(4)
"""Words of the tally: the newest stored time; the number of entries; the two counters of evicted keys."""

TALLY_WORDS = 4


@helper
def bucket_of(words, rows, row, count, mask):  # type: ignore[no-untyped-def]
    """Return the bucket of a row's key; the words of a key are `rows` apart in `words`."""
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in range(count):
        mixed = (mixed ^ np.uint64(words[word * rows + row])) * np.uint64(0xFF51AFD7ED558CCD)
        mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed & np.uint64(mask))


@helper
def find_key(entries, home, width, words, rows, row):  # type: ignore[no-untyped-def]
    """Return the entry with the key of a row in the bucket at `home`, else the first empty entry, else -1."""
    for way in range(WAYS):
        at = home + way * width
        if entries[at] == EMPTY:
            return at
        same = True
        for word in range(width - 1):
            if entries[at + 1 + word] != words[word * rows + row]:
                same = False
                break
        if same:
            return at
    return -1


@helper
def oldest_entry(entries, home, width):  # type: ignore[no-untyped-def]
    """Return the entry with the smallest time in a full bucket."""
    oldest = home
    for way in range(1, WAYS):
        if entries[home + way * width] < entries[oldest]:
            oldest = home + way * width
    return oldest


@kernel("i64(i64*, i64, i64, i64*, u8*, i64*, u8*, i64*, i64, i64, i64*, u8*, i64*)")
def recall(  # type: ignore[no-untyped-def]
    entries, mask, width, lookup_keys, looks_up, stored_keys, stores, times, rows, duration, homes, seen, tally
):  # fmt: skip
    """Write to `seen` whether an earlier row with a time of at least the row's time - `duration` stored the row's key.

    * `entries`: (mask + 1) * WAYS entries of `width` words; the first word is a time.
    * `lookup_keys`, `stored_keys`: words (width - 1 times `rows`) of the keys to look up and to store.
    * `looks_up`, `stores`: whether a row looks up its key, and whether it stores its key, in this order.
    * `homes`: scratch, 2 * AHEAD words. `tally`: TALLY_WORDS words.

    In a full bucket the oldest key is evicted, or the new one if it is older. Returns `rows`.
    """
    newest = tally[NEWEST]
    words = width - 1
    for begin in range(0, rows, AHEAD):
        end = min(rows, begin + AHEAD)
        for row in range(begin, end):
            place = 2 * (row - begin)
            if looks_up[row]:
                homes[place] = bucket_of(lookup_keys, rows, row, words, mask) * WAYS * width
                prefetch(entries, homes[place])
                prefetch(entries, homes[place] + LINE_WORDS)
            if stores[row]:
                homes[place + 1] = bucket_of(stored_keys, rows, row, words, mask) * WAYS * width
                prefetch(entries, homes[place + 1])
                prefetch(entries, homes[place + 1] + LINE_WORDS)
        for row in range(begin, end):
            place = 2 * (row - begin)
            time = times[row]
            seen[row] = 0
            if looks_up[row]:
                at = find_key(entries, homes[place], width, lookup_keys, rows, row)
                least = time - duration if time > EMPTY + duration else EMPTY + 1
                seen[row] = np.uint8(at >= 0 and entries[at] >= least)
            if stores[row]:
                newest = max(newest, time)
                home = homes[place + 1]
                at = find_key(entries, home, width, stored_keys, rows, row)
                if at >= 0 and entries[at] != EMPTY:
                    entries[at] = max(entries[at], time)
                    continue
                if at >= 0:
                    tally[HELD] += 1
                else:
                    at = oldest_entry(entries, home, width)
                    lost = min(entries[at], time)
                    edge = newest - duration if newest > EMPTY + duration else EMPTY
                    tally[ALIVE if lost >= edge else OVER] += 1
                    if time < entries[at]:
                        continue
                entries[at] = time
                for word in range(words):
                    entries[at + 1 + word] = stored_keys[word * rows + row]
    tally[NEWEST] = newest
    return rows


# Equal keys of a filter join have equal words, also if they are computed from different columns.
#
# An integer is one word and an address is two. One more word contains the versions of all addresses of a key, because
# 10.0.0.1 is not ::a00:1.


VERSION_BITS = 3
"""Bits of the version of an address in the word of versions."""

Words = npt.NDArray[np.int64]


def words_of(key: Sequence[Expression]) -> int:
    """Return the number of words of a key."""
    addresses = sum(part.type is Type.ADDRESS for part in key)
    return len(key) + addresses + (addresses > 0)


def key_words(key: Sequence[Expression], columns: Columns, rows: int) -> tuple[Words, Mask]:
    """Return the words of the rows' keys, `[word, row]`, and a mask of the rows whose keys have no NULL."""
    words = np.zeros((words_of(key), rows), np.int64)
    valid = np.ones(rows, np.bool_)
    at, addresses = 0, 0
    for part in key:
        vector = evaluate(part, columns)
        if isinstance(vector, AddressVector):
            words[at] = vector.low.view(np.int64)
            words[at + 1] = vector.high.view(np.int64)
            words[-1] |= np.asarray(vector.version, np.int64) << (VERSION_BITS * addresses)
            at, addresses = at + 2, addresses + 1
        else:
            assert isinstance(vector, Vector)
            words[at] = vector.data
            at += 1
        if vector.valid is not None:
            valid &= vector.valid
    return words, valid


KEYS = 1 << 18
"""Largest number of keys that a filter join keeps on a link."""


class Memory:
    """The keys and times of one `seen_within`. Not thread safe."""

    def __init__(self, join: SeenWithin, keys: int = KEYS) -> None:
        """Make room for `keys` keys, a power of two and at least WAYS."""
        self.join = join
        pairs = list(_pairs(join.matches))
        self.lookup_keys = [one for one, _ in pairs]
        self.stored_keys = [other for _, other in pairs]
        self.condition = None if join.condition is None else Condition(join.condition)
        self.width = 1 + words_of(self.lookup_keys)
        self.mask = keys // WAYS - 1
        self.entries = np.zeros(keys * self.width, np.int64)
        self.entries[:: self.width] = EMPTY
        self.homes = np.zeros(2 * AHEAD, np.int64)
        self.tally = np.zeros(TALLY_WORDS, np.int64)
        self.tally[NEWEST] = EMPTY

    @property
    def held(self) -> int:
        """Number of stored keys."""
        return int(self.tally[HELD])

    @property
    def alive(self) -> int:
        """Number of evicted keys that a row in order may look up."""
        return int(self.tally[ALIVE])

    @property
    def over(self) -> int:
        """Number of evicted keys that only late rows can look up."""
        return int(self.tally[OVER])

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return self.entries.nbytes

    def recall(self, columns: Columns, rows: int) -> Vector:
        """Look up and store the keys of the next rows; return which keys were seen, NULL if a part of a key is NULL."""
        times = columns["ts"]
        assert isinstance(times, Vector)
        lookup_keys, looks_up = key_words(self.lookup_keys, columns, rows)
        stored_keys, stores = key_words(self.stored_keys, columns, rows)
        if self.condition is not None:
            stores &= self.condition.true_rows(columns, rows)
        seen = np.empty(rows, np.bool_)
        recall(
            *(self.entries, self.mask, self.width, lookup_keys.reshape(-1), looks_up.view(np.uint8)),
            *(stored_keys.reshape(-1), stores.view(np.uint8)),
            *(np.ascontiguousarray(times.data), rows, self.join.duration, self.homes),
            *(seen.view(np.uint8), self.tally),
        )
        return Vector(seen, None if looks_up.all() else looks_up)


def bytes_of(join: SeenWithin) -> int:
    """Return the bytes that a `seen_within` needs on a link."""
    return 8 * KEYS * (1 + words_of([one for one, _ in _pairs(join.matches)]))


def _pairs(matches: Expression) -> list[tuple[Expression, Expression]]:
    """Return pairs of expressions that must be equal: one of the row that looks up its key, one of the earlier row."""
    assert isinstance(matches, Binary)
    if matches.op is Op.AND:
        return _pairs(matches.left) + _pairs(matches.right)
    return [(matches.left, matches.right)]


def filter_joins(plans: Iterable[LowLevelPlan]) -> list[SeenWithin]:
    """Return the distinct `seen_within` expressions of some plans."""
    wheres = [plan.where for plan in plans if plan.where is not None]
    return list(dict.fromkeys(part for where in wheres for part in parts_of(where) if isinstance(part, SeenWithin)))


def memory_of(plans: Iterable[LowLevelPlan]) -> int:
    """Return the bytes of all filter joins of a link's plans. Plans of one kind of rows share equal joins."""
    kinds: dict[object, list[LowLevelPlan]] = {}
    for plan in plans:
        kinds.setdefault((plan.kind, plan.sampling), []).append(plan)
    return sum(bytes_of(join) for of_kind in kinds.values() for join in filter_joins(of_kind))


@dataclass(frozen=True, slots=True)
class RecalledRows:
    """Rows of a reader, and the result columns of filter joins."""

    count: int
    earliest: int
    columns: Columns
    arrivals: npt.NDArray[np.int64] | None


class LinkFilterJoins:
    """The filter joins of one kind of rows on a link. They must receive all rows in order. Not thread safe."""

    def __init__(self, plans: Iterable[LowLevelPlan]) -> None:
        """Create the memory of each filter join in plans of one kind of rows."""
        self.memories = [Memory(join) for join in filter_joins(plans)]

    def add(self, rows: Rows) -> Rows:
        """Process the next rows; return them with a result column for each filter join."""
        if not self.memories:
            return rows
        seen = {memory.join.column: memory.recall(rows.columns, rows.count) for memory in self.memories}
        return RecalledRows(rows.count, rows.earliest, _ExtendedColumns(rows.columns, seen), rows.arrivals)

    def add_samples(self, samples: Samples, link: str, kind: str) -> None:
        """Add the counters, summed over all filter joins."""
        if self.memories:
            samples.set(FILTER_JOIN_KEYS, sum(memory.held for memory in self.memories), link, kind)
            samples.set(FILTER_JOIN_BYTES, sum(memory.bytes for memory in self.memories), link, kind)
            samples.add(FILTER_JOIN_EVICTIONS, sum(memory.alive for memory in self.memories), link, kind, "alive")
            samples.add(FILTER_JOIN_EVICTIONS, sum(memory.over for memory in self.memories), link, kind, "over")


class _ExtendedColumns(Mapping[str, AnyVector]):
    """Columns of a batch, and additional columns."""

    def __init__(self, columns: Columns, more: Mapping[str, AnyVector]) -> None:
        self._columns = columns
        self._more = more

    def __getitem__(self, name: str) -> AnyVector:
        return self._more[name] if name in self._more else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._columns
        yield from self._more

    def __len__(self) -> int:
        return len(self._columns) + len(self._more)
