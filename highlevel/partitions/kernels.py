"""Kernels that number the rows of each partition separately.

A *life* of a partition is a series of rows that are numbered from 0. Without IDLE it contains all rows of the
partition; with IDLE, the rows between two pauses. `current[partition]` is its current life, or NO_LIFE.
"""

from __future__ import annotations

from capture.native import kernel

NO_LIFE = -1
"""The partition has no current life."""


@kernel("i64(i64*, i64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*)")
def rank_rows(  # type: ignore[no-untyped-def]
    partitions, times, rows, idle, life_count, current, partition_of, counts, newest, lives, ranks
):  # fmt: skip
    """Write the life of each row, and its number in the life, in row order. Return the number of known lives.

    A row that is `idle` ns or more later than the newest row of its partition begins another life. `partition_of`,
    `counts` and `newest` are indexed by life. `life_count` is the number of lives before the call. The arrays have room
    for `life_count + rows`.
    """
    for row in range(rows):
        partition = partitions[row]
        life = current[partition]
        if life == NO_LIFE or times[row] - newest[life] >= idle:
            life = life_count
            life_count += 1
            current[partition] = life
            partition_of[life] = partition
            counts[life] = 0
            newest[life] = times[row]
        lives[row] = life
        ranks[row] = counts[life]
        counts[life] += 1
        newest[life] = max(newest[life], times[row])
    return life_count


@kernel("i64(i64*, i64*, i64, i64, i64, i64, i64*, i64*, i64*, i64*)")
def find_closing_windows(  # type: ignore[no-untyped-def]
    lives, panes, rows, pane, range_, slide, reported, final, first, counts
):  # fmt: skip
    """Write the final and not yet reported windows of each partial: `counts[i]` windows from window `first[i]` on.

    A pane has `pane` rows. Window IDs below `final[life]` are final, and IDs below `reported[life]` have been reported.
    Return the number of partials that are only in final windows.
    """
    final_partials = 0
    for row in range(rows):
        life = lives[row]
        number = panes[row] * pane
        begin = max(number // slide, reported[life])
        after = (number + range_) // slide
        first[row] = begin
        counts[row] = max(0, min(after, final[life]) - begin)
        if after <= final[life]:
            final_partials += 1
    return final_partials
