"""The kernel of ranks at each instant: it processes the starts and ends of rows in the order of time.

    position   0   1   2   3   4   5        the rows in the order of their ranks, one partition after the other
    count      1   0   2   0   1   1        copies that are true now
    shown      1   0   1   0   0   0        copies within the limit: LIMIT 2
    members    0   2                        positions with copies within the limit

At each instant only partitions with a change are computed again, from their first changed position on. If rows before
this position already reach the limit, nothing changes in the partition. The next row that is true is found with a tree
of partial sums (Fenwick 1994). So an instant needs O(log n) steps for each start, each end, and each member that is
computed again.
"""

from __future__ import annotations

from typing import NamedTuple

from capture.native import Integer, Integers, helper, kernel, outlined

NO_RANK, ROW_NUMBER, RANK, DENSE_RANK = range(4)
"""The value that is computed for a member: none, its row number, its rank, or its rank without gaps."""

POSITION, SINCE, UNTIL, RANK_OF, COPIES, PERIOD_WORDS = range(6)
"""Words of a period, in which a position has a constant rank and a constant number of copies within the limit."""

UNCHANGED = -1
"""The value of the first changed position, for a partition without changes."""


class RankedRows(NamedTuple):
    """The rows by their positions, and the partitions.

    `bounds`: the first position of each partition, and the last bound.

    `peers`: the first position with equal keys. `since` and `ranks`: start of the period and rank of the copies within
    the limit (`shown`). `tree`: partial sums of `count`. `members`: from the first position of a partition on, the
    positions of its members; their number is in `sizes`, the number of their copies in `totals`. `old` and `stamps` are
    memory for one instant.
    """

    count: Integers
    peers: Integers
    partitions: Integers
    shown: Integers
    since: Integers
    ranks: Integers
    tree: Integers
    members: Integers
    old: Integers
    stamps: Integers
    bounds: Integers
    sizes: Integers
    totals: Integers
    least: Integers
    changed: Integers


class RankLimits(NamedTuple):
    """The copies `[first, last)`, counted from 0, are members. `function`: the value that is computed for them.

    `size`: the number of positions.
    """

    size: Integer
    function: Integer
    first: Integer
    last: Integer


class Instants(NamedTuple):
    """Starts and ends in the order of time: at `times` the number of copies at `positions` changes by `deltas`."""

    times: Integers
    positions: Integers
    deltas: Integers


class Periods(NamedTuple):
    """The output: `count[0]` periods, at most `room`. `count[1]` is the number of computations so far."""

    words: Integers
    room: Integer
    count: Integers


@helper
def copies_before(rows: RankedRows, position):  # type: ignore[no-untyped-def]
    """Return the number of copies at smaller positions."""
    total = 0
    at = position
    while at > 0:
        total += rows.tree[at]
        at -= at & -at
    return total


@helper
def position_of_copy(rows: RankedRows, number, size):  # type: ignore[no-untyped-def]
    """Return the position of copy `number`, counted from 0; `size` if there are fewer copies."""
    step = 1
    while 2 * step <= size:
        step *= 2
    at = 0
    left = number
    while step:
        following = at + step
        if following <= size and rows.tree[following] <= left:
            at = following
            left -= rows.tree[following]
        step //= 2
    return at


@helper
def write_period(rows: RankedRows, output: Periods, position, until):  # type: ignore[no-untyped-def]
    """Write the period of a member that ends now."""
    base = output.count[0] * PERIOD_WORDS
    output.count[0] += 1
    words = output.words
    words[base + POSITION] = position
    words[base + SINCE] = rows.since[position]
    words[base + UNTIL] = until
    words[base + RANK_OF] = rows.ranks[position]
    words[base + COPIES] = rows.shown[position]


@helper
def first_member_from(rows: RankedRows, begin, size, position):  # type: ignore[no-untyped-def]
    """Return the number of members of a partition that are before a position."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        if rows.members[begin + middle] < position:
            low = middle + 1
        else:
            high = middle
    return low


@outlined
def rank_partition(rows: RankedRows, limits: RankLimits, partition, time, output: Periods):  # type: ignore[no-untyped-def]
    """Compute the members of a partition again, and write the periods that end."""
    begin, end = rows.bounds[partition], rows.bounds[partition + 1]
    size, first_changed = rows.sizes[partition], rows.least[partition]
    is_full = rows.totals[partition] == limits.last - limits.first
    if is_full and (size == 0 or first_changed > rows.members[begin + size - 1]):
        return
    kept = first_member_from(rows, begin, size, first_changed)
    for number in range(kept, size):
        position = rows.members[begin + number]
        rows.old[number] = position
        rows.totals[partition] -= rows.shown[position]
    output.count[1] += 1
    stamp = output.count[1]
    before_partition = copies_before(rows, begin)
    copies = copies_before(rows, first_changed) - before_partition
    peer, rank = -1, 0
    if kept and limits.function == DENSE_RANK:
        last = rows.members[begin + kept - 1]
        peer, rank = rows.peers[last], rows.ranks[last]
    members = kept
    while copies < limits.last:
        position = position_of_copy(rows, before_partition + copies, limits.size)
        if position >= end:
            break
        number = rows.count[position]
        if limits.function == ROW_NUMBER:
            rank = copies + 1
        elif limits.function != NO_RANK and rows.peers[position] != peer:
            peer = rows.peers[position]
            rank = rank + 1 if limits.function == DENSE_RANK else copies_before(rows, peer) - before_partition + 1
        shown = min(copies + number, limits.last) - max(copies, limits.first)
        copies += number
        if shown <= 0:
            continue
        rows.stamps[position] = stamp
        rows.members[begin + members] = position
        members += 1
        rows.totals[partition] += shown
        if rows.shown[position] != shown or rows.ranks[position] != rank:
            if rows.shown[position]:
                write_period(rows, output, position, time)
            rows.shown[position] = shown
            rows.ranks[position] = rank
            rows.since[position] = time
    for number in range(kept, size):
        position = rows.old[number]
        if rows.stamps[position] != stamp:
            write_period(rows, output, position, time)
            rows.shown[position] = 0
    rows.sizes[partition] = members


@kernel("i64(RankedRows, RankLimits, Instants, i64, i64, Periods)")
def sweep_instants(rows: RankedRows, limits: RankLimits, instants: Instants, begin, end, output: Periods):  # type: ignore[no-untyped-def]
    """Process the starts and ends `[begin, end)`.

    Return the index of the next start or end, which is less than `end` if there is no room.

    One instant needs room for one period of each position.
    """
    size = limits.size
    at = begin
    while at < end:
        if output.count[0] + size > output.room:
            return at
        time = instants.times[at]
        changed = 0
        while at < end and instants.times[at] == time:
            position, delta = instants.positions[at], instants.deltas[at]
            rows.count[position] += delta
            node = position + 1
            while node <= size:
                rows.tree[node] += delta
                node += node & -node
            partition = rows.partitions[position]
            if rows.least[partition] == UNCHANGED:
                rows.changed[changed] = partition
                changed += 1
                rows.least[partition] = position
            elif position < rows.least[partition]:
                rows.least[partition] = position
            at += 1
        for number in range(changed):
            partition = rows.changed[number]
            rank_partition(rows, limits, partition, time, output)
            rows.least[partition] = UNCHANGED
    return end
