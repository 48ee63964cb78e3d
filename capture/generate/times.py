"""Timestamps of packets: even slots, then disorder.

Packet i of a piece lies at a random place of slot i, so times rise, the rate is exact, and no time depends on another
packet. Disorder then takes each packet back (band) or anywhere into its block (blocks), never over the edges of its
piece. So, with D the span:

    band     ts = slot - U(0, D)                  hence  highest ts so far - ts < D   for every packet
    blocks   ts in the D-wide block of the slot   hence  no ts is below the block of any packet before it
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capture.generate.timeline import Piece

UNIT_32 = 2.0**-32


def slot_times(piece: Piece, first: int, draws: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return rising times in `[piece.start, piece.end)`, ns, of packets `first, …`, by the upper half of each draw."""
    slot = (piece.end - piece.start) / (piece.last - piece.first)
    places = np.arange(first - piece.first, first - piece.first + len(draws)) + (draws >> np.uint64(32)) * UNIT_32
    # A place just below the last slot's end rounds up to it in floating point; the end is not in the piece.
    return piece.start + np.minimum((places * slot).astype(np.int64), piece.end - piece.start - 1)


def disordered(
    times: NDArray[np.int64], piece: Piece, disorder: str, span: int, unit: int, draws: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return `times`, cut to multiples of `unit` ns, in the disorder asked for (one draw per time, its lower half).

    The parts are cut, not the result: a cut result could be late by the full span.
    """
    if disorder == "none":
        return times - times % unit
    chance = (draws & np.uint64(0xFFFFFFFF)) * UNIT_32
    if disorder == "band":
        late = (chance * np.minimum(span, times - piece.start)).astype(np.int64)
        return times - times % unit - (late - late % unit)
    low = np.maximum(times - times % span, piece.start)
    high = np.minimum(low - low % span + span, piece.end)
    moved = low + np.minimum((chance * (high - low)).astype(np.int64), high - low - 1)
    return moved - moved % unit
