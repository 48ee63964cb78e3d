"""Filter joins (`seen_within`): the keys of earlier rows and the newest time of each key, in fixed memory.

`seen_within` is true for a row at time t if an earlier row with the same key has a time of at least t - duration. The
result is exact as long as no key is evicted. If more than BUCKET_ENTRIES keys have the same bucket, the oldest key is
evicted.

`evicted_live` counts evicted keys that are at most `duration` older than the newest row. If a later row looks up such a
key, `seen_within` is false instead of true; it is never true instead of false. `evicted_expired` counts the other
evicted keys, which only late rows can look up. The metric of evictions has the labels `alive` and `over` for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from capture.column_matrix import LINE_WORDS
from capture.lazy_dataclasses import dataclass
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
from lowlevel.rows.readers import Exports, Rows
from lowlevel.subaggregates import INT_MIN

# Memory consists of buckets of BUCKET_ENTRIES entries. An entry is the newest time of a key, and the words of the key.
# The hash of a key selects its bucket. Entries of a bucket are filled in order and never cleared, so a search ends at
# the first empty entry.


BUCKET_ENTRIES = 8
"""Entries of a bucket."""

PREFETCH_ROWS = 32
"""Number of rows whose buckets are prefetched together: two buckets per row."""

EMPTY_TIME = INT_MIN
"""The time of an empty entry."""

NEWEST_TIME, STORED_KEYS, EVICTED_LIVE, EVICTED_EXPIRED = range(4)
"""Words of the tally: the newest stored time; the number of entries; the two counters of evicted keys."""

TALLY_WORDS = 4


@helper
def hash_bucket(words, rows, row, word_count, mask):  # type: ignore[no-untyped-def]
    """Return the bucket of a row's key; the words of a key are `rows` apart in `words`."""
    hash_ = np.uint64(0x9E3779B97F4A7C15)
    for word in range(word_count):
        hash_ = (hash_ ^ np.uint64(words[word * rows + row])) * np.uint64(0xFF51AFD7ED558CCD)
        hash_ ^= hash_ >> np.uint64(32)
    return np.int64(hash_ & np.uint64(mask))


@helper
def find_entry(entries, bucket, width, words, rows, row):  # type: ignore[no-untyped-def]
    """Return the entry with the key of a row in the bucket at `bucket`, else the first empty entry, else -1."""
    for index in range(BUCKET_ENTRIES):
        entry = bucket + index * width
        if entries[entry] == EMPTY_TIME:
            return entry
        is_equal = True
        for word in range(width - 1):
            if entries[entry + 1 + word] != words[word * rows + row]:
                is_equal = False
                break
        if is_equal:
            return entry
    return -1


@helper
def find_oldest_entry(entries, bucket, width):  # type: ignore[no-untyped-def]
    """Return the entry with the smallest time in a full bucket."""
    oldest = bucket
    for index in range(1, BUCKET_ENTRIES):
        if entries[bucket + index * width] < entries[oldest]:
            oldest = bucket + index * width
    return oldest


@kernel("i64(i64*, i64, i64, i64*, u8*, i64*, u8*, i64*, i64, i64, i64*, u8*, i64*)")
def look_up_and_store(  # type: ignore[no-untyped-def]
    entries, mask, width, lookup_keys, looks_up, stored_keys, stores, times, row_count, duration, buckets, seen, tally
):  # fmt: skip
    """Write to `seen` whether an earlier row with a time of at least the row's time - `duration` stored the row's key.

    * `entries`: (mask + 1) * BUCKET_ENTRIES entries of `width` words; the first word is a time.
    * `lookup_keys`, `stored_keys`: words (width - 1 times `row_count`) of the keys to look up and to store.
    * `looks_up`, `stores`: whether a row looks up its key, and whether it stores its key. A row looks up first.
    * `buckets`: scratch, 2 * PREFETCH_ROWS words. `tally`: TALLY_WORDS words.

    In a full bucket the oldest key is evicted, which may be the new key. Returns `row_count`.
    """
    newest_time = tally[NEWEST_TIME]
    word_count = width - 1
    for group_start in range(0, row_count, PREFETCH_ROWS):
        group_end = min(row_count, group_start + PREFETCH_ROWS)
        for row in range(group_start, group_end):
            position = 2 * (row - group_start)
            if looks_up[row]:
                buckets[position] = hash_bucket(lookup_keys, row_count, row, word_count, mask) * BUCKET_ENTRIES * width
                prefetch(entries, buckets[position])
                prefetch(entries, buckets[position] + LINE_WORDS)
            if stores[row]:
                buckets[position + 1] = (
                    hash_bucket(stored_keys, row_count, row, word_count, mask) * BUCKET_ENTRIES * width
                )
                prefetch(entries, buckets[position + 1])
                prefetch(entries, buckets[position + 1] + LINE_WORDS)
        for row in range(group_start, group_end):
            position = 2 * (row - group_start)
            time = times[row]
            seen[row] = 0
            if looks_up[row]:
                entry = find_entry(entries, buckets[position], width, lookup_keys, row_count, row)
                min_time = time - duration if time > EMPTY_TIME + duration else EMPTY_TIME + 1
                seen[row] = np.uint8(entry >= 0 and entries[entry] >= min_time)
            if stores[row]:
                newest_time = max(newest_time, time)
                bucket = buckets[position + 1]
                entry = find_entry(entries, bucket, width, stored_keys, row_count, row)
                if entry >= 0 and entries[entry] != EMPTY_TIME:
                    entries[entry] = max(entries[entry], time)
                    continue
                if entry >= 0:
                    tally[STORED_KEYS] += 1
                else:
                    entry = find_oldest_entry(entries, bucket, width)
                    evicted_time = min(entries[entry], time)
                    oldest_useful_time = newest_time - duration if newest_time > EMPTY_TIME + duration else EMPTY_TIME
                    tally[EVICTED_LIVE if evicted_time >= oldest_useful_time else EVICTED_EXPIRED] += 1
                    if time < entries[entry]:
                        continue
                entries[entry] = time
                for word in range(word_count):
                    entries[entry + 1 + word] = stored_keys[word * row_count + row]
    tally[NEWEST_TIME] = newest_time
    return row_count


