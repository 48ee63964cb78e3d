"""The bytes of one field to one value of a column: the abstract data types of RFC 7011 §6.1.

Every column is a row of an int64 matrix with a byte per value beside it that says whether there is one. A float is
its bits, an address three rows (version, upper and lower half), a text its number in the dictionary, a time
nanoseconds since the epoch. Integers may have any length (reduced-size encoding, RFC 7011 §6.2, and the longer ones
that exporters send); 64 bits are kept as they are, so that 2**63 and more are negative.
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u32be, u64be
from capture.flows.kernels.texts import intern
from capture.native import helper, outlined

(
    ABSENT, ABSENT_ADDRESS, UNSIGNED, SIGNED, FLOAT, BOOLEAN, ADDRESS4, ADDRESS6, ADDRESS6_ELSE, TEXT, OCTETS,
    SECONDS, MILLISECONDS, MICROSECONDS, NANOSECONDS, UPTIME, UPTIME_SINCE, BEFORE_EXPORT, LASTS_MS, LASTS_US,
    INIT_MS, RATE, RATE_PART, RATE_SPACE, RATE_POPULATION, RATE_KEY,
) = range(26)  # fmt: skip
"""What is done with a field. ADDRESS6_ELSE: only where the address written before is zero. UPTIME: ms of sysUpTime, by
the header's; UPTIME_SINCE: by the time the exporter was started. BEFORE_EXPORT: microseconds before the header's time.
LASTS: a duration. RATE…: how this record was sampled."""

MISSING = -(2**63)
"""What stands in a row of times where there is none."""

START, END, LASTS, SINCE, RATE_NUM, RATE_DEN, PART = range(7)
"""Rows of every matrix, before those of the columns: ns, ns, ns, ms, the packets that stand for so many sampled, and
the first half of a rate that is told in two. RATE_NUM is 0 where nothing is known."""

SCRATCH_ROWS = 7

NTP_EPOCH = 2_208_988_800
"""Seconds from 1900, where NTP counts from, to 1970."""

LATEST = 2**63 - 1
LATEST_MS = 9_223_372_036_854
"""The last nanosecond and millisecond that nanoseconds in 64 bits can say."""

LARGEST_RATE = 1 << 31

UNREADABLE = 0
"""Where `counts` counts the fields whose bytes are no value of their type."""


@helper
def unsigned(buf, at, length):  # type: ignore[no-untyped-def]
    """Up to eight bytes, network order, as their 64 bits."""
    value = np.int64(0)
    for index in range(length):
        value = value << 8 | np.int64(buf[at + index])
    return value


@helper
def ntp_time(buf, at, mask):  # type: ignore[no-untyped-def]
    """Eight bytes of NTP time to ns, rounded down (RFC 7011 §6.1.9 and §6.1.10); `mask` keeps bits of the fraction.

    Seconds before 1970 are of the next era, which begins in 2036.
    """
    seconds = u32be(buf, at) - NTP_EPOCH
    if seconds < 0:
        seconds += 1 << 32
    fraction = u32be(buf, at + 4) & mask
    return seconds * 1_000_000_000 + (fraction * 1_000_000_000 >> 32)


@outlined
def float_bits(buf, at, length):  # type: ignore[no-untyped-def]
    """Four or eight bytes of IEEE 754 as the 64 bits of a float64."""
    if length == 8:
        return np.int64(u64be(buf, at))
    bits = u32be(buf, at)
    sign = (bits >> 31) << 63
    exponent = bits >> 23 & 255
    mantissa = bits & 0x7FFFFF
    if exponent == 255:
        return sign | 0x7FF << 52 | mantissa << 29
    if exponent == 0:
        if mantissa == 0:
            return sign
        exponent = 1  # subnormal: shift until there is a leading one
        while mantissa < 0x800000:
            mantissa <<= 1
            exponent -= 1
        mantissa &= 0x7FFFFF
    return sign | (exponent + 896) << 52 | mantissa << 29


@helper
def uptime_time(value, uptime, milliseconds):  # type: ignore[no-untyped-def]
    """Time in ns of a sysUpTime `value`, where it was `uptime` (32 bits both) at `milliseconds` since the epoch.

    One that is ahead by more than half the range is from before the wrap.
    """
    ago = uptime - value
    if ago < -(1 << 31):
        ago += 1 << 32
    return (milliseconds - ago) * 1_000_000


@outlined
def write_value(  # type: ignore[no-untyped-def]
    buf, at, length, code, limit, place, row, out, valid, capacity, uptime, export, slots, ends, arena, used, counts
):
    """Write the field `buf[at:at + length]` as `code` says to `out[place]`; `place` is in column `row` of its row.

    A value that needs more than `limit` bits is none (0: any will do). `uptime` (ms) and `export` (ns) are those of
    the datagram's header. A field without bytes has no value, but for texts.
    """
    value = np.int64(0)
    known = 1
    if code in (TEXT, OCTETS):
        if code == TEXT:
            while length > 0 and buf[at + length - 1] == 0:  # padding of fixed lengths
                length -= 1
        value = intern(buf, at, length, slots, ends, arena, used)
    elif code == ABSENT or length == 0:
        known = 0
    elif code == FLOAT:
        known = 1 if length in (4, 8) else 2
        if known == 1:
            value = float_bits(buf, at, length)
    elif code in (MICROSECONDS, NANOSECONDS):
        known = 1 if length == 8 else 2
        if known == 1:
            value = ntp_time(buf, at, 0xFFFFF800 if code == MICROSECONDS else 0xFFFFFFFF)
    elif length > 8:
        known = 2
    else:
        value = unsigned(buf, at, length)
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
            known = 1 if 0 <= value <= LATEST_MS // 1000 else 2
            value = value * 1_000_000_000 if known == 1 else value
        elif code == MILLISECONDS:
            known = 1 if 0 <= value <= LATEST_MS else 2
            value = value * 1_000_000 if known == 1 else value
        elif code == INIT_MS:
            known = 1 if 0 <= value <= LATEST_MS else 2
        elif code in (LASTS_MS, LASTS_US):
            known = 1 if 0 <= value < 1 << 32 else 2
            value = value * (1_000_000 if code == LASTS_MS else 1000) if known == 1 else value
        elif code == BEFORE_EXPORT:
            known = 1 if 0 <= value < 1 << 32 else 2
            value = export - value * 1000 if known == 1 else value
        elif code == UPTIME:
            value = uptime_time(value & 0xFFFFFFFF, uptime, export // 1_000_000) + export % 1_000_000
        elif code == UPTIME_SINCE:
            since = out[SINCE * capacity + row]
            if since == MISSING:
                known = 0
            else:
                now = export // 1_000_000
                value = uptime_time(value & 0xFFFFFFFF, (now - since) & 0xFFFFFFFF, now)
    if known != 1:
        value = np.int64(MISSING)
    if known == 2:
        counts[UNREADABLE] += 1
    out[place] = value
    valid[place] = 1 if known == 1 else 0


@outlined
def write_address(buf, at, length, code, place, out, valid, capacity, counts):  # type: ignore[no-untyped-def]
    """Write an address to the rows of `out` that begin with `place`'s, as `code` says; version 0 is NULL."""
    if code == ADDRESS4 and length == 4:
        out[place] = 4
        out[place + capacity] = 0
        out[place + 2 * capacity] = u32be(buf, at)
        valid[place] = 1
    elif code in (ADDRESS6, ADDRESS6_ELSE) and length == 16:
        high = np.int64(u64be(buf, at))
        low = np.int64(u64be(buf, at + 8))
        empty = out[place + capacity] == 0 and out[place + 2 * capacity] == 0
        if code == ADDRESS6 or (empty and (high != 0 or low != 0)):
            out[place] = 6
            out[place + capacity] = high
            out[place + 2 * capacity] = low
            valid[place] = 1
    else:
        if code != ABSENT_ADDRESS and length:
            counts[UNREADABLE] += 1
        if code != ADDRESS6_ELSE:
            out[place] = 0
            out[place + capacity] = 0
            out[place + 2 * capacity] = 0
            valid[place] = 0


@outlined
def write_rate(value, code, row, out, capacity):  # type: ignore[no-untyped-def]
    """Take in one number of how a record was sampled, -1 for none; one that says nothing changes nothing."""
    num = RATE_NUM * capacity + row
    den = RATE_DEN * capacity + row
    part = out[PART * capacity + row]
    believed = 0 < value < LARGEST_RATE
    if code == RATE_PART:
        out[PART * capacity + row] = value if believed else 0
    elif code == RATE and believed:
        out[num] = value
        out[den] = 1
    elif code == RATE_SPACE and part > 0 and (believed or value == 0):
        out[num] = part + value
        out[den] = part
    elif code == RATE_POPULATION and part > 0 and believed and value >= part:
        out[num] = value
        out[den] = part
