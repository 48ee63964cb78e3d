"""A digest of all bytes of a capture, at the speed of memory. It detects accidental changes of a capture.

    bytes ──► segments of 64 MiB, on all cores ──► four sums each ──► BLAKE2b of all sums

A segment is read as words of 64 bits. Word i is added to sum i mod 4: `s = rotate(s + word * A) * B`. Each step is a
bijection of the sum for a given word, and of the word for a given sum. So two captures of equal length that differ in
one word of a segment never have equal sums. Captures that differ in several words by accident have equal sums with a
probability of about 2^-64. An attacker can construct captures with equal sums, so the digest is no protection against
attacks. BLAKE2b over all bytes took five times the processor time, which was half of the time of a replay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from capture.cores import count_cores
from capture.native import kernel

SEGMENT_BYTES = 64 << 20
"""Bytes of a segment. The digest depends on this number."""

SUM_COUNT = 4
"""Number of sums of a segment. They are independent, so a core computes them in parallel."""


@kernel("i64(u64*, i64, u64*)")
def add_words(words, count, sums):  # type: ignore[no-untyped-def]
    """Add `count` words, a multiple of SUMS, to the SUMS sums. The constants are those of XXH64. Return 0."""
    first, second = np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x9E3779B185EBCA87)
    left, right = np.uint64(31), np.uint64(33)
    a, b, c, d = sums[0], sums[1], sums[2], sums[3]
    for word in range(0, count, 4):
        a += words[word] * first
        a = ((a << left) | (a >> right)) * second
        b += words[word + 1] * first
        b = ((b << left) | (b >> right)) * second
        c += words[word + 2] * first
        c = ((c << left) | (c >> right)) * second
        d += words[word + 3] * first
        d = ((d << left) | (d >> right)) * second
    sums[0], sums[1], sums[2], sums[3] = a, b, c, d
    return 0


def digest_content(
    data: npt.NDArray[np.uint8], prefault_pages: Callable[[int, int], None] = lambda _start, _length: None
) -> str:
    """Return 32 hexadecimal digits that depend on the length and on all bytes of `data`, a mapped file.

    `prefault_pages` is called with the start and the length of each segment before it is read.
    """

    def add_segment(start: int) -> npt.NDArray[np.uint64]:
        prefault_pages(start, SEGMENT_BYTES)
        return _add_segment(data[start : start + SEGMENT_BYTES])

    with ThreadPoolExecutor(count_cores(), "digest") as threads:
        segments = threads.map(add_segment, range(0, len(data), SEGMENT_BYTES))
        digest = hashlib.blake2b(len(data).to_bytes(8, "little"), digest_size=16)
        for sums in segments:
            digest.update(sums.tobytes())
    return digest.hexdigest()


def _add_segment(segment: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return the sums of a segment. It is padded with zeros to a multiple of SUMS words."""
    sums = np.zeros(SUM_COUNT, np.uint64)
    whole = len(segment) // (8 * SUM_COUNT) * SUM_COUNT
    add_words(segment[: 8 * whole].view(np.uint64), whole, sums)
    rest = np.zeros(SUM_COUNT, np.uint64)
    rest.view(np.uint8)[: len(segment) - 8 * whole] = segment[8 * whole :]
    add_words(rest, SUM_COUNT, sums)
    return sums
