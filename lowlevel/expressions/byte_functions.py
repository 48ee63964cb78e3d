"""Functions of byte strings. A byte string is a range of the bytes of a block: its offset (`start`) and its length.

The kernels are functions that numba compiles to machine code.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from capture.native import kernel, pointer
from lowlevel.expressions.columns import BytesVector, Mask, Names, TextVector

CACHED_PATTERNS = 64
"""Maximum number of patterns in the cache of shifts."""


@kernel("i64(u8*, i64*, i64*, i64, u8*, i64, i64*, u8*)")
def find_pattern(data, start, length, rows, pattern, size, shifts, found):  # type: ignore[no-untyped-def]
    """Write to `found` whether `[start, start + length)` of `data` contains the pattern of `size` bytes; return `rows`.

    Horspool's search: if the text has byte b at the end of the pattern, the pattern moves forward by `shifts[b]`. All
    byte strings are inside `data`.
    """
    for row in range(rows):
        offset = start[row]
        last = offset + length[row] - size
        match = 0
        while offset <= last:
            index = size - 1
            while index >= 0 and data[offset + index] == pattern[index]:
                index -= 1
            if index < 0:
                match = 1
                break
            offset += shifts[data[offset + size - 1]]
        found[row] = match
    return rows


@kernel("i64(u8*, i64*, i64*, i64, u8*, i64, u8*)")
def match_start(data, start, length, rows, pattern, size, found):  # type: ignore[no-untyped-def]
    """Write to `found` whether each byte string begins with the pattern of `size` bytes; return `rows`."""
    for row in range(rows):
        match = 1 if length[row] >= size else 0
        index = 0
        while match and index < size:
            if data[start[row] + index] != pattern[index]:
                match = 0
            index += 1
        found[row] = match
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
"""Maximum number of bytes copied at once for a search with a regular expression. Longer strings are copied singly."""


@lru_cache(CACHED_PATTERNS)
def _shifts(pattern: bytes) -> npt.NDArray[np.int64]:
    """Return the shifts of Horspool's search (see `find_pattern`)."""
    shifts = np.full(256, max(1, len(pattern)), np.int64)
    for index, byte in enumerate(pattern[:-1]):
        shifts[byte] = len(pattern) - 1 - index
    return shifts


def contains(vector: BytesVector, pattern: bytes) -> Mask:
    """Return a mask of the byte strings that contain `pattern`. Every byte string contains the empty pattern."""
    is_match = np.empty(len(vector.start), np.uint8)
    find_pattern(
        *_spans(vector),
        len(is_match),
        np.frombuffer(pattern or b"\0", np.uint8),
        len(pattern),
        _shifts(pattern),
        is_match,
    )
    return is_match.view(np.bool_)


def starts_with(vector: BytesVector, pattern: bytes) -> Mask:
    """Return a mask of the byte strings that begin with `pattern`."""
    is_match = np.empty(len(vector.start), np.uint8)
    match_start(*_spans(vector), len(is_match), np.frombuffer(pattern or b"\0", np.uint8), len(pattern), is_match)
    return is_match.view(np.bool_)


def matches(vector: BytesVector, pattern: str) -> Mask:
    """Return a mask of the byte strings that match a regular expression (RE2 syntax); a character is one byte.

    The strings are copied into Arrow arrays of at most SEARCH_BYTES.
    """
    import pyarrow as pa

    from capture import arrow_compute as pc

    is_match = np.empty(len(vector.start), np.bool_)
    ends = np.cumsum(vector.length)
    first = 0
    while first < len(is_match):
        copied_bytes = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, copied_bytes + SEARCH_BYTES, "right")))
        strings = [
            vector.data[start : start + length]
            for start, length in zip(vector.start[first:stop].tolist(), vector.length[first:stop].tolist(), strict=True)
        ]
        offsets = np.append(0, ends[first:stop] - copied_bytes)
        data = np.concatenate(strings) if strings else np.empty(0, np.uint8)
        array = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(strings), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
        is_match[first:stop] = np.asarray(pc.match_substring_regex(array, pattern))
        first = stop
    return is_match


def byte_at(vector: BytesVector, offset: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Mask]:
    """Return the byte of each string at `offset`, and a mask of the strings that are long enough.

    `offset`: one number, or one number per row.
    """
    rows = len(vector.start)
    value = np.empty(rows, np.int64)
    present = np.empty(rows, np.uint8)
    take_byte(*_spans(vector), np.ascontiguousarray(np.broadcast_to(offset, rows)), rows, value, present)
    return value, present.view(np.bool_)


def _spans(vector: BytesVector) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the address of the data, and the starts and lengths as kernels need them."""
    return pointer(vector.data, "u8"), np.ascontiguousarray(vector.start), np.ascontiguousarray(vector.length)


_PRINTABLE = bytes(byte if 0x20 <= byte < 0x7F else ord(".") for byte in range(256))
"""Replacement of each byte in printable text: a dot for each byte that is not printable ASCII."""


def texts_of(column: BytesVector, *, as_hex: bool) -> TextVector:
    """Return byte strings as printable ASCII, with `.` for other bytes, or as hexadecimal digits."""
    names = Names()
    ids = np.zeros(column.start.shape, np.int64)
    for row, (start, length) in enumerate(zip(column.start.tolist(), column.length.tolist(), strict=True)):
        value = column.data[start : start + length].tobytes()
        ids[row] = names.add(value.hex() if as_hex else value.translate(_PRINTABLE).decode("ascii"))
    return TextVector(ids, names.texts, column.valid)
