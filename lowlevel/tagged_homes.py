"""Where the entries of many packets stand, in a table with tags: told for all of them before any is looked at."""

from __future__ import annotations

import numpy as np

from capture.native import helper
from capture.prefetch import prefetch
from lowlevel.table_entries import AHEAD, mix
from lowlevel.tags import BUCKET, first_of, free, home_of, tag_of, tagged


@helper
def next_rows(homes, chosen, choose, begin, rows):  # type: ignore[no-untyped-def]
    """Write the next AHEAD rows from `begin` on that are `chosen` to `homes`; return how many, and where to go on."""
    end = min(rows, begin + AHEAD)
    found = np.int64(end - begin)
    if choose:
        end = begin
        found = np.int64(0)
        while end < rows and found < AHEAD:
            homes[found] = end
            found += chosen[end]
            end += 1
    else:
        for number in range(found):
            homes[number] = begin + number
    return found, end


@helper
def hash_keys(hashes, homes, found, key_words, words, word_at, begin, choose):  # type: ignore[no-untyped-def]
    """Mix the key of each of `found` rows in `homes` into its hash; they are those from `begin` on unless `choose`."""
    for word in range(key_words):
        if choose:
            for number in range(found):
                hashes[number] = mix(hashes[number], words[word_at[word] + homes[number]])
        else:
            for number in range(found):
                hashes[number] = mix(hashes[number], words[word_at[word] + begin + number])


@helper
def find_tagged(slots, tags, buckets, width, hashes, homes, found):  # type: ignore[no-untyped-def]
    """Write where each entry may be to `homes[2 * AHEAD + number]`: a word of `slots`, or -1 where no tag is its own.

    The memory is asked for, of a new entry's slot as well. `buckets` is their number less one.
    """
    straddles = (width & (width - 1)) != 0  # an entry may lie in two cache lines
    for number in range(found):
        prefetch(tags, np.int64(hashes[number] & buckets))
    for number in range(found):
        mixed = hashes[number]
        bucket = mixed & buckets
        held = tags[np.int64(bucket)]
        same = tagged(held, tag_of(mixed))
        place = first_of(same if same != np.uint64(0) else free(held, home_of(mixed)))
        at = np.int64(bucket * np.uint64(BUCKET) + place) * width
        prefetch(slots, at)
        if straddles:
            prefetch(slots, at + width - 1)
        homes[2 * AHEAD + number] = at if same != np.uint64(0) else -1  # an empty slot may hold what has left


@helper
def write_tag(tags, bucket, place, tag):  # type: ignore[no-untyped-def]
    """Make `tag` that of the slot `place` (uint64) of a bucket; 0 says that it is empty."""
    shift = place << np.uint64(3)
    tags[bucket] = (tags[bucket] & ~(np.uint64(0xFF) << shift)) | (tag << shift)
