"""Timestamps of packets: even slots, then disorder.

Packet i of a piece has a random time in slot i. So times increase, the rate is exact, and no time depends on another
packet. Disorder then moves each packet back (band) or to a random time in its block (blocks), never over the edges of
its piece. With D the span:

    band     ts = slot - U(0, D)                  hence  highest ts so far - ts < D   for every packet
    blocks   ts in the D-wide block of the slot   hence  no ts is below the block of any packet before it
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capture.generate.timeline import Piece

UNIT_32 = 2.0**-32


def slot_times(piece: Piece, first: int, draws: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return increasing times in `[piece.start, piece.end)`, ns, of packets from `first` on (upper half of draws)."""
    slot = (piece.end - piece.start) / (piece.last - piece.first)
    slots = np.arange(first - piece.first, first - piece.first + len(draws)) + (draws >> np.uint64(32)) * UNIT_32
    # A value just below the last slot's end is rounded up to it in floating point, but the end is outside the piece.
    return piece.start + np.minimum((slots * slot).astype(np.int64), piece.end - piece.start - 1)


def disordered(
    times: NDArray[np.int64], piece: Piece, disorder: str, span: int, unit: int, draws: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return `times` in the given disorder, truncated to multiples of `unit` ns. Uses the lower half of each draw.

    The summands are truncated, not the result, because a truncated result could be late by the full span.
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