# Equal keys of a filter join have equal words, also if they are computed from different columns.
#
# An integer is one word and an address is two. One more word contains the versions of all addresses of a key, because
# 10.0.0.1 is not ::a00:1.


VERSION_BITS = 3
"""Bits of the version of an address in the word of versions."""

Words = npt.NDArray[np.int64]


def count_key_words(key: Sequence[Expression]) -> int:
    """Return the number of words of a key."""
    address_count = sum(part.type is Type.ADDRESS for part in key)
    return len(key) + address_count + (address_count > 0)


def make_key_words(key: Sequence[Expression], columns: Columns, row_count: int) -> tuple[Words, Mask]:
    """Return the words of the rows' keys, `[word, row]`, and a mask of the rows whose keys have no NULL."""
    words = np.zeros((count_key_words(key), row_count), np.int64)
    valid = np.ones(row_count, np.bool_)
    word, address_count = 0, 0
    for part in key:
        vector = evaluate(part, columns)
        if isinstance(vector, AddressVector):
            words[word] = vector.low.view(np.int64)
            words[word + 1] = vector.high.view(np.int64)
            words[-1] |= np.asarray(vector.version, np.int64) << (VERSION_BITS * address_count)
            word, address_count = word + 2, address_count + 1
        else:
            assert isinstance(vector, Vector)
            words[word] = vector.data
            word += 1
        if vector.valid is not None:
            valid &= vector.valid
    return words, valid


MAX_KEYS = 1 << 18
"""Largest number of keys that a filter join keeps on a link."""


class SeenKeys:
    """The keys and times of one `seen_within`. Not thread safe."""

    def __init__(self, join: SeenWithin, max_keys: int = MAX_KEYS) -> None:
        """Make room for `max_keys` keys, a power of two and at least BUCKET_ENTRIES."""
        self.join = join
        pairs = list(_list_pairs(join.matches))
        self.lookup_expressions = [lookup for lookup, _ in pairs]
        self.stored_expressions = [stored for _, stored in pairs]
        self.condition = None if join.condition is None else Condition(join.condition)
        self.width = 1 + count_key_words(self.lookup_expressions)
        self.mask = max_keys // BUCKET_ENTRIES - 1
        self.entries = np.zeros(max_keys * self.width, np.int64)
        self.entries[:: self.width] = EMPTY_TIME
        self.bucket_scratch = np.zeros(2 * PREFETCH_ROWS, np.int64)
        self.tally = np.zeros(TALLY_WORDS, np.int64)
        self.tally[NEWEST_TIME] = EMPTY_TIME

    @property
    def key_count(self) -> int:
        """Number of stored keys."""
        return int(self.tally[STORED_KEYS])

    @property
    def evicted_live(self) -> int:
        """Number of evicted keys that a row in order may look up."""
        return int(self.tally[EVICTED_LIVE])

    @property
    def evicted_expired(self) -> int:
        """Number of evicted keys that only late rows can look up."""
        return int(self.tally[EVICTED_EXPIRED])

    @property
    def bytes(self) -> int:
        """Bytes of the entries."""
        return self.entries.nbytes

    def process(self, columns: Columns, row_count: int) -> Vector:
        """Look up and store the keys of the next rows. Return whether each key was seen, NULL for a key with a NULL."""
        times = columns["ts"]
        assert isinstance(times, Vector)
        lookup_keys, looks_up = make_key_words(self.lookup_expressions, columns, row_count)
        stored_keys, stores = make_key_words(self.stored_expressions, columns, row_count)
        if self.condition is not None:
            stores &= self.condition.true_rows(columns, row_count)
        seen = np.empty(row_count, np.bool_)
        look_up_and_store(
            *(self.entries, self.mask, self.width, lookup_keys.reshape(-1), looks_up.view(np.uint8)),
            *(stored_keys.reshape(-1), stores.view(np.uint8)),
            *(np.ascontiguousarray(times.data), row_count, self.join.duration, self.bucket_scratch),
            *(seen.view(np.uint8), self.tally),
        )
        return Vector(seen, None if looks_up.all() else looks_up)


