"""Functions of byte strings: one kernel per function, over positions in the bytes of a block."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions.columns import BytesVector, Mask

KEPT = 64
"""Largest number of patterns in the cache of shifts."""


@kernel("i64(u8*, i64*, i64*, i64, u8*, i64, i64*, u8*)")
def find_pattern(data, start, length, rows, pattern, size, shifts, found):  # type: ignore[no-untyped-def]
    """Write to `found` whether `[start, start + length)` of `data` contains the pattern of `size` bytes; return `rows`.

    Horspool's search: `shifts` (256 entries) is the distance by which the pattern moves if that byte is at its end. All
    byte strings are inside `data`.
    """
    for row in range(rows):
        at = start[row]
        last = at + length[row] - size
        hit = 0
        while at <= last:
            place = size - 1
            while place >= 0 and data[at + place] == pattern[place]:
                place -= 1
            if place < 0:
                hit = 1
                break
            at += shifts[data[at + size - 1]]
        found[row] = hit
    return rows


@kernel("i64(u8*, i64*, i64*, i64, u8*, i64, u8*)")
def match_start(data, start, length, rows, pattern, size, found):  # type: ignore[no-untyped-def]
    """Write to `found` whether the byte strings in `data` begin with the pattern of `size` bytes; return `rows`."""
    for row in range(rows):
        hit = 1 if length[row] >= size else 0
        at = start[row]
        place = 0
        while hit and place < size:
            if data[at + place] != pattern[place]:
                hit = 0
            place += 1
        found[row] = hit
    return rows


@kernel("i64(u8*, i64*, i64*, i64*, i64, i64*, u8*)")
def take_byte(data, start, length, offset, rows, value, present):  # type: ignore[no-untyped-def]
    """Write the byte at `offset` of each byte string to `value`, and to `present` whether it exists; return `rows`."""
    for row in range(rows):
        inside = 0 <= offset[row] < length[row]
        present[row] = 1 if inside else 0
        value[row] = data[start[row] + offset[row]] if inside else 0
    return rows


SEARCH_BYTES = 1 << 22
"""Bytes that are copied for one search by a regular expression; one string may be larger."""


@lru_cache(KEPT)
def _shifts(pattern: bytes) -> npt.NDArray[np.int64]:
    shifts = np.full(256, max(1, len(pattern)), np.int64)
    for place, byte in enumerate(pattern[:-1]):
        shifts[byte] = len(pattern) - 1 - place
    return shifts


def contains(vector: BytesVector, pattern: bytes) -> Mask:
    """Return which byte strings contain `pattern`; all of them contain the empty pattern."""
    found = np.empty(len(vector.start), np.uint8)
    find_pattern(
        *_spans(vector), len(found), np.frombuffer(pattern or b"\0", np.uint8), len(pattern), _shifts(pattern), found
    )
    return found.view(np.bool_)


def starts_with(vector: BytesVector, pattern: bytes) -> Mask:
    """Return which byte strings begin with `pattern`."""
    found = np.empty(len(vector.start), np.uint8)
    match_start(*_spans(vector), len(found), np.frombuffer(pattern or b"\0", np.uint8), len(pattern), found)
    return found.view(np.bool_)


def matches(vector: BytesVector, pattern: str) -> Mask:
    """Return which byte strings contain a match of a regular expression of RE2, in which a character is a byte.

    The strings are copied for the library, at most SEARCH_BYTES at a time.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = np.empty(len(vector.start), np.bool_)
    ends = np.cumsum(vector.length)
    first = 0
    while first < len(found):
        before = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, before + SEARCH_BYTES, "right")))
        strings = [
            vector.data[start : start + length]
            for start, length in zip(vector.start[first:stop].tolist(), vector.length[first:stop].tolist(), strict=True)
        ]
        offsets = np.append(0, ends[first:stop] - before)
        data = np.concatenate(strings) if strings else np.empty(0, np.uint8)
        array = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(strings), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        found[first:stop] = np.asarray(pc.match_substring_regex(array, pattern))
        first = stop
    return found


def byte_at(vector: BytesVector, offset: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return the byte at `offset` (one offset for all rows or one per row), and which rows have it."""
    rows = len(vector.start)
    value = np.empty(rows, np.int64)
    present = np.empty(rows, np.uint8)
    take_byte(*_spans(vector), np.ascontiguousarray(np.broadcast_to(offset, rows)), rows, value, present)
    return value, present.view(np.bool_)


def _spans(vector: BytesVector) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return pointer(vector.data, "u8"), np.ascontiguousarray(vector.start), np.ascontiguousarray(vector.length)
