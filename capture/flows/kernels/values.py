"""Decoding of one field into one column value, by the abstract data types of RFC 7011 §6.1.

A column is a row of an int64 matrix, with a validity byte per value. A float is stored as its bits, a text as its
number in the dictionary, a time as nanoseconds since the epoch. An address has three rows: version, upper half, lower
half.

Integers may have any length: shorter by reduced-size encoding (RFC 7011 §6.2), or longer, as some exporters send them.
All 64 bits are stored unchanged, so values from 2**63 on become negative.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capture.bytes import u32be, u64be
from capture.flows.kernels.texts import TextTable, intern
from capture.native import Bytes, Integer, Integers, helper, outlined

(
    ABSENT, ABSENT_ADDRESS, UNSIGNED, SIGNED, FLOAT, BOOLEAN, ADDRESS4, ADDRESS6, ADDRESS6_ELSE, TEXT, OCTETS,
    SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS, UPTIME, UPTIME_SINCE, BEFORE_EXPORT, DURATION_MS, DURATION_US,
    INIT_MS, RATE, RATE_PART, RATE_SPACE, RATE_POPULATION, RATE_KEY,
) = range(26)  # fmt: skip
"""Codes of steps. ADDRESS6_ELSE: written only if the address written before is zero. UPTIME: ms of sysUpTime, converted
with the header's uptime. UPTIME_SINCE: converted with the start of the exporter. BEFORE_EXPORT: microseconds before the
export time. DURATION_MS, DURATION_US: a duration. RATE and following: the sampling of the record."""

MISSING_TIME = -(2**63)
"""Value of a missing time."""

START_ROW, END_ROW, DURATION_ROW, EXPORTER_START_ROW, RATE_NUMERATOR_ROW, RATE_DENOMINATOR_ROW, RATE_PART_ROW = range(7)
"""Scratch rows of every matrix, before the columns. START_ROW, END_ROW, DURATION_ROW: ns. EXPORTER_START_ROW: exporter
start, ms. RATE_NUMERATOR_ROW, RATE_DENOMINATOR_ROW: sampling rate, 0 / 1 if unknown. RATE_PART_ROW: first half of a
rate that has two fields."""

SCRATCH_ROWS = 7
"""Number of scratch rows."""

NTP_EPOCH = 2_208_988_800
"""Seconds from 1900, the NTP epoch, to 1970."""

MAX_TIME_NS = 2**63 - 1
MAX_TIME_MS = 9_223_372_036_854
"""Latest time that fits into 64 bits of nanoseconds, in ns and in ms."""

RATE_LIMIT = 1 << 31
"""The smallest number that is too large for the numerator or the denominator of a sampling rate."""

UNREADABLE_INDEX = 0
"""Index in `counts` of the number of fields whose bytes are not a valid value of their type."""


class Sender(NamedTuple):
    """The sender of a datagram, for kernels: its session, and the times in the header of the datagram.

    * `session_row`: the offset of the session in `sessions`. `keys`: the sampling keys of all sessions.
    * `uptime`: sysUpTime in ms. `export_time`: ns since the epoch.
    """

    sessions: Integers
    session_row: Integer
    keys: Integers
    uptime: Integer
    export_time: Integer


class FlowRows(NamedTuple):
    """The decoded rows, for kernels: value i of column c is `values[c * capacity + i]`, with a byte in `valid`.

    `counts`: a word for each name in `datagrams.COUNTER_NAMES`.
    """

    values: Integers
    valid: Bytes
    capacity: Integer
    counts: Integers


@helper
def unsigned(buf, offset, length):  # type: ignore[no-untyped-def]
    """Read up to eight bytes in network order, as 64 bits."""
    value = np.int64(0)
    for index in range(length):
        value = value << 8 | np.int64(buf[offset + index])
    return value


@helper
def ntp_time(buf, offset, mask):  # type: ignore[no-untyped-def]
    """Convert the NTP time in eight bytes to ns, rounded down (RFC 7011 §6.1.9 and §6.1.10).

    `mask`: valid bits of the fraction. Seconds before 1970 belong to the next era, which begins in 2036.
    """
    seconds = u32be(buf, offset) - NTP_EPOCH
    if seconds < 0:
        seconds += 1 << 32
    fraction = u32be(buf, offset + 4) & mask
    return seconds * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)


@outlined
def float_bits(buf, offset, length):  # type: ignore[no-untyped-def]
    """Convert an IEEE 754 number of four or eight bytes to the 64 bits of a float64."""
    if length == 8:
        return np.int64(u64be(buf, offset))
    bits = u32be(buf, offset)
    sign = (bits >> 31) << 63
    exponent = bits >> 23 & 255
    mantissa = bits & 0x7FFFFF
    if exponent == 255:
        return sign | 0x7FF << 52 | mantissa << 29
    if exponent == 0:
        if mantissa == 0:
            return sign
        exponent = 1  # subnormal: shift left until the leading bit is set
        while mantissa < 0x800000:
            mantissa <<= 1
            exponent -= 1
        mantissa &= 0x7FFFFF
    return sign | (exponent + 896) << 52 | mantissa << 29


@helper
def uptime_time(value, uptime, milliseconds):  # type: ignore[no-untyped-def]
    """Return the time in ns at which sysUpTime was `value`. It was `uptime` at `milliseconds` since the epoch.

    sysUpTime has 32 bits. A `value` that is larger by more than half the range is from before the wrap.
    """
    ago = uptime - value
    if ago < -(1 << 31):
        ago += 1 << 32
    return (milliseconds - ago) * 1_000_000


@outlined
def write_value(  # type: ignore[no-untyped-def]
    buf, offset, length, code, limit, target, row, sender: Sender, texts: TextTable, output: FlowRows
):  # fmt: skip
    """Decode the field `buf[offset:offset + length]` by `code` and write it to `target`, the index of the value.

    `row`: the row of the record. `limit`: maximum number of bits of the value, or 0; larger values are unreadable. A
    field of length 0 has no value, except for texts.
    """
    value = np.int64(0)
    known = 1
    if code in (TEXT, OCTETS):
        if code == TEXT:
            while length > 0 and buf[offset + length - 1] == 0:  # padding of fixed lengths
                length -= 1
        value = intern(buf, offset, length, texts)
    elif code == ABSENT or length == 0:
        known = 0
    elif code == FLOAT:
        known = 1 if length in (4, 8) else 2
        if known == 1:
            value = float_bits(buf, offset, length)
    elif code in (MICROSECONDS, NANOSECONDS):
        known = 1 if length == 8 else 2
        if known == 1:
            value = ntp_time(buf, offset, 0xFFFFF800 if code == MICROSECONDS else 0xFFFFFFFF)
    elif length > 8:
        known = 2
    else:
        value = unsigned(buf, offset, length)
        if code == UNSIGNED:
            if limit and value >> limit:
                known = 2
        elif code == SIGNED:
            shift = 64 - 8 * length
            value = (value << shift) >> shift
        elif code == BOOLEAN:
            known = 1 if value in (1, 2) else 2
            value = np.int64(value == 1)
        elif code == SECONDS:
            known = 1 if 0 <= value <= MAX_TIME_MS // 1000 else 2
            value = value * 1_000_000_000 if known == 1 else value
        elif code == MILLISECONDS:
            known = 1 if 0 <= value <= MAX_TIME_MS else 2
            value = value * 1_000_000 if known == 1 else value
        elif code == INIT_MS:
            known = 1 if 0 <= value <= MAX_TIME_MS else 2
        elif code in (DURATION_MS, DURATION_US):
            known = 1 if 0 <= value < 1 << 32 else 2
            value = value * (1_000_000 if code == DURATION_MS else 1000) if known == 1 else value
        elif code == BEFORE_EXPORT:
            known = 1 if 0 <= value < 1 << 32 else 2
            value = sender.export_time - value * 1000 if known == 1 else value
        elif code == UPTIME:
            now = sender.export_time // 1_000_000
            value = uptime_time(value & 0xFFFFFFFF, sender.uptime, now) + sender.export_time % 1_000_000
        elif code == UPTIME_SINCE:
            since = output.values[EXPORTER_START_ROW * output.capacity + row]
            if since == MISSING_TIME:
                known = 0
            else:
                now = sender.export_time // 1_000_000
                value = uptime_time(value & 0xFFFFFFFF, (now - since) & 0xFFFFFFFF, now)
    if known != 1:
        value = np.int64(MISSING_TIME)
    if known == 2:
        output.counts[UNREADABLE_INDEX] += 1
    output.values[target] = value
    output.valid[target] = 1 if known == 1 else 0


@outlined
def write_address(buf, offset, length, code, target, output: FlowRows):  # type: ignore[no-untyped-def]
    """Decode an address by `code` and write it to three columns, the first at `target`. Version 0 means NULL."""
    if code == ADDRESS4 and length == 4:
        output.values[target] = 4
        output.values[target + output.capacity] = 0
        output.values[target + 2 * output.capacity] = u32be(buf, offset)
        output.valid[target] = 1
    elif code in (ADDRESS6, ADDRESS6_ELSE) and length == 16:
        high = np.int64(u64be(buf, offset))
        low = np.int64(u64be(buf, offset + 8))
        empty = output.values[target + output.capacity] == 0 and output.values[target + 2 * output.capacity] == 0
        if code == ADDRESS6 or (empty and (high != 0 or low != 0)):
            output.values[target] = 6
            output.values[target + output.capacity] = high
            output.values[target + 2 * output.capacity] = low
            output.valid[target] = 1
    else:
        if code != ABSENT_ADDRESS and length:
            output.counts[UNREADABLE_INDEX] += 1
        if code != ADDRESS6_ELSE:
            output.values[target] = 0
            output.values[target + output.capacity] = 0
            output.values[target + 2 * output.capacity] = 0
            output.valid[target] = 0


@outlined
def write_rate(value, code, row, output: FlowRows):  # type: ignore[no-untyped-def]
    """Update the sampling rate of a row with a field's value, -1 for none. Invalid values have no effect."""
    num = RATE_NUMERATOR_ROW * output.capacity + row
    den = RATE_DENOMINATOR_ROW * output.capacity + row
    part = output.values[RATE_PART_ROW * output.capacity + row]
    valid_rate = 0 < value < RATE_LIMIT
    if code == RATE_PART:
        output.values[RATE_PART_ROW * output.capacity + row] = value if valid_rate else 0
    elif code == RATE and valid_rate:
        output.values[num] = value
        output.values[den] = 1
    elif code == RATE_SPACE and part > 0 and (valid_rate or value == 0):
        output.values[num] = part + value
        output.values[den] = part
    elif code == RATE_POPULATION and part > 0 and valid_rate and value >= part:
        output.values[num] = value
        output.values[den] = part
