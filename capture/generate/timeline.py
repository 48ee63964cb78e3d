"""Rates of a link over time: pieces of constant rate, split at the edges of lulls and attacks.

    rate  |            +-----+  attack
          |  +---------+     +---+        +----
          |  |                   |        |
          +--+-------------------+--------+-----> time from the start of the capture, ns
             [ piece 0 )[ 1 )[ 2 )  lull  [ 3 )

The index of a packet determines its piece, and the piece determines its time and the possible attacks. So any range of
packets can be made without the packets before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from capture.units import SECOND

MAX_PIECES = 100_000


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval `[start, end)` in which packets `[first, last)` are sent at constant rates.

    Times are ns from the start of the capture. `rates[0]` is the background rate in packets/s, `rates[1 + k]` that of
    attack k (0 if it is inactive).
    """

    start: int
    end: int
    first: int
    last: int
    rates: tuple[float, ...]


def periodic_lulls(every: int, length: int, until: int) -> list[tuple[int, int]]:
    """Return the lulls `[start, end)`: the last `length` ns of every `every` ns before `until`."""
    if not length:
        return []
    if until // every > MAX_PIECES:
        raise ValueError(
            f"lull_every: got {every} ns, which makes {until // every} lulls in {until} ns, "
            f"expected at most {MAX_PIECES}: each is kept in memory"
        )
    return [(start + every - length, start + every) for start in range(0, until, every)]


def pieces(
    rate: float,
    bursts: Sequence[tuple[int, int, float]],
    lulls: Sequence[tuple[int, int]],
    end: int,
    packets: int | None,
) -> tuple[Piece, ...]:
    """Split `[0, end)` into pieces that contain packets. Stop after `packets` packets if given.

    `bursts`: attacks as (start, end, packets/s). In a lull every rate is 0. Counts are rounded cumulatively, so the
    total differs by less than one packet for any number of pieces.
    """
    silent = _merged(lulls)
    edges = {0, end}
    for interval in (*silent, *(burst[:2] for burst in bursts)):
        edges.update(edge for edge in interval if 0 < edge < end)
    ordered = sorted(edges)
    made: list[Piece] = []
    total, expected, lull = 0, 0.0, 0
    for low, high in pairwise(ordered):
        while lull < len(silent) and silent[lull][1] <= low:
            lull += 1
        if lull < len(silent) and silent[lull][0] <= low:
            continue
        rates = (rate, *(burst[2] if burst[0] <= low < burst[1] else 0.0 for burst in bursts))
        before = expected
        expected += sum(rates) * (high - low) / SECOND
        if packets is not None and expected >= packets:
            high = min(high, low + max(1, math.ceil((packets - before) * SECOND / sum(rates))))
            expected = packets
        last = round(expected)
        if last > total:
            made.append(Piece(low, high, total, last, rates))
            total = last
        if total == packets:
            break
    return tuple(made)


def _merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open intervals as sorted, disjoint intervals."""
    union: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union