def count_join_bytes(join: SeenWithin) -> int:
    """Return the bytes that a `seen_within` needs on a link."""
    return 8 * MAX_KEYS * (1 + count_key_words([lookup for lookup, _ in _list_pairs(join.matches)]))


def _list_pairs(matches: Expression) -> list[tuple[Expression, Expression]]:
    """Return pairs of expressions that must be equal: one of the row that looks up its key, one of the earlier row."""
    assert isinstance(matches, Binary)
    if matches.op is Op.AND:
        return _list_pairs(matches.left) + _list_pairs(matches.right)
    return [(matches.left, matches.right)]


def list_filter_joins(plans: Iterable[LowLevelPlan]) -> list[SeenWithin]:
    """Return the distinct `seen_within` expressions of some plans."""
    predicates = [plan.where for plan in plans if plan.where is not None]
    return list(
        dict.fromkeys(part for predicate in predicates for part in parts_of(predicate) if isinstance(part, SeenWithin))
    )


def count_filter_join_bytes(plans: Iterable[LowLevelPlan]) -> int:
    """Return the bytes of all filter joins of a link's plans. Plans of one kind of rows share equal joins."""
    plans_by_kind: dict[object, list[LowLevelPlan]] = {}
    for plan in plans:
        plans_by_kind.setdefault((plan.kind, plan.sampling), []).append(plan)
    return sum(
        count_join_bytes(join) for plans_of_kind in plans_by_kind.values() for join in list_filter_joins(plans_of_kind)
    )


@dataclass(frozen=True, slots=True)
class ExtendedRows:
    """Rows of a reader, and the result columns of filter joins."""

    count: int
    earliest: int
    columns: Columns
    arrivals: npt.NDArray[np.int64] | None
    exports: Exports | None


class LinkFilterJoins:
    """The filter joins of one kind of rows on a link. They must receive all rows in order. Not thread safe."""

    def __init__(self, plans: Iterable[LowLevelPlan]) -> None:
        """Create the memory of each filter join in plans of one kind of rows."""
        self.seen_keys = [SeenKeys(join) for join in list_filter_joins(plans)]

    def add(self, rows: Rows) -> Rows:
        """Process the next rows; return them with a result column for each filter join."""
        if not self.seen_keys:
            return rows
        results = {keys.join.column: keys.process(rows.columns, rows.count) for keys in self.seen_keys}
        columns = _ExtendedColumns(rows.columns, results)
        return ExtendedRows(rows.count, rows.earliest, columns, rows.arrivals, rows.exports)

    def add_samples(self, samples: Samples, link: str, kind: str) -> None:
        """Add the counters, summed over all filter joins."""
        if self.seen_keys:
            samples.set(FILTER_JOIN_KEYS, sum(keys.key_count for keys in self.seen_keys), link, kind)
            samples.set(FILTER_JOIN_BYTES, sum(keys.bytes for keys in self.seen_keys), link, kind)
            samples.add(FILTER_JOIN_EVICTIONS, sum(keys.evicted_live for keys in self.seen_keys), link, kind, "alive")
            samples.add(FILTER_JOIN_EVICTIONS, sum(keys.evicted_expired for keys in self.seen_keys), link, kind, "over")


class _ExtendedColumns(Mapping[str, AnyVector]):
    """Columns of a batch, and additional columns."""

    def __init__(self, columns: Columns, added_columns: Mapping[str, AnyVector]) -> None:
        self._columns = columns
        self._added_columns = added_columns

    def __getitem__(self, name: str) -> AnyVector:
        return self._added_columns[name] if name in self._added_columns else self._columns[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._columns
        yield from self._added_columns

    def __len__(self) -> int:
        return len(self._columns) + len(self._added_columns)
