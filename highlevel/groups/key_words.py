"""Group columns as machine words, and back: equal values have equal words, and unequal values have unequal words.

    form       values                                        words
    NUMBER     64 bits: integers, BOOL, FLOAT                1: the value
    NULLABLE   the same, with NULLs                          2: the value or 0, whether it is NULL
    SHORT      strings of up to 7 bytes: IPv4, MACs, names   1: the bytes, above them the length + 1; 0 is NULL
    WIDE       strings of up to 16 bytes: IPv6               3: the bytes in two words, the length + 1 (0: NULL)
    LONG       strings of any length                         1: its number (`long_strings`); -1 is NULL

A column has the smallest form for its values, so IPv4 addresses need no room for IPv6. All NaN have the same words, and
both zeros too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture import arrow_compute as pc
from capture.arrow_compute import array_of
from capture.native import kernel

Words = npt.NDArray[np.int64]


class Form(IntEnum):
    """Encoding of a group column in words. The greater of two forms of a column can encode the values of both."""

    NUMBER = 0
    NULLABLE = 1
    SHORT = 2
    WIDE = 3
    LONG = 4


WIDTHS = {Form.NUMBER: 1, Form.NULLABLE: 2, Form.SHORT: 1, Form.WIDE: 3, Form.LONG: 1}
"""Words of each form."""

SHORT_BYTES = 7
WIDE_BYTES = 16


@kernel("i64(u8*, i64*, u8*, i64, i64, i64, i64*)")
def pack_strings(data, offsets, valid, has_nulls, rows, words, packed):  # type: ignore[no-untyped-def]
    """Write strings to `packed` (words x rows): the bytes in one or two words, low bytes first, and the length + 1.

    String i is `data[offsets[i]:offsets[i + 1]]` and must fit. With `has_nulls` it is NULL unless `valid[i]`. With one
    word, the length is in the high bits above the bytes; with three, it is the last word. Returns `rows`.
    """
    for row in range(rows):
        if has_nulls and not valid[row]:
            for word in range(words):
                packed[word * rows + row] = 0
            continue
        first = offsets[row]
        length = offsets[row + 1] - first
        low = np.uint64(0)
        high = np.uint64(0)
        for position in range(min(length, 8)):
            low |= np.uint64(data[first + position]) << np.uint64(8 * position)
        for position in range(8, length):
            high |= np.uint64(data[first + position]) << np.uint64(8 * position - 64)
        if words == 1:
            packed[row] = np.int64(low) | ((length + 1) << 56)
        else:
            packed[row] = np.int64(low)
            packed[rows + row] = np.int64(high)
            packed[2 * rows + row] = length + 1
    return rows


@kernel("i64(i64*, i64, i64, i64*, u8*)")
def unpack_strings(packed, rows, words, offsets, data):  # type: ignore[no-untyped-def]
    """Write the bytes of packed strings (words x rows) to `data`, string i to `offsets[i]:offsets[i + 1]`."""
    for row in range(rows):
        first = offsets[row]
        length = offsets[row + 1] - first
        low = np.uint64(packed[row])
        for position in range(min(length, 8)):
            data[first + position] = (low >> np.uint64(8 * position)) & np.uint64(255)
        if words > 1:
            high = np.uint64(packed[rows + row])
            for position in range(8, length):
                data[first + position] = (high >> np.uint64(8 * position - 64)) & np.uint64(255)
    return rows


def is_string(arrow_type: pa.DataType) -> bool:
    """Return True for byte strings: text, IP addresses, MACs."""
    return is_text(arrow_type) or bool(pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


def is_text(arrow_type: pa.DataType) -> bool:
    """Return True if the bytes are text."""
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def _is_large(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(arrow_type) or pa.types.is_large_string(arrow_type))


def form_of(column: pa.Array) -> Form:
    """Return the smallest form for the values of a column. Raise TypeError if there is no form."""
    kind = column.type
    if is_string(kind):
        offsets = _offsets(column)
        longest = int((offsets[1:] - offsets[:-1]).max(initial=0))
        return Form.SHORT if longest <= SHORT_BYTES else Form.WIDE if longest <= WIDE_BYTES else Form.LONG
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or kind == pa.float64():
        return Form.NULLABLE if column.null_count else Form.NUMBER
    raise TypeError(f"a group column of type {kind}; expected integers, bool, float64, binary or string")


def _offsets(column: pa.Array) -> npt.NDArray[Any]:
    """Return the offsets of the strings of a column in its byte buffer, and after them the end of the last string."""
    if len(column) == 0:
        return np.zeros(1, np.int64)
    width = np.dtype(np.int64 if _is_large(column.type) else np.int32)
    return np.frombuffer(column.buffers()[1], width, len(column) + 1, column.offset * width.itemsize)


def to_number_words(column: pa.Array) -> Words:
    """Return the values of a column without NULLs as words."""
    if column.type == pa.float64():
        data = column.to_numpy(zero_copy_only=False)
        unequal = np.isnan(data)
        data = data + 0.0  # the two zeros are one
        if unequal.any():
            data[unequal] = np.nan
        return data.view(np.int64)
    if column.type == pa.uint64():
        return column.to_numpy().view(np.int64)
    return (pc.cast(column, pa.int64())).to_numpy()


def pack(column: pa.Array, form: Form, out: Words) -> None:
    """Write the words of a column to `out` (WIDTHS[form] x rows, contiguous). `form` is not LONG."""
    rows = len(column)
    if form is Form.NUMBER:
        out[0] = to_number_words(column)
        return
    if form is Form.NULLABLE:
        zero = pa.scalar(False if pa.types.is_boolean(column.type) else 0, column.type)
        out[0] = to_number_words(pc.fill_null(column, zero) if column.null_count else column)
        out[1] = np.asarray(pc.is_null(column))
        return
    offsets, data, valid = _offsets(column), string_bytes(column), validity(column)
    if form is Form.SHORT and not len(valid) and rows and bool((offsets[1:] - offsets[:-1] == 4).all()):
        out[0] = np.frombuffer(data, "<u4", rows, int(offsets[0]))
        out[0] |= 5 << 56
        return
    pack_strings(data, offsets.astype(np.int64, copy=False), valid, len(valid) > 0, rows, WIDTHS[form], out)


def string_offsets(column: pa.Array) -> Words:
    """Return the offsets of the strings of a column in `string_bytes`, and the end of the last string."""
    return _offsets(column).astype(np.int64, copy=False)


def string_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the byte buffer of the strings of a column."""
    data = column.buffers()[2] if len(column) else None
    return np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def validity(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Return 0 for each NULL and 1 for each value, or an empty array if there is no NULL."""
    return np.asarray(pc.is_valid(column)).view(np.uint8) if column.null_count else np.empty(0, np.uint8)


def unpack(words: Words, form: Form, arrow_type: pa.DataType) -> pa.Array:
    """Return the column of type `arrow_type` that `words` (WIDTHS[form] x rows) encode."""
    if form in (Form.NUMBER, Form.NULLABLE):
        data = words[0].copy()
        absent = words[1] != 0 if form is Form.NULLABLE else None
        if arrow_type == pa.float64():
            return array_of(data.view(np.float64), absent)
        if arrow_type == pa.uint64():
            return array_of(data.view(np.uint64), absent)
        return pc.cast(array_of(data, absent), arrow_type)
    rows = words.shape[1]
    width = np.int64 if _is_large(arrow_type) else np.int32
    if form is Form.SHORT and rows and bool((words[0] >> 56 == 5).all()):  # IPv4: no search is necessary
        data, offsets = words[0].astype("<u4"), np.arange(0, 4 * rows + 4, 4).astype(width)
        return pa.Array.from_buffers(arrow_type, rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    packed = np.ascontiguousarray(words)
    lengths = (packed[0] >> 56 if form is Form.SHORT else packed[2]) - 1
    validity = lengths >= 0
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    unpack_strings(packed, rows, len(packed), offsets, data)
    absent_bits = None if validity.all() else pa.array(validity).buffers()[1]
    buffers = [absent_bits, pa.py_buffer(offsets.astype(width)), pa.py_buffer(data)]
    return pa.Array.from_buffers(arrow_type, rows, buffers)
