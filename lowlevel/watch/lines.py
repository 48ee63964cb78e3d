"""The lines of a watchlist, split in one pass: a word, and what stands behind it.

    203.0.113.0/24   Example Ltd.   # everything from here on is a comment

Blanks, tabs and a comma end the word. A word that is an IPv4 address or prefix is read here, as nearly all of a long
list are; anything else is left to whoever knows what it should be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capture.native import helper, kernel

LINE, BEGIN, END, LABEL, LABEL_END, CODE = range(6)
"""What `read_lines` says of a line: its number, the bytes of its word, those of what is behind, and the word's code."""

FIELDS = 6
OTHER = -1
"""The code of a word that is no IPv4 address or prefix."""

NEWLINE, TAB, RETURN, BLANK, HASH, COMMA, DOT, SLASH, ZERO, NINE = 10, 9, 13, 32, 35, 44, 46, 47, 48, 57


@helper
def is_blank(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is a blank, a tab or a carriage return."""
    return (byte == BLANK) | (byte == TAB) | (byte == RETURN)


@helper
def number_end(data, at, end, most):  # type: ignore[no-untyped-def]
    """Return where the decimal at `at` ends, `at` itself where there is none of up to `most` digits, or one of 0n."""
    stop = at
    while stop < end and stop - at <= most and data[stop] >= ZERO and data[stop] <= NINE:
        stop += 1
    if stop - at > most or (stop - at > 1 and data[at] == ZERO):
        return at
    return stop


@helper
def number_at(data, at, end):  # type: ignore[no-untyped-def]
    """Return the decimal in bytes `[at, end)`."""
    value = np.int64(0)
    for place in range(at, end):
        value = value * 10 + (np.int64(data[place]) - ZERO)
    return value


@helper
def four_code(data, begin, end):  # type: ignore[no-untyped-def]
    """Return `address << 6 | length` of the IPv4 address or prefix in `[begin, end)`, OTHER where it is none.

    An address alone has length 32; host bits that are set make it none.
    """
    address = 0
    at = begin
    for octet in range(4):
        if octet > 0:
            if at >= end or data[at] != DOT:
                return OTHER
            at += 1
        stop = number_end(data, at, end, 3)
        value = number_at(data, at, stop)
        if stop == at or value > 255:
            return OTHER
        address = address * 256 + value
        at = stop
    length = 32
    if at < end:
        if data[at] != SLASH:
            return OTHER
        stop = number_end(data, at + 1, end, 2)
        length = number_at(data, at + 1, stop)
        if stop == at + 1 or stop < end or length > 32:
            return OTHER
        if address & ((1 << (32 - length)) - 1):
            return OTHER
    return address << 6 | length


@kernel("i64(u8*, i64, i64*)")
def read_lines(data, size, out):  # type: ignore[no-untyped-def]
    """Say FIELDS numbers of each line of `data` that has a word, in `out`; return how many such lines there are.

    `out` has room for one more than there are line ends. What stands behind the word is stripped of blanks.
    """
    found = 0
    number = 0
    at = 0
    while at < size:
        number += 1
        end = at
        while end < size and data[end] != NEWLINE:
            end += 1
        stop = at
        while stop < end and data[stop] != HASH:
            stop += 1
        word = at
        while word < stop and is_blank(data[word]):
            word += 1
        while stop > word and is_blank(data[stop - 1]):
            stop -= 1
        if word < stop:
            word_end = word
            while word_end < stop and not (is_blank(data[word_end]) | (data[word_end] == COMMA)):
                word_end += 1
            label = word_end
            while label < stop and is_blank(data[label]):
                label += 1
            if label < stop and data[label] == COMMA:
                label += 1
                while label < stop and is_blank(data[label]):
                    label += 1
            base = found * FIELDS
            out[base + LINE] = number
            out[base + BEGIN] = word
            out[base + END] = word_end
            out[base + LABEL] = label
            out[base + LABEL_END] = stop
            out[base + CODE] = four_code(data, word, word_end)
            found += 1
        at = end + 1
    return found


@kernel("i64(u8*, i64*, i64, u8*, i64*)")
def gather_labels(data, lines, count, out, offsets):  # type: ignore[no-untyped-def]
    """Copy what stands behind the words of `count` lines into `out`, one after the other; return how many bytes.

    The first of line i are at `offsets[i]`, and `offsets` has one more number, where they end.
    """
    at = 0
    for line in range(count):
        offsets[line] = at
        for place in range(lines[line * FIELDS + LABEL], lines[line * FIELDS + LABEL_END]):
            out[at] = data[place]
            at += 1
    offsets[count] = at
    return at


def labels_of(data: bytes, lines: npt.NDArray[np.int64]) -> pa.LargeStringArray:
    """Return what stands behind the word of each line; `data` is to be UTF-8."""
    out, offsets = np.empty(len(data), np.uint8), np.empty(len(lines) + 1, np.int64)
    size = gather_labels(np.frombuffer(data, np.uint8), lines.reshape(-1), len(lines), out, offsets)
    buffers = [pa.py_buffer(offsets), pa.py_buffer(out[:size])]
    return pa.LargeStringArray.from_buffers(len(lines), *buffers)


def lines_of(data: bytes) -> npt.NDArray[np.int64]:
    """Return a row of FIELDS numbers for each line of `data` that says anything."""
    out = np.empty((data.count(b"\n") + 1, FIELDS), np.int64)
    return out[: read_lines(np.frombuffer(data, np.uint8), len(data), out.reshape(-1))]
