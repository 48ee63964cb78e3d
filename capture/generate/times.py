"""Timestamps of packets. First all packets get times in order, then disorder is added to the times.

A piece is divided into slots of equal length, one per packet. Packet i has a random time in slot i. So times increase,
the rate is exact, and no time depends on another packet. The disorder `band` then makes each time earlier; the disorder
`blocks` replaces it by a random time in its block. No packet leaves its piece. With a disorder span of D:

    band     ts = time in slot - U(0, D)          so  largest ts so far - ts < D   for every packet
    blocks   ts in the D-wide block of the slot   so  no ts is before the block of an earlier packet
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from capture.generate.timeline import Piece

UNIT_32 = 2.0**-32


def slot_times(piece: Piece, first: int, draws: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return increasing times (ns) in `[piece.start, piece.end)`, one per draw, for the packets from index `first` on.

    Uses the upper half of each draw.
    """
    slot_length = (piece.end - piece.start) / (piece.last - piece.first)
    slot_positions = (
        np.arange(first - piece.first, first - piece.first + len(draws)) + (draws >> np.uint64(32)) * UNIT_32
    )
    # Floating point may round a time in the last slot up to the end of the piece, which is outside the piece.
    return piece.start + np.minimum((slot_positions * slot_length).astype(np.int64), piece.end - piece.start - 1)


def add_disorder(
    times: NDArray[np.int64], piece: Piece, disorder: str, span: int, unit: int, draws: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return `times` with disorder, as multiples of `unit` ns. Uses the lower half of each draw.

    Time and delay are rounded down separately. If their difference were rounded down, a packet could be late by the
    full span.
    """
    if disorder == "none":
        return times - times % unit
    uniform = (draws & np.uint64(0xFFFFFFFF)) * UNIT_32
    if disorder == "band":
        delay = (uniform * np.minimum(span, times - piece.start)).astype(np.int64)
        return times - times % unit - (delay - delay % unit)
    block_start = np.maximum(times - times % span, piece.start)
    block_end = np.minimum(block_start - block_start % span + span, piece.end)
    times_in_block = block_start + np.minimum(
        (uniform * (block_end - block_start)).astype(np.int64), block_end - block_start - 1
    )
    return times_in_block - times_in_block % unit
