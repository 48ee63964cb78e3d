"""Decoding of the records of one set: column by column for records of equal length, else record by record.

A layout (`capture.flows.layouts`) is a list of steps, one per output field. The STEP_WORDS words of a step are:

0. the code, see `kernels.values`
1. the field's offset in a record of fixed length
2. the field's length
3. the first output column to write: value i of column c is `out[c * capacity + i]`
4. the field's index in the template, for records of variable length
5. the offset of the value inside the field
6. the largest number of bits of a value (0: no limit), or the kind of a sampling key
"""

from __future__ import annotations

import numpy as np

from capture.bytes import u16be, u32be, u64be
from capture.flows.kernels.sessions import (
    DEFAULT_DEN,
    DEFAULT_NUM,
    ELSE_DEN,
    ELSE_NUM,
    FORCED_NUM,
    GUESSED,
    INIT,
    KEY_KINDS,
    KEYS,
    KEYS_END,
)
from capture.flows.kernels.values import (
    ABSENT,
    ABSENT_ADDRESS,
    ADDRESS4,
    ADDRESS6,
    ADDRESS6_ELSE,
    DURATION,
    END,
    LATEST,
    LATEST_MS,
    MILLISECONDS,
    MISSING,
    RATE,
    RATE_DEN,
    RATE_KEY,
    RATE_NUM,
    SINCE,
    START,
    UNREADABLE,
    UNSIGNED,
    UPTIME,
    unsigned,
    uptime_time,
    write_address,
    write_rate,
    write_value,
)
from capture.native import helper, outlined

STEP_WORDS = 7
"""Number of words of a step."""

VARIABLE_LENGTH = 65535
"""Length in a template that means: the record contains the length of the field."""

NEEDS_TIMES, SAMPLED = 1, 2
"""Flags of a layout. NEEDS_TIMES: records may lack a start or an end. SAMPLED: sampling rates are requested."""

KEY_WORDS = 4
"""Number of words of a sampling key: its kind, the ID, and the sampling rate as numerator and denominator."""


@outlined
def write_key_rate(sessions, session_row, keys, kind, value, row, out, capacity):  # type: ignore[no-untyped-def]
    """Write the sampling rate that the exporter announced for the key of a record: sampler, selector or interface.

    For an unknown key of an announced kind it is the ELSE rate.
    """
    if not sessions[session_row + KEY_KINDS] >> kind & 1:
        return
    num = sessions[session_row + ELSE_NUM]
    den = sessions[session_row + ELSE_DEN]
    for index in range(sessions[session_row + KEYS], sessions[session_row + KEYS_END]):
        if keys[index * KEY_WORDS] == kind and keys[index * KEY_WORDS + 1] == value:
            num = keys[index * KEY_WORDS + 2]
            den = keys[index * KEY_WORDS + 3]
    out[RATE_NUM * capacity + row] = num
    out[RATE_DEN * capacity + row] = den


@outlined
def write_field(  # type: ignore[no-untyped-def]
    buf, offset, length, code, limit, dest, row, sessions, session_row, keys, uptime, export_time, out, valid, capacity,
    text_slots, text_ends, text_bytes, text_used, counts
):  # fmt: skip
    """Run one step for one record, for any code (slow path)."""
    target = dest * capacity + row
    if code in (ADDRESS4, ADDRESS6, ADDRESS6_ELSE, ABSENT_ADDRESS):
        write_address(buf, offset, length, code, target, out, valid, capacity, counts)
    elif code == RATE_KEY:
        if 0 < length <= 8:
            write_key_rate(sessions, session_row, keys, limit, unsigned(buf, offset, length), row, out, capacity)
    elif code >= RATE:
        write_rate(unsigned(buf, offset, length) if 0 < length <= 8 else np.int64(-1), code, row, out, capacity)
    else:
        write_value(
            buf, offset, length, code, limit, target, row, out, valid, capacity, uptime, export_time, text_slots,
            text_ends, text_bytes, text_used, counts,
        )  # fmt: skip


