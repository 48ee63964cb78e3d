"""Rates of a link over time: pieces of constant rate, split at the edges of lulls and attacks.

    rate  |            +-----+  attack
          |  +---------+     +---+        +----
          |  |                   |        |
          +--+-------------------+--------+-----> time from the start of the capture, ns
             [ piece 0 )[ 1 )[ 2 )  lull  [ 3 )

The index of a packet determines its piece. The piece determines the time of the packet, and the attacks to which it may
belong. So any range of packets can be generated without the packets before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from capture.lazy_dataclasses import dataclass
from capture.units import SECOND

MAX_PIECES = 100_000
"""Maximum number of periodic lulls."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An interval `[start, end)` with constant rates. It contains the packets with indices `[first, last)`.

    Times are ns from the start of the capture. `rates[0]` is the background rate in packets/s. `rates[1 + k]` is the
    rate of attack k, 0 if the attack is inactive.
    """

    start: int
    end: int
    first: int
    last: int
    rates: tuple[float, ...]


def periodic_lulls(every: int, length: int, until: int) -> list[tuple[int, int]]:
    """Return lulls as intervals `[start, end)`: the last `length` ns of every `every` ns before time `until`."""
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

    `bursts`: attacks as (start, end, packets/s). In a lull every rate is 0. The total number of packets is rounded,
    not the number per piece. So the total differs from the exact value by less than one packet.
    """
    silences = _merged(lulls)
    edges = {0, end}
    for interval in (*silences, *(burst[:2] for burst in bursts)):
        edges.update(edge for edge in interval if 0 < edge < end)
    ordered = sorted(edges)
    result: list[Piece] = []
    total, expected, next_lull = 0, 0.0, 0
    for start, stop in pairwise(ordered):
        while next_lull < len(silences) and silences[next_lull][1] <= start:
            next_lull += 1
        if next_lull < len(silences) and silences[next_lull][0] <= start:
            continue
        rates = (rate, *(burst[2] if burst[0] <= start < burst[1] else 0.0 for burst in bursts))
        expected_before = expected
        expected += sum(rates) * (stop - start) / SECOND
        if packets is not None and expected >= packets:
            stop = min(stop, start + max(1, math.ceil((packets - expected_before) * SECOND / sum(rates))))
            expected = packets
        packets_so_far = round(expected)
        if packets_so_far > total:
            result.append(Piece(start, stop, total, packets_so_far, rates))
            total = packets_so_far
        if total == packets:
            break
    return tuple(result)


def _merged(intervals: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of half-open intervals as disjoint intervals, in order."""
    union: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(end, union[-1][1]))
        else:
            union.append((start, end))
    return union