@helper
def write_column(  # type: ignore[no-untyped-def]
    buf, offset, stride, length, code, limit, dest, row, rows, sessions, session_row, keys, uptime, export_time, out,
    valid, capacity, text_slots, text_ends, text_bytes, text_used, counts
):  # fmt: skip
    """Run one step for `rows` records that are `stride` bytes apart; the field of the first record is at `offset`.

    The most frequent codes have separate loops without tests inside.
    """
    target = dest * capacity + row
    if code == UNSIGNED and length <= 8 and not 0 < limit < 8 * length and length:
        if length == 4:
            for index in range(rows):
                out[target + index] = u32be(buf, offset + index * stride)
        elif length == 2:
            for index in range(rows):
                out[target + index] = u16be(buf, offset + index * stride)
        elif length == 1:
            for index in range(rows):
                out[target + index] = np.int64(buf[offset + index * stride])
        elif length == 8:
            for index in range(rows):
                out[target + index] = np.int64(u64be(buf, offset + index * stride))
        else:
            for index in range(rows):
                out[target + index] = unsigned(buf, offset + index * stride, length)
        for index in range(rows):
            valid[target + index] = 1
    elif code == ADDRESS4 and length == 4:
        for index in range(rows):
            out[target + 2 * capacity + index] = u32be(buf, offset + index * stride)
        for index in range(rows):
            out[target + index] = 4
            out[target + capacity + index] = 0
            valid[target + index] = 1
    elif code == UPTIME and length == 4:
        now = export_time // 1_000_000
        rest = export_time % 1_000_000
        for index in range(rows):
            out[target + index] = uptime_time(u32be(buf, offset + index * stride), uptime, now) + rest
            valid[target + index] = 1
    elif code == MILLISECONDS and length == 8:
        for index in range(rows):
            value = np.int64(u64be(buf, offset + index * stride))
            known = 0 <= value <= LATEST_MS
            counts[UNREADABLE] += 0 if known else 1
            out[target + index] = value * 1_000_000 if known else np.int64(MISSING)
            valid[target + index] = 1 if known else 0
    elif code == ABSENT:
        for index in range(rows):
            out[target + index] = MISSING
            valid[target + index] = 0
    else:
        for index in range(rows):
            write_field(
                buf, offset + index * stride, length, code, limit, dest, row + index, sessions, session_row, keys,
                uptime, export_time, out, valid, capacity, text_slots, text_ends, text_bytes, text_used, counts,
            )  # fmt: skip


@outlined
def prepare_rows(sessions, session_row, flags, row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """Fill rows with the sampling rate and the start of their exporter. Fields of records replace them."""
    if flags & SAMPLED:
        num = sessions[session_row + FORCED_NUM] or sessions[session_row + DEFAULT_NUM]
        den = np.int64(1) if sessions[session_row + FORCED_NUM] else sessions[session_row + DEFAULT_DEN]
        for index in range(row, row + rows):
            out[RATE_NUM * capacity + index] = num
            out[RATE_DEN * capacity + index] = den
    if flags & NEEDS_TIMES:
        since = sessions[session_row + INIT]
        for index in range(row, row + rows):
            out[SINCE * capacity + index] = since


@outlined
def fill_missing_times(sessions, session_row, export_time, row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """Fill in a missing start or end: by the other time and the duration, or the other time, or the export time."""
    guessed = 0
    for index in range(row, row + rows):
        start = out[START * capacity + index]
        end = out[END * capacity + index]
        duration = out[DURATION * capacity + index]
        if start == MISSING or end == MISSING:
            if duration != MISSING and start > LATEST - duration:
                duration = np.int64(MISSING)  # the end would overflow
            if end == MISSING:
                if start == MISSING:
                    end = export_time
                    guessed += 1
                elif duration == MISSING:
                    end = start
                    guessed += 1
                else:
                    end = start + duration
            elif duration == MISSING:
                guessed += 1
            if start == MISSING:
                start = end if duration == MISSING else end - duration
            out[START * capacity + index] = start
            out[END * capacity + index] = end
    sessions[session_row + GUESSED] += guessed


@outlined
def clear_unknown_rates(row, rows, out, capacity):  # type: ignore[no-untyped-def]
    """Replace unknown sampling rates by 0/1, which means unknown."""
    for index in range(row, row + rows):
        if out[RATE_NUM * capacity + index] <= 0 or out[RATE_DEN * capacity + index] <= 0:
            out[RATE_NUM * capacity + index] = 0
            out[RATE_DEN * capacity + index] = 1


@outlined
def write_fixed(  # type: ignore[no-untyped-def]
    buf, offset, stride, rows, steps, step, steps_end, sessions, session_row, keys, uptime, export_time, row, out,
    valid, capacity, text_slots, text_ends, text_bytes, text_used, counts
):  # fmt: skip
    """Write `rows` records of `stride` bytes from `buf[offset:]`, column by column."""
    forced = sessions[session_row + FORCED_NUM]
    kinds = sessions[session_row + KEY_KINDS]
    while step < steps_end:
        code = steps[step * STEP_WORDS]
        if code < RATE or not (forced or (code == RATE_KEY and not kinds >> steps[step * STEP_WORDS + 6] & 1)):
            write_column(
                buf, offset + steps[step * STEP_WORDS + 1] + steps[step * STEP_WORDS + 5], stride,
                steps[step * STEP_WORDS + 2], code, steps[step * STEP_WORDS + 6], steps[step * STEP_WORDS + 3], row,
                rows, sessions, session_row, keys, uptime, export_time, out, valid, capacity, text_slots, text_ends,
                text_bytes, text_used, counts,
            )  # fmt: skip
        step += 1


@outlined
def record_end(buf, offset, end, fields, first, count, field_positions):  # type: ignore[no-untyped-def]
    """Return the end of the record at `offset`, or -1 if it is beyond `end`.

    `fields[first:first + count]`: field lengths of the template. The offset in `buf` and the length of each field are
    written to `field_positions` (2 x count).
    """
    for index in range(count):
        length = fields[first + index]
        if length == VARIABLE_LENGTH:
            if offset + 1 > end:
                return np.int64(-1)
            length = np.int64(buf[offset])
            offset += 1
            if length == 255:
                if offset + 2 > end:
                    return np.int64(-1)
                length = u16be(buf, offset)
                offset += 2
        if offset + length > end:
            return np.int64(-1)
        field_positions[2 * index] = offset
        field_positions[2 * index + 1] = length
        offset += length
    return np.int64(offset)


@outlined
def write_variable(  # type: ignore[no-untyped-def]
    buf, field_positions, steps, step, steps_end, sessions, session_row, keys, uptime, export_time, row, out, valid,
    capacity, text_slots, text_ends, text_bytes, text_used, counts
):  # fmt: skip
    """Write one record whose fields are listed in `field_positions`."""
    forced = sessions[session_row + FORCED_NUM]
    while step < steps_end:
        code = steps[step * STEP_WORDS]
        field = steps[step * STEP_WORDS + 4]
        inside = steps[step * STEP_WORDS + 5]
        length = np.int64(0)
        offset = np.int64(0)
        if field >= 0:
            offset = field_positions[2 * field] + inside
            length = field_positions[2 * field + 1] - inside
            if inside or steps[step * STEP_WORDS + 2] != VARIABLE_LENGTH:
                length = min(length, steps[step * STEP_WORDS + 2])
        if not (forced and code >= RATE):
            write_field(
                buf, offset, max(length, 0), code, steps[step * STEP_WORDS + 6], steps[step * STEP_WORDS + 3], row,
                sessions, session_row, keys, uptime, export_time, out, valid, capacity, text_slots, text_ends,
                text_bytes, text_used, counts,
            )  # fmt: skip
        step += 1
